"""A run as it lies on disk, in one object: what `runs`, `rollouts`, `compare`, `diagnose` and `report` read.

Every file may be missing or torn, because a run may have died at any moment: what cannot be read is None or empty, and
`RunRecord.unreadable` says so. Only a folder that is no run at all is an error.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.runs.directory import RunDirectory
from groupwise.runs.recorder import ROLLOUT_SCHEMA, read_events, read_metrics
from groupwise.runs.stage_log import StageLog, read_stage_log
from groupwise.runs.summary import RunSummary, read_summary

NO_SIGNAL = "-no-signal"
"""End of the name under which collections without any gradient are recorded."""
EVALUATION = "evaluation-"
"""Begin of the name under which held-out completions are recorded; the step is then the policy version."""
GREEDY = "-greedy"
"""End of the name under which greedy held-out completions are recorded."""

_SHOWN = [name for name in ROLLOUT_SCHEMA.names if name not in ("prompt_ids", "completion_ids", "sampler_logprobs")]
"""The columns behind a RecordedRollout; the token ids are most of a file."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRollout:
    """One row of rollouts/*.parquet; see recorder.ROLLOUT_SCHEMA. What an older run did not write has its default."""

    stage: str
    step: int
    task_id: str
    group: int
    """Position of its group in the step."""
    rollout: int
    """Position in its group."""
    text: str
    stop: str
    """end, length or aborted."""
    status: str
    """scored, invalid or unscored."""
    reward: float | None
    outcome: bool | None
    reason: str
    checks: tuple[Mapping[str, Any], ...] = ()
    """Each with name, passed, expected, found."""
    advantage: float = 0.0
    """Of its first token, where each token has its own."""
    num_tokens: int = 0
    policy_version: int = 0
    prompt: str = ""
    """The task's prompt as a person reads it; empty where an older run did not keep it."""
    parts: Mapping[str, float] | None = None
    """What each part of a composed verdict adds."""
    gold: str = ""
    """A right answer to the task; empty where nobody knows one, and in older runs."""
    left_out: str = ""
    """Why it has no place in the loss: unscored, truncated, dead_group, replaced; empty where it trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run has written so far.

    Example:
        record = read_run("runs/shop-sql-20260901-143012")
        record.steps("grpo")[-1]["pass_rate"]            # 0.77
        record.rollouts("grpo", 12)                      # list of RecordedRollout
    """

    directory: RunDirectory
    recipe: Mapping[str, Any]
    """The resolved recipe as TOML gives it; {} where it cannot be read."""
    environment: Mapping[str, Any]
    audit: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    """What the run was expected to take, made before it began."""
    summary: RunSummary | None
    log: StageLog | None
    metrics: tuple[Mapping[str, Any], ...]
    """One row for each (stage, step), see read_metrics; null is None."""
    events: tuple[Mapping[str, Any], ...]
    unreadable: tuple[str, ...]
    """One sentence for each file that is there and cannot be read, as a whole or in some of its lines."""

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.directory.path.resolve().name

    @property
    def stages(self) -> tuple[Mapping[str, Any], ...]:
        """The [[stages]] tables of the recipe, in their order."""
        return tuple(self.recipe.get("stages", ()))

    def steps(self, stage: str) -> list[Mapping[str, Any]]:
        """The rows of a stage's steps, in order; collections without a gradient are not among them."""
        return [row for row in self.metrics if row.get("stage") == stage]

    def collections(self, stage: str) -> list[Mapping[str, Any]]:
        """All rows of a stage by time: its steps, and the collections that were no step."""
        rows = [row for row in self.metrics if row.get("stage") in (stage, stage + NO_SIGNAL)]
        return sorted(rows, key=lambda row: row.get("time") or 0.0)

    def events_named(self, name: str) -> list[Mapping[str, Any]]:
        """The events of that name in the order written."""
        return [event for event in self.events if event.get("event") == name]

    def recorded(self) -> list[tuple[str, int]]:
        """(stage, step) of every file of rollouts, by stage and step."""
        return sorted(found for path in self.directory.rollouts.glob("*.parquet") if (found := _stage_step(path)))

    def rollouts(self, stage: str, step: int) -> list[RecordedRollout]:
        """Every completion of one step, in the order written; empty where the step recorded none.

        Raises:
            DataError: if the file is there and cannot be read.
        """
        path = self.directory.rollouts_of(stage, step)
        return read_rollouts(path) if path.exists() else []


