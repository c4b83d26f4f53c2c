"""Collecting until there is something to learn from: a collection without any gradient is no step.

Nothing is updated by it, and the step counter, the learning rate and the policy version stay as they are. What it
sampled is on record all the same: its numbers and rollouts stand under the stage's name with NO_SIGNAL behind it, by
the number of the collection. Too many of them in a row end the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.no_signal import SET_ASIDE, EmptyCollections, diagnosis, nothing_left
from groupwise.training.phases import PhaseClock
from groupwise.training.process_memory import peak_bytes
from groupwise.types import Recorder

NO_SIGNAL = "-no-signal"
"""Behind a stage's name: what is recorded of collections that were no step."""

OnEmpty = Callable[[int, Mapping[str, float]], None]
"""Called as on_empty(how many in a row, metrics) after a collection that was no step."""


@dataclass(slots=True, kw_only=True)
class SignalSearch:
    """The collections of one stage. It owns their number; `next` changes it."""

    stage: str
    algorithm: Algorithm
    recorder: Recorder
    max_empty_steps: int
    """The stage ends after this many collections in a row without any gradient, 1 or more."""
    should_stop: Callable[[], bool]
    clock: PhaseClock
    """That of the stage's steps; a collection that is no step gets a row of its own from it."""
    on_empty: OnEmpty | None = None
    num_collections: int = 0
    ended_by: str = ""
    """Why `next` found nothing, and what to change; empty while it finds something, or where it was asked to stop."""
    _last_metrics: Mapping[str, float] = field(default_factory=dict)
    _began_at: float | None = None
    """Pass rate of the first collection."""

    def next(self, step: int, policy_version: int) -> Collected | None:
        """What step number `step`, from 1, learns from: a batch is there. None where the stage has to end."""
        empty = EmptyCollections()
        while True:
            collected = self.algorithm.collect(self.num_collections)
            self.clock.lap("other", inside=None if collected is None else collected.metrics)
            if collected is None:
                self._end("nothing_left", step, nothing_left(self._last_metrics, empty))
                return None
            self.num_collections += 1
            self._last_metrics = collected.metrics
            if self._began_at is None:
                self._began_at = collected.metrics.get("pass_rate")
            if collected.batch is not None:
                return collected
            empty = empty.plus(collected.groups)
            metrics = {**collected.metrics, **standing(policy_version, updated=False)}
            self._record(collected, metrics)
            if self.on_empty is not None:
                self.on_empty(empty.num_collections, metrics)
            self.clock.skip()
            if empty.num_collections >= self.max_empty_steps:
                retired = self._last_metrics.get(SET_ASIDE + "always_solved", 0.0)  # what is left is harder, then
                self._end("no_signal", step, diagnosis(empty, None if retired else self._began_at))
                return None
            if self.should_stop():
                return None

    def _record(self, collected: Collected, metrics: Mapping[str, float]) -> None:
        """Under names of their own: a later collection of the same step must not replace these."""
        stage = self.stage + NO_SIGNAL
        number = self.num_collections
        if collected.groups:
            self.recorder.rollouts(stage, number, collected.groups, collected.advantages, left_out=collected.left_out)
        self.recorder.metrics(stage, number, {**metrics, **self.clock.row("record")})
        self.clock.lap("record")

    def _end(self, event: str, step: int, why: str) -> None:
        self.ended_by = why
        self.recorder.event(event, {"stage": self.stage, "step": step, "diagnosis": why})


def standing(policy_version: int, *, updated: bool) -> dict[str, float]:
    """What the end of any collection reports, whether or not it was a step."""
    return {
        "updated": float(updated),
        "policy_version": float(policy_version),
        "memory_bytes": float(peak_bytes()),
    }
