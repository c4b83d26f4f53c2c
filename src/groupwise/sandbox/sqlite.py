"""Runs one untrusted SQL query on one read-only SQLite file, and says whose fault a failure is.

    sandbox = SqliteSandbox(num_workers=2, time_limit_s=2.0)
    sandbox.run(Path("shop.sqlite"), "SELECT name FROM customer", max_rows=100)

Failures of the query (a syntax error, a write, too slow, too large, killing its worker every time) are told apart from
failures of the machine (no worker, a worker killed from outside), which are retried once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from groupwise.sandbox.sql_text import DATE_FUNCTIONS, QUERY_WORDS, scan_sql
from groupwise.sandbox.workers import (
    WorkerCrashed,
    WorkerLimits,
    WorkerPool,
    WorkerStarved,
    WorkerTimeout,
    WorkerUnavailable,
)

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]

MAX_RESULT_BYTES = 8 * 1024 * 1024
PROBE = "SELECT count(*) FROM (SELECT 1)"


class QueryStatus(StrEnum):
    """How a query ended."""

    OK = "ok"
    SQL_ERROR = "sql_error"
    """SQLite does not accept it."""
    FORBIDDEN = "forbidden"
    """It wanted something outside the allow-list."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    TOO_LARGE = "too_large"
    CRASH = "crash"
    """It killed two workers although other queries run."""
    SNAPSHOT_MISSING = "snapshot_missing"
    SNAPSHOT_BAD = "snapshot_bad"
    """The file is not an SQLite database."""
    WORKER_FAILED = "worker_failed"
    """The machine's fault: nothing is known about the query."""


QUERY_FAULTS = frozenset(
    {
        QueryStatus.SQL_ERROR,
        QueryStatus.FORBIDDEN,
        QueryStatus.TIMEOUT,
        QueryStatus.MEMORY,
        QueryStatus.TOO_LARGE,
        QueryStatus.CRASH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """What came back.

    Example:
        QueryResult(status=QueryStatus.OK, num_columns=1, rows=((6,),), columns_read=frozenset({("singer", "")}))
    """

    status: QueryStatus
    message: str = ""
    num_columns: int = 0
    rows: tuple[Row, ...] = ()
    truncated: bool = False
    """True if there are more rows than were asked for."""
    columns_read: frozenset[tuple[str, str]] = frozenset()
    """(table, column) in lower case, as SQLite's compiler reported them; the column is "" where only rows count."""
    functions: frozenset[str] = frozenset()


class SqliteSandbox:
    """Killable workers, each with the snapshots it has seen open. Safe to use from many threads."""

    def __init__(self, *, num_workers: int = 2, time_limit_s: float = 2.0, memory_limit_mb: int = 1024) -> None:
        self.time_limit_s = time_limit_s
        self._pool = WorkerPool(
            Path(__file__).with_name("sqlite_process.py"),
            num_workers=num_workers,
            limits=WorkerLimits(memory_mb=memory_limit_mb, open_files=128),
            handler_settings={"heap_bytes": memory_limit_mb * 1024 * 1024 // 2},
        )

    def run(
        self, snapshot: Path, sql: str, *, max_rows: int, max_bytes: int = MAX_RESULT_BYTES, time_factor: float = 1.0
    ) -> QueryResult:
        """Executes `sql` unchanged on `snapshot` and reads at most max_rows rows.

        One statement that starts with SELECT, WITH or VALUES; anything else, and any use of the clock or of random
        numbers, is FORBIDDEN. time_factor scales the sandbox's limit of CPU seconds for this query.
        """
        form = scan_sql(sql)
        if len(form.first_words) != 1 or form.first_words[0] not in QUERY_WORDS:
            return QueryResult(status=QueryStatus.FORBIDDEN, message="one SELECT, WITH or VALUES statement is expected")
        request = {"snapshot": str(snapshot), "sql": sql, "max_rows": max_rows, "max_bytes": max_bytes}
        limit = self.time_limit_s * time_factor
        first = self._attempt(request, limit, limit + 1.0)
        if form.names_clock and first.functions & DATE_FUNCTIONS:
            return QueryResult(status=QueryStatus.FORBIDDEN, message="not allowed: the clock")
        if first.status is not QueryStatus.WORKER_FAILED:
            return first
        again = self._attempt(request, limit, 4 * limit + 2.0)
        if again.status is QueryStatus.WORKER_FAILED and again.message.startswith("crashed"):
            probe = self._attempt({**request, "sql": PROBE}, limit, 4 * limit + 2.0)
            if probe.status is QueryStatus.OK:
                return QueryResult(status=QueryStatus.CRASH, message="the query ended two workers; others still run")
        return again

    def _attempt(self, request: dict[str, Any], cpu_limit_s: float, wall_limit_s: float) -> QueryResult:
        try:
            reply = self._pool.call(request, cpu_limit_s=cpu_limit_s, wall_limit_s=wall_limit_s)
        except WorkerTimeout as error:
            return QueryResult(status=QueryStatus.TIMEOUT, message=str(error))
        except WorkerCrashed as error:
            return QueryResult(status=QueryStatus.WORKER_FAILED, message=f"crashed: {error}")
        except (WorkerStarved, WorkerUnavailable) as error:
            return QueryResult(status=QueryStatus.WORKER_FAILED, message=str(error))
        return _decode(reply)

    def close(self) -> None:
        """Ends the workers; closing twice is fine."""
        self._pool.close()


def _decode(reply: dict[str, Any]) -> QueryResult:
    """A reply from the other side, believed only where it has the right form."""
    try:
        status = QueryStatus(reply["status"])
        if status is not QueryStatus.OK:
            return QueryResult(status=status, message=str(reply.get("message", "")))
        return QueryResult(
            status=status,
            num_columns=int(reply["num_columns"]),
            rows=tuple(tuple(_decode_cell(cell) for cell in row) for row in reply["rows"]),
            truncated=bool(reply["truncated"]),
            columns_read=frozenset((str(table), str(column)) for table, column in reply["columns_read"]),
            functions=frozenset(map(str, reply["functions"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        return QueryResult(status=QueryStatus.WORKER_FAILED, message=f"crashed: {reply.get('message') or error!r}")


def _decode_cell(cell: Any) -> Cell:
    if isinstance(cell, dict):
        return bytes.fromhex(cell["hex"])
    if cell is None or isinstance(cell, (int, float, str)):
        return cell
    raise TypeError(f"a cell of type {type(cell).__name__}")
