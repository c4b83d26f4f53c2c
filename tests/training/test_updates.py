"""Several updates from one batch: how many, on what, against whose log-probabilities, and by which networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from training_cases import batch_of, mixed_groups, small_llama, weights

from groupwise.models import TokenScores, loss_mask, padded_logprobs, tree_scores
from groupwise.training.algorithm import Algorithm, Companion, Updates
from groupwise.training.batch import Batch, cut, derive_seed
from groupwise.training.grpo import GrpoOptions, loss_function
from groupwise.training.optim import OptimOptions, build_optimizer
from groupwise.training.step import LossFunction, LossRows, optimizer_step
from groupwise.training.updates import Learner, merged

OPTIONS = GrpoOptions()
OPTIM = OptimOptions(lr=1e-2)


class Watch:
    """A loss and a score function that note what passes through them."""

    def __init__(self, loss: LossFunction) -> None:
        self.inner = loss
        self.forwards: list[bool] = []
        """One entry a forward: True with gradient."""
        self.rows: list[LossRows] = []

    def loss(self, rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        self.rows.append(rows)
        return self.inner(rows)

    def scores(self, model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        self.forwards.append(torch.is_grad_enabled())
        return tree_scores(model, sequences, temperature=temperature, entropy=entropy)

    def largest_log_ratios(self) -> list[float]:
        """|log p - old log p| of each update, at most."""
        found = []
        for rows in self.rows:
            assert rows.old_logprobs is not None
            found.append((rows.policy_logprobs - rows.old_logprobs)[rows.mask].abs().max().item())
        return found


def numbered() -> Batch:
    """7 rows that know their number."""
    return replace(batch_of(mixed_groups(), OPTIONS), extra={"row": torch.arange(7.0)})


def learner(
    watch: Watch,
    updates: Updates,
    *,
    model: Any = None,
    companions: Sequence[Companion] = (),
    optim: OptimOptions = OPTIM,
) -> Learner:
    return Learner.of(
        Algorithm(
            collect=lambda number: None,
            loss=watch.loss,
            temperature=1.0,
            updates=updates,
            companions=tuple(companions),
        ),
        small_llama() if model is None else model,
        optim,
        num_steps=4,
        scores=watch.scores,
        reference=None,
    )


def numbers_of(rows: LossRows) -> list[int]:
    return sorted(int(x) for x in rows.extra["row"])


def one_step(model: Any, optimizer: torch.optim.Optimizer, batch: Batch) -> dict[str, float]:
    return optimizer_step(
        model,
        optimizer,
        batch,
        loss_function(OPTIONS),
        scores=tree_scores,
        temperature=1.0,
        tokens_per_microbatch=4096,
        max_grad_norm=1.0,
    )


def test_one_update_is_one_optimizer_step_without_another_forward() -> None:
    watch, model, plain = Watch(loss_function(OPTIONS)), small_llama(), small_llama()
    metrics, count = learner(watch, Updates(), model=model).learn(numbered(), 1, None)
    expected = one_step(plain, build_optimizer(plain, OPTIM), numbered())
    assert (count, watch.forwards) == (1, [True])
    assert watch.rows[0].old_logprobs is None
    # what the step adds to the numbers of its only update
    changed = {name: metrics.pop(name) for name in ("update_norm", "weights_moved_frac")}
    assert changed["update_norm"] == pytest.approx((weights(model) - weights(small_llama())).norm().item(), rel=1e-5)
    assert metrics == {**expected, "lr": 1e-2, "ratio_mean": 1.0, "ratio_p99": 1.0, "ratio_max": 1.0}
    assert torch.equal(weights(model), weights(plain))


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 3), (3, 1), (2, 3)])
def test_epochs_times_minibatches_updates_and_every_row_once_an_epoch(epochs: int, minibatches: int) -> None:
    watch = Watch(loss_function(OPTIONS))
    metrics, count = learner(watch, Updates(epochs=epochs, minibatches=minibatches)).learn(numbered(), 1, None)
    assert count == len(watch.rows) == epochs * minibatches
    seen = [numbers_of(rows) for rows in watch.rows]
    for epoch in range(epochs):
        parts = seen[epoch * minibatches : (epoch + 1) * minibatches]
        assert sorted(row for part in parts for row in part) == list(range(7))
    assert {rows.denominator for rows in watch.rows} == {15 / minibatches}
    assert metrics["num_trained_tokens"] == 33 * epochs
    if minibatches > 1:
        again = Watch(loss_function(OPTIONS))
        learner(again, Updates(epochs=epochs, minibatches=minibatches)).learn(numbered(), 1, None)
        assert [numbers_of(rows) for rows in again.rows] == seen
        other = Watch(loss_function(OPTIONS))
        learner(other, Updates(epochs=epochs, minibatches=minibatches)).learn(numbered(), 2, None)
        assert [numbers_of(rows) for rows in other.rows] != seen
        assert epochs == 1 or seen[:minibatches] != seen[minibatches : 2 * minibatches]


def test_the_old_log_probabilities_are_taken_once_and_before_any_update() -> None:
    watch = Watch(loss_function(OPTIONS))
    learner(watch, Updates(epochs=2, minibatches=2)).learn(numbered(), 1, None)
    assert watch.forwards == [False, True, True, True, True]
    start = padded_logprobs(small_llama(), numbered().sequences, temperature=1.0).detach()
    for rows in watch.rows:
        assert rows.old_logprobs is not None
        chosen = [int(x) for x in rows.extra["row"]]
        assert_close(rows.old_logprobs, start[chosen, : rows.mask.shape[1]], atol=1e-5, rtol=0)


def test_the_first_ratio_is_1_and_later_ones_are_not() -> None:
    watch = Watch(loss_function(OPTIONS))
    learner(watch, Updates(epochs=2)).learn(numbered(), 1, None)
    first, second = watch.largest_log_ratios()
    assert first < 1e-5
    assert second > 1e-2


def test_what_the_algorithm_gave_as_old_is_kept() -> None:
    watch = Watch(loss_function(OPTIONS))
    given = replace(numbered(), old_logprobs=torch.full((7, 8), -1.5))
    learner(watch, Updates(epochs=2)).learn(given, 1, None)
    assert watch.forwards == [True, True]
    assert all(rows.old_logprobs is not None and (rows.old_logprobs == -1.5).all() for rows in watch.rows)


def test_four_updates_are_four_optimizer_steps_on_those_parts() -> None:
    """By hand, on the tiny model: the same cuts, one optimizer, log-probabilities of the start."""
    model, plain = small_llama(), small_llama()
    learner(Watch(loss_function(OPTIONS)), Updates(epochs=2, minibatches=2), model=model).learn(numbered(), 3, None)
    batch = replace(numbered(), old_logprobs=padded_logprobs(plain, numbered().sequences, temperature=1.0).detach())
    optimizer = build_optimizer(plain, OPTIM)
    for epoch in range(2):
        for part in cut(batch, 2, seed=derive_seed(3, "minibatches", epoch)):
            one_step(plain, optimizer, part)
    assert_close(weights(model), weights(plain), atol=1e-4, rtol=0)
    assert (weights(plain) - weights(small_llama())).abs().max() > 3e-2


def test_only_the_first_update_is_asked_about() -> None:
    """Later ones are on other weights than those that sampled: a gap would be no error."""
    seen: list[Mapping[str, float]] = []
    learner(Watch(loss_function(OPTIONS)), Updates(epochs=2, minibatches=2)).learn(numbered(), 1, seen.append)
    assert len(seen) == 1


def mean_square(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
    """A critic's stand-in: log-probabilities towards -1, divided by the critic's own denominator."""
    error = torch.where(rows.mask, (rows.policy_logprobs + 1) ** 2, 0.0)
    return error.sum() / rows.denominator, {"error": error}


def test_a_companion_learns_from_the_same_parts_after_the_policy_at_its_own_rate() -> None:
    order: list[tuple[str, list[int]]] = []
    model, critic = small_llama(), small_llama(1)
    policy_loss = loss_function(OPTIONS)

    def of_policy(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        order.append(("policy", numbers_of(rows)))
        return policy_loss(rows)

    def of_critic(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        order.append(("critic", numbers_of(rows)))
        assert rows.denominator == rows.mask.sum()
        assert rows.policy_logprobs.requires_grad
        return mean_square(rows)

    companion = Companion(
        name="critic",
        model=critic,
        optim=OptimOptions(lr=4e-2, schedule="linear"),
        batch_of=lambda part: replace(part, denominator=float(loss_mask(part.sequences).sum())),
        scores=tree_scores,
        loss=of_critic,
    )
    learns = learner(Watch(of_policy), Updates(epochs=2, minibatches=2), model=model, companions=[companion])
    alone = small_llama()
    learner(Watch(policy_loss), Updates(epochs=2, minibatches=2), model=alone).learn(numbered(), 2, None)
    metrics, count = learns.learn(numbered(), 2, None)
    assert count == 4  # updates of the policy
    assert [who for who, _ in order] == ["policy", "critic"] * 4
    assert all(order[i][1] == order[i + 1][1] for i in range(0, 8, 2))
    assert torch.equal(weights(model), weights(alone))
    assert not torch.equal(weights(critic), weights(small_llama(1)))
    (optimizer,) = learns.companion_optimizers
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([3e-2] * 2)  # the second of 4 steps
    assert [group["lr"] for group in learns.optimizer.param_groups] == [1e-2] * 2
    assert metrics["lr"] == pytest.approx(1e-2)
    assert {"critic_error", "critic_loss", "critic_grad_norm", "critic_num_trained_tokens", "loss"} <= set(metrics)
    assert metrics["critic_error"] == pytest.approx(metrics["critic_loss"], rel=0.1)
    assert metrics["critic_num_trained_tokens"] == metrics["num_trained_tokens"] == 2 * 33


def test_a_companion_is_trained_by_the_same_step_as_the_policy() -> None:
    critic, plain = small_llama(1), small_llama(1)
    companion = Companion(
        name="critic",
        model=critic,
        optim=OptimOptions(lr=1e-2, max_grad_norm=0.5, tokens_per_microbatch=12),
        batch_of=lambda part: replace(part, denominator=40.0),
        scores=tree_scores,
        loss=mean_square,
    )
    metrics, _ = learner(Watch(loss_function(OPTIONS)), Updates(), companions=[companion]).learn(numbered(), 1, None)
    expected = optimizer_step(
        plain,
        build_optimizer(plain, companion.optim),
        replace(numbered(), denominator=40.0),
        mean_square,
        scores=tree_scores,
        temperature=1.0,
        tokens_per_microbatch=12,
        max_grad_norm=0.5,
    )
    assert torch.equal(weights(critic), weights(plain))
    assert {name: metrics[f"critic_{name}"] for name in expected} == expected


def test_a_head_learns_with_the_policy_through_the_algorithms_own_scores() -> None:
    head = torch.nn.Linear(16, 1)
    before = head.weight.detach().clone()

    def valued(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        return tree_scores(model, sequences, temperature=temperature, entropy=entropy, value_head=head)

    def loss(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
        assert rows.values is not None
        return rows.values.square().sum() / rows.denominator, {}

    algorithm = Algorithm(collect=lambda number: None, loss=loss, temperature=1.0, scores=valued, heads=(head,))
    model = small_llama()
    Learner.of(algorithm, model, OPTIM, num_steps=4, scores=tree_scores, reference=None).learn(numbered(), 1, None)
    assert not torch.equal(head.weight, before)
    assert not torch.equal(weights(model), weights(small_llama()))


def test_counts_are_summed_and_the_rest_is_averaged_over_the_updates_that_have_it() -> None:
    rows = [
        {"loss": 1.0, "num_trained_tokens": 3, "critic_num_trained_tokens": 5},
        {"loss": 2.0, "num_trained_tokens": 4, "critic_num_trained_tokens": 6, "only_here": 7.0},
    ]
    expected = {"loss": 1.5, "num_trained_tokens": 7, "critic_num_trained_tokens": 11, "only_here": 7.0}
    assert merged(rows) == expected
    assert merged(rows[:1]) == rows[0]
