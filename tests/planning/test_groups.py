from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.planning import (
    BetaRates,
    all_fail_probability,
    all_pass_probability,
    best_group_size,
    dynamic_sampling_cost,
    expected_pass_at_k,
    group_outlook,
    informative_fraction,
    smallest_group_size,
    zero_variance_probability,
)

UNIFORM = BetaRates(alpha=1, beta=1)
RATES = st.floats(0, 1)


def test_small_groups_miss_hard_prompts() -> None:
    assert round(all_fail_probability(0.1, 4), 2) == 0.66  # 0.9^4
    assert round(all_fail_probability(0.1, 16), 2) == 0.19  # 0.9^16
    assert round(all_fail_probability(0.05, 8), 2) == 0.66  # 0.95^8


def test_zero_variance_by_hand() -> None:
    assert zero_variance_probability(0.25, 2) == pytest.approx(10 / 16)  # 1/16 + 9/16
    assert zero_variance_probability(0.0, 8) == zero_variance_probability(1.0, 8) == 1.0
    assert all_pass_probability(0.5, 3) == pytest.approx(1 / 8)
    assert informative_fraction([0.5, 0.0], 2) == pytest.approx(1 / 4)  # 1/2 of the first, nothing of the second


# The usable share at G = 2, 4, 8, 16, 32, 64, to three digits; two cells are off by half a digit.
USABLE = [
    (1, 1, [0.333, 0.600, 0.778, 0.882, 0.939, 0.969]),
    (0.5, 0.5, [0.250, 0.453, 0.607, 0.720, 0.801, 0.859]),
    (0.5, 2, [0.229, 0.416, 0.565, 0.682, 0.771, 0.836]),
    (2, 2, [0.400, 0.714, 0.891, 0.965, 0.990, 0.997]),
    (0.3, 0.9, [0.205, 0.372, 0.503, 0.605, 0.684, 0.747]),
]


@pytest.mark.parametrize(("alpha", "beta", "usable"), USABLE)
def test_usable_share_of_five_distributions(alpha: float, beta: float, usable: list[float]) -> None:
    rates = BetaRates(alpha=alpha, beta=beta)
    assert [informative_fraction(rates, g) for g in (2, 4, 8, 16, 32, 64)] == pytest.approx(usable, abs=5.1e-4)


def test_uniform_rates_are_dead_in_two_of_g_plus_one() -> None:
    for group_size in (2, 5, 8, 64):
        assert zero_variance_probability(UNIFORM, group_size) == pytest.approx(2 / (group_size + 1))


@pytest.mark.parametrize(("k", "exact"), [(64, 0.1639), (512, 0.0586)])
def test_the_share_of_dead_groups_falls_as_a_power(k: int, exact: float) -> None:
    dead = all_fail_probability(BetaRates(alpha=0.5, beta=2), k)
    assert dead == pytest.approx(exact, abs=5e-5)
    tail = math.gamma(2.5) / math.gamma(2) * k**-0.5
    assert dead == pytest.approx(tail, rel=1 / k)


def test_the_next_group_after_what_was_seen() -> None:
    after = {
        (0, 8): 9 / 17,  # all fail again: B(1, 17) / B(1, 9)
        (8, 8): 9 / 17,
        (1, 8): 0.2651,
        (4, 8): 0.0407,
        (0, 16): 17 / 25,
        (0, 24): 25 / 33,
    }
    for (solved, scored), dead in after.items():
        assert zero_variance_probability(UNIFORM.after(solved, scored), 8) == pytest.approx(dead, abs=6e-5)


def test_the_mean_pass_rate_misleads() -> None:
    # all four have mean 1/2; a plan from the mean would promise that 99 of 100 groups of 8 are usable
    distributions = [[0.5, 0.5], [0.25, 0.75], BetaRates(alpha=0.1, beta=0.1), [0.0, 1.0]]
    shares = [informative_fraction(rates, 8) for rates in distributions]
    assert shares[0] == pytest.approx(1 - 2 / 256)
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 0.25
    assert shares[3] == 0.0
    assert "teach nothing" in (group_outlook(distributions[2], 8, budget=64).warning or "")
    assert group_outlook(distributions[0], 8, budget=64).warning is None


@given(rates=st.lists(RATES, min_size=1, max_size=20), group_size=st.integers(2, 40))
def test_the_mean_is_never_too_gloomy(rates: list[float], group_size: int) -> None:
    mean = min(1.0, math.fsum(rates) / len(rates))
    assert informative_fraction(rates, group_size) <= informative_fraction(mean, group_size) + 1e-12


