"""The record of a run: its folder, what is written while it trains, and what can be read from it afterwards.

Read `directory` (names), then `recorder` (while training), `record` (a run in one object), `intervals` and `summary`,
and `stage_log` (what a restarted run goes on from). What is made of a record lies in folders: `metrics` (what each
number means), `monitors` (lengths, reward hacking), `diagnosis`, `comparison`, `report`. Nothing here imports a tensor
library, so that a run can be read on any machine.
"""

from groupwise.runs.comparison.paired import PairedDifference, paired_difference
from groupwise.runs.directory import RunDirectory, write_atomic
from groupwise.runs.intervals import Interval, clustered_wilson, wilson
from groupwise.runs.metrics.metric import METRIC_GROUPS, Metric
from groupwise.runs.metrics.registry import METRICS, describe_metric, metrics_in, metrics_table
from groupwise.runs.pass_at_k import KRate, k_rates, over_prompts, pass_all_k, pass_at_k
from groupwise.runs.record import RecordedRollout, RunRecord, find_runs, read_rollouts, read_run
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
    "METRICS",
    "METRIC_GROUPS",
    "RESTARTED",
    "FileRecorder",
    "FinishedStage",
    "Interval",
    "KRate",
    "Metric",
    "PairedDifference",
    "RecordedRollout",
    "RunDirectory",
    "RunRecord",
    "RunSummary",
    "StageLog",
    "StageSummary",
    "clustered_wilson",
    "describe_metric",
    "find_runs",
    "k_rates",
    "metrics_in",
    "metrics_table",
    "over_prompts",
    "paired_difference",
    "pass_all_k",
    "pass_at_k",
    "read_events",
    "read_metrics",
    "read_rollouts",
    "read_run",
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
