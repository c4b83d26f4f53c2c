"""What each training method learns from, holds in memory and costs: the comparison that plans and documents print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from groupwise.planning.step_tokens import Method

RelativeCost = Literal["lowest", "low", "high", "highest"]
"""Cheapest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodFacts:
    """What one method is, in the terms in which methods are compared. Example: METHOD_FACTS["grpo"]."""

    full_name: str
    learns_from: str
    extra_networks: str
    """Besides the policy, in memory during training."""
    generates: str
    """Whether completions are sampled during training."""
    relative_cost: RelativeCost
    best_for: str
    source: str


METHOD_FACTS: Mapping[Method, MethodFacts] = {
    "sft": MethodFacts(
        full_name="supervised fine-tuning",
        learns_from="fixed demonstrations",
        extra_networks="none",
        generates="no",
        relative_cost="lowest",
        best_for="a format or a skill that can be shown; the start of every other method",
        source="arXiv:2203.02155, section 3.5",
    ),
    "dpo": MethodFacts(
        full_name="direct preference optimization",
        learns_from="fixed preference pairs",
        extra_networks="reference model only",
        generates="no",
        relative_cost="low",
        best_for="expert comparisons",
        source="arXiv:2305.18290",
    ),
    "grpo": MethodFacts(
        full_name="group relative policy optimization",
        learns_from="rewards on groups of fresh samples",
        extra_networks="reward model or verifier only; a reference model where there is a KL term",
        generates="yes, G per prompt",
        relative_cost="high",
        best_for="verifiable outcomes",
        source="arXiv:2402.03300",
    ),
    "ppo": MethodFacts(
        full_name="proximal policy optimization",
        learns_from="reward-model scores on fresh samples",
        extra_networks="reward model, value model and reference model",
        generates="yes",
        relative_cost="highest",
        best_for="nuanced learned rewards",
        source="arXiv:1707.06347; arXiv:2203.02155",
    ),
}
"""The comparison of methods, cheapest first: the one place that plans, pages and documents take it from."""

COMPARISON_COLUMNS = (
    "method",
    "learns from",
    "extra networks in memory",
    "generation during training",
    "relative cost",
    "best for",
)


def comparison_rows() -> tuple[tuple[str, ...], ...]:
    """METHOD_FACTS as the rows of a table under COMPARISON_COLUMNS, cheapest first."""
    return tuple(
        (name, facts.learns_from, facts.extra_networks, facts.generates, facts.relative_cost, facts.best_for)
        for name, facts in METHOD_FACTS.items()
    )
