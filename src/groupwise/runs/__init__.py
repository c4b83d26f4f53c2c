"""The record of a run: its folder, what is written while it trains, and what it achieved.

Read `directory` (names), then `recorder` (while training), `intervals` and `summary` (afterwards), and `stage_log`
(what a restarted run goes on from). Nothing here imports a tensor library, so that a run can be read on any machine.
"""

from groupwise.runs.directory import RunDirectory, write_atomic
from groupwise.runs.intervals import Interval, clustered_wilson, wilson
from groupwise.runs.paired import PairedDifference, paired_difference
from groupwise.runs.recorder import FileRecorder, read_events, read_metrics
from groupwise.runs.stage_log import (
    BASE,
    RESTARTED,
    FinishedStage,
    StageLog,
    read_stage_log,
    set_aside,
    text_digest,
    with_finished,
    write_stage_log,
)
from groupwise.runs.summary import (
    RunSummary,
    StageSummary,
    read_summary,
    software_versions,
    stage_table,
    write_summary,
)

__all__ = [
    "BASE",
    "RESTARTED",
    "FileRecorder",
    "FinishedStage",
    "Interval",
    "PairedDifference",
    "RunDirectory",
    "RunSummary",
    "StageLog",
    "StageSummary",
    "clustered_wilson",
    "paired_difference",
    "read_events",
    "read_metrics",
    "read_stage_log",
    "read_summary",
    "set_aside",
    "software_versions",
    "stage_table",
    "text_digest",
    "wilson",
    "with_finished",
    "write_atomic",
    "write_stage_log",
    "write_summary",
]
