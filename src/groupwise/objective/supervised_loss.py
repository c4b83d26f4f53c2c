"""Supervised fine-tuning: make the demonstrated tokens more probable."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def negative_log_likelihood(
    policy_logprobs: Float[Tensor, "batch length"], loss_mask: Shaped[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """Minus the log-probability of each trained token; exactly 0, with gradient 0, in masked cells.

    The usual mean over the tokens of a step is `aggregate` with normalize="token".
    """
    return torch.where(loss_mask.bool(), -policy_logprobs, 0.0)
