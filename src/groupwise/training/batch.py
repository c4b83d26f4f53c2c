"""What one optimizer step learns from, and how it is cut into forwards that fit in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.models.logprobs import ScoredSequence
from groupwise.models.token_tree import shared_prefix_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The sequences of one optimizer step.

    Example:
        Batch(sequences=(ScoredSequence(...), ScoredSequence(...)), advantages=tensor([1.0, -1.0]),
              sampler_logprobs=((-0.1, -2.0), (-0.3,)), denominator=16.0)
    """

    sequences: tuple[ScoredSequence, ...]
    """B prompt and completion pairs. Those without a gradient may be left out; `denominator` still counts them."""
    advantages: Tensor
    """[B] float32; ones for supervised learning."""
    sampler_logprobs: tuple[tuple[float, ...], ...] | None
    """What the engine reported for each completion, or None where nothing was sampled."""
    denominator: float
    """What the loss is divided by; counts the whole optimizer step, see objective.aggregate."""


def microbatches(sequences: Sequence[ScoredSequence], tokens_per_microbatch: int) -> list[list[int]]:
    """Cuts the sequences into lists of row numbers whose token trees have at most that many nodes.

    Sequences are taken in the order of their tokens, so that those which share a prefix share a forward. A sequence
    longer than the limit gets a forward of its own. The cut changes no gradient: denominators count the whole step.
    """
    cuts: list[list[int]] = []
    nodes = 0
    previous: tuple[int, ...] = ()
    for row in sorted(range(len(sequences)), key=lambda r: sequences[r].token_ids):
        tokens = sequences[row].token_ids
        added = len(tokens) - shared_prefix_length(previous, tokens)
        if not cuts or nodes + added > tokens_per_microbatch:
            cuts.append([])
            nodes, added = 0, len(tokens)
        cuts[-1].append(row)
        nodes += added
        previous = tokens
    return cuts


def padded(rows: Sequence[Sequence[float]], mask: Tensor) -> Tensor:
    """[B, L] float32 matrix of ragged rows, zeros where `mask` is False."""
    values = torch.tensor([value for row in rows for value in row], dtype=torch.float32, device=mask.device)
    return torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, values)


def derive_seed(seed: int, *labels: str | int) -> int:
    """A 63-bit seed for one purpose, such as derive_seed(17, "grpo", step): stable across processes and versions."""
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
