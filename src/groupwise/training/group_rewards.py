"""From judged groups to advantages: length shaping first, then the group comparison, of the reward or of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from groupwise.objective import gdpo_advantages, group_advantages, length_shaped
from groupwise.types import Group, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPenalty:
    """What a right answer loses by its length; see objective.length_shaped.

    Example:
        LengthPenalty(strength=0.2, free_tokens=64, max_tokens=256)
    """

    strength: float
    free_tokens: int
    max_tokens: int


def advantages_of(
    groups: Sequence[Group],
    *,
    scale: Literal["std", "none", "batch_std"] = "std",
    std: Literal["population", "sample"] = "population",
    eps: float = 1e-6,
    length_penalty: LengthPenalty | None = None,
    part_weights: Mapping[str, float] | None = None,
) -> tuple[tuple[float, ...], ...]:
    """Advantages, one row a group. An unscored rollout gets 0 and does not move its siblings.

    part_weights names the parts of a composed verdict that are each compared inside their group before they are
    summed (GDPO); None compares the reward. scale acts on the reward only. A part that a verdict does not carry, such
    as one that a failed gate left unasked, counts as 0.
    """
    rollouts = [(g, r) for g, group in enumerate(groups) for r in group.rollouts]
    group_ids = torch.tensor([g for g, _ in rollouts])
    scored = torch.tensor([r.verdict.reward is not None for _, r in rollouts])
    kept_share = _kept_share([r for _, r in rollouts], length_penalty)
    if part_weights is None:
        rewards = torch.tensor([r.verdict.reward or 0.0 for _, r in rollouts], dtype=torch.float64)
        flat = group_advantages(rewards * kept_share, group_ids, scored=scored, scale=scale, std=std, eps=eps)
    else:
        parts = torch.tensor(
            [[r.verdict.parts.get(name, 0.0) for name in part_weights] for _, r in rollouts], dtype=torch.float64
        )
        weights = torch.tensor(list(part_weights.values()), dtype=torch.float64)
        flat = gdpo_advantages(parts * kept_share[:, None], weights, group_ids, scored=scored, std=std, eps=eps)
    values = iter(flat.tolist())
    return tuple(tuple(next(values) for _ in group.rollouts) for group in groups)


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
