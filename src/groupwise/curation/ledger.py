"""The history of every prompt over a run, and the order in which prompts are sampled.

A prompt that every rollout solves, or none does, teaches nothing: its group is dead. After a number of such visits in
a row the prompt is set aside, with the reason on record. It is not forgotten: a later visit with a mixed group (a
re-probe) makes it active again.

The ledger owns the sampling order too, because "each active prompt once an epoch" depends on who is active. All of
it goes into a checkpoint: a resumed run asks for the same prompts as one that was never interrupted.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from groupwise.errors import DataError


class PromptState(StrEnum):
    """Whether a prompt is sampled, and if not, why."""

    ACTIVE = "active"
    """Sampled once an epoch."""
    ALWAYS_SOLVED = "always_solved"
    """Set aside: solved by every scored rollout on the last visits."""
    NEVER_SOLVED = "never_solved"
    """Set aside: solved by no scored rollout on the last visits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """What is known of one prompt.

    Example:
        PromptRow(solved=9, scored=16, visits=2, visits_at_one=1)   # 1 of 8, then 8 of 8
    """

    solved: int = 0
    """Rollouts that solved it, all visits together."""
    scored: int = 0
    """Rollouts with a verdict, all visits together."""
    visits: int = 0
    """Groups with 2 or more scored rollouts."""
    visits_at_zero: int = 0
    """Latest visits in a row on which nothing solved it."""
    visits_at_one: int = 0
    """Latest visits in a row on which everything solved it."""
    state: PromptState = PromptState.ACTIVE
    since_step: int | None = None
    """The step at which it was set aside; None while active."""


class PromptLedger:
    """One row a prompt. It owns the state of prompt sampling; `record` and `next_batch` change it.

    Example:
        ledger = PromptLedger(["q1", "q2", "q3"], seed=17, retire_after_visits=2)
        for task_id in ledger.next_batch(2):
            ledger.record(task_id, solved=0, scored=8, step=1)
    """

    def __init__(self, task_ids: Sequence[str], *, seed: int, retire_after_visits: int = 0) -> None:
        """Set a prompt aside after retire_after_visits dead visits in a row; 0 never does.

        Raises:
            DataError: if task_ids is empty or names a task twice.
            ValueError: if retire_after_visits is negative.
        """
        if not task_ids:
            raise DataError("the prompt ledger got no tasks; check the training file and the curation settings")
        twice = [task_id for task_id, count in Counter(task_ids).items() if count > 1]
        if twice:
            raise DataError(f"task id {twice[0]!r} occurs more than once; give every row of the data its own id")
        if retire_after_visits < 0:
            raise ValueError(f"retire_after_visits must be 0 (never) or more, got {retire_after_visits}")
        self.seed = seed
        self.retire_after_visits = retire_after_visits
        self._rows = {task_id: PromptRow() for task_id in task_ids}
        self._epoch = 0
        self._pending: deque[str] = deque()

    @property
    def rows(self) -> Mapping[str, PromptRow]:
        """Every prompt's row by task id, in the order of the data."""
        return dict(self._rows)

    @property
    def epoch(self) -> int:
        """Shuffles begun so far; 0 before the first batch."""
        return self._epoch

    def record(self, task_id: str, *, solved: int, scored: int, step: int) -> None:
        """Enter one group. With fewer than 2 scored rollouts it adds to the totals but is no visit.

        Raises:
            ValueError: unless 0 <= solved <= scored.
            KeyError: if the ledger does not hold task_id.
        """
        if not 0 <= solved <= scored:
            raise ValueError(f"record: expected 0 <= solved <= scored, got {solved} of {scored} for {task_id!r}")
        row = self._rows[task_id]
        row = replace(row, solved=row.solved + solved, scored=row.scored + scored)
        if scored >= 2:
            row = replace(
                row,
                visits=row.visits + 1,
                visits_at_zero=row.visits_at_zero + 1 if solved == 0 else 0,
                visits_at_one=row.visits_at_one + 1 if solved == scored else 0,
            )
        state = self._state_of(row)
        if state is not row.state:
            row = replace(row, state=state, since_step=None if state is PromptState.ACTIVE else step)
        self._rows[task_id] = row

    def active(self, task_ids: Iterable[str]) -> list[str]:
        """Those of task_ids that are still sampled, in the given order."""
        return [task_id for task_id in task_ids if self._is_active(task_id)]

    def set_aside(self) -> dict[str, int]:
        """Prompts set aside, counted by reason: {"always_solved": 3, "never_solved": 1}."""
        counts = Counter(row.state for row in self._rows.values())
        return {state.value: counts[state] for state in PromptState if state is not PromptState.ACTIVE}

    def next_batch(self, num_prompts: int) -> list[str]:
        """The next active prompts of a seeded shuffle, which is redrawn each epoch.

        Every prompt that stays active comes once an epoch. No batch holds a prompt twice: where a batch crosses into
        the next epoch, a prompt that it already holds waits for the batch after. With fewer than num_prompts active
        prompts the batch holds them all; with none it is empty.

        Raises:
            ValueError: if num_prompts < 1.
        """
        if num_prompts < 1:
            raise ValueError(f"next_batch: num_prompts must be 1 or more, got {num_prompts}")
        size = min(num_prompts, len(self.active(self._rows)))
        batch: dict[str, None] = {}
        waiting: list[str] = []
        while len(batch) < size:
            if not self._pending:
                self._begin_epoch()
            task_id = self._pending.popleft()
            if task_id in batch:
                waiting.append(task_id)
            elif self._is_active(task_id):
                batch[task_id] = None
        self._pending.extendleft(reversed(waiting))
        return list(batch)

    def state(self) -> dict[str, Any]:
        """Everything, as JSON-able values, for a checkpoint."""
        return {
            "seed": self.seed,
            "retire_after_visits": self.retire_after_visits,
            "epoch": self._epoch,
            "pending": list(self._pending),
            "rows": {task_id: asdict(row) | {"state": row.state.value} for task_id, row in self._rows.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PromptLedger:
        """The ledger that `state` described; it goes on exactly as the other would have.

        Raises:
            DataError: if state is not what `state` returns.
        """
        try:
            rows = {
                task_id: PromptRow(**{**row, "state": PromptState(row["state"])})
                for task_id, row in state["rows"].items()
            }
            ledger = cls(list(rows), seed=state["seed"], retire_after_visits=state["retire_after_visits"])
            ledger._rows = rows
            ledger._epoch = state["epoch"]
            ledger._pending = deque(state["pending"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"the prompt ledger of the checkpoint cannot be read ({type(error).__name__}: {error}); "
                "resume from another checkpoint"
            ) from error
        return ledger

    def _is_active(self, task_id: str) -> bool:
        return self._rows[task_id].state is PromptState.ACTIVE

    def _state_of(self, row: PromptRow) -> PromptState:
        if self.retire_after_visits and row.visits_at_zero >= self.retire_after_visits:
            return PromptState.NEVER_SOLVED
        if self.retire_after_visits and row.visits_at_one >= self.retire_after_visits:
            return PromptState.ALWAYS_SOLVED
        return PromptState.ACTIVE

    def _begin_epoch(self) -> None:
        """Shuffle all prompts, set aside or not: the order then depends on the seed and the epoch alone."""
        self._epoch += 1
        order = list(self._rows)
        random.Random(f"{self.seed}:{self._epoch}").shuffle(order)
        self._pending.extend(order)
