"""Supervised fine-tuning: the mean negative log-likelihood of the demonstrations' tokens.

Only completion tokens are trained, the end token among them, so that the model learns to stop. The loss is the mean
over all trained tokens of the optimizer step, whatever the micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from groupwise.models.logprobs import ScoredSequence
from groupwise.objective import aggregate, negative_log_likelihood
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import Batch
from groupwise.training.epochs import rows_of_step
from groupwise.training.step import LossRows


def sft(demonstrations: Sequence[ScoredSequence], *, tasks_per_step: int, seed: int) -> Algorithm:
    """The algorithm over these demonstrations: each once an epoch, in an order that the seed decides.

    demonstrations must not be empty; the last step of an epoch takes the first rows of the next one.
    """

    def collect(step: int) -> Collected:
        chosen = [demonstrations[i] for i in rows_of_step(len(demonstrations), tasks_per_step, step, seed)]
        batch = Batch(
            sequences=tuple(chosen),
            denominator=float(sum(s.num_trained for s in chosen)),
        )
        return Collected(batch=batch)

    return Algorithm(collect=collect, loss=loss, temperature=1.0)


def loss(rows: LossRows) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The mean negative log-likelihood, reported as `nll`."""
    per_token = negative_log_likelihood(rows.policy_logprobs, rows.mask)
    total = aggregate(per_token, rows.mask, normalize="token", denominator=rows.denominator)
    return total, {"nll": per_token}
