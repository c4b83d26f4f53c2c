"""DPO through a real model: where it starts, what its gradient is, and that neither packing nor cutting changes it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from training_cases import END, small_llama, small_policy, weights

from groupwise.models import ScoredSequence, padded_logprobs
from groupwise.models.logprobs import padded_scores, tree_scores
from groupwise.training.algorithm import Algorithm
from groupwise.training.batch import Batch
from groupwise.training.dpo import DpoOptions, dpo, loss_function, reference_logprobs
from groupwise.training.epochs import rows_of_step
from groupwise.training.pairs import ScoredPair, pair_batch, sides
from groupwise.training.step import LossRows, optimizer_step


def scored_pair(prompt: tuple[int, ...], chosen: tuple[int, ...], rejected: tuple[int, ...]) -> ScoredPair:
    return ScoredPair(
        *(ScoredSequence(token_ids=(*prompt, *side), prompt_length=len(prompt)) for side in (chosen, rejected))
    )


PAIRS = (
    scored_pair((2, 3, 4, 5, 6), (7, 8, END), (9, END)),
    scored_pair((2, 3, 9), (5, END), (5, 6, 7, 8, END)),  # both sides begin with the same token
    scored_pair((2, 3, 4, 5, 7), (11, 12, END), (13, 14, END)),
    scored_pair((8,), (END,), (15, 16, 17, 18)),
)
ONCE = DpoOptions(pairs_per_step=len(PAIRS))


def reference_of(model: Any) -> Tensor:
    return reference_logprobs(replace(small_policy(), model=model), PAIRS, scores=tree_scores, tokens_per_microbatch=64)


def collect(algorithm: Algorithm, number: int = 0) -> Batch:
    collected = algorithm.collect(number)
    assert collected is not None
    assert collected.batch is not None
    assert collected.metrics["num_pairs"] == collected.batch.denominator
    return collected.batch


def step_batch(options: DpoOptions = ONCE, number: int = 0) -> Batch:
    reference = None if options.reference_free else reference_of(small_llama())
    return collect(dpo(PAIRS, options, seed=3, reference=reference), number)


def step(
    model: Any, batch: Batch, options: DpoOptions = ONCE, *, scores: Any = tree_scores, limit: int = 4096, lr: float = 1
) -> dict[str, float]:
    return optimizer_step(
        model,
        torch.optim.SGD(model.parameters(), lr=lr),
        batch,
        loss_function(options),
        scores=scores,
        temperature=1.0,
        tokens_per_microbatch=limit,
        max_grad_norm=float("inf"),
    )


def test_it_starts_at_ln_2_with_margin_0() -> None:
    metrics = step(small_llama(), step_batch())
    assert metrics["loss"] == pytest.approx(math.log(2), abs=1e-5)
    for name in ("reward_margin", "chosen_reward", "rejected_reward"):
        assert metrics[name] == pytest.approx(0, abs=1e-5)


def test_the_first_gradient_is_half_beta_on_each_sum_of_log_probabilities() -> None:
    """Plain descent at rate 1: the weights move by beta / 2 times (grad log p chosen - grad log p rejected), averaged
    over the pairs."""
    model, beta = small_llama(), 0.3
    before = weights(model)
    sums = padded_logprobs(model, [side for pair in PAIRS for side in pair], temperature=1.0).sum(dim=1)
    half_betas = torch.tensor([beta / 2, -beta / 2]).repeat(len(PAIRS)) / len(PAIRS)
    grads = torch.autograd.grad((half_betas * sums).sum(), list(model.parameters()))
    options = DpoOptions(pairs_per_step=len(PAIRS), beta=beta)
    moved = small_llama()
    step(moved, step_batch(options), options)
    assert_close(weights(moved) - before, torch.cat([g.flatten() for g in grads]), atol=2e-6, rtol=1e-4)


ALL_OPTIONS = [
    ONCE,
    replace(ONCE, loss="ipo", length_normalize=True),
    replace(ONCE, loss="robust", label_smoothing=0.2, nll_coef=0.5),
    replace(ONCE, length_normalize=True, reference_free=True, beta=2.0, margin=1.0),
]


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=lambda options: options.loss)
@pytest.mark.parametrize(("scores", "limit"), [(tree_scores, 1), (tree_scores, 20), (padded_scores, 4096)])
def test_neither_the_path_nor_the_cut_changes_a_step(options: DpoOptions, scores: Any, limit: int) -> None:
    batch, whole, cut = step_batch(options), small_llama(1), small_llama(1)
    expected = step(whole, batch, options)
    metrics = step(cut, batch, options, scores=scores, limit=limit)
    assert_close(weights(cut), weights(whole), atol=2e-6, rtol=1e-4)
    for name in ("loss", "reward_margin", "accuracy", "chosen_logprob", "rejected_logprob", "grad_norm"):
        assert metrics[name] == pytest.approx(expected[name], abs=1e-4, rel=1e-4), name


def test_both_sides_share_the_prompt_even_in_the_smallest_micro_batch() -> None:
    metrics = step(small_llama(), step_batch(), limit=1)
    # nodes: prompt + chosen + rejected, the common first token of the second pair once
    assert metrics["num_forward_nodes"] == (5 + 3 + 2) + (3 + 2 + 5 - 1) + (5 + 3 + 3) + (1 + 1 + 4)
    assert metrics["num_trained_tokens"] == 3 + 2 + 2 + 5 + 3 + 3 + 1 + 4


def test_what_is_reported_is_a_mean_over_pairs() -> None:
    """The other model's numbers by hand: sums of log-probabilities, rewards beta times the log-ratios."""
    other = small_llama(1)
    sums = padded_logprobs(other, [side for pair in PAIRS for side in pair], temperature=1.0).sum(dim=1).detach()
    sums = sums.reshape(-1, 2)
    rewards = 0.1 * (sums - reference_of(small_llama()))
    margin = rewards[:, 0] - rewards[:, 1]
    metrics = step(other, step_batch(), limit=20, lr=0)
    assert 0 < (margin > 0).float().mean() < 1  # both kinds are there
    expected = {
        "reward_margin": margin.mean(),
        "accuracy": (margin > 0).float().mean(),
        "chosen_reward": rewards[:, 0].mean(),
        "rejected_reward": rewards[:, 1].mean(),
        "chosen_logprob": sums[:, 0].mean(),
        "rejected_logprob": sums[:, 1].mean(),
        "loss": -torch.nn.functional.logsigmoid(margin).mean(),
    }
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value.item(), abs=1e-4), name


