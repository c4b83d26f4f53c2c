"""What one optimizer step learns from, and how it is cut into forwards that fit in memory."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from groupwise.models.logprobs import ScoredSequence
from groupwise.models.token_tree import shared_prefix_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The sequences of one optimizer step, and what their loss needs of each. L is the longest completion.

    Example:
        Batch(sequences=(ScoredSequence(...), ScoredSequence(...)), advantages=tensor([1.0, -1.0]),
              sampler_logprobs=((-0.1, -2.0), (-0.3,)), denominator=16.0)
    """

    sequences: tuple[ScoredSequence, ...]
    """B prompt and completion pairs. Those without a gradient may be left out; `denominator` still counts them."""
    denominator: float
    """What the loss is divided by; counts the whole optimizer step, see objective.aggregate."""
    advantages: Tensor | None = None
    """[B] or [B, L] float32; None where the loss has none."""
    sampler_logprobs: tuple[tuple[float, ...], ...] | None = None
    """What the engine reported for each completion, or None where nothing was sampled."""
    old_logprobs: Tensor | None = None
    """[B, L] float32, of the weights that sampled, computed by the trainer; None = those of the weights being trained,
    which is exact while a batch is used for one update."""
    weights: Tensor | None = None
    """[B] float32, what the whole loss of each row is multiplied by; None = 1. `denominator` counts with them."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """More [B] or [B, L] tensors that the algorithm's own loss reads, by name."""
    units: tuple[int, ...] | None = None
    """Rows with equal numbers stay in one micro-batch, such as both sides of a pair; None = every row on its own."""


def rows_of(batch: Batch, rows: Sequence[int], denominator: float) -> Batch:
    """The batch of these rows, with a denominator of its own."""
    index = torch.tensor(rows)

    def chosen(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[index]

    sampler = batch.sampler_logprobs
    return Batch(
        sequences=tuple(batch.sequences[r] for r in rows),
        denominator=denominator,
        advantages=chosen(batch.advantages),
        sampler_logprobs=None if sampler is None else tuple(sampler[r] for r in rows),
        old_logprobs=chosen(batch.old_logprobs),
        weights=chosen(batch.weights),
        extra={name: values[index] for name, values in batch.extra.items()},
        units=None if batch.units is None else tuple(batch.units[r] for r in rows),
    )


def cut(batch: Batch, num_parts: int, *, seed: int) -> list[Batch]:
    """The batch in num_parts random parts of about equal numbers of units, in a random order that the seed decides.

    Each part's denominator is the batch's divided by the number of parts: what a part is missing another one has, so
    that the parts' gradients sum to num_parts times the gradient of the whole. With fewer units than parts there are
    fewer parts.
    """
    numbers = range(len(batch.sequences)) if batch.units is None else batch.units
    members: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        members.setdefault(number, []).append(row)
    units = list(members.values())
    random.Random(seed).shuffle(units)
    num_parts = min(num_parts, len(units))
    parts = [[row for unit in units[part::num_parts] for row in unit] for part in range(num_parts)]
    return [rows_of(batch, rows, batch.denominator / num_parts) for rows in parts]


def microbatches(
    sequences: Sequence[ScoredSequence], tokens_per_microbatch: int, units: Sequence[int] | None = None
) -> list[list[int]]:
    """Cuts the sequences into lists of row numbers whose token trees have at most that many nodes.

    Sequences are taken in the order of their tokens, so that those which share a prefix share a forward. Rows of one
    unit stay together, and a unit larger than the limit gets a forward of its own; units=None makes every row a unit.
    The cut changes no gradient: denominators count the whole step.
    """
    members: dict[int, list[int]] = {}
    for row in sorted(range(len(sequences)), key=lambda r: sequences[r].token_ids):
        members.setdefault(row if units is None else units[row], []).append(row)
    cuts: list[list[int]] = []
    nodes = 0
    previous: tuple[int, ...] = ()
    for rows in members.values():
        added = _added_nodes(previous, [sequences[r].token_ids for r in rows])
        if not cuts or nodes + added > tokens_per_microbatch:
            cuts.append([])
            nodes, added = 0, _added_nodes((), [sequences[r].token_ids for r in rows])
        cuts[-1] += rows
        nodes += added
        previous = sequences[rows[-1]].token_ids
    return cuts


def _added_nodes(previous: tuple[int, ...], sorted_ids: Sequence[tuple[int, ...]]) -> int:
    """Nodes that these sequences, in order, add to a tree whose last sequence is `previous`."""
    added = 0
    for ids in sorted_ids:
        added += len(ids) - shared_prefix_length(previous, ids)
        previous = ids
    return added


def padded(rows: Sequence[Sequence[float]], mask: Tensor) -> Tensor:
    """[B, L] float32 matrix of ragged rows, zeros where `mask` is False."""
    values = torch.tensor([value for row in rows for value in row], dtype=torch.float32, device=mask.device)
    return torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, values)


def derive_seed(seed: int, *labels: str | int) -> int:
    """A 63-bit seed for one purpose, such as derive_seed(17, "grpo", step): stable across processes and versions."""
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
