"""Runs one untrusted SQL query on one read-only DuckDB file.

    sandbox = DuckdbSandbox(num_workers=2, time_limit_s=2.0)
    sandbox.run(Path("shop.duckdb"), "SELECT name FROM customer", max_rows=100)

The package duckdb is never imported here, only in the workers: one that runs out of memory must not take the trainer
with it. DuckDB has no authorizer and its own memory limit does not hold, so a worker judges the parsed query by an
allow-list before it runs and is killed at its limits (duckdb_process.py).
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import version as package_version
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox.queries import MAX_RESULT_BYTES, QueryResult, QueryStatus, ask
from groupwise.sandbox.sql_text import QUERY_WORDS, scan_sql
from groupwise.sandbox.workers import WorkerLimits, WorkerPool

OWN_MEMORY_MB = 512
"""Address space that an idle worker takes: DuckDB's library is large."""


class DuckdbSandbox:
    """Killable workers, each with the snapshots it has seen open. Safe to use from many threads.

    Raises:
        VerifierError: the package duckdb is not installed.
    """

    def __init__(self, *, num_workers: int = 2, time_limit_s: float = 2.0, memory_limit_mb: int = 1024) -> None:
        self.time_limit_s = time_limit_s
        self._pool = WorkerPool(
            Path(__file__).with_name("duckdb_process.py"),
            num_workers=num_workers,
            limits=WorkerLimits(memory_mb=memory_limit_mb + OWN_MEMORY_MB, open_files=128),
            handler_settings={"package_folder": str(_package_folder()), "memory_mb": memory_limit_mb // 2},
        )

    def run(
        self, snapshot: Path, sql: str, *, max_rows: int, max_bytes: int = MAX_RESULT_BYTES, time_factor: float = 1.0
    ) -> QueryResult:
        """Executes `sql` unchanged on `snapshot` and reads at most max_rows rows.

        One statement that starts with SELECT, WITH or VALUES; anything else, and any use of the clock, of random
        numbers, of files or of settings, is FORBIDDEN. time_factor scales the sandbox's limit of CPU seconds.
        """
        form = scan_sql(sql)
        if len(form.first_words) != 1 or form.first_words[0] not in QUERY_WORDS:
            return QueryResult(status=QueryStatus.FORBIDDEN, message="one SELECT, WITH or VALUES statement is expected")
        request = {"snapshot": str(snapshot.absolute()), "sql": sql, "max_rows": max_rows, "max_bytes": max_bytes}
        return ask(self._pool, request, self.time_limit_s * time_factor)

    def close(self) -> None:
        """Ends the workers; closing twice is fine."""
        self._pool.close()


def duckdb_version() -> str:
    """The installed version, "" if there is none."""
    return package_version("duckdb") if importlib.util.find_spec("duckdb") is not None else ""


def _package_folder() -> Path:
    found = importlib.util.find_spec("duckdb")
    if found is None or found.origin is None:
        raise VerifierError(
            "a .duckdb snapshot needs the package duckdb, which is not installed; "
            'run: pip install "groupwise[duckdb]", or give SQLite files'
        )
    return Path(found.origin).parent.parent
