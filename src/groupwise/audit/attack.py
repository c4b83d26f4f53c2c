"""A text that must not be paid, and the tools to make such texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from groupwise.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One wrong completion made on purpose.

    Example:
        Attack(name="limit_trick", text="SELECT name FROM singer LIMIT 4", why="LIMIT equals the number of rows")
    """

    name: str
    """Stable, so that attacks can be counted over tasks."""
    text: str
    why: str
    """What makes it wrong, for the reader of a report."""
    may_pass: bool = False
    """True where the text may happen to be right (its rows may be ordered already): told, and never a no-go."""


AttackMaker = Callable[[Task, str], list[Attack]]
"""(task, gold) -> attacks; pure but for reading what the gold returns; the gold is "" where none is known."""


def prompt_text(task: Task) -> str:
    """The prompt as one text; of chat turns, the last one."""
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]


def distinct_attacks(attacks: list[Attack], gold: str) -> list[Attack]:
    """Without texts that are the gold's, and each text once."""
    kept: dict[str, Attack] = {}
    for attack in attacks:
        if attack.text.strip() != gold.strip():
            kept.setdefault(attack.text, attack)
    return list(kept.values())
