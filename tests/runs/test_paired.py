"""The paired difference: by hand, under exchange, without prompts, and what it holds for simulated prompts."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs import paired_difference

RATES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


def two(pairs: list[tuple[float, float]]) -> tuple[dict[str, float], dict[str, float]]:
    return {str(i): a for i, (a, _) in enumerate(pairs)}, {str(i): b for i, (_, b) in enumerate(pairs)}


def test_a_difference_by_hand() -> None:
    # d = 1, 0, made up 1 and -1: mean of four 1/4, variance ((3/4)^2 + (1/4)^2 + (3/4)^2 + (5/4)^2) / 3 = 11/12
    found = paired_difference({"a": 0.0, "b": 0.5}, {"b": 0.5, "a": 1.0})
    half_width = 1.959964 * math.sqrt(11 / 12) / 2
    assert found.difference == 0.5
    assert found.num_prompts == 2
    assert found.interval.low == pytest.approx(0.25 - half_width, abs=1e-6)
    assert found.interval.high == 1.0  # 1.188
    assert not found.is_distinguishable


@given(RATES)
def test_exchanged_sides_turn_the_interval_round(pairs: list[tuple[float, float]]) -> None:
    first, second = two(pairs)
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert there.difference == pytest.approx(-back.difference)
    assert there.interval.low == pytest.approx(-back.interval.high)
    assert there.interval.low <= there.difference <= there.interval.high
    assert there.is_distinguishable == back.is_distinguishable


def test_equal_rates_are_never_distinguishable_and_keep_a_width() -> None:
    rates = {str(i): 0.5 for i in range(50)}
    found = paired_difference(rates, rates)
    assert found.difference == 0
    assert found.interval.low == -found.interval.high < -0.01
    assert not found.is_distinguishable


def test_pairing_shows_what_two_intervals_would_hide() -> None:
    # prompts of every difficulty, each solved 10 points more often by the second
    first = {str(i): i / 100 for i in range(90)}
    second = {task: rate + 0.1 for task, rate in first.items()}
    assert paired_difference(first, second).is_distinguishable


def test_it_holds_the_true_difference_about_95_times_in_100() -> None:
    draw, held, true = random.Random(3), 0, 0.1
    for _ in range(400):
        first, second = {}, {}
        for i in range(40):
            first[str(i)] = float(draw.random() < 0.4)
            second[str(i)] = float(draw.random() < 0.5)
        found = paired_difference(first, second)
        held += found.interval.low <= true <= found.interval.high
    assert 0.92 <= held / 400 <= 0.99


def test_no_prompts_say_nothing_and_others_are_refused() -> None:
    found = paired_difference({}, {})
    assert (found.difference, found.interval.low, found.interval.high) == (0.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="the same prompts"):
        paired_difference({"a": 1.0}, {"b": 1.0})
    with pytest.raises(ValueError, match="not counts"):
        paired_difference({"a": 1.0}, {"a": 3.0})
    with pytest.raises(ValueError, match="confidence"):
        paired_difference({"a": 1.0}, {"a": 1.0}, confidence=1.0)
