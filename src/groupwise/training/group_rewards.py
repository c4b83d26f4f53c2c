"""From judged groups to advantages: what is added to a reward first, then the comparison, of the reward or its parts.

A reward is shaped by its length, then loses its KL to the reference where that is part of it, then is compared with its
group (`advantages_of`) or with the whole step (`batch_advantages_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from groupwise.objective import (
    gdpo_advantages,
    group_advantages,
    leave_one_out,
    length_shaped,
    max_rl_advantages,
    overlong_penalty,
    returns_to_go,
    token_rewards,
    whiten,
)
from groupwise.types import Group, Rollout

RolloutKl = Sequence[Sequence[tuple[float, ...]]]
"""[group][rollout][token] an estimate of the KL to the reference, in nats; any numbers where nothing was scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPenalty:
    """What a right answer loses by its length; see objective.length_shaped.

    Example:
        LengthPenalty(strength=0.2, free_tokens=64, max_tokens=256)
    """

    strength: float
    free_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongPenalty:
    """What any answer loses near the limit; see objective.overlong_penalty.

    A group whose rewards are all equal without it stays without a signal: shortness alone is worth nothing.

    Example:
        OverlongPenalty(weight=0.5, buffer_tokens=4096, max_tokens=20480)     # DAPO, for rewards 0 and 1
    """

    weight: float
    """Lost at the limit."""
    buffer_tokens: int
    max_tokens: int


def advantages_of(
    groups: Sequence[Group],
    *,
    kind: Literal["group", "leave_one_out", "max_rl"] = "group",
    scale: Literal["std", "none", "batch_std", "centered_batch_std"] = "std",
    std: Literal["population", "sample"] = "population",
    eps: float = 1e-6,
    length_penalty: LengthPenalty | None = None,
    overlong: OverlongPenalty | None = None,
    kl_costs: Sequence[float] | None = None,
    part_weights: Mapping[str, float] | None = None,
) -> tuple[tuple[float, ...], ...]:
    """Advantages, one row a group. An unscored rollout gets 0 and does not move its siblings.

    part_weights names the parts of a composed verdict that are each compared inside their group before they are
    summed (GDPO); None compares the reward. scale acts on the reward only, with kind = "group". A part that a verdict
    does not carry, such as one that a failed gate left unasked, counts as 0. kl_costs are subtracted from the rewards,
    one a rollout in the order of the groups.
    """
    rollouts = [r for group in groups for r in group.rollouts]
    group_ids = torch.tensor([g for g, group in enumerate(groups) for _ in group.rollouts])
    scored = torch.tensor([r.verdict.reward is not None for r in rollouts])
    if part_weights is not None:
        parts = torch.tensor(
            [[r.verdict.parts.get(name, 0.0) for name in part_weights] for r in rollouts], dtype=torch.float64
        )
        weights = torch.tensor(list(part_weights.values()), dtype=torch.float64)
        kept = parts * _kept_share(rollouts, length_penalty)[:, None]
        flat = gdpo_advantages(kept, weights, group_ids, scored=scored, std=std, eps=eps)
    else:
        rewards = shaped_rewards(groups, length_penalty=length_penalty, overlong=overlong)
        if kl_costs is not None:
            rewards = rewards - torch.tensor(kl_costs, dtype=torch.float64)
        if kind == "leave_one_out":
            flat = leave_one_out(rewards, group_ids, scored=scored)
        elif kind == "max_rl":
            flat = max_rl_advantages(rewards, group_ids, scored=scored)
        else:
            flat = group_advantages(rewards, group_ids, scored=scored, scale=scale, std=std, eps=eps)
    values = iter(flat.tolist())
    return tuple(tuple(next(values) for _ in group.rollouts) for group in groups)


def batch_advantages_of(
    groups: Sequence[Group],
    *,
    std: Literal["population", "sample"] = "population",
    eps: float = 1e-6,
    length_penalty: LengthPenalty | None = None,
    overlong: OverlongPenalty | None = None,
    kl: RolloutKl | None = None,
    kl_coef: float = 0.0,
) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Advantages without groups, one a token: what a token still earns, in stds of all tokens of the step.

        G[t] = reward - kl_coef sum of kl from t on,  A[t] = (G[t] - mean G) / sqrt(var G + eps^2)

    A long completion counts in mean and std with each of its tokens. An unscored rollout gets 0 and moves nothing.

    Source: REINFORCE++, arXiv:2501.03262.
    """
    rollouts = [r for group in groups for r in group.rollouts]
    lengths = torch.tensor([len(r.completion.token_ids) for r in rollouts])
    scored = torch.tensor([r.verdict.reward is not None for r in rollouts])
    inside = torch.arange(max(int(lengths.max()), 1))[None] < lengths[:, None]
    costs = None
    if kl is not None:
        costs = torch.zeros(inside.shape)
        costs[inside] = torch.tensor([x for group in kl for row in group for x in row], dtype=torch.float32)
    rewards = shaped_rewards(groups, length_penalty=length_penalty, overlong=overlong)
    mask = inside & scored[:, None]
    returns = returns_to_go(token_rewards(rewards, mask, kl=costs, kl_coef=kl_coef), mask)
    flat = whiten(returns, mask, std=std, eps=eps**2)
    rows = iter([tuple(row[:n]) for row, n in zip(flat.tolist(), lengths.tolist(), strict=True)])
    return tuple(tuple(next(rows) for _ in group.rollouts) for group in groups)


def shaped_rewards(
    groups: Sequence[Group], *, length_penalty: LengthPenalty | None = None, overlong: OverlongPenalty | None = None
) -> Tensor:
    """[N] float64 rewards with what length changes; 0 where nothing was scored."""
    rollouts = [r for group in groups for r in group.rollouts]
    rewards = torch.tensor([r.verdict.reward or 0.0 for r in rollouts], dtype=torch.float64)
    rewards = rewards * _kept_share(rollouts, length_penalty)
    return rewards if overlong is None else rewards + overlong_costs(groups, overlong)


def overlong_costs(groups: Sequence[Group], penalty: OverlongPenalty) -> Tensor:
    """[N] float64 what is added to each reward: 0 down to -weight; 0 in a group whose rewards are all equal."""
    rollouts = [r for group in groups for r in group.rollouts]
    lengths = torch.tensor([len(r.completion.token_ids) for r in rollouts])
    costs = overlong_penalty(lengths, max_tokens=penalty.max_tokens, buffer_tokens=penalty.buffer_tokens)
    differs = [len({r.verdict.reward for r in g.rollouts} - {None}) > 1 for g in groups]
    counts = torch.tensor([d for d, group in zip(differs, groups, strict=True) for _ in group.rollouts])
    return torch.where(counts, penalty.weight * costs.double(), 0.0)


def _kept_share(rollouts: Sequence[Rollout], penalty: LengthPenalty | None) -> Tensor:
    """[N] what is left of each reward after its length: 1 for wrong answers and without a penalty."""
    ones = torch.ones(len(rollouts), dtype=torch.float64)
    if penalty is None:
        return ones
    return length_shaped(
        ones,
        torch.tensor([r.verdict.outcome is True for r in rollouts]),
        torch.tensor([len(r.completion.token_ids) for r in rollouts]),
        free_tokens=penalty.free_tokens,
        max_tokens=penalty.max_tokens,
        strength=penalty.strength,
    )
