"""How undecided the policy is: a bonus that keeps it so, and what will change it.

Entropies are per token, in nats, over the whole vocabulary; the model room computes them from logits.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.reduction import masked_mean


def entropy_loss(
    entropies: Float[Tensor, "batch length"], loss_mask: Shaped[Tensor, "batch length"]
) -> Float[Tensor, "batch length"]:
    """Minus the entropy of each trained token, to be added to a loss times a coefficient; exactly 0 in masked cells.

    Reduced like the policy loss, each token's entropy counts as that token's advantage does.

    Source: A3C, arXiv:1602.01783, section 4; PPO, arXiv:1707.06347, eq. 9.
    """
    return torch.where(loss_mask.bool(), -entropies, 0.0)


def adapted_entropy_coef(
    entropy_coef: float, observed_entropy: float, *, target: float, step: float = 0.005, largest: float = 1.0
) -> float:
    """The entropy coefficient of the next step: one step up where the policy is at or under the target, else one down.

    Stays from 0 to `largest`. Use the bonus only in steps whose entropy is at or under the target.

    Source: Skywork-OR1, arXiv:2505.22312.

    Raises:
        ValueError: if step or largest is negative.
    """
    if step < 0 or largest < 0:
        raise ValueError(f"adapted_entropy_coef: step = {step} and largest = {largest} must be 0 or more")
    moved = entropy_coef + step if observed_entropy <= target else entropy_coef - step
    return min(max(moved, 0.0), largest)


@torch.no_grad()
def entropy_covariance(
    policy_logprobs: Float[Tensor, "batch length"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
) -> Float[Tensor, ""]:
    """Covariance of log-probability and advantage over the trained tokens: where it is positive, entropy falls.

        mean((logprob - mean logprob) (A - mean A))

    A natural-gradient step changes the entropy by about minus the learning rate times this: making likely tokens more
    likely, or unlikely ones less, sharpens. 0 without a trained token. One call sees all tokens of the step. A metric:
    it passes no gradient.

    Source: arXiv:2505.22617, section 3.
    """
    spread = advantages if advantages.dim() == 2 else advantages.unsqueeze(1).expand_as(policy_logprobs)
    logprob, advantage = policy_logprobs.double(), spread.double()
    product = (logprob - masked_mean(logprob, loss_mask)) * (advantage - masked_mean(advantage, loss_mask))
    return masked_mean(product, loss_mask).float()
