"""pass@k and pass^k: values by hand, against counting subsets, and whether the interval holds what it says."""

from __future__ import annotations

import itertools
import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs import clustered_wilson, wilson
from groupwise.runs.pass_at_k import k_rates, k_values, over_prompts, pass_all_k, pass_at_k


@pytest.mark.parametrize(
    ("num_samples", "num_solved", "k", "expected"),
    [
        (8, 2, 4, 1 - 15 / 70),  # C(6, 4) / C(8, 4); the plug-in 1 - (3/4)^4 = 0.6836 is too small
        (8, 1, 4, 0.5),
        (8, 0, 4, 0.0),
        (8, 8, 8, 1.0),
        (4, 1, 4, 1.0),
        (5, 2, 1, 2 / 5),
    ],
)
def test_pass_at_k_by_hand(num_samples: int, num_solved: int, k: int, expected: float) -> None:
    assert pass_at_k(num_samples, num_solved, k) == pytest.approx(expected, abs=1e-15)


def test_the_textbook_value_to_six_digits() -> None:
    assert round(pass_at_k(8, 2, 4), 6) == 0.785714


@pytest.mark.parametrize(
    ("num_samples", "num_solved", "k", "expected"),
    [(8, 6, 4, 15 / 70), (8, 3, 4, 0.0), (8, 8, 8, 1.0), (4, 3, 4, 0.0), (5, 2, 1, 2 / 5), (8, 4, 2, 6 / 28)],
)
def test_pass_all_k_by_hand(num_samples: int, num_solved: int, k: int, expected: float) -> None:
    assert pass_all_k(num_samples, num_solved, k) == pytest.approx(expected, abs=1e-15)


@given(data=st.data(), num_samples=st.integers(1, 9))
def test_both_are_shares_of_all_subsets(data: st.DataObject, num_samples: int) -> None:
    num_solved = data.draw(st.integers(0, num_samples))
    k = data.draw(st.integers(1, num_samples))
    subsets = list(itertools.combinations([i < num_solved for i in range(num_samples)], k))
    assert pass_at_k(num_samples, num_solved, k) == pytest.approx(fmean(map(any, subsets)), abs=1e-12)
    assert pass_all_k(num_samples, num_solved, k) == pytest.approx(fmean(map(all, subsets)), abs=1e-12)


@pytest.mark.parametrize("estimate", [pass_at_k, pass_all_k])
def test_more_attempts_than_samples_is_an_error(estimate: type[float]) -> None:
    with pytest.raises(ValueError, match=r"between 1 and the 4 samples, got 5; sample more"):
        estimate(4, 1, 5)
    with pytest.raises(ValueError, match="got 0"):
        estimate(4, 1, 0)
    with pytest.raises(ValueError, match="5 of 4"):
        estimate(4, 5, 2)


def test_thousands_of_samples_neither_overflow_nor_lose_digits() -> None:
    exact = 1 - math.comb(9_000, 500) / math.comb(10_000, 500)  # Python's integers are exact
    assert pass_at_k(10_000, 1_000, 500) == pytest.approx(exact, rel=1e-12)
    assert 0 < pass_all_k(10_000, 9_000, 100) < 1e-4


def test_ks_are_powers_of_two_and_the_number_of_samples() -> None:
    assert k_values(8) == (1, 2, 4, 8)
    assert k_values(6) == (1, 2, 4, 6)
    assert k_values(1) == (1,)
    assert k_values(0) == ()


def test_prompts_weigh_the_same_and_those_with_too_few_scored_attempts_are_left_out() -> None:
    counts = [(2, 8), (0, 8), (1, 3)]  # the last one has 3 of 8 that could be scored
    four = over_prompts(counts, 4)
    assert (four.num_prompts, four.rate) == (2, pytest.approx((55 / 70 + 0) / 2))
    assert over_prompts(counts, 1).rate == pytest.approx((2 / 8 + 0 + 1 / 3) / 3)
    assert [rate.k for rate in k_rates(counts, 8)] == [1, 2, 4, 8]


def test_no_prompt_with_enough_attempts_has_no_rate() -> None:
    nothing = over_prompts([(1, 2)], 4)
    assert math.isnan(nothing.rate)
    assert (nothing.num_prompts, nothing.interval.low, nothing.interval.high) == (0, 0.0, 1.0)


def test_at_one_and_at_n_the_interval_is_the_known_one() -> None:
    counts = [(c, 4) for c in (0, 1, 4, 2, 0, 3, 4, 1)]
    assert over_prompts(counts, 1).interval == clustered_wilson([c / 4 for c, _ in counts], 4)
    assert over_prompts(counts, 4).interval == wilson(6, 8)  # solved at least once: 6 of 8
    assert over_prompts(counts, 4, pass_all_k).interval == wilson(2, 8)


def test_a_prompt_is_worth_as_many_trials_as_it_has_disjoint_sets_of_k() -> None:
    counts = [(2, 4), (2, 4), (2, 4), (1, 4)]  # prompts so alike that their spread would promise more than 8 trials
    rates = [pass_at_k(4, solved, 2) for solved, _ in counts]
    found = over_prompts(counts, 2).interval
    assert found == clustered_wilson(rates, 2)
    assert found.low < clustered_wilson(rates, 4).low


def test_more_scored_attempts_than_samples_is_a_bug() -> None:
    with pytest.raises(ValueError, match="9 scored attempts"):
        k_rates([(1, 9)], 8)


@pytest.mark.parametrize("estimate", [pass_at_k, pass_all_k])
def test_the_mean_has_no_bias_and_the_interval_covers_it(estimate: type[float]) -> None:
    """60 prompts, rates uniform on 0 to 1, 8 attempts each, k = 4: E[1 - (1-p)^4] = 4/5, E[p^4] = 1/5."""
    draw = random.Random(5)
    truth = 4 / 5 if estimate is pass_at_k else 1 / 5
    rates, covered = [], 0
    for _ in range(400):
        counts = [(sum(draw.random() < p for _ in range(8)), 8) for p in [draw.random() for _ in range(60)]]
        found = over_prompts(counts, 4, estimate)
        rates.append(found.rate)
        covered += found.interval.low <= truth <= found.interval.high
    assert fmean(rates) == pytest.approx(truth, abs=0.006)  # 3 standard errors of the mean of 400
    assert 0.92 <= covered / 400 <= 0.995  # 0.95, give or take 3 standard errors


def test_fifty_prompts_of_which_thirty_are_right() -> None:
    """0.60 +- 0.136 by the normal formula, 1.96 sqrt(0.6 0.4 / 50); Wilson's is as wide to within 0.006."""
    found = over_prompts([(1, 1)] * 30 + [(0, 1)] * 20, 1)
    assert found.rate == 0.6
    assert found.interval == wilson(30, 50)
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(0.136, abs=0.006)
