"""Which stages of a run are finished: stages.json, what a restarted run goes on from.

A stage is finished when its weights are saved, its evaluation is in the summary, and it stands in this file, which is
replaced as a whole after every stage. All else that the folder holds belongs to an attempt that was not finished. A
restart moves that into abandoned-1, -2, ...: nothing is lost, and a reader of the run never sees two attempts at a
step. What an entry knows of the folder (how long the two logs were, which files there were) is how they are told apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.directory import RunDirectory, write_atomic

BASE = "base"
"""The first entry: the model before any training has been measured."""
RESTARTED = "restarted"
"""The event that a restart writes. It stays in events.jsonl whatever is moved away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStage:
    """One finished stage, and how far the folder was when it ended.

    Example:
        FinishedStage(name="sft", policy_version=40, weights="checkpoints/sft-40", metrics_bytes=9120,
                      events_bytes=512, files=("checkpoints/sft-40", "rollouts/evaluation-sft-000040.parquet"))
    """

    name: str
    """base, or the name of a stage of the recipe."""
    policy_version: int
    """Optimizer updates contained in the weights."""
    weights: str | None
    """The checkpoint with the policy's weights, as a path in the run folder; None = those of model.name."""
    metrics_bytes: int
    """Length of metrics.jsonl."""
    events_bytes: int
    """Length of events.jsonl."""
    files: tuple[str, ...]
    """What rollouts/ and checkpoints/ held that no entry before it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLog:
    """All finished stages of a run, and what must still be the same when it is restarted.

    Example:
        StageLog(groupwise="0.3.0", recipe=text_digest(recipe_toml), inputs="91c0...", finished=(base, sft))
    """

    groupwise: str
    """Version that wrote the run."""
    recipe: str
    """Digest of recipe.toml; empty while a restart is changing it."""
    inputs: str
    """Digest of the tasks and the verifier."""
    finished: tuple[FinishedStage, ...] = ()
    """In the order in which they ended, base first."""


def text_digest(text: str) -> str:
    """16 hexadecimal digits that tell one text from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_stage_log(directory: RunDirectory, log: StageLog) -> None:
    """Replaces stages.json as a whole."""
    write_atomic(directory.stages, json.dumps(asdict(log), indent=1) + "\n")


def read_stage_log(directory: RunDirectory) -> StageLog:
    """What `write_stage_log` wrote.

    Raises:
        DataError: if the file is missing or holds something else.
    """
    try:
        fields = json.loads(directory.stages.read_text(encoding="utf-8"))
        finished = tuple(_entry(entry) for entry in fields.pop("finished"))
        return StageLog(finished=finished, **fields)
    except FileNotFoundError:
        raise DataError(
            f"{directory.path} has no {directory.stages.name}: the run was made by a groupwise that could not restart "
            "runs, or it ended before its first measurement.\n  Run its recipe.toml anew."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{directory.stages} does not say which stages are finished ({type(error).__name__}: {error}).\n"
            "  Restore it, or run recipe.toml anew."
        ) from error


def with_finished(
    directory: RunDirectory, log: StageLog, name: str, *, policy_version: int, weights: str | None
) -> StageLog:
    """The log with one more entry for the folder as it is now."""
    known = {file for entry in log.finished for file in entry.files}
    entry = FinishedStage(
        name=name,
        policy_version=policy_version,
        weights=weights,
        metrics_bytes=_whole_lines(directory.metrics),
        events_bytes=_whole_lines(directory.events),
        files=tuple(file for file in _files(directory) if file not in known),
    )
    return replace(log, finished=(*log.finished, entry))


def set_aside(directory: RunDirectory, log: StageLog, *, always: bool = False) -> str | None:
    """Moves whatever came after the last finished stage of `log` into a new folder; its name, or None for nothing.

    always = the folder is made even where nothing is moved. It also gets copies of the files of the whole run (recipe,
    summary, plan, ledger, diagnosis) as they were. Copies are on the disk before a log is cut, so that a crash in here
    loses nothing: the next call moves the rest.
    """
    last = log.finished[-1] if log.finished else None
    known = {file for entry in log.finished for file in entry.files}
    loose = [file for file in _files(directory) if file not in known]
    cuts = [
        _Cut.of(directory.metrics, last.metrics_bytes if last else 0),
        _Cut.of(directory.events, last.events_bytes if last else 0),
    ]
    if not always and not loose and not any(cut.moved for cut in cuts):
        return None
    folder = _new_folder(directory.path)
    for path in (directory.recipe, directory.summary, directory.plan, directory.ledger, directory.diagnosis):
        if path.exists():
            shutil.copy2(path, folder / path.name)
    for cut in cuts:
        if cut.moved:
            write_atomic(folder / cut.path.name, cut.moved)
            write_atomic(cut.path, cut.kept)
    for file in loose:
        target = folder / file
        target.parent.mkdir(exist_ok=True)
        os.replace(directory.path / file, target)
    return folder.name


@dataclass(frozen=True, slots=True)
class _Cut:
    path: Path
    kept: bytes
    moved: bytes

    @classmethod
    def of(cls, path: Path, length: int) -> _Cut:
        """What stays of a file of JSON lines: `length` bytes, and the marks of earlier restarts behind them."""
        content = path.read_bytes() if path.exists() else b""
        tail = content[length:].splitlines(keepends=True)
        marks = b"".join(line for line in tail if _is_mark(line))
        return cls(path, content[:length] + marks, b"".join(line for line in tail if not _is_mark(line)))


def _is_mark(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, Mapping) and row.get("event") == RESTARTED


def _entry(fields: dict[str, Any]) -> FinishedStage:
    return FinishedStage(files=tuple(fields.pop("files")), **fields)


def _whole_lines(path: Path) -> int:
    """Bytes up to the last newline: a line without one was never finished, and the next append removes it."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0


def _files(directory: RunDirectory) -> list[str]:
    return [
        f"{folder.name}/{path.name}"
        for folder in (directory.checkpoints, directory.rollouts)
        for path in sorted(folder.iterdir())
    ]


def _new_folder(parent: Path) -> Path:
    number = 1
    while True:
        folder = parent / f"abandoned-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder
