"""Judges SQL by what it returns: the same answer as the gold query on every snapshot of the database.

One database proves little: about six in ten broken queries still return the gold's rows on it. Give several snapshots
with different contents. Rows are compared as sql_compare.py says; queries run as sandbox/ says; where the answer
stands in a completion is in sql_answer.py. Whose fault a failure is:

    status      reason starts with
    ----------  --------------------------------------------------------------------------------------------------
    scored      same_rows | wrong_columns wrong_rows wrong_values wrong_order reads_nothing
    invalid     no_answer several_answers not_sql several_statements forbidden sql_error timeout memory too_large crash
    unscored    gold_missing gold_failed gold_empty snapshot_missing snapshot_bad worker_failed
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import sqlite3
import string
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as package_version
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox import QUERY_FAULTS, DuckdbSandbox, QuerySandbox, QueryStatus, SqliteSandbox
from groupwise.sandbox.duckdb import duckdb_version
from groupwise.sandbox.sql_text import SqlText, scan_sql
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold
from groupwise.verifiers.lru_cache import LruCache
from groupwise.verifiers.sql_answer import MAX_ANSWER_CHARS, AnswerIn, extract_sql, problem_of_form
from groupwise.verifiers.sql_compare import canonical_rows, compare_shape, compare_values
from groupwise.verifiers.sql_gold import GoldAnswers, Truth, stamp

MAX_CACHED_VERDICTS = 65_536
DUCKDB_SUFFIX = ".duckdb"
LOG_SUFFIXES = {"sqlite": "-wal", "duckdb": ".wal"}
MERGE_COMMANDS = {
    "sqlite": 'sqlite3 FILE "PRAGMA wal_checkpoint(TRUNCATE)"',
    "duckdb": 'duckdb FILE "CHECKPOINT"',
}


class SqlVerifier:
    """Execution match on several snapshots, with structured verdicts. Safe to call from many threads.

    Example:
        verifier = SqlVerifier(snapshots=["shop.sqlite", "shop_v1.sqlite"])
        verifier.judge(Task(id="q1", prompt="How many orders?", columns={"gold": "SELECT count(*) FROM orders"}),
                       "SELECT count(id) FROM orders")
        Verdict(status=scored, reward=1.0, outcome=True, reason="same_rows on 2 snapshots", checks=(...))

    Args:
        snapshots: SQLite files, or DuckDB files whose names end in .duckdb, the first the original. A name may hold
            {column} placeholders, filled from the task's columns, so that one verifier serves several databases.
            Nothing may write to them meanwhile. The two kinds do not mix: 1 / 2 is 0 in one and 0.5 in the other.
        gold_column: the task column with the right query.
        answer_in: see sql_answer.extract_sql.
        time_limit_s: CPU seconds for one query on one snapshot. A gold gets half of it.
        memory_limit_mb: address space of a worker.
        num_workers: queries that run at the same time.
        base_folder: where relative snapshots start; None is the current folder.

    Raises:
        VerifierError: no snapshot is named, both kinds are, a limit is not positive, or the package duckdb is missing.
    """

    def __init__(
        self,
        *,
        snapshots: Sequence[str | Path],
        gold_column: str = "gold",
        answer_in: AnswerIn = "auto",
        time_limit_s: float = 2.0,
        memory_limit_mb: int = 1024,
        num_workers: int = 2,
        base_folder: Path | None = None,
    ) -> None:
        _require(
            not isinstance(snapshots, (str, Path)) and len(snapshots) > 0, "snapshots", snapshots, "a list of files"
        )
        _require(answer_in in ("auto", "text", "fence"), "answer_in", answer_in, '"auto", "text" or "fence"')
        _require(time_limit_s > 0, "time_limit_s", time_limit_s, "seconds above 0")
        _require(memory_limit_mb >= 128, "memory_limit_mb", memory_limit_mb, "128 or more")
        _require(num_workers >= 1, "num_workers", num_workers, "1 or more")
        self._templates = tuple(str(snapshot) for snapshot in snapshots)
        for template in self._templates:
            _fields(template)
        self._num_workers = num_workers
        self._gold_column = gold_column
        self._answer_in: AnswerIn = answer_in
        self._memory_limit_mb = memory_limit_mb
        self._base_folder = Path.cwd() if base_folder is None else Path(base_folder).absolute()
        are_duckdb = {template.lower().endswith(DUCKDB_SUFFIX) for template in self._templates}
        _require(len(are_duckdb) == 1, "snapshots", list(self._templates), "only .duckdb files or only SQLite files")
        self._dialect = "duckdb" if are_duckdb == {True} else "sqlite"
        make_sandbox = DuckdbSandbox if self._dialect == "duckdb" else SqliteSandbox
        self._sandbox: QuerySandbox = make_sandbox(
            num_workers=num_workers, time_limit_s=time_limit_s, memory_limit_mb=memory_limit_mb
        )
        self._golds = GoldAnswers(self._sandbox, self._dialect)
        self._verdicts: LruCache[Verdict] = LruCache(MAX_CACHED_VERDICTS)

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Compares the completion's query with the gold; see the module's table for what can come out."""
        try:
            gold, paths = self._gold_sql(task), self._paths(task)
            truths = self._golds.truths(gold, paths)
        except VerifierError as error:
            return _unscored(str(error))
        answer = extract_sql(completion_text, self._answer_in)
        if answer.problem:
            return _invalid(answer.problem)
        max_chars = max(MAX_ANSWER_CHARS, 2 * len(gold))
        if len(answer.sql) > max_chars:
            return _invalid(f"too_large: an SQL text of {len(answer.sql)} characters, at most {max_chars} are read")
        form = scan_sql(answer.sql)
        problem = problem_of_form(answer.sql, form)
        if problem:
            return _invalid(problem)
        key = (gold, answer.sql, *map(stamp, paths))
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._execute(answer.sql, form, paths, truths)
            if verdict.status is not Status.UNSCORED:
                self._verdicts.put(key, verdict)
        return verdict

    def gold(self, task: Task) -> str:
        """The gold query as a completion, in a fence where only a fence is read.

        Raises:
            VerifierError: the task has no gold.
        """
        sql = self._gold_sql(task)
        return f"```sql\n{sql}\n```" if self._answer_in == "fence" else sql

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """Runs every gold before training and says which tasks cannot be judged, and why."""
        with ThreadPoolExecutor(self._num_workers) as threads:
            return [problem for problem in threads.map(self._check_one, tasks) if problem is not None]

    @property
    def version(self) -> str:
        """Hash of what a verdict depends on: this code, the engine, the settings, the names and contents of all
        snapshots, wherever they lie. A template with placeholders stands for every file that fits it.
        """
        digest = hashlib.sha256()
        here = Path(__file__).parent
        sources = [*sorted(here.glob("sql*.py")), *sorted((here.parent / "sandbox").glob("*.py"))]
        for source in sources:
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        settings = [
            [_without_folder(template) for template in self._templates],
            self._gold_column,
            self._answer_in,
            self._sandbox.time_limit_s,
            self._memory_limit_mb,
            sqlite3.sqlite_version if self._dialect == "sqlite" else f"duckdb {duckdb_version()}",
            package_version("sqlglot"),
        ]
        digest.update(json.dumps(settings).encode())
        for template in self._templates:
            parts = [glob.escape(text) + ("" if name is None else "*") for text, name in _fields(template)]
            for path in sorted(glob.glob(os.path.join(glob.escape(str(self._base_folder)), "".join(parts)))):
                digest.update(Path(path).name.encode() + b"\0" + _file_digest(Path(path)))
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Ends the worker processes; later verdicts are unscored."""
        self._sandbox.close()

    def _gold_sql(self, task: Task) -> str:
        gold = task.columns.get(self._gold_column)
        if not isinstance(gold, str) or not gold.strip():
            known = ", ".join(sorted(task.columns)) or "none"
            raise VerifierError(
                f"gold_missing: task {task.id!r} has no SQL text in column {self._gold_column!r} (columns: {known}); "
                "set gold_column to the column that holds the right query"
            )
        return gold.strip()

    def _paths(self, task: Task) -> tuple[Path, ...]:
        paths = []
        for template in self._templates:
            missing = [name for _, name in _fields(template) if name is not None and name not in task.columns]
            if missing:
                raise VerifierError(
                    f"snapshot_missing: snapshot {template!r} needs column {missing[0]!r}, which task {task.id!r} "
                    f"does not have (columns: {', '.join(sorted(task.columns))})"
                )
            filled = "".join(
                text + ("" if name is None else str(task.columns[name])) for text, name in _fields(template)
            )
            paths.append(self._base_folder / filled)
        return tuple(paths)

    def _execute(self, sql: str, form: SqlText, paths: Sequence[Path], truths: Sequence[Truth]) -> Verdict:
        answers = []
        for index, (path, truth) in enumerate(zip(paths, truths, strict=True)):
            outcome = self._sandbox.run(path, sql, max_rows=len(truth.answer.rows))
            if outcome.status in QUERY_FAULTS:
                return _invalid(f"{outcome.status}: {outcome.message}")
            if outcome.status is not QueryStatus.OK:
                return _unscored(f"{outcome.status}: {path.name}: {outcome.message}")
            shape = compare_shape(truth.answer, outcome.num_columns, len(outcome.rows), outcome.truncated)
            if not shape.equal:
                return _scored(False, f"{shape.reason} on snapshot {index + 1} of {len(paths)}", shape.checks)
            answers.append(canonical_rows(outcome.rows))
        values = compare_values([truth.answer for truth in truths], answers)
        checks = (*shape.checks, *values.checks)
        if not values.equal:
            return _scored(False, f"{values.reason} on {_count(paths)}", checks)
        wanted = truths[0].tables
        read = {table for table, column in outcome.columns_read if column or table not in form.expression_names}
        reads = Check(
            name="reads",
            passed=not wanted or bool(wanted & read),
            expected="some of " + ", ".join(sorted(wanted)),
            found=", ".join(sorted(read)) or "no table",
        )
        if not reads.passed:
            return _scored(False, "reads_nothing of what the gold reads: a constant answer", (*checks, reads))
        return _scored(True, f"same_rows on {_count(paths)}", (*checks, reads))

    def _check_one(self, task: Task) -> UnusableGold | None:
        try:
            paths = self._paths(task)
            self._check_files(paths)
            truths = self._golds.truths(self._gold_sql(task), paths)
            own = self.judge(task, self.gold(task))
        except VerifierError as error:
            return UnusableGold(task_id=task.id, reason=str(error))
        if own.reward != 1.0:
            return UnusableGold(task_id=task.id, reason=f"gold_failed: judged against itself: {own.reason}")
        if len(truths) > 1 and len({truth.answer.rows for truth in truths}) == 1:
            reason = f"same_on_all_snapshots: one and the same result on {len(truths)} snapshots"
            return UnusableGold(task_id=task.id, reason=reason, blocking=False)
        return None

    def _check_files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if not path.is_file():
                raise VerifierError(f"snapshot_missing: no file {path}; snapshots start at {self._base_folder}")
            log = path.with_name(path.name + LOG_SUFFIXES[self._dialect])
            if log.exists() and log.stat().st_size > 0:
                raise VerifierError(
                    f"snapshot_bad: {path.name} has changes in {log.name} that are not read; "
                    f"merge them with: {MERGE_COMMANDS[self._dialect]}"
                )


def _require(condition: bool, name: str, given: object, allowed: str) -> None:
    if not condition:
        raise VerifierError(f"SqlVerifier: {name} = {given!r} cannot be used; give {allowed}")


def _without_folder(template: str) -> str:
    """From the first part of the path that depends on the task, or its last one: the same for a relative path and an
    absolute one."""
    parts = Path(template).parts
    first = next((i for i, part in enumerate(parts) if "{" in part), len(parts) - 1)
    return "/".join(parts[first:])


def _fields(template: str) -> list[tuple[str, str | None]]:
    """The template as (literal text, column name or None) pairs."""
    try:
        parts = [(text, name) for text, name, _, _ in string.Formatter().parse(template)]
    except ValueError as error:
        raise VerifierError(f"SqlVerifier: snapshot {template!r}: {error}; write placeholders as {{column}}") from error
    _require(all(name != "" for _, name in parts), "snapshots", template, "a column name inside {}")
    return parts


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _count(paths: Sequence[Path]) -> str:
    return f"{len(paths)} snapshot{'s' * (len(paths) > 1)}"


def _scored(outcome: bool, reason: str, checks: Sequence[Check]) -> Verdict:
    return Verdict(status=Status.SCORED, reward=float(outcome), outcome=outcome, reason=reason, checks=tuple(checks))


def _invalid(reason: str) -> Verdict:
    name = reason.partition(":")[0]
    check = Check(name="runs", passed=False, expected="one query that runs", found=name)
    return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))


def _unscored(reason: str) -> Verdict:
    return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=reason)
