"""The one registry of the numbers that a step reports: name, unit, how it is reduced, over what, and what it means.

A name that stands here means the same in metrics.jsonl, in trackers, in the live view and in the report, and
docs/metrics.md prints it. The entries are in of_rollouts.py, of_policy.py, of_learning.py and of_costs.py. A test runs
every algorithm and fails where a name is reported that is not here, or is here and nothing reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupwise.runs.metrics.metric import ALL, GRPO, METRIC_GROUPS, PPO, Metric, MetricGroup
from groupwise.runs.metrics.of_costs import COST_METRICS
from groupwise.runs.metrics.of_learning import CRITIC_METRICS, OPTIMISER_METRICS, PAIR_METRICS
from groupwise.runs.metrics.of_policy import KL_METRICS, POLICY_METRICS
from groupwise.runs.metrics.of_rollouts import ROLLOUT_METRICS

METRICS: tuple[Metric, ...] = (
    *ROLLOUT_METRICS,
    *POLICY_METRICS,
    *KL_METRICS,
    *CRITIC_METRICS,
    *PAIR_METRICS,
    *OPTIMISER_METRICS,
    *COST_METRICS,
)
"""Every number with a name of its own, group by group."""

CRITIC = "critic_"
SET_ASIDE = "set_aside_"

FAMILIES: tuple[Metric, ...] = (
    Metric(
        name=SET_ASIDE + "<reason>",
        group="groups",
        unit="prompts",
        reduction="count",
        meaning="prompts that are no longer sampled, or only tried again now and then, by the reason",
        algorithms=GRPO,
    ),
    Metric(
        name=CRITIC + "<number>",
        group="critic",
        unit="",
        reduction="value",
        meaning="loss, grad_norm, update_norm, weights_moved_frac and the counts of tokens and nodes, of a critic with "
        "weights of its own",
        algorithms=PPO,
        when="without critic.shared",
    ),
)
"""Names that are made: a fixed beginning, and a part that is filled in."""

OF_A_CRITIC = (
    "loss",
    "grad_norm",
    "update_norm",
    "weights_moved_frac",
    "num_trained_tokens",
    "num_forward_nodes",
    "num_plain_tokens",
)
"""What the second family is filled in with."""

_BY_NAME = {metric.name: metric for metric in METRICS}


def describe_metric(name: str) -> Metric | None:
    """What a number is, by its name in metrics.jsonl; None where no step reports it.

    Members of a family are described as what they are: critic_grad_norm as the grad_norm of the critic.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    set_aside, critic = FAMILIES
    if name.startswith(SET_ASIDE) and name != SET_ASIDE:
        reason = name.removeprefix(SET_ASIDE).replace("_", " ")
        meaning = f"prompts that are no longer sampled, or only tried again now and then, as {reason}"
        return replace(set_aside, name=name, meaning=meaning)
    own = name.removeprefix(CRITIC)
    if name.startswith(CRITIC) and own in OF_A_CRITIC:
        policy = _BY_NAME[own]
        return replace(
            policy,
            name=name,
            group="critic",
            meaning=f"of the critic: {policy.meaning}",
            algorithms=critic.algorithms,
            when=critic.when,
        )
    return None


def metrics_in(group: MetricGroup) -> tuple[Metric, ...]:
    """The numbers of one group, families last, in the order in which they are shown."""
    return tuple(metric for metric in (*METRICS, *FAMILIES) if metric.group == group)


def metrics_table() -> str:
    """All of it in Markdown, a table a group: what docs/metrics.md prints."""
    parts = []
    for group, title in METRIC_GROUPS.items():
        rows = [_row(metric) for metric in metrics_in(group)]
        head = ["| name | unit | reduction | meaning | where |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"### {title}", "", *head, *rows]))
    return "\n\n".join(parts) + "\n"


def _row(metric: Metric) -> str:
    cells = (f"`{metric.name}`", metric.unit, metric.over, metric.meaning, _where(metric))
    return "| " + " | ".join(cells) + " |"


def _where(metric: Metric) -> str:
    algorithms = "all" if metric.algorithms == ALL else _listed(metric.algorithms)
    return f"{algorithms}; {metric.when}" if metric.when else algorithms


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
