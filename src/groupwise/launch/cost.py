"""What a run has cost so far, beside the numbers of every step: seconds, sampled tokens, and both against the plan.

    spent_seconds          on the clock while a process of the run was alive: a restart goes on from what was spent, and
                           an attempt that was not finished was paid for, too
    spent_rollout_tokens   of every completion that was sampled to learn from and is on record; held-out evaluations and
                           completions that only choose among prompts, count in seconds alone
    spent_frac_of_plan     spent_seconds / the planned seconds of the run; absent where nobody could plan them
    spent_price            spent_seconds times the planned price of a second; absent without a price

A budget counts something else, see spending.py: the work of finished stages, evaluations left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs import RunDirectory, read_metrics
from groupwise.runs.record import EVALUATION
from groupwise.runs.trackers import ClosingRecorder
from groupwise.types import Group, Recorder


class CostRecorder:
    """A recorder whose rows of metrics tell what was spent; all else goes through unchanged.

    Example:
        recorder = with_costs(recorder, directory)
        recorder.metrics("grpo", 3, {"loss": 0.1})      # and spent_seconds, spent_rollout_tokens, ...
    """

    def __init__(
        self, inner: Recorder, directory: RunDirectory, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner = inner
        self._directory = directory
        self._clock = clock
        self._started = clock()
        before, tokens = _spent_before(directory)
        self._before = before
        self._tokens = tokens
        self._plan: tuple[float | None, float | None] | None = None

    @property
    def spent_seconds(self) -> float:
        """Of the run until now."""
        return self._before + self._clock() - self._started

    @property
    def planned_seconds(self) -> float | None:
        """Of the whole run; None where nobody could plan them. Read once, when it is first asked for."""
        if self._plan is None:
            self._plan = _planned(self._directory.plan)
        return self._plan[0]

    def spent(self) -> dict[str, float]:
        """The numbers that a row gets now."""
        seconds, planned = self.spent_seconds, self.planned_seconds
        values = {"spent_seconds": seconds, "spent_rollout_tokens": float(self._tokens)}
        if planned:
            values["spent_frac_of_plan"] = seconds / planned
            price = self._plan[1] if self._plan is not None else None
            if price is not None:
                values["spent_price"] = seconds / planned * price
        return values

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See Recorder."""
        self._inner.metrics(stage, step, {**values, **self.spent()})

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """See Recorder."""
        if not stage.startswith(EVALUATION):
            self._tokens += sum(len(r.completion.token_ids) for group in groups for r in group.rollouts)
        self._inner.rollouts(stage, step, groups, advantages, left_out=left_out)

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """See Recorder."""
        self._inner.event(name, payload)

    def close(self) -> None:
        """See runs.trackers.ClosingRecorder."""
        if isinstance(self._inner, ClosingRecorder):
            self._inner.close()


def with_costs(recorder: Recorder, directory: RunDirectory) -> CostRecorder:
    """The recorder of a run that begins, or goes on, now."""
    return CostRecorder(recorder, directory)


def _spent_before(directory: RunDirectory) -> tuple[float, int]:
    """Seconds and tokens of the run's earlier processes: the most that any row of them tells, because what was spent
    only grows. What is unreadable tells nothing: costs must not keep a run from going on."""
    rows = [
        row
        for path in (directory.metrics, *directory.path.glob(f"abandoned-*/{directory.metrics.name}"))
        for row in _rows(path)
    ]
    seconds = max((float(row.get("spent_seconds") or 0.0) for row in rows), default=0.0)
    return seconds, max((int(row.get("spent_rollout_tokens") or 0) for row in rows), default=0)


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        yield from read_metrics(path) if path.exists() else ()
    except DataError:
        return


def _planned(path: Path) -> tuple[float | None, float | None]:
    """(seconds, price) of plan.json."""
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        return plan["seconds"] or None, plan["price"]
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
