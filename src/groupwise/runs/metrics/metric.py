"""What is known of one number that a step reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MetricGroup = Literal[
    "outcome", "groups", "lengths", "policy", "kl", "critic", "pairs", "optimiser", "time", "tokens", "cost", "memory"
]

METRIC_GROUPS: Mapping[MetricGroup, str] = {
    "outcome": "Outcome and reward",
    "groups": "Groups and prompts",
    "lengths": "Lengths and texts",
    "policy": "Policy",
    "kl": "KL, and sampler against trainer",
    "critic": "Critic",
    "pairs": "Demonstrations and pairs",
    "optimiser": "Optimiser",
    "time": "Time",
    "tokens": "Tokens",
    "cost": "Cost",
    "memory": "Memory",
}
"""Which numbers belong together on a page, by title, in the order in which they are shown."""

Reduction = Literal["mean", "share", "count", "sum", "std", "p99", "minimum", "maximum", "norm", "value"]
"""How many numbers become the one of a row; share = the mean of something that is 0 or 1, value = there is but one."""

GRPO, PPO, SFT, DPO, REWARD_MODEL = ("grpo",), ("ppo",), ("sft",), ("dpo",), ("reward_model",)
ROLLOUTS = (*GRPO, *PPO)
"""The algorithms that sample in every step."""
PAIRS = (*DPO, *REWARD_MODEL)
ALL = (*SFT, *DPO, *REWARD_MODEL, *GRPO, *PPO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a step.

    Example:
        Metric(name="truncated_frac", group="lengths", unit="0..1", reduction="share", denominator="sampled rollouts",
               meaning="cut at the token limit, by the stop reason", algorithms=("grpo", "ppo"))
    """

    name: str
    """As it stands in metrics.jsonl."""
    group: MetricGroup
    unit: str
    """nats, tokens, seconds, bytes, 0..1 for a share, the verifier's unit of reward; empty for a number without one."""
    reduction: Reduction
    denominator: str = ""
    """What a mean or a share is of, and a sum or count over; empty where nothing is reduced."""
    meaning: str
    algorithms: tuple[str, ...] = ALL
    """Whose steps have it."""
    when: str = ""
    """A condition of the recipe beside the algorithm; empty where every step has it."""

    @property
    def over(self) -> str:
        """The reduction in words: "mean over trained tokens"."""
        preposition = "of" if self.reduction in ("share", "norm", "p99", "minimum", "maximum") else "over"
        return f"{self.reduction} {preposition} {self.denominator}" if self.denominator else self.reduction
