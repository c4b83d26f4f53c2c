"""From rewards, values and log-probabilities to advantages and returns, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from groupwise.models import ScoredSequence
from groupwise.training.ppo_batch import OLD_VALUES, RETURNS, RewardOptions, Scored, ppo_batch

PLAIN = RewardOptions(whiten=False)


def scored(values: list[list[float]], rewards: list[float], **given: Any) -> Scored:
    """Rows of these lengths behind a prompt of one token; log-probabilities are -1."""
    longest = max(map(len, values))
    table = torch.tensor([[*row, *[9.0] * (longest - len(row))] for row in values])
    return replace(
        Scored(
            sequences=tuple(ScoredSequence(token_ids=(2, *[3] * len(row)), prompt_length=1) for row in values),
            rewards=torch.tensor(rewards),
            cut=torch.zeros(len(values), dtype=torch.bool),
            old_logprobs=torch.full(table.shape, -1.0),
            values=table,
            next_values=torch.zeros(len(values)),
        ),
        **given,
    )


def learned(given: Scored, options: RewardOptions = PLAIN, kl_coef: float = 0.0) -> tuple[Tensor, Tensor]:
    """Advantages and returns."""
    batch, _ = ppo_batch(given, options, kl_coef=kl_coef)
    assert batch.advantages is not None
    return batch.advantages, batch.extra[RETURNS]


@pytest.mark.parametrize(
    ("gamma", "lam", "expected"),
    [
        (1.0, 1.0, [0.5, 0.4, 0.3]),  # 1 - V
        (1.0, 0.95, [0.46575, 0.385, 0.3]),  # A_2 = 1 - .7; A_1 = .7 - .6 + .95 x .3; A_0 = .6 - .5 + .95 x .385
        (0.99, 0.95, [0.446829, 0.37515, 0.3]),
        (1.0, 0.0, [0.1, 0.1, 0.3]),  # the next value minus this one
    ],
)
def test_advantages_and_returns_by_hand(gamma: float, lam: float, expected: list[float]) -> None:
    given = scored([[0.5, 0.6, 0.7]], [1.0])
    advantages, returns = learned(given, RewardOptions(gamma=gamma, lam=lam, whiten=False))
    assert_close(advantages, torch.tensor([expected]), atol=1e-6, rtol=0)
    assert_close(returns, torch.tensor([expected]) + given.values, atol=1e-6, rtol=0)


def test_without_values_every_token_gets_what_the_completion_earned() -> None:
    advantages, returns = learned(scored([[0.0, 0.0, 0.0], [0.0]], [1.0, 0.25]), RewardOptions(lam=1, whiten=False))
    assert_close(advantages, torch.tensor([[1.0, 1.0, 1.0], [0.25, 0.0, 0.0]]))
    assert_close(returns, advantages)


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_a_perfect_critic_leaves_no_advantage(lam: float) -> None:
    advantages, _ = learned(scored([[1.0, 1.0, 1.0], [0.25, 0.25]], [1.0, 0.25]), RewardOptions(lam=lam, whiten=False))
    assert not advantages.any()


def test_the_kl_of_each_token_is_paid_by_it_and_by_those_before() -> None:
    """d = -1 - ref = 0.5, -0.25; rewards -0.1 d = -0.05, 0.025 + 1; with lam = 1 and values 0 the sums to come."""
    given = scored([[0.0, 0.0]], [1.0], ref_logprobs=torch.tensor([[-1.5, -0.75]]))
    batch, metrics = ppo_batch(given, RewardOptions(lam=1, whiten=False), kl_coef=0.1)
    assert batch.advantages is not None
    assert_close(batch.advantages, torch.tensor([[0.975, 1.025]]))
    assert metrics["kl_to_ref"] == pytest.approx(0.125)
    assert metrics["kl_to_ref_sum"] == pytest.approx(0.25)
    assert metrics["reward_with_kl_mean"] == pytest.approx(0.975)
    assert metrics["kl_coef"] == 0.1


def test_without_a_reference_no_kl_is_reported() -> None:
    _, metrics = ppo_batch(scored([[0.0]], [1.0]), PLAIN, kl_coef=0.0)
    assert not any(name.startswith("kl_") for name in metrics)


def test_only_a_cut_completion_pays_the_penalty() -> None:
    given = scored([[0.0, 0.0], [0.0, 0.0]], [0.8, 0.8], cut=torch.tensor([True, False]))
    advantages, _ = learned(given, RewardOptions(lam=1, whiten=False, truncation_penalty=0.5))
    assert_close(advantages, torch.tensor([[0.3, 0.3], [0.8, 0.8]]))


@pytest.mark.parametrize(("bootstrap", "last"), [(True, 1.0 + 0.9 * 2.0), (False, 1.0)])
def test_a_cut_completion_goes_on_with_the_value_there_by_choice_and_an_ended_one_never(
    bootstrap: bool, last: float
) -> None:
    given = scored(
        [[0.5, 0.5], [0.5, 0.5]], [1.0, 1.0], cut=torch.tensor([True, False]), next_values=torch.tensor([2.0, 2.0])
    )
    _, returns = learned(given, RewardOptions(gamma=0.9, whiten=False, bootstrap=bootstrap))
    assert returns[:, -1].tolist() == pytest.approx([last, 1.0])


def test_whitening_is_over_all_tokens_of_the_step_and_leaves_the_returns() -> None:
    given = scored([[0.0, 0.3, 0.1], [0.2], [0.5, 0.4]], [1.0, 0.0, 0.5])
    plain, returns = learned(given)
    white, same = learned(given, RewardOptions(whiten=True))
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]]).bool()
    kept = white[mask]
    assert kept.mean().item() == pytest.approx(0, abs=1e-6)
    assert kept.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert_close(kept, (plain[mask] - plain[mask].mean()) / plain[mask].std(correction=0), atol=1e-5, rtol=0)
    assert_close(returns, same)


def test_what_stands_behind_a_completion_never_matters() -> None:
    clean = scored([[0.5, 0.6, 0.7], [0.2]], [1.0, 0.5], ref_logprobs=torch.full((2, 3), -1.2))
    broken = torch.tensor([[False, False, False], [False, True, True]])

    def spoiled(cells: Tensor) -> Tensor:
        return torch.where(broken, float("nan"), cells)

    assert clean.ref_logprobs is not None
    dirty = replace(
        clean,
        values=spoiled(clean.values),
        old_logprobs=spoiled(clean.old_logprobs),
        ref_logprobs=spoiled(clean.ref_logprobs),
    )
    expected, metrics = ppo_batch(clean, RewardOptions(), kl_coef=0.1)
    found, same = ppo_batch(dirty, RewardOptions(), kl_coef=0.1)
    assert expected.advantages is not None
    assert found.advantages is not None
    assert_close(found.advantages, expected.advantages)
    assert_close(found.extra[RETURNS], expected.extra[RETURNS])
    assert same == pytest.approx(metrics)
    assert (found.denominator, expected.denominator) == (4.0, 4.0)


def test_explained_variance_asks_what_was_earned_and_not_what_the_values_say_themselves() -> None:
    """Values that tell both rows apart, the wrong way round: with lam = 0 the returns would be nearly the values."""
    given = scored([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [1.0, 0.0])
    _, metrics = ppo_batch(given, RewardOptions(lam=0.0), kl_coef=0.0)
    assert metrics["explained_variance"] == pytest.approx(-3)  # errors +-1: variance 1 of 1/4
    _, metrics = ppo_batch(scored([[0.9, 0.9], [0.1, 0.1]], [1.0, 0.0]), PLAIN, kl_coef=0.0)
    assert metrics["explained_variance"] == pytest.approx(1 - 0.01 / 0.25)


def test_old_values_and_log_probabilities_go_with_the_batch() -> None:
    given = scored([[0.5, 0.6]], [1.0], sampler_logprobs=((-1.0, -1.0),))
    batch, _ = ppo_batch(given, PLAIN, kl_coef=0.0)
    assert batch.extra[OLD_VALUES] is given.values
    assert batch.old_logprobs is given.old_logprobs
    assert batch.sampler_logprobs == ((-1.0, -1.0),)
