"""What is added to the reward of a completion before advantages are taken, and rewards of single tokens for PPO."""

import torch
from jaxtyping import Bool, Float, Int, Real, Shaped
from torch import Tensor


def overlong_penalty(
    num_tokens: Int[Tensor, " rollouts"], *, max_tokens: int, buffer_tokens: int
) -> Float[Tensor, " rollouts"]:
    """0 for completions that fit, down to -1 over the last `buffer_tokens` before the limit; added to the reward.

        p_i = 0                                                   if n_i <= max_tokens - buffer_tokens
        p_i = (max_tokens - buffer_tokens - n_i) / buffer_tokens  up to max_tokens
        p_i = -1                                                  beyond

    It is the same for right and wrong answers, so that in a group of wrong answers the short ones gain: decide which
    groups carry a signal by their outcome before this is added. `length_shaped` does not have that effect.

    Source: soft overlong punishment, DAPO, arXiv:2503.14476, eq. 13.

    Raises:
        ValueError: unless 0 < buffer_tokens <= max_tokens.
    """
    if not 0 < buffer_tokens <= max_tokens:
        raise ValueError(
            f"overlong_penalty: buffer_tokens = {buffer_tokens} must be from 1 to max_tokens = {max_tokens}"
        )
    free = max_tokens - buffer_tokens
    return ((free - num_tokens.double()) / buffer_tokens).clamp(-1.0, 0.0).float()


def length_shaped(
    rewards: Float[Tensor, " rollouts"],
    solved: Bool[Tensor, " rollouts"],
    num_tokens: Int[Tensor, " rollouts"],
    *,
    free_tokens: int,
    max_tokens: int,
    strength: float,
) -> Float[Tensor, " rollouts"]:
    """Right answers earn less the longer they are; wrong answers keep what they have.

        r'_i = r_i * (1 - strength * min(1, max(0, (n_i - free_tokens) / (max_tokens - free_tokens))))    if solved
        r'_i = r_i                                                                                        otherwise

    So a group without a right answer is not touched, and shortness alone is never worth anything. The ramp is clamped
    at both ends: a length beyond max_tokens costs no more than max_tokens does. With strength below 1 every right
    answer keeps a reward above 0; it stays above the wrong ones where those earn less than 1 - strength.

    Raises:
        ValueError: unless 0 <= free_tokens < max_tokens and 0 <= strength < 1.
    """
    if not 0 <= free_tokens < max_tokens:
        raise ValueError(
            f"length_shaped: free_tokens = {free_tokens} must be 0 or more and below max_tokens = {max_tokens}"
        )
    if not 0 <= strength < 1:
        raise ValueError(f"length_shaped: strength = {strength} must be 0 or more and under 1")
    ramp = ((num_tokens.double() - free_tokens) / (max_tokens - free_tokens)).clamp(0.0, 1.0)
    return torch.where(solved, rewards * (1.0 - strength * ramp), rewards).to(rewards.dtype)


def token_rewards(
    end_rewards: Real[Tensor, " batch"],
    loss_mask: Shaped[Tensor, "batch length"],
    *,
    kl: Float[Tensor, "batch length"] | None = None,
    kl_coef: float = 0.0,
) -> Float[Tensor, "batch length"]:
    """The reward of each token: that of the completion on its last trained token, minus the KL penalty of each.

        R[i, t] = -kl_coef kl[i, t] + (end_rewards[i] if t is the last trained token of row i)

    The last trained token is the end token where there is one, and never padding. kl is `kl_estimate` with
    estimator="k1" of the weights that sampled, which summed over the completion has the whole gradient of
    KL(policy || reference); a group method subtracts kl_coef times its `masked_sum` over the row from the reward of
    the row instead. Masked cells are exactly 0, whatever stands there. A row without a trained token loses its reward.
    All inputs are constants.

    Source: arXiv:1909.08593; for token rewards: InstructGPT, arXiv:2203.02155, eq. 2.
    """
    trained = loss_mask.bool()
    ends = trained & (trained.flip(1).cumsum(1).flip(1) == 1)
    dtype = torch.float64 if end_rewards.dtype == torch.float64 else torch.float32
    rewards = torch.where(ends, end_rewards.detach().to(dtype).unsqueeze(1), 0.0)
    if kl is None or kl_coef == 0:
        return rewards
    return torch.where(trained, rewards - kl_coef * kl.detach().to(dtype), 0.0)
