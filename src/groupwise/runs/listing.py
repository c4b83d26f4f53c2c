"""The runs of a folder, a line each: how far each one is, and what it achieved.

What is listed may be half-written, and may still be written to. The state is read off the folder:

    running     another process holds the folder
    finished    every stage is in stages.json, or the budget ended the run
    stopped     it ended in good order before that: it was told to, or found nothing to learn from
    crashed     none of these: an error ended it, or the process is gone in the middle of its work
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.directory import RunDirectory
from groupwise.runs.intervals import Interval
from groupwise.runs.record import RunRecord, find_runs, read_run
from groupwise.runs.stage_log import BASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A held-out pass rate: Rate(name="grpo", rate=0.62, interval=Interval(0.55, 0.69))."""

    name: str
    """base, or the stage after which it was measured."""
    rate: float
    """Mean over prompts of the share of solved completions."""
    interval: Interval | None
    """95 %; None where the run did not keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One line of `groupwise runs`.

    Example:
        ListedRun(name="shop-sql-20260901-143012", path=Path("runs/..."), began=datetime(2026, 9, 1, 14, 30, 12),
                  state="finished", stages_finished=2, num_stages=2, steps_done=60, num_steps=60,
                  before=Rate(...), after=Rate(...), num_bytes=720_000_000, failure="", unreadable=())
    """

    name: str
    path: Path
    began: datetime
    """Local time of the first thing written."""
    state: str
    """running, finished, stopped or crashed."""
    stages_finished: int
    num_stages: int
    """Of the recipe; 0 where that cannot be read."""
    steps_done: int
    """Over all stages."""
    num_steps: int
    """That the recipe asks for; 0 where it cannot be read."""
    before: Rate | None
    """The first held-out measurement."""
    after: Rate | None
    """The last one; None where there is only the first."""
    num_bytes: int
    """Of all files in the folder."""
    failure: str
    """The error that ended it; empty where none did, or where the process was gone before it could say so."""
    unreadable: tuple[str, ...]
    """What of it cannot be read, a sentence each."""

    def as_json(self) -> dict[str, Any]:
        """The fields with paths and times as texts."""
        return asdict(self) | {"path": str(self.path), "began": self.began.isoformat(timespec="seconds")}


def list_runs(folder: str | Path) -> list[ListedRun]:
    """Every run directly below the folder, or the run that the folder itself is; the newest last.

    Raises:
        DataError: if the folder is missing.
    """
    parent = Path(folder)
    if not parent.is_dir():
        raise DataError(
            f"there is no folder {str(folder)!r}; give the output_dir of a recipe (its default is runs), "
            "or make a first run: groupwise demo"
        )
    paths = [parent] if _is_run(parent) else [path for path in find_runs(parent) if _is_run(path)]
    return sorted((_listed(read_run(path)) for path in paths), key=lambda run: (run.began, run.name))


