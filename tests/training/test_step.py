"""One optimizer step: what a loss sees of its micro-batch, and what becomes of the numbers that it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from training_cases import batch_of, mixed_groups, small_llama, weights, weights_after_plain_descent

from groupwise.models import TokenScores, padded_scores, tree_scores
from groupwise.models.logprobs import loss_mask
from groupwise.training.batch import Batch, microbatches
from groupwise.training.grpo import GrpoOptions, loss_function
from groupwise.training.step import LossRows, optimizer_step, scores_of

LIMIT = 12
"""Nodes a micro-batch: cuts the 7 rows of the batch into several."""
NUMBERS = torch.arange(7.0)
LONGEST = 8


def batch() -> Batch:
    """7 rows, row r and column t holding r + t / 10, so that a loss can tell what it was given."""
    cells = NUMBERS[:, None] + torch.arange(LONGEST) / 10
    return replace(
        batch_of(mixed_groups(), GrpoOptions()),
        advantages=cells,
        old_logprobs=-cells,
        weights=NUMBERS + 0.5,
        extra={"row": NUMBERS, "cell": 2 * cells},
        units=(0, 0, 1, 1, 2, 2, 3),
    )


def step(
    given: Batch,
    loss: Any,
    *,
    model: Any = None,
    limit: int = LIMIT,
    lr: float = 0.1,
    **options: Any,
) -> dict[str, float]:
    model = small_llama() if model is None else model
    return optimizer_step(
        model,
        torch.optim.SGD(model.parameters(), lr=lr),
        given,
        loss,
        **{"scores": tree_scores, "temperature": 1.0, "max_grad_norm": 1.0, **options},
        tokens_per_microbatch=limit,
    )


def watched(given: Batch, **options: Any) -> list[LossRows]:
    """What the loss saw, micro-batch by micro-batch."""
    seen: list[LossRows] = []

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        seen.append(rows)
        return rows.policy_logprobs.sum(), {}

    step(given, loss, **options)
    return seen


def test_everything_of_a_batch_reaches_the_loss_cut_to_its_rows_and_its_own_length() -> None:
    given = batch()
    cuts = microbatches(given.sequences, LIMIT, given.units)
    seen = watched(given)
    assert len(seen) == len(cuts) > 2
    lengths = [s.num_trained for s in given.sequences]
    for rows, chosen in zip(seen, cuts, strict=True):
        width = max(lengths[r] for r in chosen)
        cells = NUMBERS[chosen, None] + torch.arange(width) / 10
        assert torch.equal(rows.mask, loss_mask([given.sequences[r] for r in chosen]))
        assert rows.mask.shape == rows.policy_logprobs.shape == (len(chosen), width)
        for found, wanted in (
            (rows.advantages, cells),
            (rows.old_logprobs, -cells),
            (rows.weights, NUMBERS[chosen] + 0.5),
            (rows.extra["row"], NUMBERS[chosen]),
            (rows.extra["cell"], 2 * cells),
        ):
            assert found is not None
            assert_close(found, wanted)
        assert rows.units is not None
        assert given.units is not None
        assert rows.units.tolist() == [given.units[r] for r in chosen]
        assert rows.denominator == given.denominator
        assert rows.sampler_logprobs is not None
        assert torch.equal(rows.sampler_logprobs, -rows.mask.float())
    assert min(rows.mask.shape[1] for rows in seen) < LONGEST  # something was cut


def test_what_a_batch_does_not_have_is_none() -> None:
    (rows,) = watched(Batch(sequences=batch().sequences, denominator=1.0), limit=4096)
    nothing = (rows.advantages, rows.ref_logprobs, rows.old_logprobs, rows.sampler_logprobs, rows.weights)
    assert nothing == (None,) * 5
    assert (rows.entropies, rows.values, rows.units, rows.extra) == (None, None, None, {})


def test_a_column_of_advantages_for_each_row_is_as_one_a_row() -> None:
    options = GrpoOptions()
    given = batch_of(mixed_groups(), options)
    assert given.advantages is not None
    wide = replace(given, advantages=given.advantages[:, None].expand(-1, LONGEST))
    for limit in (LIMIT, 4096):
        found = weights_after_plain_descent(wide, options, tokens_per_microbatch=limit)
        assert_close(found, weights_after_plain_descent(given, options), atol=1e-6, rtol=0)


def test_tokens_are_averaged_over_the_step_and_rows_over_the_rows() -> None:
    """[B, L] over the 33 trained tokens, [B] over the 7 rows, however they are cut; what is not trained counts not."""
    given = batch()
    trained = loss_mask(given.sequences)
    cells = NUMBERS[:, None] + torch.arange(LONGEST) / 10

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        cell = torch.where(rows.mask, rows.extra["cell"], 1e6)
        return rows.policy_logprobs.sum(), {"cell": cell, "row": rows.extra["row"] ** 2}

    for limit in (LIMIT, 4096):
        metrics = step(given, loss, limit=limit)
        assert metrics["cell"] == pytest.approx(2 * cells[trained].mean().item(), rel=1e-5)
        assert metrics["row"] == pytest.approx((0 + 1 + 4 + 9 + 16 + 25 + 36) / 7)
    assert trained.sum() == metrics["num_trained_tokens"] == 33


def test_entropies_are_there_and_reported_where_they_are_asked_for() -> None:
    given = batch()
    wanted = padded_scores(small_llama(), given.sequences, temperature=0.7, entropy=True).entropies
    assert wanted is not None
    mean = wanted.detach()[loss_mask(given.sequences)].mean().item()

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        assert rows.entropies is not None
        return -rows.entropies.sum() / rows.denominator, {}

    model = small_llama()
    metrics = step(given, loss, model=model, temperature=0.7, needs_entropy=True)
    assert metrics["entropy"] == pytest.approx(mean, rel=1e-4)
    assert mean > 0.1
    again = step(given, loss, model=model, temperature=0.7, needs_entropy=True)
    assert again["entropy"] > metrics["entropy"]  # the loss asked for more
    assert "entropy" not in step(given, loss_function(GrpoOptions()))


def test_the_gap_to_the_sampler_is_that_of_the_weights_that_sampled() -> None:
    """With old log-probabilities it is theirs, whatever the model says by now."""
    given = batch()
    trained = loss_mask(given.sequences)
    old = torch.where(trained, -1.25, 0.0)
    metrics = step(replace(given, old_logprobs=old), loss_function(GrpoOptions()))  # the sampler said -1
    assert metrics["logprob_gap_mean"] == pytest.approx(0.25)
    assert metrics["logprob_gap_max"] == pytest.approx(0.25)


def test_no_gradient_is_left_and_none_from_elsewhere_is_used() -> None:
    given, model = batch_of(mixed_groups(), GrpoOptions()), small_llama()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    during: list[bool] = []

    def look(metrics: Mapping[str, float]) -> None:
        during.append(all(p.grad is not None for p in model.parameters()))

    step(given, loss_function(GrpoOptions()), model=model, lr=1.0, max_grad_norm=float("inf"), before_update=look)
    assert during == [True]
    assert all(p.grad is None for p in model.parameters())
    assert_close(weights(model), weights_after_plain_descent(given, GrpoOptions()), atol=1e-6, rtol=0)


def test_scores_without_a_gradient_are_those_of_one_forward_however_they_are_cut() -> None:
    given, model = batch(), small_llama()
    head = torch.nn.Linear(16, 1)

    def valued(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        return tree_scores(model, sequences, temperature=temperature, entropy=entropy, value_head=head)

    wanted = padded_scores(model, given.sequences, temperature=0.8, value_head=head)
    for limit in (1, LIMIT, 4096):
        found = scores_of(model, given.sequences, scores=valued, temperature=0.8, tokens_per_microbatch=limit)
        assert_close(found.logprobs, wanted.logprobs.detach(), atol=1e-5, rtol=0)
        assert found.values is not None
        assert wanted.values is not None
        assert_close(found.values, wanted.values.detach(), atol=1e-5, rtol=0)
        assert found.entropies is None
        assert not found.logprobs.requires_grad
