"""Writes down what happened while training, and reads it back.

Metrics and events are append-only JSON lines; the rollouts of a step are one parquet file. Two rules shape the code:

- Recording never stops training. A full disk is logged once and counted in `num_failures`; the step goes on.
- A crash costs the line that was being written and no other. A line counts once its newline is there: the reader
  ignores a torn last line and the next append removes it. A parquet file has its name once it is whole and on the disk.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.runs.directory import RunDirectory, write_atomic
from groupwise.types import Check, Group, Message, Task

_logger = logging.getLogger(__name__)

_FAILURES = (OSError, ValueError, TypeError, ArithmeticError, RuntimeError, pa.ArrowException)
"""What a disk, a codec or a value that is no number can raise."""

ROLLOUT_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("step", pa.int64()),
        ("task_id", pa.string()),
        ("group", pa.int32()),  # position of the group in the step
        ("rollout", pa.int32()),  # position of the rollout in its group
        ("prompt_ids", pa.list_(pa.int32())),
        ("completion_ids", pa.list_(pa.int32())),
        ("text", pa.string()),
        ("stop", pa.string()),
        ("status", pa.string()),
        ("reward", pa.float64()),  # null where unscored
        ("outcome", pa.bool_()),  # null where unscored
        ("reason", pa.string()),
        ("checks", pa.string()),  # JSON: [{"name", "passed", "expected", "found"}]
        ("advantage", pa.float64()),
        ("num_tokens", pa.int32()),  # of the completion
        ("sampler_logprobs", pa.list_(pa.float32())),
        ("policy_version", pa.int64()),
        ("prompt", pa.string()),  # what a person reads, see readable_prompt
        ("parts", pa.string()),  # JSON: {name: what this part of a composed verdict adds}; null without parts
        ("left_out", pa.string()),  # why it has no place in the loss; "" where it trains, null where nobody knows
        ("gold", pa.string()),  # a right answer to the task; null where nobody knows one
    ]
)
"""The columns of rollouts/*.parquet, one row a rollout. Columns are only ever added, at the end: a reader of an older
file finds the last ones missing.

    SELECT task_id, avg(outcome::INT), avg(num_tokens) FROM 'rollouts/grpo-*.parquet' GROUP BY task_id    -- DuckDB
    pandas.read_parquet("rollouts/grpo-000012.parquet")
"""

_TEXTS = [column.name for column in ROLLOUT_SCHEMA if column.type == pa.string()]
"""Only these are stored as a dictionary and places in it. Token ids hardly repeat in the order that a dictionary uses:
without one, files are a fifth smaller and written faster."""


GoldOf = Callable[[Task], str]
"""A right answer to a task, as `Verifier.gold` gives it."""


class FileRecorder:
    """A `groupwise.types.Recorder` that writes into a run folder. One process writes one folder.

    Example:
        recorder = FileRecorder(RunDirectory.create("runs", "shop-sql"))
        recorder.metrics("grpo", 1, {"loss": 0.02})   # {"stage": "grpo", "step": 1, "time": 1.7e9, "loss": 0.02}
    """

    def __init__(self, directory: RunDirectory, gold_of: GoldOf | None = None) -> None:
        """gold_of gives a right answer, to stand beside the answers that were given; it is asked once a task."""
        self.directory = directory
        self.num_failures = 0
        self._gold_of = gold_of
        self._golds: dict[str, str | None] = {}

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Append one row; NaN and infinity become null. The names stage, step and time are the recorder's own."""

        def write() -> None:
            row = {name: float(value) for name, value in values.items()}
            _append_line(self.directory.metrics, row | {"stage": stage, "step": step, "time": time.time()})

        self._attempt(f"metrics of {stage} step {step}", write)

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Write one parquet file; a step that is repeated after a resume replaces its first attempt."""

        def write() -> None:
            content = pa.BufferOutputStream()
            golds = [self._gold(group.task) for group in groups]
            table = rollout_table(stage, step, groups, advantages, left_out=left_out, golds=golds)
            pq.write_table(table, content, compression="zstd", use_dictionary=_TEXTS)
            write_atomic(self.directory.rollouts_of(stage, step), content.getvalue().to_pybytes())

        self._attempt(f"rollouts of {stage} step {step}", write)

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """Append {"event": name, "time": seconds since 1970, **payload}; values that JSON lacks become their str."""

        def write() -> None:
            _append_line(self.directory.events, dict(payload) | {"event": name, "time": time.time()})

        self._attempt(f"event {name}", write)

    def _gold(self, task: Task) -> str | None:
        if self._gold_of is None:
            return None
        if task.id not in self._golds:
            try:
                self._golds[task.id] = _encodable(self._gold_of(task))
            except Exception:  # a user's own class may raise anything, and a missing gold is no reason to lose rollouts
                self._golds[task.id] = None
        return self._golds[task.id]

    def _attempt(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except _FAILURES as error:
            self.num_failures += 1
            if self.num_failures == 1:
                _logger.warning(
                    "could not record the %s in %s (%s: %s); training goes on, further failures are only counted",
                    what,
                    self.directory.path,
                    type(error).__name__,
                    error,
                )


def rollout_table(
    stage: str,
    step: int,
    groups: Sequence[Group],
    advantages: Sequence[Sequence[float]],
    *,
    left_out: Sequence[Sequence[str]] | None = None,
    golds: Sequence[str | None] | None = None,
) -> pa.Table:
    """The rollouts of one step in `ROLLOUT_SCHEMA`; advantages[g][i], left_out[g][i] belong to groups[g].rollouts[i],
    golds[g] to groups[g].

    Raises:
        ValueError: if advantages, left_out or golds do not have the shape of groups.
    """
    reasons = left_out if left_out is not None else [[None] * len(group.rollouts) for group in groups]
    rows: list[dict[str, Any]] = []
    by_group = zip(groups, advantages, reasons, golds if golds is not None else [None] * len(groups), strict=True)
    for g, (group, group_advantages, group_reasons, gold) in enumerate(by_group):
        prompt = _encodable(readable_prompt(group.task.prompt))
        members = zip(group.rollouts, group_advantages, group_reasons, strict=True)
        for i, (rollout, advantage, reason) in enumerate(members):
            completion, verdict = rollout.completion, rollout.verdict
            rows.append(
                {
                    "stage": stage,
                    "step": step,
                    "task_id": group.task.id,
                    "group": g,
                    "rollout": i,
                    "prompt_ids": group.prompt.token_ids,
                    "completion_ids": completion.token_ids,
                    "text": _encodable(completion.text),
                    "stop": completion.stop.value,
                    "status": verdict.status.value,
                    "reward": verdict.reward,
                    "outcome": verdict.outcome,
                    "reason": _encodable(verdict.reason),
                    "checks": json.dumps([_check(c) for c in verdict.checks]),
                    "advantage": float(advantage),
                    "num_tokens": completion.num_tokens,
                    "sampler_logprobs": completion.sampler_logprobs,
                    "policy_version": completion.policy_version,
                    "prompt": prompt,
                    "parts": json.dumps(finite(verdict.parts)) if verdict.parts else None,
                    "left_out": reason,
                    "gold": gold,
                }
            )
    return pa.Table.from_pylist(rows, schema=ROLLOUT_SCHEMA)


def readable_prompt(prompt: str | Sequence[Message]) -> str:
    """What a person reads of a prompt: plain text as it is; of a chat the user's turn.

    A chat with several user turns is shown whole but for its system turn, each turn behind "role: ". The exact tokens
    are in the column prompt_ids.
    """
    if isinstance(prompt, str):
        return prompt
    asked = [turn["content"] for turn in prompt if turn["role"] == "user"]
    if len(asked) == 1:
        return asked[0]
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt if turn["role"] != "system")


OnBroken = Callable[[str], None]
"""Is told about a line that cannot be used, such as "metrics.jsonl:7 is not JSON (...)", and lets the reader go on."""


def read_metrics(path: str | Path, *, on_broken: OnBroken | None = None) -> list[dict[str, Any]]:
    """One row for each (stage, step), in the order in which they first appear.

    Rows of the same step are merged and the later value wins: an evaluation may add numbers to a step, and a resumed
    run repeats the steps after its checkpoint. A torn last line is ignored; null is None.

    Raises:
        DataError: if the file is missing, or, without on_broken, a line before the last is not a row.
    """
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for place, row in _read_lines(Path(path), on_broken):
        stage, step = row.get("stage"), row.get("step")
        if isinstance(stage, str) and isinstance(step, int):
            merged.setdefault((stage, step), {}).update(row)
        else:
            _refuse(f"{place} has no stage and step", on_broken)
    return list(merged.values())


def read_events(path: str | Path, *, on_broken: OnBroken | None = None) -> list[dict[str, Any]]:
    """Every event in the order written; a torn last line is ignored.

    Raises:
        DataError: if the file is missing, or, without on_broken, a line before the last is not JSON.
    """
    return [row for _, row in _read_lines(Path(path), on_broken)]


def _read_lines(path: Path, on_broken: OnBroken | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, its object) of every finished line."""
    try:
        whole_lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline was never finished
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read ({error}); give the file of a run folder") from error
    for number, line in enumerate(whole_lines, start=1):
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            _refuse(f"{place} is not JSON ({error})", on_broken)
            continue
        if isinstance(row, dict):
            yield place, row
        else:
            _refuse(f"{place} is not a JSON object", on_broken)


def _refuse(what: str, on_broken: OnBroken | None) -> None:
    if on_broken is None:
        raise DataError(f"{what}; remove the line to read the others")
    on_broken(what)


def _append_line(path: Path, row: Mapping[str, Any]) -> None:
    own = {
        name: row[name] for name in ("stage", "event", "step", "time") if name in row
    }  # a reader's eye finds it first
    line = json.dumps(finite(own | dict(row)), default=str, allow_nan=False) + "\n"
    with path.open("ab+") as file:
        _drop_torn_line(file)
        file.write(line.encode())


def _drop_torn_line(file: BinaryIO) -> None:
    """Cut what follows the last newline. Costs one byte read, and the whole file only after a crash."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _check(check: Check) -> dict[str, Any]:
    return {"name": check.name, "passed": check.passed, "expected": check.expected, "found": check.found}


def _encodable(text: str) -> str:
    """A lone surrogate, which a decoder may emit for a cut byte sequence, has no UTF-8 form."""
    return text.encode("utf-8", "replace").decode("utf-8")
