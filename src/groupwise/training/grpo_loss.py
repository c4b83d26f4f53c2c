"""The loss of the GRPO family on the rows of one micro-batch, put together from the functions of objective/.

    policy loss + beta KL          each token, then weighted for the distribution that sampled it
    - entropy_coef entropy         each token
    times the row's weight, then reduced by `aggregate`

With one update a batch the old log-probabilities are the current ones without their gradient: no second forward
computes them, every ratio is 1, and nothing about ratios is reported because there is nothing to tell.
"""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.objective import (
    aggregate,
    cispo_loss,
    clip_shares,
    clipped_policy_loss,
    entropy_loss,
    importance_ratio,
    kl_estimate,
    masked_importance_weight,
    reinforce_loss,
    sequence_policy_loss,
    truncated_importance_weight,
    weighted_kl_estimate,
)
from groupwise.training.grpo_options import GrpoOptions, LossKind
from groupwise.training.step import LossFunction, LossRows

RATIO_TAIL = 2.0
"""A ratio above it, or below its inverse, counts as far out."""

RATIO_LEVELS: dict[LossKind, str] = {"gspo": "sequence", "gspo_token": "sequence"}
"""Levels of importance_ratio whose clip is counted; the others are by token."""


def loss_function(options: GrpoOptions) -> LossFunction:
    """The loss under these options, and what it reports.

    Where they exist: kl_to_ref, importance_weight, and the share of tokens whose weight was cut to the cap
    (importance_capped_frac) or to 0 (importance_masked_frac). With several updates also ratio, its mean,
    ratio_tail_frac, and the shares of tokens that the clip acts on: clipped_low, clipped_high, clipped_dual.
    """

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        old_logprobs = rows.policy_logprobs.detach() if rows.old_logprobs is None else rows.old_logprobs
        assert rows.advantages is not None, "rollouts have advantages"
        per_token = policy_loss(options, rows, rows.advantages, old_logprobs)
        reported: dict[str, Tensor] = {}
        if rows.old_logprobs is not None:
            reported |= ratio_numbers(options, rows, rows.advantages, rows.old_logprobs)
        if rows.ref_logprobs is not None and options.has_kl_loss:
            kl_to_ref = kl_loss(options, rows, old_logprobs, rows.ref_logprobs)
            per_token = per_token + options.beta * kl_to_ref
            reported["kl_to_ref"] = kl_to_ref
        if options.importance_cap is not None:
            weight, is_cut = sampler_weight(options, rows, old_logprobs, options.importance_cap)
            per_token = per_token * weight
            cut = "importance_capped_frac" if options.importance_floor is None else "importance_masked_frac"
            reported |= {"importance_weight": weight, cut: is_cut}
        if options.entropy_coef > 0:
            assert rows.entropies is not None, "they were asked for"
            per_token = per_token + options.entropy_coef * entropy_loss(rows.entropies, rows.mask)
        if rows.weights is not None:
            per_token = per_token * rows.weights[:, None]
        total = aggregate(per_token, rows.mask, normalize=options.normalize, denominator=rows.denominator)
        return total, reported

    return loss


def policy_loss(options: GrpoOptions, rows: LossRows, advantages: Tensor, old_logprobs: Tensor) -> Tensor:
    """[B, L] the policy loss of each token, by options.loss."""
    clips = {"clip_low": options.clip_low, "clip_high": options.clip_high}
    given = (rows.policy_logprobs, old_logprobs, advantages, rows.mask)
    if options.loss == "clipped":
        return clipped_policy_loss(*given, **clips, dual_clip=options.dual_clip)  # type: ignore[arg-type]
    if options.loss == "cispo":
        return cispo_loss(*given, **clips)  # type: ignore[arg-type]
    if options.loss == "reinforce":
        return reinforce_loss(rows.policy_logprobs, advantages, rows.mask)
    level = "sequence" if options.loss == "gspo" else "sequence_token"
    return sequence_policy_loss(*given, **clips, dual_clip=options.dual_clip, level=level)  # type: ignore[arg-type]


def kl_loss(options: GrpoOptions, rows: LossRows, old_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[B, L] the KL of each trained token to the reference, 0 elsewhere."""
    if options.kl_weighted:
        return weighted_kl_estimate(rows.policy_logprobs, old_logprobs, ref_logprobs, rows.mask, estimator=options.kl)
    kl = kl_estimate(rows.policy_logprobs, ref_logprobs, estimator=options.kl)
    return torch.where(rows.mask, kl, torch.zeros_like(kl))


def sampler_weight(options: GrpoOptions, rows: LossRows, old_logprobs: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """[B, L] the weight of each token for the distribution that sampled it, and 1.0 where that weight was cut."""
    assert rows.sampler_logprobs is not None, "rollouts carry the log-probabilities they were sampled with"
    given, level = (old_logprobs, rows.sampler_logprobs, rows.mask), options.importance_level
    if options.importance_floor is None:
        weight = truncated_importance_weight(*given, cap=cap, level=level)
        return weight, (weight >= cap).float()
    weight = masked_importance_weight(*given, floor=options.importance_floor, cap=cap, level=level)
    return weight, (weight == 0).float()


@torch.no_grad()
def ratio_numbers(options: GrpoOptions, rows: LossRows, advantages: Tensor, old_logprobs: Tensor) -> dict[str, Tensor]:
    """[B, L] what there is to tell of the ratios of these rows, so that means over tokens are the step's shares."""
    level = RATIO_LEVELS.get(options.loss, "token")
    ratio = importance_ratio(rows.policy_logprobs, old_logprobs, rows.mask, level=level)
    far = (ratio > RATIO_TAIL) | (ratio < 1 / RATIO_TAIL)
    numbers = {"ratio": ratio, "ratio_tail_frac": far.float()}
    if options.loss == "reinforce":
        return numbers
    shares = clip_shares(
        rows.policy_logprobs,
        old_logprobs,
        advantages,
        rows.mask,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        dual_clip=options.dual_clip,
        level=level,
    )
    numbers |= {"clipped_low": shares.low.expand_as(ratio), "clipped_high": shares.high.expand_as(ratio)}
    if options.dual_clip is not None:
        numbers["clipped_dual"] = shares.dual.expand_as(ratio)
    return numbers
