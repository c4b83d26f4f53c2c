"""A quick look at the recorded rollouts of a run: one small record a group, and the lengths of the answers.

Texts stay on the disk: a run of thousands of steps is read in seconds, because only the columns that are counted are
read, and of no more than MAX_FILES files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.runs.record import NO_SIGNAL, RunRecord
from groupwise.runs.report.steps import spread_evenly, stage_names

MAX_FILES = 2000
"""Files that are read, evenly spaced over the run."""
_COLUMNS = ("task_id", "group", "outcome", "advantage", "num_tokens", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDigest:
    """What one group came to.

    Example:
        GroupDigest(stage="grpo", step=12, group=3, task_id="q17", solved=5, scored=8, spread=1.94)
    """

    stage: str
    """The name under which it is recorded: that of a collection without a gradient ends in "-no-signal"."""
    step: int
    group: int
    task_id: str
    solved: int
    scored: int
    spread: float
    """Largest minus smallest advantage."""

    @property
    def rate(self) -> float | None:
        """Share solved; None where nothing was judged."""
        return self.solved / self.scored if self.scored else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of answers, apart by what became of them."""

    right: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    """Right or wrong, and cut at the token limit: their true length is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The rollouts of a run in short."""

    groups: tuple[GroupDigest, ...]
    """Of training stages, in the order sampled."""
    lengths: Lengths
    """Of the same rollouts."""
    num_files: int
    num_read: int
    unreadable: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What a reader must know where not every file was read; else empty."""
        if self.num_read >= self.num_files:
            return ""
        return f"Read from {self.num_read} of {self.num_files} recorded steps, evenly spaced over the run."


def digest_of(record: RunRecord) -> Digest:
    """Groups and lengths of the training stages."""
    order = {name: position for position, name in enumerate(stage_names(record))}
    known = [(s, n) for s, n in record.recorded() if s.removesuffix(NO_SIGNAL) in order]
    time_of = {(row.get("stage"), row.get("step")): row.get("time") or 0.0 for row in record.metrics}
    known.sort(key=lambda k: (order[k[0].removesuffix(NO_SIGNAL)], time_of.get(k, 0.0), k[1]))
    chosen = spread_evenly(known, MAX_FILES)
    groups: list[GroupDigest] = []
    lengths: dict[str, list[int]] = {"right": [], "wrong": [], "cut": []}
    unreadable = []
    for stage, step in chosen:
        columns = _columns(record, stage, step)
        if columns is None:
            unreadable.append(f"{record.directory.rollouts_of(stage, step).name} cannot be read.")
            continue
        groups += _groups(columns, stage, step)
        _add_lengths(columns, lengths)
    return Digest(
        groups=tuple(groups),
        lengths=Lengths(**{name: tuple(values) for name, values in lengths.items()}),
        num_files=len(known),
        num_read=len(chosen),
        unreadable=tuple(unreadable),
    )


def lengths_of(record: RunRecord, stage: str, step: int) -> Lengths:
    """Lengths of one file, such as an evaluation's; empty where it is missing or cannot be read."""
    lengths: dict[str, list[int]] = {"right": [], "wrong": [], "cut": []}
    columns = _columns(record, stage, step)
    if columns is not None:
        _add_lengths(columns, lengths)
    return Lengths(**{name: tuple(values) for name, values in lengths.items()})


def groups_of(record: RunRecord, stage: str, step: int) -> list[GroupDigest]:
    """The groups of one file; empty where it is missing or cannot be read."""
    columns = _columns(record, stage, step)
    return [] if columns is None else _groups(columns, stage, step)


def _columns(record: RunRecord, stage: str, step: int) -> dict[str, list[Any]] | None:
    try:
        with pq.ParquetFile(record.directory.rollouts_of(stage, step)) as file:
            return file.read(columns=list(_COLUMNS), use_threads=False).to_pydict()
    except (OSError, pa.ArrowException):
        return None


def _groups(columns: dict[str, list[Any]], stage: str, step: int) -> list[GroupDigest]:
    places: dict[tuple[int, str], list[int]] = {}
    for i, place in enumerate(zip(columns["group"], columns["task_id"], strict=True)):
        places.setdefault(place, []).append(i)
    outcomes, advantages = columns["outcome"], columns["advantage"]
    return [
        GroupDigest(
            stage=stage,
            step=step,
            group=group,
            task_id=task_id,
            solved=sum(outcomes[i] is True for i in rows),
            scored=sum(outcomes[i] is not None for i in rows),
            spread=_spread([advantages[i] or 0.0 for i in rows]),
        )
        for (group, task_id), rows in places.items()
    ]


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _add_lengths(columns: dict[str, list[Any]], lengths: dict[str, list[int]]) -> None:
    for tokens, outcome, stop in zip(columns["num_tokens"], columns["outcome"], columns["stop"], strict=True):
        if outcome is not None:
            lengths["cut" if stop == "length" else "right" if outcome else "wrong"].append(tokens)
