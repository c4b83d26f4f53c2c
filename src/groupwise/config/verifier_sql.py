"""[verifier] with kind = "sql": the truth is what a query returns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import Many, Section


class SqlVerifierSection(Section):
    """Runs the query of a completion and the gold query on snapshots of a database, and compares the rows."""

    kind: Literal["sql"]
    """The kind of truth: sql."""
    snapshots: Many[str] = Field(min_length=1)
    """Paths to SQLite files, or to DuckDB files (*.duckdb), 1 or more; {column} allowed. A query must return the gold's
    rows on every one of them."""
    gold_column: str = Field(default="gold", min_length=1)
    """Column with the query that is right."""
    answer_in: Literal["auto", "text", "fence"] = "auto"
    """Where the query stands: text = the whole completion, fence = the one fenced block, auto = a fence if any."""
    time_limit_s: float = Field(default=2.0, gt=0)
    """CPU seconds one query may run, above 0. A slower query is invalid."""
    memory_limit_mb: int = Field(default=1024, ge=128)
    """Memory of one worker in megabytes, 128 or more."""
    num_workers: int = Field(default=2, ge=1)
    """Processes that run queries, 1 or more."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold query does not run: refuse = stop and list them, drop = go on without them."""
