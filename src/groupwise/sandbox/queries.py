"""One untrusted query asked of a worker: how it can end, what comes back, and whose fault a failure is.

Shared by sqlite.py and duckdb.py. Failures of the query (a syntax error, a write, too slow, too large, killing its
worker every time) are told apart from failures of the machine (no worker, a worker killed from outside), which are
retried once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from groupwise.sandbox.workers import WorkerCrashed, WorkerPool, WorkerStarved, WorkerTimeout, WorkerUnavailable

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]

MAX_RESULT_BYTES = 8 * 1024 * 1024
PROBE = "SELECT count(*) FROM (SELECT 1)"


class QueryStatus(StrEnum):
    """How a query ended."""

    OK = "ok"
    SQL_ERROR = "sql_error"
    """The database does not accept it."""
    FORBIDDEN = "forbidden"
    """It wanted something outside the allow-list."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    TOO_LARGE = "too_large"
    CRASH = "crash"
    """It killed two workers although other queries run."""
    SNAPSHOT_MISSING = "snapshot_missing"
    SNAPSHOT_BAD = "snapshot_bad"
    """The file is not a database of this kind."""
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
    """(table, column) in lower case, as the database's compiler reported them; the column is "" where only rows count,
    and "*" where the database names tables only."""
    functions: frozenset[str] = frozenset()


class QuerySandbox(Protocol):
    """Runs untrusted queries on one kind of database: SqliteSandbox, DuckdbSandbox."""

    time_limit_s: float

    def run(
        self, snapshot: Path, sql: str, *, max_rows: int, max_bytes: int = MAX_RESULT_BYTES, time_factor: float = 1.0
    ) -> QueryResult:
        """Executes `sql` unchanged and reads at most max_rows rows; never raises for what the query does."""
        ...

    def close(self) -> None:
        """Ends the workers; closing twice is fine."""
        ...


def ask(pool: WorkerPool, request: Mapping[str, Any], cpu_limit_s: float) -> QueryResult:
    """The worker's answer to {"snapshot", "sql", "max_rows", "max_bytes"}, asked again where the machine failed.

    A query that ends two workers is at fault only if another query then runs.
    """
    first = _attempt(pool, request, cpu_limit_s, cpu_limit_s + 1.0)
    if first.status is not QueryStatus.WORKER_FAILED:
        return first
    patient_s = 4 * cpu_limit_s + 2.0
    again = _attempt(pool, request, cpu_limit_s, patient_s)
    if again.status is QueryStatus.WORKER_FAILED and again.message.startswith("crashed"):
        probe = _attempt(pool, {**request, "sql": PROBE}, cpu_limit_s, patient_s)
        if probe.status is QueryStatus.OK:
            return QueryResult(status=QueryStatus.CRASH, message="the query ended two workers; others still run")
    return again


def _attempt(pool: WorkerPool, request: Mapping[str, Any], cpu_limit_s: float, wall_limit_s: float) -> QueryResult:
    try:
        reply = pool.call(request, cpu_limit_s=cpu_limit_s, wall_limit_s=wall_limit_s)
    except WorkerTimeout as error:
        return QueryResult(status=QueryStatus.TIMEOUT, message=str(error))
    except WorkerCrashed as error:
        return QueryResult(status=QueryStatus.WORKER_FAILED, message=f"crashed: {error}")
    except (WorkerStarved, WorkerUnavailable) as error:
        return QueryResult(status=QueryStatus.WORKER_FAILED, message=str(error))
    return _decode(reply)


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
