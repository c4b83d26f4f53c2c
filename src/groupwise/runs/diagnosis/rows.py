"""What the rules of a diagnosis read from a record: the rows of a stage, means and shares over them, settings.

A number that a row lacks, or that was not finite (null), is left out of every mean; where no row has it the mean is
None, and a rule then finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.record import RecordedRollout, RunRecord

Row = Mapping[str, Any]

RECENT = 10
"""Collections that "lately" means: enough completions to count, few enough that a fault which came late shows."""
SHOWN_TEXT = 100
"""Characters of an answer, a reason or a gold that a finding shows."""
FROM_ROLLOUTS = ("grpo", "ppo")
"""Algorithms that sample and judge while they train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows:
    """One stage of the recipe and what it recorded.

    Example:
        StageRows(name="grpo", table={"steps": 30, "optim": {"lr": 2e-5}, ...}, steps=[...], collections=[...])
    """

    name: str
    table: Mapping[str, Any]
    """The [[stages]] table."""
    steps: Sequence[Row]
    collections: Sequence[Row]
    """The steps, and the collections without a gradient, by time."""

    @property
    def algorithm(self) -> str:
        """Its name: sft, grpo, ppo, dpo or reward_model."""
        return str(self.setting("algorithm.name"))

    @property
    def last_step(self) -> int | None:
        """The last step that was made; None before the first."""
        return int(self.steps[-1]["step"]) if self.steps else None

    def setting(self, path: str) -> Any:
        """A setting of the stage, such as optim.lr; None where it is not there."""
        return lookup(self.table, path)


def stage_rows(record: RunRecord, *algorithms: str) -> Iterator[StageRows]:
    """The stages with one of these algorithms that have recorded something, in the order of the recipe."""
    for table in record.stages:
        name = str(table.get("name", ""))
        collections = record.collections(name)
        if collections and lookup(table, "algorithm.name") in algorithms:
            yield StageRows(name=name, table=table, steps=record.steps(name), collections=collections)


def lookup(table: Mapping[str, Any], path: str) -> Any:
    """table["a"]["b"] for "a.b"; None where it is not there."""
    found: Any = table
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """The finite values of one metric."""
    values = [row.get(name) for row in rows]
    return [float(v) for v in values if isinstance(v, int | float) and math.isfinite(v)]


def mean(rows: Sequence[Row], name: str) -> float | None:
    """The mean over the rows that have it."""
    values = numbers(rows, name)
    return fmean(values) if values else None


def total(rows: Sequence[Row], name: str) -> float:
    """The sum over the rows that have it."""
    return sum(numbers(rows, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many rollouts, which came in so many groups: Share(count=58.0, of=64.0, groups=8.0)."""

    count: float
    of: float
    groups: float

    @property
    def value(self) -> float:
        """count / of; 0 where nothing was counted."""
        return self.count / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{self.count:.0f} of {self.of:.0f} completions"


def share(rows: Sequence[Row], name: str) -> Share | None:
    """A share of rollouts over several collections, each weighted by its rollouts; None where no row has it."""
    seen = [row for row in rows if numbers([row], name) and numbers([row], "num_rollouts")]
    if not seen:
        return None
    return Share(
        count=sum(float(row[name]) * float(row["num_rollouts"]) for row in seen),
        of=total(seen, "num_rollouts"),
        groups=total(seen, "num_groups"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """A mean over prompts and their number: PassRate(value=0.5, groups=16.0)."""

    value: float
    groups: float

    @property
    def error(self) -> float:
        """Standard error as if every prompt's completions agreed, the widest there is; never 0."""
        smoothed = (self.value * self.groups + 1) / (self.groups + 2)
        return math.sqrt(smoothed * (1 - smoothed) / max(self.groups, 1.0))


def pass_rate(rows: Sequence[Row]) -> PassRate | None:
    """Over all judged groups of these collections; None where nothing was judged."""
    seen = [row for row in rows if numbers([row], "pass_rate") and numbers([row], "num_groups")]
    judged = [float(row["num_groups"]) - float(row.get("unscored_groups") or 0) for row in seen]
    if not sum(judged):
        return None
    solved = sum(float(row["pass_rate"]) * n for row, n in zip(seen, judged, strict=True))
    return PassRate(value=solved / sum(judged), groups=sum(judged))


def window(rows: Sequence[Row]) -> int:
    """Rows that "at the start" and "at the end" mean: a fifth of them, at least 1 and at most RECENT."""
    return min(RECENT, max(1, len(rows) // 5))


def last_rollouts(record: RunRecord, stage: str, how_many: int = 1) -> list[list[RecordedRollout]]:
    """The completions of the last collections of a stage, the last one first; what cannot be read is left out.

    Only so many files are opened, however long the run.
    """
    read = []
    for row in reversed(record.collections(stage)[-how_many:]):
        try:
            read.append(record.rollouts(str(row["stage"]), int(row["step"])))
        except DataError:
            continue
    return [rollouts for rollouts in read if rollouts]


def one_answer(rollout: RecordedRollout) -> str:
    """An answer, why it is not paid and what would be, so that a right answer which is not paid can be seen."""
    gold = f"; a right answer: {short(' '.join(rollout.gold.split()))!r}" if rollout.gold else ""
    return f"{short(' '.join(rollout.text.split()))!r} (task {rollout.task_id}: {short(rollout.reason)}{gold})"


def short(text: str) -> str:
    """The text, cut to SHOWN_TEXT characters."""
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}..."
