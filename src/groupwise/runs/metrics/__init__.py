"""Every number that a step reports: what it is, in which unit, over what. Read `metric`, then `registry`."""

from groupwise.runs.metrics.metric import METRIC_GROUPS, Metric
from groupwise.runs.metrics.registry import METRICS, describe_metric, metrics_in, metrics_table

__all__ = ["METRICS", "METRIC_GROUPS", "Metric", "describe_metric", "metrics_in", "metrics_table"]
