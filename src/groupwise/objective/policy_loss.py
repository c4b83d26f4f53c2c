"""Policy-gradient losses: one function each, per token, to be minimised and then reduced by `aggregate`."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.importance import importance_ratio
from groupwise.objective.reduction import masked_sum


class ClipShares(NamedTuple):
    """Shares of trained tokens that the clip silences: ClipShares(low=tensor(0.02), high=tensor(0.05))."""

    low: Float[Tensor, ""]
    """Advantage below 0 and ratio below 1 - clip_low."""
    high: Float[Tensor, ""]
    """Advantage above 0 and ratio above 1 + clip_high."""


def clipped_policy_loss(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
) -> Float[Tensor, "batch length"]:
    """The clipped surrogate of PPO with one advantage a completion, sign turned so that it is minimised.

        loss[i, t] = -min(ratio[i, t] A[i], clip(ratio[i, t], 1 - clip_low, 1 + clip_high) A[i])

    clip_high=None means clip_low; a larger one is DAPO's clip-higher. On the first update the ratio is 1, so the value
    is -A (centred advantages then give a loss near 0) and so is the gradient of every token. Masked cells are exactly 0
    in value and gradient, whatever stands there. Advantages and `old_logprobs` are constants; the result has the dtype
    of `policy_logprobs`.

    Source: PPO, arXiv:1707.06347, eq. 7; GRPO, arXiv:2402.03300, eq. 3 (its KL term is `kl_estimate`, added by the
    caller); clip-higher: DAPO, arXiv:2503.14476, section 3.1.

    Raises:
        ValueError: if clip_low or clip_high is negative.
    """
    lowest, highest = _clip_bounds(clip_low, clip_high)
    ratio = importance_ratio(policy_logprobs, old_logprobs, loss_mask)
    advantage = advantages.detach().to(ratio.dtype).unsqueeze(1)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(lowest, highest) * advantage)
    return torch.where(loss_mask.bool(), -surrogate, 0.0)


@torch.no_grad()
def clip_shares(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    denominator: float | Tensor | None = None,
) -> ClipShares:
    """Which shares of the trained tokens get no gradient from `clipped_policy_loss`, because of the clip.

    denominator is the number of trained tokens of the whole step, so that the shares of micro-batches add up; None
    means those of the given rows. Without a trained token both shares are 0. A ratio outside the bounds on the side
    that the clip leaves alone (above, with a negative advantage) is not counted. A metric: it passes no gradient.

    Raises:
        ValueError: if clip_low or clip_high is negative.
    """
    lowest, highest = _clip_bounds(clip_low, clip_high)
    ratio = importance_ratio(policy_logprobs, old_logprobs, loss_mask)
    advantage = advantages.unsqueeze(1)
    num_trained = loss_mask.bool().sum() if denominator is None else torch.as_tensor(denominator)
    share = num_trained.clamp(min=1)
    return ClipShares(
        low=masked_sum(((ratio < lowest) & (advantage < 0)).float(), loss_mask) / share,
        high=masked_sum(((ratio > highest) & (advantage > 0)).float(), loss_mask) / share,
    )


def _clip_bounds(clip_low: float, clip_high: float | None) -> tuple[float, float]:
    """Lowest and highest ratio that is not clipped."""
    high = clip_low if clip_high is None else clip_high
    if clip_low < 0 or high < 0:
        raise ValueError(
            f"clip_low = {clip_low} and clip_high = {clip_high} are distances from a ratio of 1 and must be 0 or more, "
            "such as 0.2 and 0.28"
        )
    return 1 - clip_low, 1 + high
