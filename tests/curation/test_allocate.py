from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import PassRate, allocate

COUNTS = st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def rates(*counts: tuple[int, int]) -> list[PassRate]:
    return [PassRate(solved=solved, scored=scored) for solved, scored in counts]


def noise(posteriors: list[PassRate], sizes: tuple[int, ...]) -> float:
    """Summed variance of the leave-one-out gradients, sum_i E[p_i (1 - p_i)] / (n_i - 1)."""
    return sum(rate.outcome_variance / (n - 1) for rate, n in zip(posteriors, sizes, strict=True))


@given(st.lists(COUNTS, min_size=1, max_size=3), st.integers(2, 3), st.integers(0, 7), st.integers(0, 9))
def test_no_other_sizes_are_less_noisy(counts: list[tuple[int, int]], minimum: int, room: int, extra: int) -> None:
    posteriors, maximum = rates(*counts), minimum + room
    budget = minimum * len(counts) + min(extra, room * len(counts))
    sizes = allocate(posteriors, budget, minimum=minimum, maximum=maximum)
    others = itertools.product(range(minimum, maximum + 1), repeat=len(counts))
    best = min(noise(posteriors, other) for other in others if sum(other) == budget)
    assert sum(sizes) == budget
    assert all(minimum <= n <= maximum for n in sizes)
    assert noise(posteriors, sizes) == pytest.approx(best, rel=1e-12)


def test_sizes_follow_the_square_root_rule() -> None:
    posteriors = rates((0, 12), (1, 12), (3, 12), (6, 12))
    budget = 400
    roots = [math.sqrt(rate.outcome_variance) for rate in posteriors]
    exact = [1 + (budget - 4) * root / sum(roots) for root in roots]
    assert all(abs(n - x) < 1 for n, x in zip(allocate(posteriors, budget), exact, strict=True))


def test_by_hand() -> None:
    # Beta(4, 4): 16 / (8 x 9) = .2222; Beta(.5, 8.5): 4.25 / (9 x 10) = .0472
    posteriors = [PassRate(solved=3, scored=6, alpha=1, beta=1), PassRate(solved=0, scored=8)]
    assert [round(rate.outcome_variance, 4) for rate in posteriors] == [0.2222, 0.0472]
    assert allocate(posteriors, 4) == (2, 2)
    assert allocate(posteriors, 6) == (4, 2)  # .2222 / 2 = .111 and .2222 / 6 = .037 come before .0472 / 2 = .0236
    assert allocate(posteriors, 7) == (4, 3)  # .0236 comes before .2222 / 12 = .0185
    assert allocate(posteriors, 8) == (5, 3)


def test_equal_prompts_get_equal_sizes_and_the_earlier_ones_the_rest() -> None:
    assert allocate(rates((1, 4), (1, 4), (1, 4)), 14) == (5, 5, 4)


def test_a_prompt_at_its_limit_leaves_the_rest_to_others() -> None:
    posteriors = rates((6, 12), (0, 12), (0, 12))
    assert allocate(posteriors, 20, maximum=8) == (8, 6, 6)
    assert allocate(posteriors, 24, maximum=8) == (8, 8, 8)
    assert allocate(posteriors, 99, maximum=8) == (8, 8, 8)
    assert allocate(posteriors, 24, minimum=8, maximum=8) == (8, 8, 8)


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no prompts"):
        allocate([], 8)
    with pytest.raises(ValueError, match="minimum=1"):
        allocate(rates((1, 2)), 8, minimum=1)
    with pytest.raises(ValueError, match="maximum=3, minimum=4"):
        allocate(rates((1, 2)), 8, minimum=4, maximum=3)
    with pytest.raises(ValueError, match="at least 8, got 7"):
        allocate(rates((1, 2), (1, 2)), 7, minimum=4)


def test_a_group_that_grows_until_it_is_solved_has_a_mean_that_is_too_high() -> None:
    """Why sizes come from attempts before the group: at p = 0.2, E[1 / N] = -p ln p / (1 - p) = 0.4024, not 0.2."""
    p, num_groups = 0.2, 50_000
    rng = random.Random(0)

    def attempts(number: int) -> int:
        return sum(rng.random() < p for _ in range(number))

    until_solved = []
    for _ in range(num_groups):
        number = 1
        while rng.random() >= p:
            number += 1
        until_solved.append(1 / number)
    pilots = [PassRate(solved=attempts(4), scored=4) for _ in range(num_groups)]
    pairs = zip(pilots[::2], pilots[1::2], strict=True)
    sizes = [n for pair in pairs for n in allocate(pair, 12)]
    from_pilot = [attempts(n) / n for n in sizes]
    assert sum(until_solved) / num_groups == pytest.approx(0.4024, abs=0.006)  # 4 standard errors
    assert -p * math.log(p) / (1 - p) == pytest.approx(0.4024, abs=1e-4)
    assert sum(from_pilot) / num_groups == pytest.approx(p, abs=0.004)
    assert set(sizes) == {5, 6, 7}
