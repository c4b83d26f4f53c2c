"""From scored rollouts to what a step of PPO learns from: rewards by token, returns, advantages.

    end reward (- penalty where cut)  --token_rewards, - kl_coef KL to the reference-->  reward of each token
    rewards, values                   --gae-->  advantages, returns = advantages + values
    advantages                        --whiten over the step-->  what the policy learns from

All of it belongs to the weights that sampled and is computed once, before the first update; nothing has a gradient.
Read after objective/token_advantages.py, whose formulas these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from groupwise.models.logprobs import ScoredSequence, loss_mask
from groupwise.objective import explained_variance, gae, kl_estimate, masked_mean, masked_sum, token_rewards, whiten
from groupwise.training.batch import Batch

RETURNS, OLD_VALUES = "returns", "old_values"
"""[B, L] float32 in Batch.extra: what the values are to become, and what they were for the weights that sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardOptions:
    """How rewards become advantages; the settings of config.algorithm_ppo.PpoSection under the same names.

    Example:
        RewardOptions(lam=1.0, truncation_penalty=0.5)
    """

    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True
    truncation_penalty: float = 0.0
    """Subtracted from the reward of a completion that was cut."""
    bootstrap: bool = False
    """A completion that was cut goes on with the critic's value there; else nothing follows it."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The scored rollouts of a step as all networks saw them before its updates; B rows, L the longest completion.

    Example:
        Scored(sequences=(ScoredSequence(...),), rewards=tensor([1.0]), cut=tensor([False]), old_logprobs=...,
               values=..., next_values=tensor([0.4]))
    """

    sequences: tuple[ScoredSequence, ...]
    rewards: Tensor
    """[B] float32, the verdicts'."""
    cut: Tensor
    """[B] bool: ended by the token limit."""
    old_logprobs: Tensor
    """[B, L] float32 of the policy."""
    values: Tensor
    """[B, L] float32, of the state before each token."""
    next_values: Tensor
    """[B] float32, of the state behind the last token; read where cut."""
    ref_logprobs: Tensor | None = None
    """[B, L] float32; None without a KL."""
    sampler_logprobs: tuple[tuple[float, ...], ...] | None = None
    """As the engine reported them."""


def ppo_batch(scored: Scored, options: RewardOptions, *, kl_coef: float) -> tuple[Batch, dict[str, float]]:
    """The batch, and the step's numbers:

    kl_to_ref, kl_to_ref_sum    mean over tokens, and over completions of their sums; nats. Only with a reference
    reward_with_kl_mean         what a completion earned in the end, penalty and KL included
    return_mean, return_std     of what the critic learns, over tokens
    value_mean                  of what it said before
    explained_variance          of what was still earned (returns with lam = 1, so that no value hides in them) by the
                                values; 1 = all of it, 0 = no more than their mean. Noise where return_std is near 0
    """
    mask = loss_mask(scored.sequences)
    rewards = scored.rewards - options.truncation_penalty * scored.cut.float()
    kl = None
    metrics: dict[str, float] = {}
    if scored.ref_logprobs is not None:
        kl = kl_estimate(scored.old_logprobs, scored.ref_logprobs, estimator=options.kl_estimator)
        metrics |= {
            "kl_to_ref": masked_mean(kl, mask).item(),
            "kl_to_ref_sum": masked_sum(kl, mask, dim=1).mean().item(),
            "kl_coef": kl_coef,
        }
    by_token = token_rewards(rewards, mask, kl=kl, kl_coef=kl_coef)
    behind = torch.where(scored.cut, scored.next_values, 0.0) if options.bootstrap else None
    targets = gae(by_token, scored.values, mask, gamma=options.gamma, lam=options.lam, bootstrap_values=behind)
    earned = gae(by_token, scored.values, mask, gamma=options.gamma, lam=1.0, bootstrap_values=behind).returns
    metrics |= {
        "reward_with_kl_mean": masked_sum(by_token, mask, dim=1).mean().item(),
        "return_mean": masked_mean(targets.returns, mask).item(),
        "return_std": targets.returns[mask].std(correction=0).item(),
        "value_mean": masked_mean(scored.values, mask).item(),
        "explained_variance": explained_variance(scored.values, earned, mask).item(),
    }
    batch = Batch(
        sequences=scored.sequences,
        denominator=float(mask.sum()),
        advantages=whiten(targets.advantages, mask) if options.whiten else targets.advantages,
        sampler_logprobs=scored.sampler_logprobs,
        old_logprobs=scored.old_logprobs,
        extra={RETURNS: targets.returns, OLD_VALUES: scored.values},
    )
    return batch, metrics