@given(p=RATES, group_size=st.integers(2, 60))
def test_dead_and_usable_are_all_groups(p: float, group_size: int) -> None:
    assert zero_variance_probability(p, group_size) == pytest.approx(p**group_size + (1 - p) ** group_size)
    assert zero_variance_probability(p, group_size) + informative_fraction(p, group_size) == pytest.approx(1)


def test_a_nearly_dead_prompt_keeps_its_digits() -> None:
    # 1 - p^G - (1 - p)^G cancels; to first order it is G p
    assert informative_fraction(1e-12, 8) == pytest.approx(8e-12, rel=1e-9)


def test_outlook_by_hand() -> None:
    # p = 1/2, G = 4, 50 rollouts: 12 groups, 2 rollouts left. Of 16 outcomes 1 is all-fail, 1 all-pass.
    # mean |A| is 0, 3/8, 1/2, 3/8, 0 for K = 0 .. 4 with chances 1, 4, 6, 4, 1 of 16: 6 / 16
    outlook = group_outlook(0.5, 4, budget=50)
    assert (outlook.group_size, outlook.num_prompts) == (4, 12)
    assert outlook.all_fail == pytest.approx(1 / 16)
    assert outlook.all_pass == pytest.approx(1 / 16)
    assert outlook.informative == pytest.approx(14 / 16)
    assert outlook.usable_groups == pytest.approx(12 * 14 / 16)
    assert outlook.usable_per_rollout == pytest.approx(14 / 64)
    assert outlook.usable_samples == pytest.approx(48 * 14 / 16)
    assert outlook.mean_abs_advantage == pytest.approx(6 / 16)
    assert outlook.advantage_variance == pytest.approx(3 / 16)
    assert outlook.mean_abs_advantage_std == pytest.approx((8 * math.sqrt(3) / 2 + 6) / 16)
    assert outlook.advantage_variance_std == pytest.approx(14 / 16)
    assert outlook.standard_errors == {}


@pytest.mark.parametrize("p", [0.1, 0.7])
def test_outlook_agrees_with_every_group_there_can_be(p: float) -> None:
    totals = dict.fromkeys(("mean_abs_advantage", "advantage_variance"), 0.0)
    scaled = dict.fromkeys(("mean_abs_advantage_std", "advantage_variance_std"), 0.0)
    for rewards in itertools.product((0.0, 1.0), repeat=4):
        chance = p ** sum(rewards) * (1 - p) ** (4 - sum(rewards))
        advantages = np.array(rewards) - np.mean(rewards)
        totals["mean_abs_advantage"] += chance * np.abs(advantages).mean()
        totals["advantage_variance"] += chance * (advantages**2).mean()
        if np.std(rewards) > 0:
            scaled["mean_abs_advantage_std"] += chance * np.abs(advantages / np.std(rewards)).mean()
            scaled["advantage_variance_std"] += chance * ((advantages / np.std(rewards)) ** 2).mean()
    outlook = group_outlook(p, 4, budget=4)
    for name, value in (totals | scaled).items():
        assert getattr(outlook, name) == pytest.approx(value), name


def test_the_sizes_of_advantages_over_a_beta() -> None:
    # E[p (1 - p)] = ab / ((a + b)(a + b + 1)) = 0.5 * 2 / (2.5 * 3.5)
    outlook = group_outlook(BetaRates(alpha=0.5, beta=2), 8, budget=8)
    assert outlook.advantage_variance == pytest.approx(7 / 8 * 1 / 8.75)
    assert outlook.mean_abs_advantage == pytest.approx(2 * 7 / 8 * 1 / 8.75)


@given(p=st.floats(0.001, 0.999))
def test_two_and_three_rollouts_teach_equally_much(p: float) -> None:
    per_rollout = [group_outlook(p, g, budget=1024).usable_per_rollout for g in range(2, 10)]
    assert per_rollout[0] == pytest.approx(p * (1 - p))
    assert per_rollout[1] == pytest.approx(p * (1 - p))
    assert all(later < earlier for earlier, later in itertools.pairwise(per_rollout[1:]))


def test_a_fixed_budget_trades_prompts_for_usable_samples() -> None:
    outlooks = [group_outlook(BetaRates(alpha=0.5, beta=2), g, budget=1024) for g in (4, 8, 16, 32)]
    assert [o.num_prompts for o in outlooks] == [256, 128, 64, 32]
    assert [o.usable_groups for o in outlooks] == sorted((o.usable_groups for o in outlooks), reverse=True)
    assert [o.usable_samples for o in outlooks] == sorted(o.usable_samples for o in outlooks)


