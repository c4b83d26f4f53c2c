"""The record of a run: its folder, what is written while it trains, and what it achieved.

Read `directory` (names), then `recorder` (while training), `intervals` and `summary` (afterwards). Nothing here
imports a tensor library, so that a run can be read on any machine.
"""

from groupwise.runs.directory import RunDirectory, write_atomic
from groupwise.runs.intervals import Interval, clustered_wilson, wilson
from groupwise.runs.recorder import FileRecorder, read_events, read_metrics
from groupwise.runs.summary import (
    RunSummary,
    StageSummary,
    read_summary,
    software_versions,
    stage_table,
    write_summary,
)

__all__ = [
    "FileRecorder",
    "Interval",
    "RunDirectory",
    "RunSummary",
    "StageSummary",
    "clustered_wilson",
    "read_events",
    "read_metrics",
    "read_summary",
    "software_versions",
    "stage_table",
    "wilson",
    "write_atomic",
    "write_summary",
]
