"""Supervised fine-tuning: the mean negative log-likelihood of the demonstrations' tokens.

Only completion tokens are trained, the end token among them, so that the model learns to stop. The loss is the mean
over all trained tokens of the optimizer step, whatever the micro-batches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from groupwise.models.logprobs import ScoredSequence
from groupwise.objective import negative_log_likelihood
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import Batch, derive_seed
from groupwise.training.step import LossRows


def sft(demonstrations: Sequence[ScoredSequence], *, tasks_per_step: int, seed: int) -> Algorithm:
    """The algorithm over these demonstrations: each once an epoch, in an order that the seed decides.

    demonstrations must not be empty; the last step of an epoch takes the first rows of the next one.
    """

    def collect(step: int) -> Collected:
        chosen = [demonstrations[i] for i in _rows_of_step(len(demonstrations), tasks_per_step, step, seed)]
        batch = Batch(
            sequences=tuple(chosen),
            advantages=torch.ones(len(chosen)),
            sampler_logprobs=None,
            denominator=float(sum(s.num_trained for s in chosen)),
        )
        return Collected(batch=batch)

    return Algorithm(collect=collect, loss=loss, normalize="token", temperature=1.0)


def loss(rows: LossRows) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Per-token negative log-likelihood [B, L], reported as `nll`."""
    per_token = negative_log_likelihood(rows.policy_logprobs, rows.mask)
    return per_token, {"nll": per_token}


def _rows_of_step(num_rows: int, per_step: int, step: int, seed: int) -> list[int]:
    """Row numbers of a step (counted from 0): consecutive places in an endless run of shuffled epochs."""
    rows = []
    for place in range(step * per_step, (step + 1) * per_step):
        epoch, offset = divmod(place, num_rows)
        order = list(range(num_rows))
        random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
        rows.append(order[offset])
    return rows
