"""How far the policy is from the reference, read from the sampled tokens only.

An estimator that has the right *value* need not have the right *gradient*: see the table in `kl_estimate`. Four uses:

    use                                      expected gradient
    ---------------------------------------  --------------------------------------------------------------------
    kl_estimate k1, detached, in the reward  of KL(policy || ref), of the tokens behind it too (see `token_rewards`)
    kl_estimate k2 in the loss               of KL(policy || ref), of each token by itself, on-policy only
    kl_estimate k3 in the loss               of KL(ref || policy), of each token by itself, on-policy only: GRPO
    weighted_kl_estimate k3 in the loss      of KL(policy || ref), of each token by itself, whoever sampled
"""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from groupwise.objective.importance import importance_ratio

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


def weighted_kl_estimate(
    policy_logprobs: Float[Tensor, "batch length"],
    old_logprobs: Float[Tensor, "batch length"],
    ref_logprobs: Float[Tensor, "batch length"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    estimator: str = "k3",
) -> Float[Tensor, "batch length"]:
    """The estimate times the importance ratio, whose gradient counts: right for tokens that the old weights sampled.

        value = ratio k(d)          ratio = exp(policy - old),  d = policy - ref

        estimator  gradient              mean of the value     mean of the gradient
        ---------  --------------------  --------------------  --------------------------------------------
        "k1"       ratio (d + 1)         KL(policy || ref)     of KL(policy || ref); the 1 is pure noise
        "k2"       ratio (d^2 / 2 + d)   biased                of that biased mean
        "k3"       ratio d               KL(policy || ref)     of KL(policy || ref), without that noise

    The mean of ratio times f under the old weights is the mean of f under the policy, and so is its gradient; this is
    why the value and the gradient agree here. It is the KL of one token given its prefix: how the token changes the KL
    of later ones is left out, as in every KL loss by token. Masked cells are exactly 0 in value and gradient, whatever
    stands there. `old_logprobs` and `ref_logprobs` are constants.

    Source: the unbiased KL estimate of DeepSeek-V3.2, arXiv:2512.02556; gradients: arXiv:2510.01555.

    Raises:
        ValueError: if estimator is unknown.
    """
    trained = loss_mask.bool()
    ratio = importance_ratio(policy_logprobs, old_logprobs, trained)
    estimate = kl_estimate(
        torch.where(trained, policy_logprobs, 0.0), torch.where(trained, ref_logprobs, 0.0), estimator=estimator
    )
    return torch.where(trained, ratio * estimate, 0.0)


def adapted_kl_coef(
    kl_coef: float, observed_kl: float, *, target: float, horizon: float, num_samples: int, max_error: float = 0.2
) -> float:
    """The KL coefficient of the next step: larger when the policy is further from the reference than wanted.

        coef * (1 + clip(observed / target - 1, -max_error, max_error) * num_samples / horizon)

    observed_kl is the mean over the completions of the step of their summed KL, in nats; num_samples counts those
    completions and horizon those over which an error of 100 % would double the coefficient. Never negative.

    Source: arXiv:1909.08593; with a horizon, in its public implementation.

    Raises:
        ValueError: unless target and horizon are positive and kl_coef is 0 or more, or if observed_kl is not finite.
    """
    if not (target > 0 and horizon > 0 and kl_coef >= 0):
        raise ValueError(
            f"adapted_kl_coef: target = {target} and horizon = {horizon} must be positive and kl_coef = {kl_coef} "
            "0 or more, such as 6, 10000 and 0.15"
        )
    if not math.isfinite(observed_kl):
        raise ValueError(f"adapted_kl_coef: observed_kl = {observed_kl} is not finite; a log-probability is broken")
    error = min(max(observed_kl / target - 1, -max_error), max_error)
    return max(0.0, kl_coef * (1 + error * num_samples / horizon))


def _k1(d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return d


def _k2(d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return d * d / 2  # the gradient of square() is 2 d, which overflows one doubling earlier and makes 0 * inf = NaN


def _k3(d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    d = d.clamp(min=-MAX_REF_LOG_RATIO)
    return torch.expm1(-d) + d  # exp(-d) - 1 loses every digit for small d


_ESTIMATORS = {"k1": _k1, "k2": _k2, "k3": _k3}
