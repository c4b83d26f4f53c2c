"""How much more probable the policy makes a sampled token than the weights that sampled it.

The ratio is 1 on the first update after sampling, yet its gradient is not 0: it carries the policy gradient.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.reduction import masked_mean

MAX_LOG_RATIO = 20.0
"""exp overflows float32 at 88.7, and infinity times an advantage of 0 is NaN. A ratio of exp(20) = 4.9e8 is already
broken (other weights or another tokenizer sampled), so that such a token keeps a finite value and gets no gradient."""

LEVELS = ("token", "sequence")


def importance_ratio(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    level: str = "token",
) -> Float[Tensor, "batch length"]:
    """Ratio of the policy's probability to the old one, for each token or for each completion.

        ratio[i, t] = exp(policy[i, t] - old[i, t])                              level="token"
        ratio[i, t] = exp(mean over trained t of (policy[i, t] - old[i, t]))     level="sequence", the same for all t

    The sequence ratio is the geometric mean of the token ratios; its gradient reaches every trained token of the row
    with weight ratio / number of trained tokens. The log-ratio is cut at MAX_LOG_RATIO from above. Masked cells are
    exactly 1 and pass no gradient, also where the inputs are NaN or infinite. `old_logprobs` is a constant, detached
    or not: a ratio of a tensor to itself is 1 with the right gradient, not with none.

    Source: token: PPO, arXiv:1707.06347, section 3; sequence: GSPO, arXiv:2507.18071, eq. 7.

    Raises:
        ValueError: if level is unknown.
    """
    if level not in LEVELS:
        raise ValueError(f"importance_ratio: level = {level!r} is not known; use one of {', '.join(LEVELS)}")
    trained = loss_mask.bool()
    log_ratio = torch.where(trained, policy_logprobs - old_logprobs.detach(), 0.0)
    if level == "sequence":
        mean = masked_mean(log_ratio, trained, dim=1).unsqueeze(1)
        log_ratio = torch.where(trained, mean, 0.0)
    return log_ratio.clamp(max=MAX_LOG_RATIO).exp()
