from __future__ import annotations

import math
from dataclasses import replace

import pytest

from groupwise.errors import ConfigError
from groupwise.planning import BetaRates, GroupOutlook, PassRates, group_outlook, simulate_group_sizes

SIZES = (2, 3, 8, 20)
BUDGET = 400
MEASURED = [0.0, 0.125, 0.125, 0.5, 0.875, 1.0]
HARD = BetaRates(alpha=0.5, beta=2)


def disagreements(simulated: GroupOutlook, expected: GroupOutlook) -> list[str]:
    """The numbers that lie more than 4 standard errors apart: 1 in 16,000 where both are right.

    An event that 200 steps never showed has no standard error; its chance is then below 4 in all of their groups.
    """
    unseen = 4 / (200 * simulated.num_prompts)
    return [
        name
        for name, error in simulated.standard_errors.items()
        if abs(getattr(simulated, name) - getattr(expected, name)) > (4 * error if error > 0 else unseen)
    ]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("rates", [0.3, MEASURED, HARD, BetaRates(alpha=2, beta=0.5)])
def test_simulation_agrees_with_the_closed_forms(rates: PassRates, seed: int) -> None:
    for outlook in simulate_group_sizes(rates, SIZES, budget=BUDGET, seed=seed):
        assert disagreements(outlook, group_outlook(rates, outlook.group_size, budget=BUDGET)) == []


def test_wrong_closed_forms_are_caught() -> None:
    (simulated,) = simulate_group_sizes(HARD, (8,), budget=BUDGET, seed=0, num_repeats=1000)
    right = group_outlook(HARD, 8, budget=BUDGET)
    mean_only = group_outlook(0.2, 8, budget=BUDGET)  # the mean of HARD
    assert set(disagreements(simulated, mean_only)) == set(simulated.standard_errors)
    one_more = group_outlook(HARD, 9, budget=BUDGET)
    assert {"informative", "all_fail", "usable_groups"} <= set(disagreements(simulated, one_more))
    sample_std = replace(right, advantage_variance_std=right.advantage_variance_std * 7 / 8)
    assert disagreements(simulated, sample_std) == ["advantage_variance_std"]
    not_the_mean_of_the_group = replace(right, mean_abs_advantage=right.mean_abs_advantage * 8 / 7)
    assert disagreements(simulated, not_the_mean_of_the_group) == ["mean_abs_advantage"]


def test_the_standard_error_is_that_of_the_mean_over_repeats() -> None:
    # all 50 x 200 groups are independent: the share of usable ones spreads as sqrt(u (1 - u) / 10,000)
    (simulated,) = simulate_group_sizes(HARD, (8,), budget=BUDGET, seed=5, num_repeats=200)
    usable = group_outlook(HARD, 8, budget=BUDGET).informative
    assert simulated.standard_errors["informative"] == pytest.approx(math.sqrt(usable * (1 - usable) / 10_000), rel=0.2)


def test_prompts_that_never_vary_give_no_group_and_no_error() -> None:
    (simulated,) = simulate_group_sizes([0.0], (4,), budget=10, seed=0, num_repeats=3)
    assert (simulated.all_fail, simulated.usable_groups, simulated.advantage_variance_std) == (1.0, 0.0, 0.0)
    assert set(simulated.standard_errors.values()) == {0.0}
    assert simulated.num_prompts == 2


def test_all_numbers_have_an_error() -> None:
    (simulated,) = simulate_group_sizes(0.5, (4,), budget=16, seed=0, num_repeats=2)
    counted = {name for name in GroupOutlook.__slots__ if name not in ("group_size", "num_prompts", "standard_errors")}
    assert set(simulated.standard_errors) == counted


def test_the_same_seed_gives_the_same_outlook_beside_other_sizes() -> None:
    alone = simulate_group_sizes(HARD, (8,), budget=64, seed=7, num_repeats=5)
    beside = simulate_group_sizes(HARD, (4, 8), budget=64, seed=7, num_repeats=5)
    other = simulate_group_sizes(HARD, (8,), budget=64, seed=8, num_repeats=5)
    assert alone[0] == beside[1]
    assert alone[0] != other[0]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group_sizes = \(\): expected at least one"):
        simulate_group_sizes(0.5, (), budget=64, seed=0)
    with pytest.raises(ConfigError, match="group_size = 1"):
        simulate_group_sizes(0.5, (1,), budget=64, seed=0)
    with pytest.raises(ConfigError, match="budget = 4"):
        simulate_group_sizes(0.5, (2, 8), budget=4, seed=0)
    with pytest.raises(ConfigError, match="num_repeats = 1"):
        simulate_group_sizes(0.5, (8,), budget=64, seed=0, num_repeats=1)
    with pytest.raises(ConfigError, match="seed = -1"):
        simulate_group_sizes(0.5, (8,), budget=64, seed=-1)
    with pytest.raises(ConfigError, match="empty"):
        simulate_group_sizes([], (8,), budget=64, seed=0)