def loss_rows(batch: Batch, policy: Tensor, mask: Tensor, order: list[int]) -> LossRows:
    """The rows of a batch in another order, as a micro-batch may hold them."""
    at = torch.tensor(order)
    assert batch.units is not None
    return LossRows(
        policy_logprobs=policy[at],
        mask=mask[at],
        denominator=batch.denominator,
        advantages=None,
        ref_logprobs=None,
        old_logprobs=None,
        sampler_logprobs=None,
        weights=None,
        entropies=None,
        values=None,
        extra={name: tensor[at] for name, tensor in batch.extra.items()},
        units=torch.tensor(batch.units)[at],
    )


def test_sides_are_found_in_any_order_of_rows() -> None:
    policy, mask = torch.zeros(6, 1), torch.ones(6, 1, dtype=torch.bool)
    order = [3, 0, 5, 4, 1, 2]  # rows of the batch: pair 0 = 0, 1; pair 1 = 2, 3; pair 2 = 4, 5
    chosen, rejected = sides(loss_rows(pair_batch(PAIRS[:3]), policy, mask, order))
    assert [order[i] for i in chosen] == [0, 2, 4]
    assert [order[i] for i in rejected] == [1, 3, 5]


def test_the_loss_by_hand() -> None:
    # log-ratios: chosen (-1 - 1) - (-3) = 1, rejected (-2) - (-1) = -1; Delta 2, or by means 1/2 + 1 = 3/2
    policy = torch.tensor([[-1.0, -1.0], [-2.0, 0.0]])
    mask = torch.tensor([[True, True], [True, False]])
    pair = (scored_pair((5,), (6, END), (END,)),)
    reference = torch.tensor([[-3.0, -1.0]])

    def value(options: DpoOptions) -> float:
        given = None if options.reference_free else reference
        batch = collect(dpo(pair, replace(options, pairs_per_step=1), seed=0, reference=given))
        return loss_function(options)(loss_rows(batch, policy, mask, [1, 0]))[0].item()

    def nls(x: float) -> float:
        return math.log1p(math.exp(-x))

    assert value(DpoOptions(beta=0.5)) == pytest.approx(nls(0.5 * 2))
    assert value(DpoOptions(beta=0.5, length_normalize=True)) == pytest.approx(nls(0.5 * 1.5))
    assert value(DpoOptions(beta=0.5, loss="ipo", length_normalize=True)) == pytest.approx((1.5 - 1) ** 2)
    simpo = DpoOptions(beta=2, length_normalize=True, reference_free=True, margin=0.5)
    assert value(simpo) == pytest.approx(nls(2 * (-1 - -2) - 0.5))
    assert value(DpoOptions(beta=0.5, nll_coef=0.25)) == pytest.approx(nls(1) + 0.25 * 1)
    assert value(DpoOptions(beta=0.5, label_smoothing=0.1)) == pytest.approx(0.9 * nls(1) + 0.1 * nls(-1))


