"""The bootstrap of a mean and the sign-flip test: by hand, seeded, degenerate, and what they hold in simulations."""

from __future__ import annotations

import random
import statistics
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.runs import Interval, paired_difference
from groupwise.runs.comparison.bootstrap import bootstrap_mean, sign_flip_test
from groupwise.runs.comparison.mcnemar import mcnemar_of_counts

DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=12)


def sides(differences: list[float]) -> tuple[dict[str, float], dict[str, float]]:
    named = {str(i): d for i, d in enumerate(differences)}
    return {i: max(0.0, -d) for i, d in named.items()}, {i: max(0.0, d) for i, d in named.items()}


def test_a_large_sample_gives_the_interval_of_the_normal() -> None:
    # half ones, half zeros: standard error 0.5 / sqrt(400) = 0.025, t = 1.966, so 0.5 +- 0.049
    found = bootstrap_mean([0.0, 1.0] * 200, bound=1.0)
    assert found.low == pytest.approx(0.451, abs=0.004)
    assert found.high == pytest.approx(0.549, abs=0.004)


def test_few_values_get_the_wider_interval_of_student() -> None:
    # -0.45, -0.35, ... 0.45: s = 0.3028, t = 2.262, so +-0.2166; the plain percentile interval ends near 0.178
    found = bootstrap_mean([(2 * i - 9) / 20 for i in range(10)], bound=1.0, num_draws=40_000)
    assert found.low == pytest.approx(-0.2166, abs=0.01)
    assert found.high == pytest.approx(0.2166, abs=0.01)


def test_the_seed_decides_everything() -> None:
    values = [0.1, 0.7, -0.3, 0.2, 0.9]
    assert bootstrap_mean(values, bound=1.0, seed=4) == bootstrap_mean(values, bound=1.0, seed=4)
    assert bootstrap_mean(values, bound=1.0, seed=4) != bootstrap_mean(values, bound=1.0, seed=5)


def test_nothing_one_and_equal_values_keep_a_width() -> None:
    assert bootstrap_mean([], bound=1.0) == Interval(-1.0, 1.0)
    assert bootstrap_mean([0.5], bound=30.0) == Interval(-30.0, 30.0)
    equal = bootstrap_mean([0.0] * 50, bound=1.0)
    assert equal == paired_difference(*sides([0.0] * 50)).interval
    assert equal.low == -equal.high < -0.01
    shifted = bootstrap_mean([-7.0] * 50, bound=100.0)  # as the same rates would, a hundred times as large
    same = paired_difference(*sides([-0.07] * 50)).interval
    assert (shifted.low, shifted.high) == (pytest.approx(100 * same.low), pytest.approx(100 * same.high))


@given(DIFFERENCES)
@settings(max_examples=40, deadline=None)
def test_it_holds_the_mean_and_stays_inside_the_bound(values: list[float]) -> None:
    found = bootstrap_mean(values, bound=1.0, num_draws=200)
    assert -1 <= found.low <= statistics.fmean(values) + 1e-12
    assert statistics.fmean(values) - 1e-12 <= found.high <= 1


def test_unusable_input_is_refused() -> None:
    with pytest.raises(ValueError, match="between -1 and 1"):
        bootstrap_mean([0.1, 1.5], bound=1.0)
    with pytest.raises(ValueError, match="between -1 and 1"):
        bootstrap_mean([0.1, float("nan")], bound=1.0)
    with pytest.raises(ValueError, match="confidence"):
        bootstrap_mean([0.1, 0.2], bound=1.0, confidence=1.0)
    with pytest.raises(ValueError, match="100 draws"):
        bootstrap_mean([0.1, 0.2], bound=1.0, num_draws=10)
    with pytest.raises(ValueError, match="finite"):
        sign_flip_test([0.1, float("inf")])


def simulated(draw: random.Random, num_prompts: int) -> list[float]:
    """Differences of rates over 4 samples; the second model solves every prompt 10 points more often."""
    found = []
    for _ in range(num_prompts):
        rate = 0.9 * draw.betavariate(0.6, 0.6)
        one, other = (sum(draw.random() < p for _ in range(4)) for p in (rate, rate + 0.1))
        found.append((other - one) / 4)
    return found


