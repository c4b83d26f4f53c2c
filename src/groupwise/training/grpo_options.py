"""The settings of the GRPO family that reach the math: plain values, one name each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from groupwise.training.algorithm import Updates
from groupwise.training.group_rewards import LengthPenalty, OverlongPenalty

LossKind = Literal["clipped", "gspo", "gspo_token", "cispo", "reinforce"]
AdvantageKind = Literal["group", "leave_one_out", "max_rl", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoOptions:
    """The settings of config.GrpoSection, without its tables.

    Example:
        GrpoOptions(scale="none", normalize="constant")     # Dr. GRPO
    """

    loss: LossKind = "clipped"
    advantage: AdvantageKind = "group"
    """What a reward is compared with; scale acts with "group" only."""
    scale: Literal["std", "none", "batch_std", "centered_batch_std"] = "std"
    std: Literal["population", "sample"] = "population"
    normalize: Literal["sequence", "token", "constant"] = "sequence"
    clip_low: float = 0.2
    clip_high: float | None = None
    dual_clip: float | None = None
    updates: Updates = field(default_factory=Updates)
    beta: float = 0.0
    kl: Literal["k1", "k2", "k3"] = "k3"
    kl_in_reward: bool = False
    kl_weighted: bool = False
    """In the loss: times the ratio."""
    entropy_coef: float = 0.0
    report_entropy: bool = False
    eps: float = 1e-6
    importance_cap: float | None = None
    importance_level: Literal["token", "sequence", "product"] = "token"
    importance_floor: float | None = None
    """Weights outside importance_floor .. importance_cap become 0; None cuts them to importance_cap."""
    skip_dead_groups: bool = True
    max_unscored_frac: float = 0.1
    length_penalty: LengthPenalty | None = None
    overlong_penalty: OverlongPenalty | None = None
    mask_truncated: bool = False
    """Completions that were cut at the limit stay in the mean of their group and in the denominator, not in the
    loss."""
    step_end: str | None = None
    """Text that ends a step whose reward a verdict's part step_N is; None = one reward a completion."""
    part_weights: Mapping[str, float] | None = None
    """Weights of a composed verdict's parts that are compared one by one (GDPO); None compares the reward."""
    nominal_group_size: int | None = None
    """The size that group sizes vary around where prompts get different numbers of rollouts: rows are then weighted so
    that every prompt counts the same, see group_weights.py. None = all groups are of one size, nothing is weighted."""

    @property
    def has_kl_loss(self) -> bool:
        """True where the loss compares with the reference."""
        return self.beta > 0 and not self.kl_in_reward

    @property
    def every_row_learns(self) -> bool:
        """True where rows without an advantage have a gradient too."""
        return self.has_kl_loss or self.entropy_coef > 0
