from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import PassRate

COUNTS = st.integers(0, 64).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_moments_by_hand() -> None:
    assert PassRate(solved=1, scored=4).mean == pytest.approx(0.3)  # (1 + 0.5) / (4 + 1)
    assert PassRate(solved=0, scored=0).mean == 0.5
    rate = PassRate(solved=2, scored=3, alpha=1, beta=1)  # Beta(3, 2)
    assert rate.posterior == (3, 2)
    assert rate.mean == pytest.approx(3 / 5)
    assert rate.variance == pytest.approx(6 / (25 * 6))  # a b / ((a + b)^2 (a + b + 1))
    assert rate.outcome_variance == pytest.approx(6 / (5 * 6))  # a b / ((a + b) (a + b + 1))


@given(COUNTS)
def test_an_outcome_varies_by_its_rate_and_by_not_knowing_the_rate(counts: tuple[int, int]) -> None:
    # law of total variance: mean (1 - mean) = E[p (1 - p)] + Var p
    rate = PassRate(solved=counts[0], scored=counts[1])
    assert rate.mean * (1 - rate.mean) == pytest.approx(rate.outcome_variance + rate.variance)


def test_attempts_may_count_for_less_than_one() -> None:
    assert PassRate(solved=0.5, scored=1.5).mean == pytest.approx(1.0 / 2.5)


@pytest.mark.parametrize(("solved", "failed"), [(0, 0), (1, 0), (0, 3), (2, 4), (8, 1), (19, 19)])
@pytest.mark.parametrize("x", [0.01, 0.2, 0.5, 0.75, 0.99])
def test_the_posterior_is_a_binomial_tail(solved: int, failed: int, x: float) -> None:
    # a flat prior: P(rate <= x) = P(solved + 1 or more successes in solved + failed + 1 trials of chance x)
    n = solved + failed + 1
    tail = math.fsum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(solved + 1, n + 1))
    rate = PassRate(solved=solved, scored=solved + failed, alpha=1, beta=1)
    assert rate.probability_below(x) == pytest.approx(tail, rel=1e-12)
    assert rate.probability_above(x) == pytest.approx(1 - tail, abs=1e-12)


def test_probability_below_by_hand() -> None:
    # a flat prior and 0 of 3: the posterior is Beta(1, 4), so P(rate <= 0.1) = 1 - 0.9^4 = 0.3439
    assert PassRate(solved=0, scored=3, alpha=1, beta=1).probability_below(0.1) == pytest.approx(0.3439)
    assert PassRate(solved=0, scored=3).probability_below(0.0) == 0.0
    assert PassRate(solved=3, scored=3).probability_below(1.0) == 1.0


def test_a_tiny_chance_is_not_rounded_to_zero() -> None:
    # Beta(1, 1001): P(rate >= 0.1) = 0.9^1001 = 1.6e-46, which 1 - P(rate <= 0.1) would lose
    above = PassRate(solved=0, scored=1000, alpha=1, beta=1).probability_above(0.1)
    assert above == pytest.approx(0.9**1001, rel=1e-9, abs=0)


def test_interval_by_hand() -> None:
    # Beta(1, 4): P(rate <= x) = 1 - (1 - x)^4, so the quantile of q is 1 - (1 - q)^(1/4)
    low, high = PassRate(solved=0, scored=3, alpha=1, beta=1).interval(0.9)
    assert low == pytest.approx(1 - 0.95**0.25)
    assert high == pytest.approx(1 - 0.05**0.25)


@given(COUNTS, st.floats(0.5, 0.99))
def test_the_interval_holds_what_it_promises(counts: tuple[int, int], confidence: float) -> None:
    rate = PassRate(solved=counts[0], scored=counts[1])
    low, high = rate.interval(confidence)
    assert 0 <= low < high <= 1
    assert rate.probability_below(high) - rate.probability_below(low) == pytest.approx(confidence, abs=1e-9)


@pytest.mark.parametrize(
    ("solved", "scored", "expected"), [(0, 8, 9 / 17), (8, 8, 9 / 17), (1, 8, 0.2651), (4, 8, 0.0407), (0, 24, 0.7576)]
)
def test_the_next_group_of_eight_under_a_flat_prior(solved: int, scored: int, expected: float) -> None:
    # 0 of 8 is Beta(1, 9): E[(1 - p)^8] = 9/17 = .5294, and E[p^8] = 8! 9! / 17! = 4e-5
    rate = PassRate(solved=solved, scored=scored, alpha=1, beta=1)
    assert rate.zero_variance_probability(8) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("group_size", [2, 5])
def test_the_next_group_is_dead_as_often_as_in_a_simulation(group_size: int) -> None:
    rate = PassRate(solved=1, scored=6, alpha=0.5, beta=1.5)  # Beta(1.5, 6.5)
    rng = np.random.default_rng(0)
    solved = rng.binomial(group_size, rng.beta(1.5, 6.5, size=200_000))
    dead = float(np.mean((solved == 0) | (solved == group_size)))
    assert rate.zero_variance_probability(group_size) == pytest.approx(dead, abs=4 * math.sqrt(0.25 / 200_000))


def test_a_group_of_one_is_always_dead() -> None:
    assert PassRate(solved=1, scored=3).zero_variance_probability(1) == 1.0


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 of 2"):
        PassRate(solved=3, scored=2)
    with pytest.raises(ValueError, match="got nan of 2"):
        PassRate(solved=math.nan, scored=2)
    with pytest.raises(ValueError, match="prior weights"):
        PassRate(solved=0, scored=0, alpha=0)
    for ask in ("probability_below", "probability_above"):
        with pytest.raises(ValueError, match=f"{ask}: a pass rate lies in"):
            getattr(PassRate(solved=0, scored=0), ask)(1.5)
    with pytest.raises(ValueError, match="confidence"):
        PassRate(solved=0, scored=0).interval(1.0)
    with pytest.raises(ValueError, match="group_size"):
        PassRate(solved=0, scored=0).zero_variance_probability(0)
