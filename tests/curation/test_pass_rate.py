from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import PassRate
from groupwise.curation.pass_rate import regularized_incomplete_beta

COUNTS = st.integers(0, 64).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_mean_by_hand() -> None:
    assert PassRate(solved=1, scored=4).mean == pytest.approx(0.3)  # (1 + 0.5) / (4 + 1)
    assert PassRate(solved=0, scored=0).mean == 0.5
    assert PassRate(solved=2, scored=2, alpha=1, beta=1).mean == 0.75  # (2 + 1) / (2 + 2)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 1), (1, 4), (3, 5), (9, 2), (20, 20)])
@pytest.mark.parametrize("x", [0.01, 0.2, 0.5, 0.75, 0.99])
def test_incomplete_beta_is_a_binomial_tail(a: int, b: int, x: float) -> None:
    # I_x(a, b) = P(a or more successes in a + b - 1 trials of chance x)
    n = a + b - 1
    tail = math.fsum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert regularized_incomplete_beta(a, b, x) == pytest.approx(tail, rel=1e-12)


@pytest.mark.parametrize("x", [1e-9, 0.1, 0.5, 0.8, 1 - 1e-9])
def test_the_jeffreys_prior_is_the_arcsine_law(x: float) -> None:
    assert PassRate(solved=0, scored=0).probability_below(x) == pytest.approx(2 / math.pi * math.asin(math.sqrt(x)))


def test_probability_below_by_hand() -> None:
    # a flat prior and 0 of 3: the posterior is Beta(1, 4), so P(rate <= 0.1) = 1 - 0.9^4 = 0.3439
    assert PassRate(solved=0, scored=3, alpha=1, beta=1).probability_below(0.1) == pytest.approx(0.3439)
    assert PassRate(solved=0, scored=3).probability_below(0.0) == 0.0
    assert PassRate(solved=3, scored=3).probability_below(1.0) == 1.0


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


@given(COUNTS, st.floats(0, 1))
def test_solved_and_failed_mirror_each_other(counts: tuple[int, int], x: float) -> None:
    solved, scored = counts
    above = 1 - PassRate(solved=scored - solved, scored=scored).probability_below(1 - x)
    assert PassRate(solved=solved, scored=scored).probability_below(x) == pytest.approx(above, abs=1e-7)


def test_many_attempts_still_converge() -> None:
    low, high = PassRate(solved=300_000, scored=1_000_000).interval()
    spread = 1.959964 * math.sqrt(0.3 * 0.7 / 1_000_000)  # the normal limit
    assert (low, high) == pytest.approx((0.3 - spread, 0.3 + spread), abs=2e-6)


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 of 2"):
        PassRate(solved=3, scored=2)
    with pytest.raises(ValueError, match="prior weights"):
        PassRate(solved=0, scored=0, alpha=0)
    with pytest.raises(ValueError, match="pass rate lies in"):
        PassRate(solved=0, scored=0).probability_below(1.5)
    with pytest.raises(ValueError, match="confidence"):
        PassRate(solved=0, scored=0).interval(1.0)