def test_pass_at_k() -> None:
    assert expected_pass_at_k(0.5, 3) == pytest.approx(7 / 8)
    assert expected_pass_at_k(UNIFORM, 4) == pytest.approx(4 / 5)  # 1 - B(1, 5) / B(1, 1)


def test_smallest_group_size() -> None:
    assert smallest_group_size(0.5, 0.5) == 2  # exactly 1/2
    assert smallest_group_size(UNIFORM, 0.9) == 19  # 1 - 2 / (G + 1) >= 0.9
    size = smallest_group_size([0.05, 0.1], 0.8)
    assert informative_fraction([0.05, 0.1], size) >= 0.8 > informative_fraction([0.05, 0.1], size - 1)
    with pytest.raises(ConfigError, match=r"90\.0% .* at most 50\.0%"):
        smallest_group_size([0.0, 0.5], 0.9)
    with pytest.raises(ConfigError, match="informative = 1"):
        smallest_group_size(0.5, 1)


def test_best_group_size() -> None:
    assert best_group_size(prompt_variance=1, rollout_variance=49) == 8
    assert best_group_size(prompt_variance=1, rollout_variance=3, prompt_cost=2) == 4  # 1 + sqrt(3 * 3)


@pytest.mark.parametrize("prompt_cost", [0.0, 1.5, 20.0])
def test_best_group_size_has_the_least_variance_for_its_cost(prompt_cost: float) -> None:
    between, within, rollout_cost = 0.3, 5.0, 0.7
    sizes = np.linspace(1.5, 40, 100_000)
    variance_times_cost = (between + within / (sizes - 1)) * (prompt_cost + sizes * rollout_cost)
    best = best_group_size(
        prompt_variance=between, rollout_variance=within, prompt_cost=prompt_cost, rollout_cost=rollout_cost
    )
    assert best == pytest.approx(sizes[variance_times_cost.argmin()], abs=1e-3)


def test_dynamic_sampling_by_hand() -> None:
    # u = 1/2: 8 usable groups take 16 prompts, 32 rollouts; variance 8 * 1/2 / 1/4 = 16
    cost = dynamic_sampling_cost(0.5, 2, 8)
    assert (cost.prompts, cost.rollouts, cost.prompts_std) == pytest.approx((16, 32, 4))


def test_dynamic_sampling_agrees_with_doing_it() -> None:
    rates, wanted, generator = BetaRates(alpha=0.5, beta=2), 6, np.random.default_rng(11)
    needed = []
    for _ in range(4000):
        solved = generator.binomial(8, generator.beta(0.5, 2, size=100))
        needed.append(int(np.flatnonzero(np.cumsum((solved > 0) & (solved < 8)) == wanted)[0]) + 1)
    cost = dynamic_sampling_cost(rates, 8, wanted)
    assert np.mean(needed) == pytest.approx(cost.prompts, abs=4 * cost.prompts_std / math.sqrt(4000))
    assert np.std(needed) == pytest.approx(cost.prompts_std, rel=0.06)


def test_dynamic_sampling_that_never_ends_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no group of 8 is ever usable.*solved sometimes"):
        dynamic_sampling_cost([0.0, 1.0], 8, 4)


def test_the_warning_names_the_side() -> None:
    hard = group_outlook(0.05, 8, budget=64).warning
    easy = group_outlook([0.99, 1.0], 8, budget=64).warning
    assert hard is not None
    assert hard.startswith("66% of the groups of 8 teach nothing: no rollout solves 66%, every rollout solves 0%")
    assert "too hard" in hard
    assert easy is not None
    assert "too easy" in easy


def test_bad_input_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"group_size = 1: expected a whole number >= 2"):
        zero_variance_probability(0.5, 1)
    with pytest.raises(ConfigError, match="group_size = 1"):
        informative_fraction(0.5, 1)
    with pytest.raises(ConfigError, match=r"budget = 7: expected a whole number >= 8(.|\n)*raise budget, or lower"):
        group_outlook(0.5, 8, budget=7)
    with pytest.raises(ConfigError, match=r"pass rate 1\.5"):
        group_outlook([0.5, 1.5], 8, budget=8)
    with pytest.raises(ConfigError, match="empty"):
        informative_fraction([], 8)
    with pytest.raises(ConfigError, match="k = 0"):
        expected_pass_at_k(0.5, 0)
    with pytest.raises(ConfigError, match="prompt_variance = 0"):
        best_group_size(prompt_variance=0, rollout_variance=1)
    with pytest.raises(ConfigError, match="num_groups = 0"):
        dynamic_sampling_cost(0.5, 8, 0)
