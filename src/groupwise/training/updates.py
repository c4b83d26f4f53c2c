"""What is done with one collected batch: one optimizer step, or several on parts of it, by the policy and companions.

one update       the old log-probabilities are the current ones without their gradient; every ratio is exactly 1
several updates  the old log-probabilities are computed for the whole batch first; then come `epochs` passes over
                 it, each cut at random into `minibatches` parts, whose denominators are equal shares of the batch's
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn
from torch.optim import Optimizer

from groupwise.models.logprobs import ScoreFunction
from groupwise.models.reference import Reference
from groupwise.training.algorithm import Algorithm
from groupwise.training.batch import Batch, cut, derive_seed
from groupwise.training.optim import OptimOptions, build_optimizer, learning_rate
from groupwise.training.ratio_tail import RatioTail
from groupwise.training.step import optimizer_step, scores_of
from groupwise.training.weight_change import WeightChange

COUNTS = "num_"
"""Metrics whose names begin so are summed over the updates of a step; the others are averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """The networks that a stage trains, with their optimizers."""

    algorithm: Algorithm
    model: nn.Module
    optim: OptimOptions
    num_steps: int
    scores: ScoreFunction
    reference: Reference | None
    optimizer: Optimizer
    companion_optimizers: tuple[Optimizer, ...]
    weight_changes: tuple[WeightChange, ...]
    """Of the policy, then of each companion."""

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        model: nn.Module,
        optim: OptimOptions,
        *,
        num_steps: int,
        scores: ScoreFunction,
        reference: Reference | None,
    ) -> Learner:
        """With a new optimizer for each network."""
        optimizer = build_optimizer(nn.ModuleList([model, *algorithm.heads]), optim)
        companion_optimizers = tuple(build_optimizer(c.model, c.optim) for c in algorithm.companions)
        return cls(
            algorithm=algorithm,
            model=model,
            optim=optim,
            num_steps=num_steps,
            scores=algorithm.scores or scores,
            reference=reference,
            optimizer=optimizer,
            companion_optimizers=companion_optimizers,
            weight_changes=tuple(WeightChange(o) for o in (optimizer, *companion_optimizers)),
        )

    def learn(
        self, batch: Batch, step: int, before_update: Callable[[Mapping[str, float]], None] | None
    ) -> tuple[dict[str, float], int]:
        """Step number `step`, from 1: its metrics, and how many updates of the policy it made.

        before_update sees the metrics of the first update before it is made; the weights are then those that sampled.
        seconds_score among the metrics is what the log-probabilities of those weights took, where they were computed.
        """
        rows, tail, started = [], RatioTail(), time.monotonic()
        is_scored = self._is_used_again and batch.old_logprobs is None
        if is_scored:
            batch = self._with_old_logprobs(batch)
        score_s = time.monotonic() - started
        for number, part in enumerate(self._parts(batch, step)):
            metrics = self._update_policy(part, step, tail, before_update if number == 0 else None)
            for companion, optimizer in zip(self.algorithm.companions, self.companion_optimizers, strict=True):
                self._set_rate(optimizer, companion.optim, step)
                found = optimizer_step(
                    companion.model,
                    optimizer,
                    companion.batch_of(part),
                    companion.loss,
                    scores=companion.scores,
                    temperature=1.0,
                    tokens_per_microbatch=companion.optim.tokens_per_microbatch,
                    max_grad_norm=companion.optim.max_grad_norm,
                )
                metrics |= {f"{companion.name}_{name}": value for name, value in found.items()}
            rows.append(metrics)
        score = {"seconds_score": score_s} if is_scored else {}
        return {**merged(rows), **tail.metrics(), **self._changes(), **score}, len(rows)

    def forget_gradients(self) -> None:
        """Frees what the last backward passes left."""
        for optimizer in (self.optimizer, *self.companion_optimizers):
            optimizer.zero_grad(set_to_none=True)

    def _changes(self) -> dict[str, float]:
        prefixes = ("", *(f"{companion.name}_" for companion in self.algorithm.companions))
        pairs = zip(prefixes, self.weight_changes, strict=True)
        return {prefix + name: value for prefix, change in pairs for name, value in change.metrics().items()}

    @property
    def _is_used_again(self) -> bool:
        """True where a batch makes more than one update."""
        return self.algorithm.updates.epochs * self.algorithm.updates.minibatches > 1

    def _with_old_logprobs(self, batch: Batch) -> Batch:
        old = scores_of(
            self.model,
            batch.sequences,
            scores=self.scores,
            temperature=self.algorithm.temperature,
            tokens_per_microbatch=self.optim.tokens_per_microbatch,
        )
        return replace(batch, old_logprobs=old.logprobs)

    def _parts(self, batch: Batch, step: int) -> Iterator[Batch]:
        updates = self.algorithm.updates
        if not self._is_used_again:
            yield batch
            return
        for epoch in range(updates.epochs):
            yield from cut(batch, updates.minibatches, seed=derive_seed(step, "minibatches", epoch))

    def _update_policy(
        self, part: Batch, step: int, tail: RatioTail, before_update: Callable[[Mapping[str, float]], None] | None
    ) -> dict[str, float]:
        lr = self._set_rate(self.optimizer, self.optim, step)
        metrics = optimizer_step(
            self.model,
            self.optimizer,
            part,
            tail.watching(self.algorithm.loss),
            scores=self.scores,
            temperature=self.algorithm.temperature,
            tokens_per_microbatch=self.optim.tokens_per_microbatch,
            max_grad_norm=self.optim.max_grad_norm,
            reference=self.reference,
            needs_entropy=self.algorithm.needs_entropy,
            min_kept_mass=self.algorithm.min_kept_mass,
            before_update=before_update,
        )
        return {**metrics, "lr": lr}

    def _set_rate(self, optimizer: Optimizer, options: OptimOptions, step: int) -> float:
        lr = learning_rate(options, step - 1, self.num_steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        return lr


def merged(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a step from those of its updates: counts summed, the others averaged over the updates that have
    them."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: sum(v) if COUNTS in name else sum(v) / len(v) for name, v in values.items()}
