"""Pairs as rows of a batch: two rows a pair, which stay in one micro-batch and share the prompt in its token tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.models.logprobs import ScoredSequence
from groupwise.training.batch import Batch
from groupwise.training.step import LossRows

IS_CHOSEN = "is_chosen"
"""[B] float32 in Batch.extra: 1 for the better completion of a pair, 0 for the other."""


class ScoredPair(NamedTuple):
    """Two completions of one prompt: ScoredPair(chosen=ScoredSequence(...), rejected=ScoredSequence(...))."""

    chosen: ScoredSequence
    rejected: ScoredSequence


def pair_batch(pairs: Sequence[ScoredPair], extra: Mapping[str, Tensor] | None = None) -> Batch:
    """The batch of a step: rows 2 p and 2 p + 1 are the chosen and the rejected side of pair p, their unit is p.

    The denominator is the number of pairs. `extra` holds [2 P] or [2 P, L] tensors of these rows.
    """
    return Batch(
        sequences=tuple(side for pair in pairs for side in pair),
        units=tuple(number for number in range(len(pairs)) for _ in (0, 1)),
        denominator=float(len(pairs)),
        extra={IS_CHOSEN: torch.tensor([1.0, 0.0]).repeat(len(pairs)), **(extra or {})},
    )


def sides(rows: LossRows) -> tuple[Tensor, Tensor]:
    """The row numbers of the chosen and of the rejected sides: chosen[i] and rejected[i] belong to one pair, in
    whatever order the rows of a micro-batch come."""
    assert rows.units is not None, "pairs are units"
    order = torch.argsort(2 * rows.units + (1 - rows.extra[IS_CHOSEN].long()))
    chosen, rejected = order[0::2], order[1::2]
    assert torch.equal(rows.units[chosen], rows.units[rejected]), "a micro-batch holds both sides of a pair"
    return chosen, rejected