def test_each_pair_comes_once_an_epoch_beside_its_own_reference() -> None:
    options = DpoOptions(pairs_per_step=3)
    reference = torch.arange(8.0).reshape(4, 2)
    algorithm = dpo(PAIRS, options, seed=5, reference=reference)
    seen = []
    for number in range(4):
        batch = collect(algorithm, number)
        assert batch.denominator == 3
        for place in range(3):
            pair = ScoredPair(*batch.sequences[2 * place : 2 * place + 2])
            row = PAIRS.index(pair)
            seen.append(row)
            assert batch.extra["ref_sequence_logprobs"][2 * place : 2 * place + 2].tolist() == [2 * row, 2 * row + 1]
    assert [sorted(seen[i : i + 4]) for i in (0, 4, 8)] == [[0, 1, 2, 3]] * 3


def test_rows_of_a_step_run_on_over_the_end_of_an_epoch() -> None:
    stream = [row for number in range(6) for row in rows_of_step(5, 5, number, 1)]
    assert stream == [row for number in range(10) for row in rows_of_step(5, 3, number, 1)]
    assert rows_of_step(2, 5, 0, 1) == [row for number in range(5) for row in rows_of_step(2, 1, number, 1)]


def test_the_reference_is_the_same_by_every_cut() -> None:
    model = small_policy()
    whole, cut = (
        reference_logprobs(model, PAIRS, scores=tree_scores, tokens_per_microbatch=limit) for limit in (4096, 1)
    )
    assert (whole.shape, whole.dtype, whole.requires_grad) == ((4, 2), torch.float32, False)
    assert_close(whole, cut, atol=1e-5, rtol=1e-5)
    plain = padded_logprobs(model.model, [side for pair in PAIRS for side in pair], temperature=1.0).sum(dim=1)
    assert_close(whole, plain.detach().reshape(-1, 2), atol=1e-5, rtol=1e-5)


def test_the_margin_rises_and_every_pair_comes_right() -> None:
    model = small_llama()
    algorithm = dpo(PAIRS, ONCE, seed=0, reference=reference_of(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    margins = []
    for number in range(25):
        metrics = optimizer_step(
            model,
            optimizer,
            collect(algorithm, number),
            algorithm.loss,
            scores=tree_scores,
            temperature=algorithm.temperature,
            tokens_per_microbatch=4096,
            max_grad_norm=1.0,
        )
        margins.append(metrics["reward_margin"])
    assert margins[0] == pytest.approx(0, abs=1e-5)
    assert all(later > earlier for earlier, later in zip(margins[::5], margins[5::5], strict=False))
    assert metrics["accuracy"] == 1
    assert metrics["loss"] < 0.6
