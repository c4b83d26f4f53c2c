"""How much more probable the policy makes a sampled token than the weights that sampled it.

The ratio is 1 on the first update after sampling, yet its gradient is not 0: it carries the policy gradient.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.reduction import masked_mean, masked_sum

MAX_LOG_RATIO = 20.0
"""exp overflows float32 at 88.7, and infinity times an advantage of 0 is NaN. A ratio of exp(20) = 4.9e8 is already
broken (other weights or another tokenizer sampled), so that such a token keeps a finite value and gets no gradient."""

LEVELS = ("token", "sequence", "sequence_token", "product")


def importance_ratio(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    level: str = "token",
) -> Float[Tensor, "batch length"]:
    """Ratio of the policy's probability to the old one, for each token or for each completion.

    With x[i, t] = policy[i, t] - old[i, t], and sums and means over the trained tokens of row i:

        level             ratio[i, t]                                   d ratio[i, t] / d policy[i, j]    known as
        ----------------  --------------------------------------------  --------------------------------  ----------
        "token"           exp(x[i, t])                                  ratio if j = t, otherwise 0       PPO, GRPO
        "sequence"        exp(mean x[i]), the same for all t            ratio / number of trained tokens  GSPO
        "sequence_token"  exp(mean x[i]), with the gradient of token t  ratio if j = t, otherwise 0       GSPO-token
        "product"         exp(sum x[i]), the same for all t             ratio                             RLOO

    "product" is the ratio of the probabilities of whole completions; "sequence" is its geometric mean over the tokens.
    "sequence" and "sequence_token" have the same value, and the same gradient of any sum over a row whose tokens have
    one advantage. With one trained token all four are equal. The log-ratio (of the sum, with "product") is cut at
    MAX_LOG_RATIO from above. Masked cells are exactly 1 and pass no gradient, also where the inputs are NaN or
    infinite. `old_logprobs` is a constant, detached or not: a ratio of a tensor to itself is 1 with the right
    gradient, not with none.

    Source: token: PPO, arXiv:1707.06347, section 3; sequence: GSPO, arXiv:2507.18071, eq. 7; sequence_token: the same,
    eq. 14; product: RLOO, arXiv:2402.14740.

    Raises:
        ValueError: if level is unknown.
    """
    if level not in LEVELS:
        raise ValueError(f"importance_ratio: level = {level!r} is not known; use one of {', '.join(LEVELS)}")
    trained = loss_mask.bool()
    log_ratio = torch.where(trained, policy_logprobs - old_logprobs.detach(), 0.0)
    if level == "sequence":
        log_ratio = _for_all_tokens(masked_mean(log_ratio, trained, dim=1), trained)
    elif level == "product":
        log_ratio = _for_all_tokens(masked_sum(log_ratio, trained, dim=1), trained)
    elif level == "sequence_token":
        value = _for_all_tokens(masked_mean(log_ratio, trained, dim=1), trained).detach()
        # A difference of a number with itself is exactly 0 unless it is infinite; such a token gets no gradient.
        finite = torch.isfinite(log_ratio)
        log_ratio = value + torch.where(finite, log_ratio - log_ratio.detach(), 0.0)
    return log_ratio.clamp(max=MAX_LOG_RATIO).exp()


def _for_all_tokens(
    rows: Float[Tensor, " batch"], trained: Shaped[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """The value of a row in each of its trained cells, 0 in the others."""
    return torch.where(trained, rows.unsqueeze(1), 0.0)
