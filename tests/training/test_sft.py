"""Imitation: which rows, which tokens, and that it learns."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from training_cases import END, small_llama

from groupwise.data.render import render_demonstration
from groupwise.models import ScoredSequence, padded_logprobs, tree_scores
from groupwise.training.batch import Batch
from groupwise.training.sft import loss, sft
from groupwise.training.step import optimizer_step
from groupwise.types import Task

ROWS = tuple(ScoredSequence(token_ids=(2, 3, 4 + i, 5 + i, END), prompt_length=3) for i in range(7))


def chosen(step: int, *, tasks_per_step: int = 3, seed: int = 4) -> list[ScoredSequence]:
    collected = sft(ROWS, tasks_per_step=tasks_per_step, seed=seed).collect(step)
    assert collected is not None
    assert collected.batch is not None
    return list(collected.batch.sequences)


def test_every_row_comes_once_an_epoch() -> None:
    stream = [s for step in range(7) for s in chosen(step)]  # 21 rows are three epochs of 7
    epochs = [stream[i : i + 7] for i in (0, 7, 14)]
    assert all(set(epoch) == set(ROWS) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_the_order_depends_on_the_seed_alone() -> None:
    assert chosen(1) == chosen(1)
    assert [chosen(s) for s in range(3)] != [chosen(s, seed=5) for s in range(3)]


def test_the_denominator_is_the_trained_tokens_of_the_step() -> None:
    collected = sft((ROWS[0], ScoredSequence(token_ids=(2, 9, 9, 9), prompt_length=1)), tasks_per_step=2, seed=0)
    batch = collected.collect(0).batch
    assert batch is not None
    assert batch.denominator == 2 + 3


def step(model: torch.nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, limit: int = 4096) -> dict[str, float]:
    return optimizer_step(
        model,
        optimizer,
        batch,
        loss,
        scores=tree_scores,
        temperature=1.0,
        tokens_per_microbatch=limit,
        max_grad_norm=1.0,
    )


def test_completion_tokens_are_trained_and_the_prompt_is_not() -> None:
    """The reported loss is the mean over exactly the two completion tokens, the end token among them."""
    model = small_llama()
    batch = sft(ROWS[:1], tasks_per_step=1, seed=0).collect(0).batch
    assert batch is not None
    expected = -padded_logprobs(model, [ROWS[0]], temperature=1.0).detach()  # of token 5 after 2 3 4, END after 2 3 4 5
    assert expected.shape == (1, 2)
    metrics = step(model, batch, torch.optim.SGD(model.parameters(), lr=0.0))
    assert metrics["loss"] == pytest.approx(expected.mean().item(), abs=1e-5)
    assert metrics["nll"] == pytest.approx(expected.mean().item(), abs=1e-5)
    assert metrics["num_trained_tokens"] == 2


def test_the_loss_is_the_mean_of_all_tokens_whatever_the_micro_batches() -> None:
    rows = (ROWS[0], ROWS[3], ScoredSequence(token_ids=(7, 9, 9, 9, 8), prompt_length=1))
    batch = sft(rows, tasks_per_step=3, seed=0).collect(0).batch
    assert batch is not None
    logprobs = padded_logprobs(small_llama(), rows, temperature=1.0).detach()
    for limit in (1, 4096):
        model = small_llama()
        metrics = step(model, batch, torch.optim.SGD(model.parameters(), lr=0.0), limit)
        assert_close(metrics["loss"], -logprobs.sum().item() / (2 + 2 + 4), atol=1e-5, rtol=0)


def test_a_demonstration_ends_with_the_end_token() -> None:
    class Letters:
        chat_template = None

        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return [ord(c) for c in text]

    _, completion = render_demonstration(Task(id="q", prompt="ab", demonstration="c"), Letters(), END)
    assert completion == (ord("c"), END)


def test_the_loss_falls() -> None:
    model = small_llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    algorithm = sft(ROWS, tasks_per_step=7, seed=0)
    losses = []
    for number in range(30):
        batch = algorithm.collect(number).batch
        assert batch is not None
        losses.append(step(model, batch, optimizer)["nll"])
    assert losses[-1] < 0.1 * losses[0]
