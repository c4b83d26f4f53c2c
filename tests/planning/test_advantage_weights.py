from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.planning import Estimator, difficulty_weight, informative_fraction, largest_advantage

ESTIMATORS: tuple[Estimator, ...] = ("rloo", "mean_baseline", "std", "sample_std", "maxrl", "mean_of_solved")
RATES = (0.01, 0.05, 0.1, 0.3, 0.5)


def advantages(rewards: np.ndarray, estimator: Estimator) -> np.ndarray:
    """What each estimator does with one group, written from its definition."""
    mean, others = rewards.mean(), (rewards.sum() - rewards) / (len(rewards) - 1)
    if estimator == "rloo":
        return rewards - others
    if estimator == "mean_baseline":
        return rewards - mean
    if mean == 0 or (estimator in ("std", "sample_std") and mean == 1):
        return np.zeros_like(rewards)
    if estimator in ("std", "sample_std"):
        return (rewards - mean) / rewards.std(ddof=0 if estimator == "std" else 1)
    return (rewards - mean) / mean if estimator == "maxrl" else rewards / mean


def expected_update(p: float, group_size: int, estimator: Estimator, *, alive_only: bool = False) -> float:
    """E[mean A S] over all groups, for a policy with one logit: S = r - p, and the gradient of p is p (1 - p)."""
    total = weight = 0.0
    for outcome in itertools.product((0.0, 1.0), repeat=group_size):
        rewards = np.array(outcome)
        if alive_only and rewards.min() == rewards.max():
            continue
        chance = p ** rewards.sum() * (1 - p) ** (group_size - rewards.sum())
        weight += chance
        total += chance * float((advantages(rewards, estimator) * (rewards - p)).mean())
    return total / weight


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("group_size", [2, 4, 7])
def test_weights_agree_with_every_group_there_can_be(estimator: Estimator, group_size: int) -> None:
    for p in (*RATES, 0.9):
        expected = expected_update(p, group_size, estimator) / (p * (1 - p))
        assert difficulty_weight(p, group_size, estimator) == pytest.approx(expected, rel=1e-9)


def test_weights_of_population_std() -> None:
    table = {
        4: [1.727, 1.710, 1.690, 1.635, 1.616],
        8: [2.609, 2.473, 2.328, 1.963, 1.856],
        16: [3.733, 3.267, 2.848, 2.092, 1.934],
    }
    for group_size, weights in table.items():
        assert [difficulty_weight(p, group_size, "std") for p in RATES] == pytest.approx(weights, abs=5e-4)


def test_weights_of_maxrl() -> None:
    table = {8: [6.793, 6.033, 5.217, 3.059, 1.984], 16: [13.994, 10.734, 7.941, 3.318, 2.000]}
    for group_size, weights in table.items():
        assert [difficulty_weight(p, group_size, "maxrl") for p in RATES] == pytest.approx(weights, abs=5e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS[:-1])
def test_without_dead_groups_only_the_scale_changes(estimator: Estimator) -> None:
    # Two kinds of prompts. Averaged over the groups that are kept, a prompt counts by how often it is kept, u(p), times
    # its update in a kept group: that is its update over all groups, divided by the mean share kept of both kinds.
    # mean_of_solved is left out: without a baseline a dead group does contribute.
    hard, easy, group_size = 0.1, 0.6, 5
    kept = informative_fraction([hard, easy], group_size)
    for p in (hard, easy):
        alive = informative_fraction(p, group_size) * expected_update(p, group_size, estimator, alive_only=True)
        assert alive / kept == pytest.approx(expected_update(p, group_size, estimator) / kept, rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_at_the_ends_are_the_limits(estimator: Estimator) -> None:
    for end, near in ((0.0, 1e-9), (1.0, 1 - 1e-9)):
        assert difficulty_weight(end, 8, estimator) == pytest.approx(difficulty_weight(near, 8, estimator), rel=1e-6)
    limits = {"rloo": 1, "mean_baseline": 7 / 8, "std": math.sqrt(7), "maxrl": 7, "mean_of_solved": 8}
    if estimator in limits:
        assert difficulty_weight(0.0, 8, estimator) == pytest.approx(limits[estimator])


@given(p=st.floats(0.05, 0.95))
def test_large_groups_approach_the_textbook_weights(p: float) -> None:
    assert difficulty_weight(p, 2000, "std") == pytest.approx(1 / math.sqrt(p * (1 - p)), rel=0.01)
    assert difficulty_weight(p, 2000, "maxrl") == pytest.approx(1 / p, rel=0.01)


def test_only_some_estimators_count_the_extremes_more() -> None:
    for estimator in ("rloo", "mean_baseline"):
        assert difficulty_weight(0.01, 8, estimator) == difficulty_weight(0.5, 8, estimator)
    assert difficulty_weight(0.01, 8, "std") > 1.3 * difficulty_weight(0.5, 8, "std")
    assert difficulty_weight(0.99, 8, "std") == pytest.approx(difficulty_weight(0.01, 8, "std"))


def test_largest_advantage() -> None:
    for group_size, population, sample in ((8, 2.646, 2.475), (16, 3.873, 3.75), (64, 7.937, 7.875)):
        assert largest_advantage(group_size, "std") == pytest.approx(population, abs=5e-4)
        assert largest_advantage(group_size, "sample_std") == pytest.approx(sample, abs=5e-4)
    assert largest_advantage(4, "none") == 0.75


def test_the_worked_example_of_four_rewards() -> None:
    # rewards 1, 0, 0, 1: mean 1/2, population std 1/2
    assert advantages(np.array([1.0, 0.0, 0.0, 1.0]), "std").tolist() == [1.0, -1.0, -1.0, 1.0]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"pass_rate = 1\.2"):
        difficulty_weight(1.2, 8)
    with pytest.raises(ConfigError, match="group_size = 1"):
        difficulty_weight(0.5, 1)
    with pytest.raises(ConfigError, match="group_size = 1"):
        largest_advantage(1)
    with pytest.raises(ConfigError, match=r"estimator = 'grpo': expected one of rloo, mean_baseline"):
        difficulty_weight(0.5, 8, "grpo")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="scale = 'batch'"):
        largest_advantage(8, "batch")  # type: ignore[arg-type]
