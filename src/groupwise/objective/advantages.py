"""How much better than its group a completion did. No value network: the group is the baseline.

Groups are formed by id, never by position, so lost, filtered or reordered rows cannot mix groups. Statistics are taken
in float64, over scored rows only: a row that the verifier could not judge gets 0 and leaves its siblings as they are.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int, Real, Shaped
from torch import Tensor

SCALES = ("std", "none", "batch_std", "centered_batch_std")
STDS = ("population", "sample")
SMALLEST_SPREAD = 1e-150
"""Rewards that lie no further apart count as equal: in float64 their variance is 0, and 0 / 0 is no advantage."""


class _Centered(NamedTuple):
    """Rewards around the mean of their group: what both baselines start from."""

    rewards: Float64[Tensor, " rollouts"]
    """Unscored rows hold 0."""
    scored: Bool[Tensor, " rollouts"]
    group: Int[Tensor, " rollouts"]
    """Dense index into the per-group tensors."""
    num_scored: Float64[Tensor, " groups"]
    mean: Float64[Tensor, " rollouts"]
    """Of the scored rewards of its group."""
    deviation: Float64[Tensor, " rollouts"]
    """Reward minus the mean of its group; unscored rows hold 0."""
    has_signal: Bool[Tensor, " rollouts"]
    """Scored, and some scored sibling got a different reward."""


def group_advantages(
    rewards: Real[Tensor, " rollouts"],
    group_ids: Int[Tensor, " rollouts"],
    *,
    scored: Shaped[Tensor, " rollouts"] | None = None,
    scale: str = "std",
    std: str = "population",
    eps: float = 1e-6,
) -> Float[Tensor, " rollouts"]:
    """Reward minus the mean reward of its group, by default in units of the group's standard deviation.

        A_i = (r_i - mean_g) / (std_g + eps)     scale="std"                  GRPO
        A_i =  r_i - mean_g                      scale="none"                 Dr. GRPO
        A_i = (r_i - mean_g) / (std_r + eps)     scale="batch_std"            Lite PPO
        A_i = (r_i - mean_g) / (std_c + eps)     scale="centered_batch_std"   REINFORCE++-baseline

    std_r is over all scored rewards of the call, and so holds how much prompts differ; std_c is over the centred
    rewards r_i - mean_g, and does not. Both take groups of equal rewards in, whose centred rewards are 0.

    std="population" divides by n and gives +1, -1, -1, +1 for rewards 1, 0, 0, 1; std="sample" divides by n - 1.
    Dividing by the group's std weighs prompts that are nearly always or nearly never solved more than the others.

    A group whose rewards are all equal (SMALLEST_SPREAD), and a group with a single scored row, has no baseline and
    gets exactly 0. Rows with scored=False get 0 and move nothing; their reward may be NaN. The result is float64 for
    float64 rewards and float32 for all others.

    Source: GRPO, arXiv:2402.03300, section 4.1.2; Dr. GRPO, arXiv:2503.20783; batch std: arXiv:2508.08221; centred
    batch std: REINFORCE++, arXiv:2501.03262.

    Raises:
        ValueError: if scale or std is unknown, eps is negative, or a scored reward is NaN or infinite.
    """
    if scale not in SCALES:
        raise ValueError(f"group_advantages: scale = {scale!r} is not known; use one of {', '.join(SCALES)}")
    if std not in STDS:
        raise ValueError(f"group_advantages: std = {std!r} is not known; use one of {', '.join(STDS)}")
    if eps < 0:
        raise ValueError(f"group_advantages: eps = {eps} must be 0 or more")
    centered = _center(rewards, group_ids, scored)
    advantages = centered.deviation
    correction = 1 if std == "sample" else 0
    if scale == "std":
        squares = _sum_by_group(advantages.square(), centered.group, centered.num_scored.numel())
        variance = squares / (centered.num_scored - correction).clamp(min=1)
        advantages = advantages / (variance.sqrt()[centered.group] + eps)
    elif scale == "batch_std" and centered.has_signal.any():
        advantages = advantages / (centered.rewards[centered.scored].std(correction=correction) + eps)
    elif scale == "centered_batch_std" and centered.has_signal.any():
        advantages = advantages / (centered.deviation[centered.scored].std(correction=correction) + eps)
    return _finish(advantages, centered.has_signal, rewards)


def leave_one_out(
    rewards: Real[Tensor, " rollouts"],
    group_ids: Int[Tensor, " rollouts"],
    *,
    scored: Shaped[Tensor, " rollouts"] | None = None,
) -> Float[Tensor, " rollouts"]:
    """Reward minus the mean reward of the *other* scored rows of its group.

        A_i = r_i - mean_{j != i} r_j = n / (n - 1) * (r_i - mean_g)        n = scored rows of the group

    Equal rewards, single scored rows, unscored rows and dtypes as in `group_advantages`.

    Source: RLOO, arXiv:2402.14740.

    Raises:
        ValueError: if a scored reward is NaN or infinite.
    """
    centered = _center(rewards, group_ids, scored)
    factor = centered.num_scored / (centered.num_scored - 1).clamp(min=1)
    return _finish(centered.deviation * factor[centered.group], centered.has_signal, rewards)


def max_rl_advantages(
    rewards: Real[Tensor, " rollouts"],
    group_ids: Int[Tensor, " rollouts"],
    *,
    scored: Shaped[Tensor, " rollouts"] | None = None,
) -> Float[Tensor, " rollouts"]:
    """Reward minus the mean reward of its group, in units of that mean: hard prompts count more.

        A_i = (r_i - mean_g) / mean_g               exactly 0 where mean_g is 0

    With rewards 0 and 1 and pass rate p, the expected gradient is (1 - (1-p)^(G-1)) / p times grad p: that of p for
    G = 2, and toward that of log p, the maximum likelihood of solving, as G grows. A single right answer in a group of
    G gets G - 1.

    Equal rewards, single scored rows, unscored rows and dtypes as in `group_advantages`.

    Source: MaxRL, arXiv:2602.02710.

    Raises:
        ValueError: if a scored reward is negative, NaN or infinite: a mean below 0 would turn the sign.
    """
    centered = _center(rewards, group_ids, scored)
    if (centered.rewards < 0).any():
        raise ValueError(
            f"max_rl_advantages: the lowest reward is {centered.rewards.min().item()}; rewards must be 0 or more, "
            "such as 1 for a right answer and 0 for a wrong one"
        )
    mean = centered.mean.clamp(min=torch.finfo(torch.float64).tiny)  # 0 only where all rewards are 0
    return _finish(centered.deviation / mean, centered.has_signal, rewards)


def _center(
    rewards: Real[Tensor, " rollouts"],
    group_ids: Int[Tensor, " rollouts"],
    scored: Shaped[Tensor, " rollouts"] | None,
) -> _Centered:
    """Subtract the mean of each group's scored rewards."""
    keep = torch.ones_like(group_ids, dtype=torch.bool) if scored is None else scored.bool()
    values = rewards.detach().double()
    broken = (keep & ~torch.isfinite(values)).nonzero().flatten().tolist()
    if broken:
        raise ValueError(
            f"advantages: the scored rewards at rows {broken[:5]} are {values[broken[:5]].tolist()}; a reward must be "
            "finite. Mark rows that could not be judged with scored = False"
        )
    values = torch.where(keep, values, 0.0)
    ids, group = torch.unique(group_ids, return_inverse=True)
    num_groups = ids.numel()
    num_scored = _sum_by_group(keep.double(), group, num_groups)
    mean = (_sum_by_group(values, group, num_groups) / num_scored.clamp(min=1))[group]
    # Equality is read from the rewards, not from the std: the mean of equal numbers can be off by one rounding.
    edge = values.new_full((num_groups,), torch.inf)
    highest = (-edge).scatter_reduce(0, group, torch.where(keep, values, -torch.inf), "amax")
    lowest = edge.scatter_reduce(0, group, torch.where(keep, values, torch.inf), "amin")
    return _Centered(
        rewards=values,
        scored=keep,
        group=group,
        num_scored=num_scored,
        mean=mean,
        deviation=torch.where(keep, values - mean, 0.0),
        has_signal=keep & (highest - lowest > SMALLEST_SPREAD)[group],
    )


def _sum_by_group(
    values: Float64[Tensor, " rollouts"], group: Int[Tensor, " rollouts"], num_groups: int
) -> Float64[Tensor, " groups"]:
    """Sum of the values of each group."""
    return values.new_zeros(num_groups).index_add(0, group, values)


def _finish(
    advantages: Float64[Tensor, " rollouts"], has_signal: Bool[Tensor, " rollouts"], rewards: Real[Tensor, " rollouts"]
) -> Float[Tensor, " rollouts"]:
    """Exactly 0 where there is no signal; float64 stays, everything else becomes float32."""
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    return torch.where(has_signal, advantages, 0.0).to(dtype)
