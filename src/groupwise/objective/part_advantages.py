"""Advantages where a reward has several parts: each part is compared inside its group before the parts are summed.

With the plain sum, different mixtures of parts that add up to the same number get the same advantage, and the part that
varies most drowns the others.
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


def _has_signal(
    relative: Float[Tensor, "rollouts parts"], group_ids: Int[Tensor, " rollouts"]
) -> Bool[Tensor, " rollouts"]:
    """True for the rows of groups in which some part differs."""
    ids, group = torch.unique(group_ids, return_inverse=True)
    alive = torch.zeros(ids.numel(), dtype=torch.bool)
    alive[group[(relative != 0).any(dim=1)]] = True
    return alive[group]
