"""Where the clip of a policy loss is active, counted."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.importance import importance_ratio
from groupwise.objective.reduction import masked_sum


class ClipShares(NamedTuple):
    """Shares of the trained tokens: ClipShares(low=tensor(0.02), high=tensor(0.05), dual=tensor(0.0))."""

    low: Float[Tensor, ""]
    """Advantage below 0 and ratio below 1 - clip_low."""
    high: Float[Tensor, ""]
    """Advantage above 0 and ratio above 1 + clip_high."""
    dual: Float[Tensor, ""]
    """Advantage below 0 and ratio above dual_clip; 0 without dual_clip."""


@torch.no_grad()
def clip_shares(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    level: str = "token",
    denominator: float | Tensor | None = None,
) -> ClipShares:
    """Which shares of the trained tokens get no gradient from a clipped loss, because of the clip.

    level is that of `importance_ratio`: "token" for `clipped_policy_loss`, "sequence" for `sequence_policy_loss`, where
    all tokens of a completion count or none. A ratio outside the bounds on the side that the clip leaves alone (above,
    with a negative advantage) is not counted. For `cispo_loss` the same tokens count: there their weight is cut and
    they keep their gradient.

    denominator is the number of trained tokens of the whole step, so that the shares of micro-batches add up; None
    means those of the given rows. Without a trained token all shares are 0. A metric: it passes no gradient.

    Raises:
        ValueError: if clip_low or clip_high is negative, dual_clip is not above 1, or level is unknown.
    """
    lowest, highest = clip_bounds(clip_low, clip_high, dual_clip)
    ratio = importance_ratio(policy_logprobs, old_logprobs, loss_mask, level=level)
    advantage = advantages if advantages.dim() == 2 else advantages.unsqueeze(1)
    num_trained = loss_mask.bool().sum() if denominator is None else torch.as_tensor(denominator)
    share = num_trained.clamp(min=1)
    beyond = torch.zeros_like(ratio, dtype=torch.bool) if dual_clip is None else ratio > dual_clip
    low, high, dual = (
        masked_sum(cells.float(), loss_mask) / share
        for cells in (
            (ratio < lowest) & (advantage < 0),
            (ratio > highest) & (advantage > 0),
            beyond & (advantage < 0),
        )
    )
    return ClipShares(low=low, high=high, dual=dual)


def clip_bounds(clip_low: float, clip_high: float | None, dual_clip: float | None = None) -> tuple[float, float]:
    """Lowest and highest ratio that is not clipped.

    Raises:
        ValueError: if clip_low or clip_high is negative, or dual_clip is not above 1.
    """
    high = clip_low if clip_high is None else clip_high
    if clip_low < 0 or high < 0:
        raise ValueError(
            f"clip_low = {clip_low} and clip_high = {clip_high} are distances from a ratio of 1 and must be 0 or more, "
            "such as 0.2 and 0.28"
        )
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip = {dual_clip} is a ratio and must be above 1, such as 3, or None to leave it out")
    return 1 - clip_low, 1 + high
