"""Where the time of a step goes: every second of it belongs to exactly one phase.

    generate   sampling completions                      told by the algorithm (rollout/collect.py)
    judge      the verifier                              told by the algorithm
    score      forwards without gradient, whose log-probabilities, values or rewards the loss reads: PPO's networks, the
               reference of a KL in the reward, the old policy of a batch that is used more than once
    train      forward, loss, backward and update, and the comparison of the weights with those before it
    sync       the new weights reach the engine
    record     this step's rollouts, and the row of numbers of the step before: a row cannot hold the time that writing
               it takes
    other      all else: choosing prompts, advantages, putting batches together; in the first row
               also what a stage sets up, such as optimizers and a reference

They sum to `step`. What the caller does between steps (evaluations, a progress bar) and checkpoints belong to no step;
a checkpoint's event has its seconds. So the steps of a stage, collections that were no step, evaluations and
checkpoints together are its time on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

SECONDS = "seconds_"
"""Stands before the name of a phase in a row of metrics."""


def _now() -> float:
    return time.monotonic()


@dataclass(slots=True)
class PhaseClock:
    """Runs from the moment it is made.

    Example:
        clock.lap("other", inside={"seconds_generate": 3.0, "seconds_judge": 0.2})    # 3.5 s have passed
        clock.row("train")                                                            # 2.0 s more
        # {"seconds_generate": 3.0, "seconds_judge": 0.2, "seconds_other": 0.3, "seconds_train": 2.0,
        #  "seconds_step": 5.5}
    """

    _seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=_now)

    def lap(self, phase: str, *, inside: Mapping[str, float] | None = None) -> None:
        """The time since the last call belongs to `phase`, less what metrics named seconds_<phase> in `inside` say."""
        told = {name: value for name, value in (inside or {}).items() if name.startswith(SECONDS)}
        for name, value in told.items():
            self._add(name, value)
        self._add(SECONDS + phase, self._passed() - sum(told.values()))

    def skip(self) -> float:
        """The time since the last call belongs to no step; it is returned."""
        return self._passed()

    def row(self, phase: str) -> dict[str, float]:
        """A lap of `phase`, and then the seconds of each phase since the last row, and their sum."""
        self.lap(phase)
        row = {**self._seconds, SECONDS + "step": sum(self._seconds.values())}
        self._seconds = {}
        return row

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _passed(self) -> float:
        now = _now()
        passed, self._since = now - self._since, now
        return passed