def is_claimed(directory: RunDirectory) -> bool:
    """Whether a living process holds the run, see RunDirectory.claimed. Where the file system has no locks: False.

    To ask is to hold a shared lock for some microseconds; a process that tries to claim the folder then is refused.
    """
    try:
        folder = os.open(directory.path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(folder)
    return False


def measurements(record: RunRecord) -> list[Rate]:
    """Every held-out measurement in the order taken; from the summary where the events are lost."""
    kept = {stage.name: stage.interval for stage in (record.summary.stages if record.summary else ())}
    found = []
    for event in record.events_named("evaluation"):
        rate, name = event.get("pass_rate"), str(event.get("name"))
        if isinstance(rate, int | float):
            found.append(Rate(name=name, rate=float(rate), interval=_interval(event.get("interval")) or kept.get(name)))
    if found or record.summary is None:
        return found
    return [Rate(name=stage.name, rate=stage.pass_rate, interval=stage.interval) for stage in record.summary.stages]


def ended_badly(record: RunRecord) -> str:
    """A sentence where the process of the run is gone in the middle of its work without an error on record (killed, or
    out of memory); else empty."""
    listed = _listed(record)
    if listed.state != "crashed" or listed.failure or not record.metrics:
        return ""
    return (
        f"The run ended in the middle of its work, after {listed.steps_done} of {listed.num_steps} steps, and left no "
        "error: its process was interrupted or killed, or ran out of memory. Go on with: "
        f"groupwise train --resume {listed.path}"
    )


def _is_run(path: Path) -> bool:
    """Whether a run has begun there: a recipe.toml alone is somebody's recipe."""
    run = RunDirectory(path)
    return any(file.exists() for file in (run.rollouts, run.metrics, run.events, run.stages, run.summary))


def _listed(record: RunRecord) -> ListedRun:
    rates = measurements(record)
    stages = {str(stage.get("name")): int(stage.get("steps") or 0) for stage in record.stages}
    names = stages or dict.fromkeys(str(row.get("stage")) for row in record.metrics)
    return ListedRun(
        name=record.name,
        path=record.directory.path,
        began=datetime.fromtimestamp(_began(record)),
        state=_state(record, list(stages)),
        stages_finished=len(_finished(record)),
        num_stages=len(stages),
        steps_done=sum(max((int(row["step"]) for row in record.steps(name)), default=0) for name in names),
        num_steps=sum(stages.values()),
        before=rates[0] if rates else None,
        after=rates[-1] if len(rates) > 1 else None,
        num_bytes=sum(_sizes(record.directory.path)),
        failure=_failure(record),
        unreadable=record.unreadable,
    )


def _state(record: RunRecord, stages: Sequence[str]) -> str:
    if is_claimed(record.directory):
        return "running"
    finished = _finished(record)
    if (stages and set(stages) <= set(finished)) or _is_spent(record):
        return "finished"
    if _failure(record):
        return "crashed"
    measured = {stage.name for stage in record.summary.stages} if record.summary else set()
    was_measured = bool(measured - {BASE} - set(finished))  # a stage that is stopped is measured and not finished
    has_nothing_left = bool(record.events) and record.events[-1].get("event") in ("nothing_left", "no_signal")
    return "stopped" if was_measured or has_nothing_left or _is_diagnosed(record.directory) else "crashed"


def _failure(record: RunRecord) -> str:
    last = record.events[-1] if record.events else {}
    return f"{last.get('error')}: {last.get('message')}" if last.get("event") == "failed" else ""


def _is_diagnosed(directory: RunDirectory) -> bool:
    """Whether the run was diagnosed after its last row: that comes at the end of one that was not broken off."""
    try:
        written = [path.stat().st_mtime_ns for path in (directory.metrics, directory.events) if path.exists()]
        return directory.diagnosis.stat().st_mtime_ns >= max(written, default=0)
    except OSError:
        return False


def _finished(record: RunRecord) -> list[str]:
    """Names of the finished stages. A run from before there was a stages.json: those in its summary."""
    if record.log is not None:
        return [stage.name for stage in record.log.finished if stage.name != BASE]
    if record.directory.stages.exists() or record.summary is None:
        return []
    return [stage.name for stage in record.summary.stages if stage.name != BASE]


def _is_spent(record: RunRecord) -> bool:
    """Whether the budget ended the run: the stage under way is then finished, and later ones are left out."""
    budget: Mapping[str, Any] = record.recipe.get("budget") or {}
    spent = record.events_named("spent")
    return bool(spent) and any(
        isinstance(limit, int | float) and (spent[-1].get(unit) or 0) >= limit for unit, limit in budget.items()
    )


def _began(record: RunRecord) -> float:
    """Seconds since 1970. Files that are rewritten later do not count; a copied folder has other times than its run."""
    told = [row["time"] for row in (*record.events[:1], *record.metrics[:1]) if isinstance(row.get("time"), float)]
    paths = (record.directory.recipe, record.directory.environment, record.directory.path)
    return min([*told, *(path.stat().st_mtime for path in paths if path.exists())])


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size
            except OSError:  # a file that a running run has just replaced
                continue


def _interval(bounds: Any) -> Interval | None:
    if isinstance(bounds, list) and len(bounds) == 2 and all(isinstance(bound, int | float) for bound in bounds):
        return Interval(*bounds)
    return None
