"""The loss of a value network: predict what a completion will still earn."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.reduction import masked_mean


def clipped_value_loss(
    values: Float[Tensor, "batch length"],
    old_values: Float[Tensor, "batch length"],
    returns: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip: float | None = 0.2,
) -> Float[Tensor, "batch length"]:
    """Half the squared error of the value, or of the value held near the old one, whichever is larger.

        loss = 1/2 max((V - G)^2, (clip(V, V_old - clip, V_old + clip) - G)^2)
        loss = 1/2 (V - G)^2                                                      clip=None

    A value that has moved further than clip toward the return gets no gradient. old_values are those of the rollout,
    from which the returns were made; they and the returns are constants. Masked cells are exactly 0 in value and
    gradient, whatever stands there. Reduce with normalize="token".

    Source: PPO, arXiv:1707.06347, eq. 9, with the clip of its public implementation.

    Raises:
        ValueError: if clip is negative.
    """
    if clip is not None and clip < 0:
        raise ValueError(f"clipped_value_loss: clip = {clip} must be 0 or more, such as 0.2, or None to leave it out")
    trained = loss_mask.bool()
    value, old, target = (torch.where(trained, x, 0.0) for x in (values, old_values.detach(), returns.detach()))
    loss = (value - target).square() / 2
    if clip is not None:
        near = value.clamp(old - clip, old + clip)
        loss = torch.maximum(loss, (near - target).square() / 2)
    return torch.where(trained, loss, 0.0)


@torch.no_grad()
def explained_variance(
    values: Float[Tensor, "*shape"], returns: Float[Tensor, "*shape"], mask: Shaped[Tensor, "*shape"]
) -> Float[Tensor, ""]:
    """How much of the spread of the returns the values predict: 1 all of it, 0 no more than their mean, below 0 less.

        1 - var(returns - values) / var(returns)          over the cells where mask is True

    A constant offset of all values does not show. Exactly 0 where all returns are equal, or no cell is selected: there
    is nothing to explain. One call sees all tokens of the step. A metric: it passes no gradient.
    """
    target, error = returns.double(), (returns.double() - values.double())
    spread, left = (masked_mean((x - masked_mean(x, mask)).square(), mask) for x in (target, error))
    selected = target[mask.bool()]
    varied = selected.numel() > 0 and bool(selected.max() > selected.min())
    return (1 - left / spread).float() if varied else torch.zeros((), device=values.device)
