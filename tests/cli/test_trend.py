"""Sparklines and trends: what is drawn, and what is called a change."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis.strategies import floats, lists

from groupwise.cli.trend import ASCII_BLOCKS, BLOCKS, smoothed, sparkline, trend


def test_a_sparkline_goes_from_the_lowest_to_the_highest_block() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == BLOCKS[0] + BLOCKS[4] + BLOCKS[7]
    assert sparkline([0.0, 0.5, 1.0], ascii_only=True) == ASCII_BLOCKS[0] + ASCII_BLOCKS[4] + ASCII_BLOCKS[7]
    assert sparkline([]) == ""
    assert sparkline([3.0, 3.0]) == BLOCKS[0] * 2


def test_a_small_span_does_not_fill_the_height() -> None:
    # 0.50 to 0.52 in a span of 0.2 is a tenth of the height, around its middle
    assert set(sparkline([0.50, 0.52, 0.50], least_span=0.2)) <= set(BLOCKS[3:5])


@given(values=lists(floats(-1e6, 1e6), min_size=1, max_size=50))
def test_every_value_has_one_block(values: list[float]) -> None:
    assert len(sparkline(values, least_span=0.2)) == len(values)


def test_smoothing_is_the_mean_of_the_last_values() -> None:
    assert smoothed([0.0, 1.0, 2.0, 3.0], window=2) == [0.0, 0.5, 1.5, 2.5]


def test_a_slope_is_a_change_and_its_size_is_told() -> None:
    found = trend([0.1 * i for i in range(20)])
    assert found is not None
    assert found.direction == 1
    assert abs(found.change - 1.5) < 1e-9  # mean of 15..19 minus mean of 0..4, times 0.1
    assert trend([-0.1 * i for i in range(20)]).direction == -1  # type: ignore[union-attr]


def test_noise_is_no_change() -> None:
    numbers = random.Random(3)
    levels = [trend([0.5 + 0.1 * numbers.gauss(0, 1) for _ in range(40)]) for _ in range(200)]
    wrong = sum(found.direction != 0 for found in levels if found is not None)
    assert wrong <= 24  # two standard errors: some 5 %, and the scatter is an estimate itself


def test_few_values_have_no_trend_and_equal_ones_are_level() -> None:
    assert trend([0.1, 0.9, 0.1]) is None
    level = trend([1.0] * 10)
    assert level is not None
    assert (level.direction, level.change) == (0, 0.0)
