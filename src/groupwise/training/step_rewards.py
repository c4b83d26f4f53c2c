"""Process supervision: a reward for each step of a completion, and where the steps end.

A step ends with a text, such as a line break; what stands behind the last such text is a step too. The reward of step N
is the part step_N of the verdict, which a composed verifier has where its parts bear these names. The verdict tells no
more than that: a completion with fewer steps than parts gets the remaining parts' rewards at its last token, and a step
without a part gets no reward and is no step of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

from groupwise.objective import process_advantages
from groupwise.types import Group, Verdict

Decode = Callable[[Sequence[int]], str]
"""Token ids to their text, special tokens left out."""


def step_rewards(verdict: Verdict) -> tuple[float, ...]:
    """The parts step_1, step_2, ... of a verdict in their order, up to the first that is missing."""
    rewards: list[float] = []
    while (name := f"step_{len(rewards) + 1}") in verdict.parts:
        rewards.append(verdict.parts[name])
    return tuple(rewards)


def step_ends(token_ids: Sequence[int], *, step_end: str, decode: Decode) -> tuple[int, ...]:
    """The index of the last token of each step: the first token with which the text holds that many step_end texts.

    The last step ends with the last token, where anything stands behind the last step_end or there is none.
    """
    if not token_ids:
        return ()
    text = decode(token_ids)
    ends: list[int] = []
    for count in range(1, text.count(step_end) + 1):
        low, high = ends[-1] if ends else 0, len(token_ids) - 1
        while low < high:
            middle = (low + high) // 2
            if decode(token_ids[: middle + 1]).count(step_end) >= count:
                high = middle
            else:
                low = middle + 1
        ends.append(low)
    behind = text.rpartition(step_end)[2]
    if behind or not ends:
        ends.append(len(token_ids) - 1)
    return tuple(ends)


def process_advantages_of(
    groups: Sequence[Group],
    *,
    step_end: str,
    decode: Decode,
    scale: Literal["std", "none", "batch_std", "centered_batch_std"] = "std",
    std: Literal["population", "sample"] = "population",
    eps: float = 1e-6,
) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """One advantage a token: what the steps still to end earn, compared with all steps of the group.

    A rollout that was not scored, or whose verdict has no step parts, gets 0 and moves nothing. Where several steps
    end at one token their rewards are averaged.
    """
    rollouts = [(g, r) for g, group in enumerate(groups) for r in group.rollouts]
    lengths = [len(r.completion.token_ids) for _, r in rollouts]
    rewards = torch.zeros(len(rollouts), max([1, *lengths]), dtype=torch.float64)
    counts = torch.zeros_like(rewards)
    for row, (_, rollout) in enumerate(rollouts):
        given = () if rollout.verdict.reward is None else step_rewards(rollout.verdict)
        if not given or not lengths[row]:
            continue
        ends = step_ends(rollout.completion.token_ids, step_end=step_end, decode=decode)
        for number, reward in enumerate(given):
            place = ends[number] if number < len(ends) else lengths[row] - 1
            rewards[row, place] += reward
            counts[row, place] += 1
    mask = torch.arange(rewards.shape[1])[None] < torch.tensor(lengths)[:, None]
    flat = process_advantages(
        rewards / counts.clamp(min=1),
        counts > 0,
        torch.tensor([g for g, _ in rollouts]),
        mask,
        scale=scale,
        std=std,
        eps=eps,
    )
    rows = iter([tuple(row[:n]) for row, n in zip(flat.tolist(), lengths, strict=True)])
    return tuple(tuple(next(rows) for _ in group.rollouts) for group in groups)