def read_run(path: str | Path) -> RunRecord:
    """Reads everything but the rollouts of a run folder, which may still be written to.

    Raises:
        DataError: if path is not a run folder.
    """
    directory = RunDirectory.open(path)
    unreadable: list[str] = []

    def attempt(file: Path, read: Callable[[Path], _T], otherwise: _T) -> _T:
        if not file.exists():
            return otherwise
        try:
            return read(file)
        except (DataError, OSError, ValueError) as error:
            unreadable.append(f"{file.name} cannot be read: {error}")
            return otherwise

    def lines(read: Callable[..., list[dict[str, Any]]]) -> Callable[[Path], list[dict[str, Any]]]:
        def usable(file: Path) -> list[dict[str, Any]]:
            broken: list[str] = []
            rows = read(file, on_broken=broken.append)
            if broken:
                unreadable.append(f"{file.name} has {len(broken)} lines that are left out; the first: {broken[0]}")
            return rows

        return usable

    nothing: Mapping[str, Any] = {}
    return RunRecord(
        directory=directory,
        recipe=attempt(directory.recipe, lambda f: tomllib.loads(f.read_text(encoding="utf-8")), nothing),
        environment=attempt(directory.environment, _json_object, nothing),
        audit=attempt(directory.audit, _json_object, None),
        plan=attempt(directory.plan, _json_object, None),
        summary=attempt(directory.summary, read_summary, None),
        log=attempt(directory.stages, lambda _: read_stage_log(directory), None),
        metrics=tuple(attempt(directory.metrics, lines(read_metrics), [])),
        events=tuple(attempt(directory.events, lines(read_events), [])),
        unreadable=tuple(unreadable),
    )


def read_rollouts(path: Path) -> list[RecordedRollout]:
    """The rows of one parquet file.

    Raises:
        DataError: if it cannot be read.
    """
    try:
        with pq.ParquetFile(path) as file:  # it passes over columns that an older file lacks
            return [_rollout(row) for row in file.read(columns=_SHOWN).to_pylist()]
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}); it was not written by groupwise, or was damaged"
        ) from error


def _rollout(row: Mapping[str, Any]) -> RecordedRollout:
    parts = row.get("parts")
    return RecordedRollout(
        stage=row["stage"],
        step=row["step"],
        task_id=row["task_id"],
        group=row["group"],
        rollout=row["rollout"],
        text=row["text"],
        stop=row["stop"],
        status=row["status"],
        reward=row["reward"],
        outcome=row["outcome"],
        reason=row["reason"],
        checks=tuple(json.loads(row["checks"])),
        advantage=row["advantage"],
        num_tokens=row["num_tokens"],
        policy_version=row["policy_version"],
        prompt=row.get("prompt") or "",
        parts=json.loads(parts) if parts else None,
        left_out=row.get("left_out") or "",
        gold=row.get("gold") or "",
    )


def _stage_step(path: Path) -> tuple[str, int] | None:
    stem, _, step = path.stem.rpartition("-")
    return (unquote(stem), int(step)) if stem and step.isdigit() else None


def _json_object(path: Path) -> Mapping[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, found {type(found).__name__}")
    return found


def find_runs(folder: str | Path) -> Iterator[Path]:
    """The run folders directly below a folder, oldest first by name and time; nothing where the folder is missing."""
    parent = Path(folder)
    found = []
    for path in parent.iterdir() if parent.is_dir() else ():
        try:
            RunDirectory.open(path)
        except DataError:
            continue
        found.append(path)
    return iter(sorted(found, key=lambda p: (p.stat().st_mtime, p.name)))
