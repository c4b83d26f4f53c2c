"""From the groups of a GRPO step to its batch: advantages, the rows that have a gradient, and the denominator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.models.logprobs import ScoredSequence
from groupwise.objective import kl_estimate
from groupwise.training.batch import Batch
from groupwise.training.group_rewards import RolloutKl, advantages_of, batch_advantages_of
from groupwise.training.group_weights import baseline_factors, prompt_weights
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.step_rewards import Decode, process_advantages_of
from groupwise.types import Group, Rollout, Stop

Advantage = float | tuple[float, ...]
"""Of a rollout: one number for all its tokens, or one for each."""

ReferenceLogprobs = Callable[[Sequence[ScoredSequence]], Tensor]
"""Sequences to the [B, L] log-probabilities of their completions under the reference."""


def rollout_kl(groups: Sequence[Group], reference_logprobs: ReferenceLogprobs, *, estimator: str) -> RolloutKl:
    """The KL of every token to the reference, by the log-probabilities that the tokens were sampled with."""
    found = iter(reference_logprobs([_sequence(g, r) for g in groups for r in g.rollouts]).cpu())
    return [
        [
            tuple(
                kl_estimate(
                    torch.tensor(r.completion.sampler_logprobs),
                    next(found)[: len(r.completion.token_ids)],
                    estimator=estimator,
                ).tolist()
            )
            for r in group.rollouts
        ]
        for group in groups
    ]


def step_advantages(
    groups: Sequence[Group], options: GrpoOptions, *, kl: RolloutKl | None = None, decode: Decode | None = None
) -> tuple[tuple[Advantage, ...], ...]:
    """The advantages of a step's groups under these options: by step_rewards or group_rewards, times the baseline
    factor of group_weights where group sizes differ and it exists. kl is part of the reward."""
    if options.step_end is not None:
        assert decode is not None, "where a step ends is read from the text"
        return process_advantages_of(
            groups,
            step_end=options.step_end,
            decode=decode,
            scale=options.scale,
            std=options.std,
            eps=options.eps,
        )
    if options.advantage == "batch":
        return batch_advantages_of(
            groups,
            std=options.std,
            eps=options.eps,
            length_penalty=options.length_penalty,
            overlong=options.overlong_penalty,
            kl=kl,
            kl_coef=options.beta,
        )
    rows = advantages_of(
        groups,
        kind=options.advantage,
        scale=options.scale,
        std=options.std,
        eps=options.eps,
        length_penalty=options.length_penalty,
        overlong=options.overlong_penalty,
        kl_costs=None if kl is None else [options.beta * sum(row) for group in kl for row in group],
        part_weights=options.part_weights,
    )
    has_factor = options.advantage == "group" and options.scale != "std" and options.part_weights is None
    if options.nominal_group_size is None or not has_factor:
        return rows
    factors = baseline_factors([g.num_scored for g in groups], options.nominal_group_size)
    return tuple(tuple(a * factor for a in row) for row, factor in zip(rows, factors, strict=True))


def make_batch(
    groups: Sequence[Group],
    advantages: Sequence[Sequence[Advantage]],
    options: GrpoOptions,
    *,
    max_completion_tokens: int,
) -> Batch | None:
    """The rollouts of the step that `reasons_left_out` names no reason for, or None when none of them has a gradient.

    The denominator counts every scored rollout, those that are left out too, with the weight of its prompt.
    """
    weights = [1.0] * len(groups)
    if options.nominal_group_size is not None:
        weights = prompt_weights([g.num_scored for g in groups])
    reasons = reasons_left_out(groups, advantages, options)
    scored = [
        _Row(_sequence(group, rollout), rollout, advantage, weight, reason)
        for group, row, weight, why in zip(groups, advantages, weights, reasons, strict=True)
        for rollout, advantage, reason in zip(group.rollouts, row, why, strict=True)
        if rollout.verdict.reward is not None
    ]
    num_rollouts = sum(row.weight for row in scored)
    denominator = {
        "sequence": num_rollouts,
        "token": sum(row.weight * row.sequence.num_trained for row in scored),
        "constant": num_rollouts * max_completion_tokens,
    }[options.normalize]
    kept = [row for row in scored if not row.left_out]
    if not kept or not (options.every_row_learns or any(_acts(row.advantage) for row in kept)):
        return None
    return Batch(
        sequences=tuple(row.sequence for row in kept),
        advantages=_matrix([row.advantage for row in kept]),
        sampler_logprobs=tuple(row.rollout.completion.sampler_logprobs for row in kept),
        denominator=float(denominator),
        weights=None
        if options.nominal_group_size is None
        else torch.tensor([row.weight for row in kept], dtype=torch.float32),
    )


def reasons_left_out(
    groups: Sequence[Group], advantages: Sequence[Sequence[Advantage]], options: GrpoOptions
) -> tuple[tuple[str, ...], ...]:
    """Why each rollout has no place in the loss, empty where it has one; the words are those of Recorder.rollouts.

    unscored     the verifier could not judge it
    truncated    it was cut at the limit, and options mask those
    dead_group   no rollout of its group has an advantage, and nothing else gives it a gradient: no KL, no entropy.
                 With skip_dead_groups off only where the whole step has no advantage
    """
    acts = [any(map(_acts, row)) for row in advantages]
    skip = not options.every_row_learns and (options.skip_dead_groups or not any(acts))

    def reason(rollout: Rollout, is_alive: bool) -> str:
        if rollout.verdict.reward is None:
            return "unscored"
        if options.mask_truncated and rollout.completion.stop is Stop.LENGTH:
            return "truncated"
        return "dead_group" if skip and not is_alive else ""

    return tuple(
        tuple(reason(rollout, is_alive) for rollout in group.rollouts)
        for group, is_alive in zip(groups, acts, strict=True)
    )


class _Row(NamedTuple):
    """A scored rollout on its way into the batch."""

    sequence: ScoredSequence
    rollout: Rollout
    advantage: Advantage
    weight: float
    left_out: str
    """Why it has no place in the loss; empty where it has."""


def _sequence(group: Group, rollout: Rollout) -> ScoredSequence:
    prompt = group.prompt.token_ids
    return ScoredSequence(token_ids=prompt + rollout.completion.token_ids, prompt_length=len(prompt))


def _acts(advantage: Advantage) -> bool:
    """True where it is not 0, for any token."""
    return any(advantage) if isinstance(advantage, tuple) else bool(advantage)


def _matrix(advantages: Sequence[Advantage]) -> Tensor:
    """[B], or [B, L] where each token has its own."""
    if not any(isinstance(a, tuple) for a in advantages):
        return torch.tensor(advantages, dtype=torch.float32)
    rows = [a if isinstance(a, tuple) else (a,) for a in advantages]
    longest = max([1, *map(len, rows)])
    return torch.tensor([[*row, *[0.0] * (longest - len(row))] for row in rows], dtype=torch.float32)
