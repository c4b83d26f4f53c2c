"""Runs one untrusted SQL query on one read-only SQLite file.

    sandbox = SqliteSandbox(num_workers=2, time_limit_s=2.0)
    sandbox.run(Path("shop.sqlite"), "SELECT name FROM customer", max_rows=100)

See queries.py for whose fault a failure is, sqlite_process.py for what stops a query.
"""

from __future__ import annotations

from pathlib import Path

from groupwise.sandbox.queries import MAX_RESULT_BYTES, QueryResult, QueryStatus, ask
from groupwise.sandbox.sql_text import DATE_FUNCTIONS, QUERY_WORDS, scan_sql
from groupwise.sandbox.workers import WorkerLimits, WorkerPool


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
        request = {"snapshot": str(snapshot.absolute()), "sql": sql, "max_rows": max_rows, "max_bytes": max_bytes}
        result = ask(self._pool, request, self.time_limit_s * time_factor)
        if form.names_clock and result.functions & DATE_FUNCTIONS:
            return QueryResult(status=QueryStatus.FORBIDDEN, message="not allowed: the clock")
        return result

    def close(self) -> None:
        """Ends the workers; closing twice is fine."""
        self._pool.close()
