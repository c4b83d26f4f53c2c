from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs import Interval, clustered_wilson, wilson

RATES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=40)


def width(interval: Interval) -> float:
    return interval.high - interval.low


def test_wilson_by_hand() -> None:
    # p = 1/2, n = 16, z = 1.959964, z^2 = 3.841459: center (0.5 + 3.841459/32) / (1 + 3.841459/16) = 0.5
    # half width 1.959964 / 1.240091 * sqrt(0.25/16 + 3.841459/1024) = 1.580500 * sqrt(0.0193764) = 0.220004
    interval = wilson(8, 16)
    assert interval.low == pytest.approx(0.279996, abs=1e-6)
    assert interval.high == pytest.approx(0.720004, abs=1e-6)
    # 0 of 10: the upper bound is z^2 / (n + z^2) = 3.841459 / 13.841459 = 0.277533
    assert wilson(0, 10).low == 0.0
    assert wilson(0, 10).high == pytest.approx(0.277533, abs=1e-6)
    # the 90 % quantile is 1.644854, its square 2.705543: 2.705543 / 12.705543 = 0.212942
    assert wilson(0, 10, confidence=0.9).high == pytest.approx(0.212942, abs=1e-6)


def test_no_trials_say_nothing() -> None:
    assert wilson(0, 0) == Interval(0.0, 1.0)
    assert clustered_wilson([], 4) == Interval(0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_the_rate_stays_in_range_and_shrinks(counts: tuple[int, int]) -> None:
    successes, trials = counts
    interval = wilson(successes, trials)
    assert 0 <= interval.low <= successes / trials <= interval.high <= 1
    assert width(wilson(10 * successes, 10 * trials)) < width(interval)
    mirrored = wilson(trials - successes, trials)
    assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-12)


def test_clustered_by_hand() -> None:
    # rates 1, 0.5, 0.5, 0: p = 1/2, s^2 = (0.25 + 0 + 0 + 0.25) / 3 = 1/6, Var(p) = 1/24, n_eff = 0.25 * 24 = 6
    assert clustered_wilson([1.0, 0.5, 0.5, 0.0], 8) == wilson(3, 6)
    # rates 0.5, 0.25, 0.5, 0.75 with k = 4: s^2 = 0.125 / 3, Var(p) = 0.125 / 12, n_eff = 0.25 / Var = 24 > 16 = m k
    assert clustered_wilson([0.5, 0.25, 0.5, 0.75], 4) == wilson(8, 16)


def test_prompts_that_do_not_differ_count_once_each() -> None:
    assert clustered_wilson([0.5] * 6, 8) == wilson(3, 6)
    assert clustered_wilson([0.0] * 6, 8) == wilson(0, 6)
    assert clustered_wilson([1.0], 8) == wilson(1, 1)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60))
def test_with_one_sample_a_prompt_it_is_wilson(rates: list[float]) -> None:
    clustered, plain = clustered_wilson(rates, 1), wilson(sum(rates), len(rates))
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


@given(RATES)
def test_clustered_contains_the_mean_and_lies_between_its_two_limits(rates: list[float]) -> None:
    p, m, k = statistics.fmean(rates), len(rates), 4
    interval = clustered_wilson(rates, k)
    assert 0 <= interval.low <= p <= interval.high <= 1
    assert width(wilson(p * m * k, m * k)) - 1e-12 <= width(interval) <= width(wilson(p * m, m)) + 1e-12
    assert width(clustered_wilson(rates * 8, k)) < width(interval)


def test_coverage_of_new_prompts_where_counting_completions_fails() -> None:
    """Pass rates from Beta(0.4, 0.4), true mean 0.5: 95 % of the intervals should hold it."""
    rng = random.Random(5)
    num_repeats, num_prompts, k = 600, 50, 8
    clustered_hits = naive_hits = 0
    for _ in range(num_repeats):
        chances = [rng.betavariate(0.4, 0.4) for _ in range(num_prompts)]
        rates = [sum(rng.random() < chance for _ in range(k)) / k for chance in chances]
        clustered, naive = clustered_wilson(rates, k), wilson(round(sum(rates) * k), num_prompts * k)
        clustered_hits += clustered.low <= 0.5 <= clustered.high
        naive_hits += naive.low <= 0.5 <= naive.high
    assert 0.925 < clustered_hits / num_repeats < 0.985  # the standard error of 600 repeats is 0.009
    assert naive_hits / num_repeats < 0.8


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 of 2"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, confidence=95)
    with pytest.raises(ValueError, match="give rates, not counts"):
        clustered_wilson([3.0], 4)
    with pytest.raises(ValueError, match="samples_per_prompt"):
        clustered_wilson([0.5], 0)
