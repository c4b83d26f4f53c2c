"""Runs inside a worker: one read-only SQLite query a request, behind an allow-list.

The layers, each stopping what the one before does not: an immutable read-only connection (no write to the file), the
authorizer (no other statement, file, table or function), SQLite's own size limits, the progress handler (no long
query), and around it all the limits of child.py (no long single operation, no memory).

    request   {"snapshot", "sql", "max_rows", "max_bytes", "cpu_limit_s"}
    reply     {"status": "ok", "num_columns", "rows", "truncated", "columns_read", "functions"}
              {"status": "sql_error" | "forbidden" | "timeout" | "too_large", "message"}     the query's fault
              {"status": "snapshot_missing" | "snapshot_bad", "message"}                     the file's fault

A blob travels as {"hex": "..."}; every other value is its JSON self.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MAX_OPEN_SNAPSHOTS = 32
PROGRESS_OPCODES = 10_000  # the callback costs 4 % at this interval, 38 % at a tenth of it
FETCH_ROWS = 256
FORBIDDEN_TABLES = ("sqlite_", "pragma_", "dbstat", "json_each", "json_tree", "fts3tokenize", "bytecode", "tables_used")
SIZE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# Every function here depends on its arguments only, except the date ones, whose use of the clock the caller refuses.
FUNCTION_NAMES = """
abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count cume_dist
date datetime degrees dense_rank exp first_value floor format glob group_concat hex ifnull iif if instr json json_array
json_array_length json_extract json_group_array json_group_object json_insert json_object json_patch json_quote
json_remove json_replace json_set json_type json_valid julianday lag last_value lead length like likelihood likely
ln log log10 log2 lower ltrim match max min mod nth_value ntile nullif octet_length percent_rank pi pow power printf
quote radians rank replace round row_number rtrim sign sin sinh soundex sqrt strftime string_agg substr substring sum
tan tanh time timediff total trim trunc typeof unhex unicode unixepoch unlikely upper -> ->>
"""
ALLOWED_FUNCTIONS = frozenset(FUNCTION_NAMES.split())


class Snapshot:
    """An open database file and what the authorizer saw while the last statement was compiled."""

    def __init__(self, path: str) -> None:
        escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self.connection = sqlite3.connect(
            f"file:{escaped}?mode=ro&immutable=1", uri=True, isolation_level=None, cached_statements=0
        )
        self.connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        self.connection.execute("PRAGMA temp_store = MEMORY").fetchall()
        self.connection.execute("PRAGMA trusted_schema = OFF").fetchall()
        rows = self.connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        self.table_names = {name.lower() for (name,) in rows}
        for category, value in SIZE_LIMITS.items():
            self.connection.setlimit(category, value)
        self.columns_read: set[tuple[str, str]] = set()
        self.functions: set[str] = set()
        self.refused = ""
        self.connection.set_authorizer(self.authorize)

    def begin(self) -> None:
        """Forgets what the previous statement touched."""
        self.columns_read, self.functions, self.refused = set(), set(), ""

    def authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """SQLite's question about one thing that a statement wants to do."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            table, column = (first or "").lower(), (second or "").lower()
            if table in self.table_names and not table.startswith("sqlite_"):
                self.columns_read.add((table, column))
                return sqlite3.SQLITE_OK
            # a table expression or subquery, whose own columns are never asked about, arrives with an empty column
            if not column and not table.startswith(FORBIDDEN_TABLES):
                return sqlite3.SQLITE_OK
            self.refused = self.refused or f"table {table}"
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            self.functions.add(name)
            if name in ALLOWED_FUNCTIONS:
                return sqlite3.SQLITE_OK
            self.refused = self.refused or f"function {name}"
            return sqlite3.SQLITE_DENY
        self.refused = self.refused or f"action {action} {first or ''}".rstrip()
        return sqlite3.SQLITE_DENY


def encode(value: Any) -> Any:
    """A cell as JSON."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def cell_bytes(value: Any) -> int:
    """A rough size, to bound what a reply weighs."""
    return 16 + (len(value) if isinstance(value, (str, bytes)) else 0)


def run(snapshot: Snapshot, request: dict[str, Any]) -> dict[str, Any]:
    """Executes the request's SQL text as it stands and reads at most max_rows rows."""
    snapshot.begin()
    deadline = time.process_time() + float(request["cpu_limit_s"])
    snapshot.connection.set_progress_handler(lambda: time.process_time() > deadline, PROGRESS_OPCODES)
    max_rows, budget = int(request["max_rows"]), int(request["max_bytes"])
    rows: list[list[Any]] = []
    cursor = snapshot.connection.cursor()
    try:
        cursor.execute(request["sql"])
        if cursor.description is None:
            return {"status": "sql_error", "message": "the text holds no query"}
        while len(rows) <= max_rows and (part := cursor.fetchmany(min(FETCH_ROWS, max_rows + 1 - len(rows)))):
            for row in part:
                budget -= sum(cell_bytes(value) for value in row)
                rows.append([encode(value) for value in row])
            if budget < 0:
                return {"status": "too_large", "message": f"a result of more than {request['max_bytes']} bytes"}
        num_columns = len(cursor.description)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        return explain(snapshot, error, time.process_time() > deadline)
    finally:
        cursor.close()
        snapshot.connection.set_progress_handler(None, PROGRESS_OPCODES)
    return {
        "status": "ok",
        "num_columns": num_columns,
        "rows": rows[:max_rows],
        "truncated": len(rows) > max_rows,
        "columns_read": sorted(snapshot.columns_read),
        "functions": sorted(snapshot.functions),
    }


def explain(snapshot: Snapshot, error: Exception, late: bool) -> dict[str, Any]:
    """SQLite's complaint as a status."""
    message = str(error)
    if snapshot.refused:
        return {"status": "forbidden", "message": f"not allowed: {snapshot.refused}"}
    if late and "interrupted" in message:
        return {"status": "timeout", "message": "the query ran too long"}
    if "too big" in message or "too large" in message:
        return {"status": "too_large", "message": message}
    if "file is not a database" in message or "malformed" in message or "disk I/O" in message:
        return {"status": "snapshot_bad", "message": message}
    return {"status": "sql_error", "message": message}


def start(settings: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Called once in a fresh worker. settings: {"heap_bytes": most memory that SQLite may hold}."""
    with sqlite3.connect(":memory:") as first:
        first.execute(f"PRAGMA hard_heap_limit = {int(settings['heap_bytes'])}").fetchall()  # for the whole process
    first.close()
    snapshots: OrderedDict[tuple[str, int, int, int], Snapshot] = OrderedDict()

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        path = str(request["snapshot"])
        try:
            stat = os.stat(path)
        except OSError as error:
            return {"status": "snapshot_missing", "message": f"{path}: {error.strerror}"}
        key = (path, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        snapshot = snapshots.get(key)
        if snapshot is None:
            try:
                snapshot = Snapshot(path)
            except sqlite3.Error as error:
                return {"status": "snapshot_bad", "message": f"{path}: {error}"}
            snapshots[key] = snapshot
            if len(snapshots) > MAX_OPEN_SNAPSHOTS:
                snapshots.popitem(last=False)[1].connection.close()
        snapshots.move_to_end(key)
        return run(snapshot, request)

    return handle
