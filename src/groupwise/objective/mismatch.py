"""How far the sampler's log-probabilities are from the trainer's, and weights that correct for it.

Both describe the same weights, so that without restricted sampling anything but rounding is an error of one of them.
With top_p or top_k the sampler draws from a part of the vocabulary whose probabilities sum to Z under the model, and
reports log-probabilities of the renormalised part: sampler - trainer = -log Z, which is 0 or more.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.importance import importance_ratio
from groupwise.objective.reduction import masked_sum

TAIL = 0.99
"""The percentile of a gap that is reported beside its mean and its maximum."""


class GapSummary(NamedTuple):
    """Of the gap of all trained tokens of a step, in nats: GapSummary(mean=6e-6, p99=2.2e-5, largest=2.9e-5)."""

    mean: float
    p99: float
    """Nearest rank: the smallest value that at least 99 % of the tokens do not exceed. No interpolation."""
    largest: float


@torch.no_grad()
def logprob_gap(
    policy_logprobs: Float[Tensor, "*shape"],
    sampler_logprobs: Float[Tensor, "*shape"],
    *,
    min_kept_mass: float = 1.0,
) -> Float[Tensor, "*shape"]:
    """The part of the difference that restricted sampling does not explain, in nats, 0 or more.

        gap = distance of (sampler - policy) from the interval [0, -log(min_kept_mass)]

    min_kept_mass is the smallest Z that the restriction allows: 1 without one, which makes the gap |sampler - policy|;
    top_p with a nucleus, which holds at least top_p; 0 with top_k, where only tokens that the trainer finds more
    probable than the sampler count. NaN stays NaN. A metric: it passes no gradient.

    Raises:
        ValueError: if min_kept_mass is not a probability.
    """
    if not 0 <= min_kept_mass <= 1:
        raise ValueError(f"logprob_gap: min_kept_mass = {min_kept_mass} is a probability and must be from 0 to 1")
    explained = -math.log(min_kept_mass) if min_kept_mass > 0 else math.inf
    difference = sampler_logprobs - policy_logprobs
    return (difference - difference.clamp(0.0, explained)).abs()


def summarise_gap(gap: Float[Tensor, " tokens"]) -> GapSummary:
    """Mean, 99th percentile and maximum over the tokens; all 0 without a token, NaN in any makes mean and maximum NaN.

    One call sees the tokens of the whole step: a percentile and a maximum do not follow from those of its parts.
    """
    if not gap.numel():
        return GapSummary(0.0, 0.0, 0.0)
    rank = math.ceil(TAIL * gap.numel())
    return GapSummary(gap.double().mean().item(), gap.kthvalue(rank).values.item(), gap.max().item())


def truncated_importance_weight(
    policy_logprobs: Float[Tensor, "batch length"],
    sampler_logprobs: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    cap: float = 2.0,
    level: str = "token",
) -> Float[Tensor, "batch length"]:
    """Weight of each sampled token that corrects for the distribution it was drawn from.

        weight[i, t] = min(ratio[i, t], cap)          a constant: it carries no gradient

    ratio is `importance_ratio` of the policy to the sampler, and level says of what:

        level       ratio                        without the cap the weighted loss is
        ----------  ---------------------------  --------------------------------------------------------------------
        "token"     of the token                 biased: prefixes are still visited as the sampler visits them. The
                                                 error grows with length^2 times the gap of a token
        "product"   of the whole completion      unbiased, but its variance grows exponentially with the length
        "sequence"  its geometric mean a token   biased; a correction in size only, for long completions

    The cap trades variance for bias: what it cuts off is missing. Where policy and sampler are the same up to rounding
    the weight is 1 up to rounding. With top_p or top_k the token weight is Z, the probability that the kept tokens have
    under the model: at most 1, so that the cap never acts. The weighted mean over the kept tokens is then their part of
    the mean under the model; what was never sampled stays missing, and so does the effect on which prefixes are
    visited. Masked cells are exactly 1, whatever stands there.

    Source: truncation: E. Ionides, "Truncated importance sampling", 2008; token by token, between a sampler and a
    trainer of one model: F. Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025.

    Raises:
        ValueError: if cap is under 1, which would also shrink the weight of what needs no correction; or if level is
            unknown.
    """
    if cap < 1:
        raise ValueError(f"truncated_importance_weight: cap = {cap} must be 1 or more, such as 2")
    return importance_ratio(policy_logprobs.detach(), sampler_logprobs, loss_mask, level=level).clamp(max=cap)


def masked_importance_weight(
    policy_logprobs: Float[Tensor, "batch length"],
    sampler_logprobs: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    floor: float = 0.5,
    cap: float = 5.0,
    level: str = "token",
) -> Float[Tensor, "batch length"]:
    """The same weight where it is plausible, and 0 where it is not: such tokens or completions are left out.

        weight[i, t] = ratio[i, t] if floor <= ratio[i, t] <= cap, otherwise 0          a constant

    level as in `truncated_importance_weight`; with "product" and "sequence" a completion stays or goes as a whole.
    Cells left out stay in the denominator of the loss, so that the others do not grow. Biased toward where both
    distributions agree: nothing is learned from what was left out, however large its part. "product" leaves out nearly
    every long completion even of a good sampler (a gap of 1 % a token is a ratio of 2.7 after 100 tokens);
    "sequence" does not depend on the length. Masked cells are exactly 1, whatever stands there.

    Source: token: IcePop, arXiv:2510.18855.

    Raises:
        ValueError: unless 0 <= floor <= 1 <= cap, or if level is unknown.
    """
    if not 0 <= floor <= 1 <= cap:
        raise ValueError(
            f"masked_importance_weight: floor = {floor} and cap = {cap} must hold 1 between them, such as 0.5 and 5; "
            "a ratio of 1 needs no correction"
        )
    ratio = importance_ratio(policy_logprobs.detach(), sampler_logprobs, loss_mask, level=level)
    return torch.where((ratio >= floor) & (ratio <= cap), ratio, 0.0)


@torch.no_grad()
def effective_share(weights: Float[Tensor, "*shape"], mask: Shaped[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """What share of the samples is left after weighting: 1 for equal weights, 1/n where one weight is all.

        (sum w)^2 / (n sum w^2)          over the n cells where mask is True; 1 without a cell, 0 with all weights 0

    One call sees all tokens of the step. A metric: it passes no gradient.

    Source: effective sample size, A. Kong, 1992.
    """
    count = mask.bool().sum()
    total = masked_sum(weights.double(), mask)
    squares = masked_sum(weights.double().square(), mask)
    share = total.square() / (count * squares).clamp(min=torch.finfo(squares.dtype).tiny)
    return torch.where(count > 0, share, 1.0).float()
