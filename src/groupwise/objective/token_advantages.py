"""Advantages that differ from token to token: by a value network, or by rewards of the steps of a completion.

Statistics and sums are taken in float64. Everything here is a constant for the loss. A cell where loss_mask is False
(prompt, tool output, padding) is skipped wherever it stands: it earns nothing, and what lies behind it follows directly
on what lies before it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Real, Shaped
from torch import Tensor

from groupwise.objective.advantages import STDS, group_advantages


class ValueTargets(NamedTuple):
    """What a step of PPO learns from: ValueTargets(advantages=[batch, length], returns=[batch, length])."""

    advantages: Float[Tensor, "batch length"]
    """For the policy; usually whitened before use. Masked cells are exactly 0."""
    returns: Float[Tensor, "batch length"]
    """For the value network: advantage before whitening, plus value. Masked cells are exactly 0."""


@torch.no_grad()
def gae(
    rewards: Real[Tensor, "batch length"],
    values: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap_values: Float[Tensor, " batch"] | None = None,
) -> ValueTargets:
    """Generalised advantage estimation over the trained tokens of each row.

        delta_t = R_t + gamma V_{t+1} - V_t           t + 1 is the next trained token
        A_t = delta_t + gamma lam A_{t+1}             0 behind the last one
        returns_t = A_t + V_t

    V behind the last trained token is 0: the completion has ended. For one that was cut off, give the value there in
    bootstrap_values, and 0 for the rows that ended. lam = 1 is the sum of the rewards to come minus the value; lam = 0
    is delta. Over many tokens lam under 1 forgets the end reward: 0.95^100 = 0.006. Values and rewards of masked cells
    are never read.

    Source: GAE, arXiv:1506.02438, eq. 16.

    Raises:
        ValueError: unless gamma and lam are from 0 to 1.
    """
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ValueError(f"gae: gamma = {gamma} and lam = {lam} must be from 0 to 1, such as 1 and 0.95")
    trained = loss_mask.bool()
    steps, baseline = (torch.where(trained, x.double(), 0.0) for x in (rewards, values))
    advantages = torch.zeros_like(baseline)
    advantage = baseline.new_zeros(baseline.shape[0])
    value = torch.zeros_like(advantage) if bootstrap_values is None else bootstrap_values.double()
    for t in range(baseline.shape[1] - 1, -1, -1):
        step = steps[:, t] + gamma * value - baseline[:, t] + gamma * lam * advantage
        advantage = torch.where(trained[:, t], step, advantage)
        value = torch.where(trained[:, t], baseline[:, t], value)
        advantages[:, t] = torch.where(trained[:, t], step, 0.0)
    return ValueTargets(advantages.to(values.dtype), (advantages + baseline).to(values.dtype))


@torch.no_grad()
def returns_to_go(
    rewards: Real[Tensor, "batch length"], loss_mask: Shaped[Tensor, "batch length"], *, gamma: float = 1.0
) -> Float[Tensor, "batch length"]:
    """The discounted sum of the rewards of a token and of the trained tokens behind it; masked cells are exactly 0.

        G_t = R_t + gamma G_{t+1}

    With `token_rewards` and `whiten` this is REINFORCE++.

    Source: REINFORCE++, arXiv:2501.03262.

    Raises:
        ValueError: unless gamma is from 0 to 1.
    """
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    zeros = torch.zeros(rewards.shape, dtype=dtype, device=rewards.device)
    return gae(rewards, zeros, loss_mask, gamma=gamma, lam=1.0).returns


@torch.no_grad()
def whiten(
    values: Float[Tensor, "*shape"],
    mask: Shaped[Tensor, "*shape"],
    *,
    shift_mean: bool = True,
    std: str = "population",
    eps: float = 1e-8,
) -> Float[Tensor, "*shape"]:
    """Values in units of their standard deviation over the cells where mask is True, by default around their mean.

        w = (v - mean) / sqrt(var + eps)              shift_mean=True
        w = (v - mean) / sqrt(var + eps) + mean       shift_mean=False: rewards whose level must stay

    Mean and variance see the selected cells only; the others are exactly 0. std="population" divides by n,
    std="sample" by n - 1. Equal values (also a single one) have no spread and become exactly 0, or stay with
    shift_mean=False. One call sees all tokens of the step: the statistics do not follow from those of its parts.

    Source: arXiv:1909.08593; population and sample: "The N implementation details of RLHF with PPO", 2023.

    Raises:
        ValueError: if std is unknown, or eps is negative.
    """
    if std not in STDS:
        raise ValueError(f"whiten: std = {std!r} is not known; use one of {', '.join(STDS)}")
    if eps < 0:
        raise ValueError(f"whiten: eps = {eps} must be 0 or more")
    selected = mask.bool()
    kept = values.double()[selected]
    if not kept.numel():
        return torch.zeros_like(values)
    mean = kept.mean()
    deviation = torch.where(selected, values.double() - mean, 0.0)
    if kept.max() == kept.min():
        scaled = torch.zeros_like(deviation)
    else:
        scaled = deviation / (kept.var(correction=1 if std == "sample" else 0) + eps).sqrt()
    return torch.where(selected, scaled if shift_mean else scaled + mean, 0.0).to(values.dtype)


@torch.no_grad()
def process_advantages(
    step_rewards: Real[Tensor, "batch length"],
    step_ends: Shaped[Tensor, "batch length"],
    group_ids: Int[Tensor, " batch"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    scale: str = "std",
    std: str = "population",
    eps: float = 1e-6,
) -> Float[Tensor, "batch length"]:
    """Advantages from a reward for each step of a completion: what the steps still to end earn.

        z = (step reward - mean) / (std + eps)        mean and std over all steps of all completions of the group
        A[i, t] = sum of z over the steps of row i that end at t or later

    step_ends is True at the last token of each step, and step_rewards is read there only; a step may end at a masked
    cell. Tokens behind the last step get 0. With one step a completion, at its end, this is `group_advantages`. The
    sum grows with the number of steps to come, so that completions of many steps weigh more. scale, std and eps as
    there; a group whose step rewards are all equal gets exactly 0. A row without a step end gets 0 and moves nothing,
    which is how a completion that could not be judged is left out.

    Source: process supervision, arXiv:2402.03300, section 4.1.3.

    Raises:
        ValueError: as `group_advantages`, whose rows are here the steps.
    """
    ends = step_ends.bool()
    row, _ = ends.nonzero(as_tuple=True)
    relative = group_advantages(step_rewards.double()[ends], group_ids[row], scale=scale, std=std, eps=eps)
    placed = torch.zeros(step_rewards.shape, dtype=torch.float64, device=step_rewards.device)
    placed[ends] = relative
    to_go = placed.flip(1).cumsum(1).flip(1)
    dtype = torch.float64 if step_rewards.dtype == torch.float64 else torch.float32
    return torch.where(loss_mask.bool(), to_go, 0.0).to(dtype)
