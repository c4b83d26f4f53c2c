from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.planning import BetaRates
from groupwise.planning.pass_rates import draw_rates, mean_and_variance, solved_distribution

RATES = st.floats(0, 1)
WEIGHTS = st.floats(0.05, 50)


def test_solved_distribution_by_hand() -> None:
    # p = 1/4, G = 2: 9/16, 2 * 3/16, 1/16; p = 1: always 2
    assert solved_distribution(0.25, 2) == pytest.approx([9 / 16, 6 / 16, 1 / 16])
    assert solved_distribution([0.25, 1.0], 2) == pytest.approx([9 / 32, 6 / 32, 17 / 32])
    # a flat Beta makes every count equally likely
    assert solved_distribution(BetaRates(alpha=1, beta=1), 4) == pytest.approx([0.2] * 5)


@given(p=RATES, group_size=st.integers(1, 300))
def test_one_rate_is_binomial(p: float, group_size: int) -> None:
    expected = [math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k) for k in range(group_size + 1)]
    assert solved_distribution(p, group_size) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(alpha=WEIGHTS, beta=WEIGHTS, group_size=st.integers(1, 300))
def test_a_beta_gives_a_distribution_with_its_mean(alpha: float, beta: float, group_size: int) -> None:
    chances = solved_distribution(BetaRates(alpha=alpha, beta=beta), group_size)
    assert chances.sum() == pytest.approx(1, rel=1e-9)
    assert chances @ np.arange(group_size + 1) == pytest.approx(group_size * alpha / (alpha + beta), rel=1e-9)


def test_a_list_counts_every_entry() -> None:
    # a rate that stands twice weighs twice
    assert solved_distribution([0.5, 0.5, 0.0], 1) == pytest.approx([2 / 3, 1 / 3])


def test_thousands_of_rollouts_do_not_overflow() -> None:
    assert solved_distribution(0.5, 4000).sum() == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("rates", [BetaRates(alpha=0.5, beta=2), [0.0, 0.25, 0.25, 1.0]])
def test_drawn_rates_have_the_mean_and_variance(rates: BetaRates | list[float]) -> None:
    drawn = draw_rates(rates, 40_000, np.random.default_rng(3))
    mean, variance = mean_and_variance(rates)
    assert drawn.mean() == pytest.approx(mean, abs=4 * math.sqrt(variance / 40_000))
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_after_adds_what_was_seen() -> None:
    assert BetaRates(alpha=1, beta=2).after(3, 8) == BetaRates(alpha=4, beta=7)


@pytest.mark.parametrize(("alpha", "beta"), [(0, 1), (1, -1), (math.nan, 1), (1, math.inf)])
def test_weights_that_make_no_distribution_are_refused(alpha: float, beta: float) -> None:
    with pytest.raises(ConfigError, match="both must be positive"):
        BetaRates(alpha=alpha, beta=beta)


@pytest.mark.parametrize(("solved", "scored"), [(3, 2), (-1, 2)])
def test_counts_that_cannot_be_are_refused(solved: int, scored: int) -> None:
    with pytest.raises(ConfigError, match="0 <= solved <= scored"):
        BetaRates(alpha=1, beta=1).after(solved, scored)


def test_bad_rates_are_refused_with_the_entry() -> None:
    with pytest.raises(ConfigError, match=r"pass rate 37 \(entry 2 of 3\).*between 0 and 1.*solved / scored"):
        solved_distribution([0.1, 1.0, 37.0], 4)
    with pytest.raises(ConfigError, match=r"pass rate nan \(entry 0 of 1\)"):
        solved_distribution(math.nan, 4)
    with pytest.raises(ConfigError, match="list of pass rates is empty"):
        mean_and_variance([])
    with pytest.raises(ConfigError, match="group_size = 0"):
        solved_distribution(0.5, 0)