@pytest.mark.parametrize("num_prompts", [12, 60])
def test_it_holds_the_true_difference_about_95_times_in_100(num_prompts: int) -> None:
    draw, held = random.Random(8), 0
    for trial in range(400):
        found = bootstrap_mean(simulated(draw, num_prompts), bound=1.0, seed=trial, num_draws=1000)
        held += found.low <= 0.1 <= found.high
    assert 0.925 <= held / 400 <= 0.985


def test_why_it_does_not_decide() -> None:
    # Four prompts of 72 change, all for the better: an exact test is not convinced (2 / 2^4), the bootstrap is.
    gains = [1.0] * 4 + [0.0] * 68
    assert bootstrap_mean(gains, bound=1.0).low > 0
    assert sign_flip_test(gains) == 0.125
    assert not paired_difference(*sides(gains)).is_distinguishable
    # Where 4 % of the prompts change and half of them get worse, paired_difference keeps its promise.
    draw, wrong = random.Random(2), 0
    for _ in range(500):
        changed = [draw.choice([-1.0, 1.0]) if draw.random() < 0.04 else 0.0 for _ in range(72)]
        wrong += paired_difference(*sides(changed)).is_distinguishable
    assert wrong / 500 <= 0.05


def test_signs_by_hand() -> None:
    # +-1 +-0.5: sums 1.5, 0.5, -0.5, -1.5; seen 0.5, so all four reach it. Seen 1.5: two of four.
    assert sign_flip_test([1.0, -0.5]) == 1.0
    assert sign_flip_test([1.0, 0.5]) == 0.5
    assert sign_flip_test([1.0, 0.5, 0.0, 0.0]) == 0.5  # prompts without a difference change nothing
    assert sign_flip_test([]) == sign_flip_test([0.0] * 9) == 1.0


def test_sums_that_are_equal_on_paper_count_as_equal() -> None:
    # three up and one down: 2 of 16 patterns sum to 4/3, 8 to 2/3, 6 to 0; rounding splits the 8
    assert sign_flip_test([1 / 3, 1 / 3, 1 / 3, -1 / 3]) == 10 / 16
    assert sign_flip_test([1 / 3, 1 / 3, 1 / 3, 0.3]) == 2 / 16  # the very pattern that was seen counts, too


@given(st.integers(0, 9), st.integers(0, 4))
@settings(deadline=None)
def test_one_answer_a_prompt_is_mcnemars_test(improved: int, regressed: int) -> None:
    found = sign_flip_test([1.0] * improved + [-1.0] * regressed + [0.0] * 5)
    assert found == pytest.approx(mcnemar_of_counts(improved, regressed).p_value)


def test_random_patterns_agree_with_all_of_them() -> None:
    exact = mcnemar_of_counts(14, 6).p_value  # 0.115
    assert sign_flip_test([1.0] * 14 + [-1.0] * 6, seed=1) == pytest.approx(exact, abs=0.012)
    assert sign_flip_test([0.25] * 40) == pytest.approx(1 / 10_001)  # never 0
    assert sign_flip_test([0.25] * 14 + [-0.5] * 6, seed=3) == sign_flip_test([0.25] * 14 + [-0.5] * 6, seed=3)


@given(DIFFERENCES)
@settings(max_examples=40, deadline=None)
def test_exchanged_sides_have_the_same_p_value(values: list[float]) -> None:
    assert sign_flip_test(values) == sign_flip_test([-v for v in values])


def test_equal_models_are_told_apart_as_often_as_promised() -> None:
    draw, found = random.Random(5), 0
    for trial in range(300):
        rates = [draw.betavariate(0.6, 0.6) for _ in range(30)]
        differences = [sum((draw.random() < p) - (draw.random() < p) for _ in range(4)) / 4 for p in rates]
        found += sign_flip_test(differences, seed=trial, num_draws=400) <= 0.05
    assert 0.02 <= found / 300 <= 0.08


def test_many_prompts_take_moments() -> None:
    started = time.perf_counter()
    values = [((i * 37) % 9 - 4) / 4 for i in range(3000)]
    bootstrap_mean(values, bound=1.0)
    sign_flip_test(values)
    assert time.perf_counter() - started < 8
