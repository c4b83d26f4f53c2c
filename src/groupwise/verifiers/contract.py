"""What every verifier offers beyond judging: it proves its tasks, names its version, and frees what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from groupwise.errors import VerifierError
from groupwise.types import Task, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableGold:
    """A task that cannot be judged: UnusableGold(task_id="q7", reason="gold_empty: no rows on any of 4 snapshots")."""

    task_id: str
    reason: str
    """Starts with a stable word, as a verdict's reason does."""
    blocking: bool = True
    """False for a weakness: the task can be judged, but a wrong answer may pass."""


class TaskVerifier(Verifier, Protocol):
    """The verifier of a recipe. judge and gold are the Verifier's."""

    @property
    def version(self) -> str:
        """A short hash of the code and the settings that decide verdicts: equal versions give equal verdicts."""
        ...

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """The tasks whose gold is missing, empty, or does not earn reward 1; an empty list where all are usable."""
        ...

    def close(self) -> None:
        """Ends processes and files; safe to call twice."""
        ...


def gold_text(task: Task, column: str) -> str:
    """The text of a task's gold column, for kinds of truth that cannot make a right completion themselves.

    Raises:
        VerifierError: if the column holds no text.
    """
    gold = task.columns.get(column)
    if not isinstance(gold, str) or not gold.strip():
        known = ", ".join(sorted(task.columns)) or "none"
        raise VerifierError(
            f"gold_missing: task {task.id!r} has no text in column {column!r} (columns: {known}); "
            "set gold_column to the column with a right completion"
        )
    return gold
