"""The networks of PPO, and what they say of a step's rollouts before its updates.

A critic is a network of its own, which the loop trains as a companion of the policy, or a head on the policy's body:
its loss is then part of the policy's, and its weights are in the policy's optimizer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models.logprobs import ScoredSequence, ScoreFunction, TokenScores, loss_mask
from groupwise.models.reference import Reference
from groupwise.models.value_model import ValueHead, ValueModel, save_value_head, save_value_model
from groupwise.objective import masked_mean
from groupwise.training.optim import OptimOptions
from groupwise.training.ppo_batch import Scored
from groupwise.training.step import scores_of
from groupwise.types import Group, Rollout, Stop

CRITIC = "critic"
"""Stands before the critic's metrics, and names its folder in a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCritic:
    """A value network with an optimizer of its own."""

    model: ValueModel
    scores: ScoreFunction
    """Gives values [B, L]; see value_model.score_function."""
    optim: OptimOptions

    def save(self, checkpoint: Path) -> None:
        """Into critic/ of the checkpoint."""
        save_value_model(checkpoint / CRITIC, self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCritic:
    """A head on the policy's body."""

    head: ValueHead

    def save(self, checkpoint: Path) -> None:
        """One file beside the policy's weights, which do not hold it."""
        save_value_head(checkpoint, self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """What a step forwards and trains."""

    policy: PreTrainedModel
    scores: ScoreFunction
    """Of the policy; with a SharedCritic they hold its values, see value_model.with_value_head."""
    critic: OwnCritic | SharedCritic
    reference: Reference | None
    """The policy at the start of the stage; None without a KL."""
    tokens_per_microbatch: int


def score_rollouts(
    rollouts: Sequence[tuple[Group, Rollout]], networks: Networks, *, temperature: float
) -> tuple[Scored, float]:
    """The rollouts, all of which have a reward, as every network sees them; and the policy's mean entropy, in nats.

    A completion that was cut is given one token more, any one: the value before it is that of the state at the cut.
    """
    sequences = tuple(
        ScoredSequence(
            token_ids=group.prompt.token_ids + rollout.completion.token_ids, prompt_length=len(group.prompt.token_ids)
        )
        for group, rollout in rollouts
    )
    cut = torch.tensor([rollout.completion.stop is Stop.LENGTH for _, rollout in rollouts])
    longer = [
        replace(s, token_ids=(*s.token_ids, s.token_ids[-1])) if is_cut else s
        for s, is_cut in zip(sequences, cut.tolist(), strict=True)
    ]

    def seen_by(
        model: torch.nn.Module, scored: Sequence[ScoredSequence], scores: Callable[..., TokenScores]
    ) -> TokenScores:
        return scores_of(
            model,
            scored,
            scores=scores,
            temperature=temperature,
            tokens_per_microbatch=networks.tokens_per_microbatch,
        )

    with_entropy = functools.partial(networks.scores, entropy=True)
    if isinstance(networks.critic, OwnCritic):
        policy = seen_by(networks.policy, sequences, with_entropy)
        values = seen_by(networks.critic.model, longer, networks.critic.scores).values
    else:
        policy = seen_by(networks.policy, longer, with_entropy)
        values = policy.values
    ref_logprobs = None
    if networks.reference is not None:
        with networks.reference() as frozen:
            ref_logprobs = seen_by(frozen, sequences, networks.scores).logprobs
    assert values is not None, "a critic gives values"
    assert policy.entropies is not None, "they were asked for"
    mask = loss_mask(sequences)
    lengths = torch.tensor([s.num_trained for s in sequences])
    behind = torch.cat([values, torch.zeros(len(sequences), 1)], dim=1).gather(1, lengths[:, None]).squeeze(1)
    scored = Scored(
        sequences=sequences,
        rewards=torch.tensor([r.verdict.reward for _, r in rollouts], dtype=torch.float32),
        cut=cut,
        old_logprobs=_cells(policy.logprobs, mask),
        sampler_logprobs=tuple(r.completion.sampler_logprobs for _, r in rollouts),
        values=_cells(values, mask),
        next_values=torch.where(cut, behind, 0.0),
        ref_logprobs=ref_logprobs,
    )
    return scored, masked_mean(_cells(policy.entropies, mask), mask).item()


def _cells(scores: Tensor, mask: Tensor) -> Tensor:
    """Without what belongs to the tokens that were added: [B, L + 1] or [B, L] -> [B, L]."""
    return torch.where(mask, scores[:, : mask.shape[1]], 0.0)
