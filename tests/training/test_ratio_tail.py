"""The importance ratios of a step: by hand, over all updates and micro-batches, and none where nothing was sampled."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from training_cases import batch_of, mixed_groups, small_llama

from groupwise.models import ScoredSequence, tree_scores
from groupwise.training.algorithm import Algorithm, Updates
from groupwise.training.grpo import GrpoOptions, loss_function
from groupwise.training.optim import OptimOptions
from groupwise.training.ratio_tail import RatioTail
from groupwise.training.sft import loss as sft_loss
from groupwise.training.sft import sft
from groupwise.training.step import LossRows
from groupwise.training.updates import Learner


def rows(ratios: list[list[float]], mask: list[list[bool]]) -> LossRows:
    old = torch.full((len(ratios), len(ratios[0])), -1.0)
    return LossRows(
        policy_logprobs=(old + torch.tensor(ratios).log()).requires_grad_(),
        old_logprobs=old,
        sampler_logprobs=old,
        mask=torch.tensor(mask),
        denominator=1.0,
    )


def test_by_hand_over_two_micro_batches() -> None:
    def loss(given: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        return given.policy_logprobs.sum(), {}

    tail = RatioTail()
    watched = tail.watching(loss)
    watched(rows([[1.0, 2.0], [0.5, 99.0]], [[True, True], [True, False]]))
    watched(rows([[1.5]], [[True]]))
    # of 4 tokens the 99th percentile by nearest rank is the largest; the masked 99 is no token
    assert tail.metrics() == pytest.approx({"ratio_mean": 5 / 4, "ratio_p99": 2.0, "ratio_max": 2.0})


def learner(algorithm: Algorithm, *, lr: float) -> Learner:
    optim = OptimOptions(lr=lr, tokens_per_microbatch=24)
    return Learner.of(algorithm, small_llama(), optim, num_steps=1, scores=tree_scores, reference=None)


def policy_algorithm(updates: Updates, loss: Any = None) -> Algorithm:
    return Algorithm(
        collect=lambda number: None, loss=loss or loss_function(GrpoOptions()), temperature=1.0, updates=updates
    )


def test_all_updates_of_a_step_count_and_the_tail_is_that_of_the_whole_step() -> None:
    """Two passes: every ratio of the first is 1, and those of the second are what the loss sees."""
    batch, seen = batch_of(mixed_groups(), GrpoOptions()), []

    def loss(given: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        assert given.old_logprobs is not None
        seen.append((given.policy_logprobs.detach() - given.old_logprobs)[given.mask].exp())
        return loss_function(GrpoOptions())(given)

    metrics, _ = learner(policy_algorithm(Updates(epochs=2), loss), lr=1e-2).learn(batch, 1, None)
    everything = torch.cat(seen).sort().values
    assert len(seen) > 2  # micro-batches
    assert metrics["ratio_mean"] == pytest.approx(everything.mean().item())
    assert metrics["ratio_max"] == everything[-1].item() > 1.02
    assert metrics["ratio_p99"] == everything[math.ceil(0.99 * len(everything)) - 1].item()


def test_with_one_update_they_are_1_and_without_rollouts_there_are_none() -> None:
    batch = batch_of(mixed_groups(), GrpoOptions())
    once, _ = learner(policy_algorithm(Updates()), lr=1e-2).learn(batch, 1, None)
    assert [once[f"ratio_{name}"] for name in ("mean", "p99", "max")] == [1.0, 1.0, 1.0]
    rows_to_imitate = [ScoredSequence(token_ids=(2, 3, 4, 1), prompt_length=2)]
    imitation = sft(rows_to_imitate, tasks_per_step=1, seed=0)
    collected = imitation.collect(0)
    assert collected is not None
    assert collected.batch is not None
    for updates in (Updates(), Updates(epochs=2)):
        found, _ = learner(replace(imitation, updates=updates, loss=sft_loss), lr=1e-2).learn(collected.batch, 1, None)
        assert not any(name.startswith("ratio") for name in found)
