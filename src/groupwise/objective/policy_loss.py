"""Policy-gradient losses: one function each, per token, to be minimised and then reduced by `aggregate`.

    function              weight of a token's gradient, with ratio r and advantage A    known as
    --------------------  ------------------------------------------------------------  -------------------------
    reinforce_loss        A                                                             REINFORCE, RLOO
    clipped_policy_loss   A r, 0 where the clip is active                               PPO, GRPO, DAPO, Dr. GRPO
    sequence_policy_loss  the same with the geometric mean ratio of the completion      GSPO, GSPO-token
    cispo_loss            A r with r cut, never 0                                       CISPO

On the first update after sampling r is 1 and all four have the same gradient. Advantages are one number a completion,
or one a token (PPO with a value network, process rewards); the latter may hold anything in masked cells.
"""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from groupwise.objective.clipping import clip_bounds
from groupwise.objective.importance import importance_ratio

SEQUENCE_LEVELS = ("sequence", "sequence_token", "product")


def reinforce_loss(
    policy_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
) -> Float[Tensor, "batch length"]:
    """Minus the advantage times the log-probability: the policy gradient for samples of the policy itself.

        loss[i, t] = -A[i, t] policy[i, t]

    The value means nothing; its gradient is that of the clipped loss at a ratio of 1. There is no guard against a
    policy that has moved, so each rollout serves one update. With `leave_one_out` and a sum over tokens
    (normalize="constant", denominator = number of completions) this is RLOO. Masked cells are exactly 0 in value and
    gradient, whatever stands there. Advantages are constants.

    Source: REINFORCE, R. J. Williams, 1992; for language models: RLOO, arXiv:2402.14740.
    """
    trained = loss_mask.bool()
    advantage = spread(advantages, trained).to(policy_logprobs.dtype)
    return torch.where(trained, -advantage * policy_logprobs, 0.0)


def clipped_policy_loss(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
) -> Float[Tensor, "batch length"]:
    """The clipped surrogate of PPO, sign turned so that it is minimised.

        loss = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)
        loss = min(loss, -dual_clip A)                                        where A < 0, with dual_clip

    clip_high=None means clip_low; a larger one is DAPO's clip-higher. Without dual_clip a token of a bad completion
    that has become much more probable gets an unbounded loss; with it (3 is usual) the loss stops there and so does
    the gradient. On the first update the ratio is 1, so the value is -A (centred advantages then give a loss near 0)
    and so is the gradient of every token. Masked cells are exactly 0 in value and gradient, whatever stands there.
    Advantages and `old_logprobs` are constants; the result has the dtype of `policy_logprobs`.

    Where rollouts come from weights mu that are neither the policy nor the old one, multiply by the importance weight
    of old over mu (`truncated_importance_weight`): the decoupled loss. With mu = old that weight is 1.

    Source: PPO, arXiv:1707.06347, eq. 7; GRPO, arXiv:2402.03300, eq. 3 (its KL term is `kl_estimate`, added by the
    caller); clip-higher: DAPO, arXiv:2503.14476, section 3.1; dual clip: arXiv:1912.09729; decoupled:
    arXiv:2110.00641.

    Raises:
        ValueError: if clip_low or clip_high is negative, or dual_clip is not above 1.
    """
    ratio = importance_ratio(policy_logprobs, old_logprobs, loss_mask)
    return _clipped(ratio, advantages, loss_mask, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)


def sequence_policy_loss(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float = 3e-4,
    clip_high: float | None = 4e-4,
    dual_clip: float | None = None,
    level: str = "sequence",
) -> Float[Tensor, "batch length"]:
    """The clipped surrogate with one ratio a completion, the geometric mean of its token ratios.

        s[i] = exp(mean over trained t of (policy[i, t] - old[i, t]))
        loss[i, t] = -min(s[i] A, clip(s[i], 1 - clip_low, 1 + clip_high) A)

    A completion is clipped as a whole. The mean moves far less than a token, hence the narrow default bounds. The
    published loss is the mean over completions of one value each: reduce with normalize="sequence". Then the gradient
    is s A / length times the sum of the token gradients, and a completion of one token has the loss of
    `clipped_policy_loss`.

    level="sequence_token" is GSPO-token: same value, and each cell passes its gradient to its own token only, which
    is what advantages that differ from token to token need. With one advantage a completion both reduce to the same
    gradient.

    level="product" takes the ratio of the whole completions instead of its mean, as TRL's RLOO does for several
    updates; the gradient then is s A times the sum of the token gradients, and bounds like 0.2 make sense again.

    Masked cells, dual_clip, dtypes and constants as in `clipped_policy_loss`.

    Source: GSPO, arXiv:2507.18071, eq. 5 to 7; GSPO-token: the same, eq. 13 and 14.

    Raises:
        ValueError: as `clipped_policy_loss`, and if level is unknown or "token".
    """
    if level not in SEQUENCE_LEVELS:
        raise ValueError(
            f"sequence_policy_loss: level = {level!r} is not known; use one of {', '.join(SEQUENCE_LEVELS)}"
        )
    ratio = importance_ratio(policy_logprobs, old_logprobs, loss_mask, level=level)
    return _clipped(ratio, advantages, loss_mask, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)


def cispo_loss(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float = 1.0,
    clip_high: float | None = 4.0,
) -> Float[Tensor, "batch length"]:
    """The policy gradient weighted by a clipped ratio that is itself a constant: no token loses its gradient.

        weight = clip(ratio, 1 - clip_low, 1 + clip_high)          a constant
        loss[i, t] = -weight[i, t] A policy[i, t]

    clip_low and clip_high are distances from 1 as everywhere here, so that the default bounds are 0 (no lower bound,
    as published) and 5. TRL's `epsilon_high` names the bound itself: its 5 is our clip_high = 4. clip_high=None means
    clip_low. The value means nothing. The published loss divides by the trained tokens: normalize="token".

    Masked cells are exactly 0 in value and gradient, whatever stands there. Advantages and `old_logprobs` are
    constants; the result has the dtype of `policy_logprobs`.

    Source: CISPO, MiniMax-M1, arXiv:2506.13585, section 3.1.

    Raises:
        ValueError: if clip_low or clip_high is negative.
    """
    lowest, highest = clip_bounds(clip_low, clip_high)
    ratio = importance_ratio(policy_logprobs.detach(), old_logprobs, loss_mask)
    weighted = ratio.clamp(lowest, highest) * spread(advantages, loss_mask.bool()).to(ratio.dtype)
    return reinforce_loss(policy_logprobs, weighted, loss_mask)


def spread(
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"], trained: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """One advantage a trained token, as a constant; 0 in the other cells, whatever stood there."""
    values = advantages.detach()
    return torch.where(trained, values.unsqueeze(1) if values.dim() == 1 else values, 0.0)


def _clipped(
    ratio: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    clip_low: float,
    clip_high: float | None,
    dual_clip: float | None,
) -> Float[Tensor, "batch length"]:
    """The pessimistic of the two surrogates, for a ratio of any level."""
    lowest, highest = clip_bounds(clip_low, clip_high, dual_clip)
    trained = loss_mask.bool()
    advantage = spread(advantages, trained).to(ratio.dtype)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(lowest, highest) * advantage)
    if dual_clip is not None:
        surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual_clip * advantage), surrogate)
    return torch.where(trained, -surrogate, 0.0)
