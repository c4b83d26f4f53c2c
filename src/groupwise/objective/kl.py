"""How far the policy is from the reference, read from the sampled tokens only.

An estimator that has the right *value* need not have the right *gradient*: see the table in `kl_estimate`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

MAX_REF_LOG_RATIO = 20.0
"""k3 holds exp(ref - policy). Where the reference is more than exp(20) = 4.9e8 times as probable as the policy, one
token would drown the batch and soon overflow float32: there the value stays at its limit and the gradient is 0."""


def kl_estimate(
    policy_logprobs: Float[Tensor, "*shape"],
    ref_logprobs: Float[Tensor, "*shape"],
    *,
    estimator: str = "k3",
) -> Float[Tensor, "*shape"]:
    """Per-token estimate of KL(policy || ref) at tokens that the policy sampled.

    With d = policy_logprobs - ref_logprobs and the gradient taken with respect to policy_logprobs:

        estimator  value             gradient       mean of the value     mean of the gradient, used as a loss
        ---------  ----------------  -------------  --------------------  --------------------------------------------
        "k1"       d                 1              KL(policy || ref)     0: pure noise. Use it in the reward instead
        "k2"       d^2 / 2           d              biased, low variance  of KL(policy || ref)
        "k3"       exp(-d) - 1 + d   1 - exp(-d)    KL(policy || ref)     of KL(ref || policy), the other direction

    The means hold for tokens sampled from the policy itself; after the first update a ratio has to correct them. k3 is
    what GRPO uses; it is never negative, and agrees with k2 to first order near the reference. Descent on k2 or k3
    moves the policy toward the reference. Equal inputs give exactly 0.

    d is cut from below at -MAX_REF_LOG_RATIO in k3; k1 and k2 need no cut. A position where d is NaN or infinite keeps
    its value but passes a gradient of exactly 0, so that it is inert once `aggregate` masks it, and still shows up in
    the loss if it is trained. `ref_logprobs` is a constant.

    Source: k1, k2, k3: J. Schulman, "Approximating KL divergence", 2020; GRPO, arXiv:2402.03300, eq. 4; gradients:
    arXiv:2510.01555.

    Raises:
        ValueError: if estimator is unknown.
    """
    if estimator not in _ESTIMATORS:
        raise ValueError(f"kl_estimate: estimator = {estimator!r} is not known; use one of {', '.join(_ESTIMATORS)}")
    estimate = _ESTIMATORS[estimator]
    d = policy_logprobs - ref_logprobs.detach()
    finite = torch.isfinite(d)
    return torch.where(finite, estimate(torch.where(finite, d, 0.0)), estimate(d.detach()))


def _k1(d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return d


def _k2(d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return d * d / 2  # the gradient of square() is 2 d, which overflows one doubling earlier and makes 0 * inf = NaN


def _k3(d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    d = d.clamp(min=-MAX_REF_LOG_RATIO)
    return torch.expm1(-d) + d  # exp(-d) - 1 loses every digit for small d


_ESTIMATORS = {"k1": _k1, "k2": _k2, "k3": _k3}
