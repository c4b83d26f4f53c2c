"""Advantages where a reward has several parts: each part is compared inside its group before the parts are summed.

With the plain sum, different mixtures of parts that add up to the same number get the same advantage, and the part that
varies most drowns the others. `length_shaped` makes a reward of a length without letting a wrong answer gain by it.
"""

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor

from groupwise.objective.advantages import group_advantages


def gdpo_advantages(
    part_rewards: Real[Tensor, "rollouts parts"],
    weights: Real[Tensor, " parts"],
    group_ids: Int[Tensor, " rollouts"],
    *,
    scored: Shaped[Tensor, " rollouts"] | None = None,
    batch_scale: bool = True,
    std: str = "population",
    eps: float = 1e-6,
) -> Float[Tensor, " rollouts"]:
    """Group-relative advantage of each part, weighted and summed, then in units of the whole step's spread.

        Z_in = (r_in - mean_g r_n) / (std_g r_n + eps)       for each part n
        S_i  = sum_n w_n Z_in
        A_i  = (S_i - mean S) / (std S + eps)                mean and std over all scored rows; batch_scale=True
        A_i  = S_i                                           batch_scale=False

    A part that is the same for a whole group adds 0 there. A group in which every part is constant carries no signal
    and gets exactly 0, also after the batch step, which is done over the scored rows (not over their tokens).
    Unscored rows get 0 and move nothing. Where a wrong answer may earn partial credit, a part alone can put it above a
    right one: give every part of a wrong answer 0, as a composed verdict with partial_cap = 0 does.

    Source: GDPO, arXiv:2601.05242.

    Raises:
        ValueError: if std is unknown, eps is negative, or a scored reward is NaN or infinite.
    """
    columns = [
        group_advantages(column, group_ids, scored=scored, std=std, eps=eps)
        for column in part_rewards.detach().double().unbind(dim=1)
    ]
    relative = torch.stack(columns, dim=1)
    total = relative @ weights.double()
    has_signal = _has_signal(relative, group_ids)
    keep = torch.ones_like(group_ids, dtype=torch.bool) if scored is None else scored.bool()
    if batch_scale and has_signal.any():
        known = total[keep]
        correction = 1 if std == "sample" else 0
        total = (total - known.mean()) / (known.std(correction=correction) + eps)
    dtype = torch.float64 if part_rewards.dtype == torch.float64 else torch.float32
    return torch.where(has_signal & keep, total, 0.0).to(dtype)


def length_shaped(
    rewards: Float[Tensor, " rollouts"],
    solved: Bool[Tensor, " rollouts"],
    num_tokens: Int[Tensor, " rollouts"],
    *,
    free_tokens: int,
    max_tokens: int,
    strength: float,
) -> Float[Tensor, " rollouts"]:
    """Right answers earn less the longer they are; wrong answers keep what they have.

        r'_i = r_i * (1 - strength * min(1, max(0, (n_i - free_tokens) / (max_tokens - free_tokens))))    if solved
        r'_i = r_i                                                                                        otherwise

    So a group without a right answer is not touched, and shortness alone is never worth anything. The ramp is clamped
    at both ends: a length beyond max_tokens costs no more than max_tokens does. With strength below 1 every right
    answer keeps a reward above 0; it stays above the wrong ones where those earn less than 1 - strength.

    Raises:
        ValueError: unless 0 <= free_tokens < max_tokens and 0 <= strength < 1.
    """
    if not 0 <= free_tokens < max_tokens:
        raise ValueError(
            f"length_shaped: free_tokens = {free_tokens} must be 0 or more and below max_tokens = {max_tokens}"
        )
    if not 0 <= strength < 1:
        raise ValueError(f"length_shaped: strength = {strength} must be 0 or more and under 1")
    ramp = ((num_tokens.double() - free_tokens) / (max_tokens - free_tokens)).clamp(0.0, 1.0)
    return torch.where(solved, rewards * (1.0 - strength * ramp), rewards).to(rewards.dtype)


def _has_signal(
    relative: Float[Tensor, "rollouts parts"], group_ids: Int[Tensor, " rollouts"]
) -> Bool[Tensor, " rollouts"]:
    """True for the rows of groups in which some part differs."""
    ids, group = torch.unique(group_ids, return_inverse=True)
    alive = torch.zeros(ids.numel(), dtype=torch.bool)
    alive[group[(relative != 0).any(dim=1)]] = True
    return alive[group]
