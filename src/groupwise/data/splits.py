"""Dividing rows into held-out, demonstration and training sets, and proving that nothing leaks between sets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import DataError
from groupwise.types import Task

from .options import Split
from .sources import Row, listing


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSets:
    """The three sets of a recipe.

    Example:
        TaskSets(demonstrations=(), train=(task_1, task_2), heldout=(task_3,))
    """

    demonstrations: tuple[Task, ...]
    """Each has a demonstration. Empty where the recipe names none."""
    train: tuple[Task, ...]
    """Empty only where the recipe names demonstrations and no training tasks."""
    heldout: tuple[Task, ...]
    """Never trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSets:
    """Rows divided: RowSets(demonstrations=(), train=(row_2, row_3), heldout=(row_1,))."""

    demonstrations: tuple[Row, ...]
    train: tuple[Row, ...]
    heldout: tuple[Row, ...]


def split_rows(rows: Sequence[Row], split: Split, seed: int) -> RowSets:
    """Divide rows at random, whole groups at a time.

    A group is the rows with one value in `split.group_by`; None = every row is its own group. Groups are shuffled with
    the seed and given out in the order held-out, demonstrations, train, so the held-out set depends on its own size and
    the seed only. A set takes groups until it has its number; what its last group has too many is left out, because
    no other set may have it.

    Raises:
        DataError: a row without the group_by column, or not enough rows or groups.
    """
    groups: dict[str, list[Row]] = {}
    for index, row in enumerate(rows):
        key = str(index) if split.group_by is None else _comparable(row.value(split.group_by))
        groups.setdefault(key, []).append(row)
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    heldout, order = _take(order, split.heldout, "data.split.heldout", len(rows), len(groups), split.group_by)
    demonstrations, order = _take(
        order, split.demonstrations, "data.split.demonstrations", len(rows), len(groups), split.group_by
    )
    left = sum(len(group) for group in order)
    wanted = max(left, 1) if split.train is None else split.train
    train, _ = _take(order, wanted, "data.split.train", len(rows), len(groups), split.group_by)
    return RowSets(demonstrations=demonstrations, train=train, heldout=heldout)


def _take(
    groups: list[list[Row]], number: int, setting: str, num_rows: int, num_groups: int, group_by: str | None
) -> tuple[tuple[Row, ...], list[list[Row]]]:
    taken: list[Row] = []
    for used, group in enumerate(groups):
        if len(taken) >= number:
            return tuple(taken[:number]), groups[used:]
        taken.extend(group)
    if len(taken) < number:
        grouped = f" in {num_groups} groups by {group_by!r}" if group_by else ""
        raise DataError(
            f"{setting} needs {number} rows and {len(taken)} are left of {num_rows}{grouped}. "
            "Lower the numbers in [data.split], or give more rows."
        )
    return tuple(taken[:number]), []


def shared_values(sets: TaskSets, column: str) -> frozenset[str]:
    """Values of a column that stand in the held-out set and also in demonstrations or train, as JSON text.

    Raises:
        DataError: a task without that column.
    """
    seen = _values(sets.demonstrations, column) | _values(sets.train, column)
    return frozenset(seen & _values(sets.heldout, column))


def _values(tasks: Iterable[Task], column: str) -> set[str]:
    values: set[str] = set()
    for task in tasks:
        if column not in task.columns:
            raise DataError(f"task {task.id}: no column {column!r}. {listing(column, task.columns)}")
        values.add(_comparable(task.columns[column]))
    return values


def refuse_leaks(sets: TaskSets) -> None:
    """Held-out prompts that are trained on measure memory.

    Two prompts count as the same where their texts are equal after case and white space are evened out.

    Raises:
        DataError: with the number of held-out tasks concerned and one of them.
    """
    trained = {prompt_key(task): task.id for task in (*sets.demonstrations, *sets.train)}
    leaked = [task for task in sets.heldout if prompt_key(task) in trained]
    if leaked:
        first = leaked[0]
        raise DataError(
            f"{len(leaked)} of {len(sets.heldout)} held-out prompts are also in train or demonstrations, for instance "
            f"{first.id} = {trained[prompt_key(first)]}: {_last_text(first)[-120:]!r}.\n"
            "  Remove them from one side; with [data.split], set group_by to the column that makes the prompts equal."
        )


def prompt_key(task: Task) -> str:
    """The prompt's text with case and white space evened out; of chat turns, every turn with its role."""
    text = (
        task.prompt if isinstance(task.prompt, str) else "\n".join(f"{m['role']}: {m['content']}" for m in task.prompt)
    )
    return " ".join(text.casefold().split())


def _last_text(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]


def _comparable(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
