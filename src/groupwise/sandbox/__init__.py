"""Runs untrusted work with limits: a pool of killable worker processes, and read-only SQLite on top of it."""

from groupwise.sandbox.sqlite import Cell, QueryResult, QueryStatus, Row, SqliteSandbox
from groupwise.sandbox.workers import (
    WorkerCrashed,
    WorkerLimits,
    WorkerPool,
    WorkerStarved,
    WorkerTimeout,
    WorkerUnavailable,
)

__all__ = [
    "Cell",
    "QueryResult",
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
