from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import JEFFREYS, BetaPrior, fit_prior
from groupwise.curation.prior import LARGEST_WEIGHT, PENALTY_SD, SMALLEST_WEIGHT

Counts = list[tuple[int, int]]
COUNTS = st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def drawn(alpha: float, beta: float, *, num_prompts: int, scored: int, seed: int) -> Counts:
    rng = np.random.default_rng(seed)
    solved = rng.binomial(scored, rng.beta(alpha, beta, size=num_prompts))
    return [(int(k), scored) for k in solved]


def log_posterior(counts: Counts, alpha: float, beta: float) -> float:
    """What fit_prior maximises, written with log gamma functions and one prompt at a time."""

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    likelihood = sum(log_beta(alpha + k, beta + n - k) - log_beta(alpha, beta) for k, n in counts)
    return likelihood - (math.log(2 * alpha) ** 2 + math.log(2 * beta) ** 2) / (2 * PENALTY_SD**2)


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.9), (2.0, 5.0), (1.0, 1.0)])
def test_the_distribution_that_drew_the_counts_is_found(alpha: float, beta: float) -> None:
    prior = fit_prior(drawn(alpha, beta, num_prompts=4000, scored=8, seed=1))
    assert (prior.alpha, prior.beta) == pytest.approx((alpha, beta), rel=0.1)


def test_fits_scatter_around_the_truth() -> None:
    fits = [fit_prior(drawn(0.3, 0.9, num_prompts=400, scored=8, seed=seed)) for seed in range(20)]
    assert np.mean([f.alpha for f in fits]) == pytest.approx(0.3, abs=0.03)
    assert np.mean([f.beta for f in fits]) == pytest.approx(0.9, abs=0.1)


@given(st.lists(COUNTS, max_size=30))
def test_no_neighbour_fits_better(counts: Counts) -> None:
    prior = fit_prior(counts)
    best = log_posterior(counts, prior.alpha, prior.beta)
    for step_a, step_b in ((1.05, 1), (1 / 1.05, 1), (1, 1.05), (1, 1 / 1.05)):
        assert log_posterior(counts, prior.alpha * step_a, prior.beta * step_b) <= best + 1e-6


@given(st.lists(COUNTS, max_size=30), st.randoms())
def test_the_order_of_the_counts_does_not_matter(counts: Counts, shuffled: random.Random) -> None:
    other = list(counts)
    shuffled.shuffle(other)
    assert fit_prior(other) == fit_prior(counts)


@given(st.lists(COUNTS, max_size=30))
def test_solved_and_failed_mirror_each_other(counts: Counts) -> None:
    prior, mirrored = fit_prior(counts), fit_prior([(n - k, n) for k, n in counts])
    assert (mirrored.beta, mirrored.alpha) == pytest.approx((prior.alpha, prior.beta), rel=1e-3)


def test_nothing_known_is_jeffreys() -> None:
    assert fit_prior([]) == fit_prior([(0, 0)] * 9) == JEFFREYS == BetaPrior(alpha=0.5, beta=0.5)


def test_a_single_prompt_moves_the_prior_little() -> None:
    prior = fit_prior([(4, 4)])
    assert 0.5 < prior.alpha < 0.8
    assert 0.25 < prior.beta < 0.5


def test_one_attempt_a_prompt_fixes_the_mean_and_leaves_the_spread() -> None:
    prior = fit_prior([(1, 1)] * 500 + [(0, 1)] * 500)
    assert (prior.alpha, prior.beta) == pytest.approx((0.5, 0.5), rel=1e-3)


@pytest.mark.parametrize(
    "counts",
    [[(4, 4)] * 5000, [(0, 4)] * 5000, [(8, 16)] * 5000, [(0, 1)] * 50_000, [(500_000, 1_000_000)] * 100, [(3, 8)]],
)
def test_counts_that_push_to_infinity_stay_within_bounds(counts: Counts) -> None:
    prior = fit_prior(counts)
    solved, scored = (sum(c[i] for c in counts) for i in (0, 1))
    assert min(prior.alpha, prior.beta) >= SMALLEST_WEIGHT * 0.999
    assert max(prior.alpha, prior.beta) <= LARGEST_WEIGHT * 1.001
    assert prior.alpha / (prior.alpha + prior.beta) == pytest.approx(solved / scored, abs=0.1)


def test_a_prior_full_of_hopeless_prompts_makes_few_failures_say_more() -> None:
    hard = fit_prior(drawn(0.1, 1.5, num_prompts=500, scored=4, seed=3))
    assert hard.posterior(solved=0, scored=4).probability_below(0.05) > 0.75
    assert JEFFREYS.posterior(solved=0, scored=4).probability_below(0.05) < 0.5


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fit_prior: .* got 3 of 2"):
        fit_prior([(1, 2), (3, 2)])
    with pytest.raises(ValueError, match="prior weights"):
        BetaPrior(alpha=0.0, beta=1.0)
