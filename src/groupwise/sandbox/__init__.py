"""Runs untrusted work with limits: a pool of killable workers, and read-only SQLite and DuckDB on top of it."""

from groupwise.sandbox.duckdb import DuckdbSandbox
from groupwise.sandbox.queries import QUERY_FAULTS, Cell, QueryResult, QuerySandbox, QueryStatus, Row
from groupwise.sandbox.sqlite import SqliteSandbox
from groupwise.sandbox.workers import (
    WorkerCrashed,
    WorkerLimits,
    WorkerPool,
    WorkerStarved,
    WorkerTimeout,
    WorkerUnavailable,
)

__all__ = [
    "QUERY_FAULTS",
    "Cell",
    "DuckdbSandbox",
    "QueryResult",
    "QuerySandbox",
    "QueryStatus",
    "Row",
    "SqliteSandbox",
    "WorkerCrashed",
    "WorkerLimits",
    "WorkerPool",
    "WorkerStarved",
    "WorkerTimeout",
    "WorkerUnavailable",
]
