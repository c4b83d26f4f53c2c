from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.pages import Chart, bar_chart, histogram, line_chart, points_with_intervals
from groupwise.pages.charts import MAX_ROWS, MAX_SERIES

LINE: dict[str, Any] = {"title": "t", "x": "x", "y": "y", "x_title": "step", "y_title": "reward"}
BAR: dict[str, Any] = {"title": "t", "label": "a", "value": "v", "label_title": "part", "value_title": "GB"}
POINTS: dict[str, Any] = BAR | {"low": "lo", "high": "hi"}


def test_a_line_keeps_only_what_it_draws() -> None:
    rows = [{"x": 1, "y": 0.5, "lo": 0.4, "hi": 0.6, "run": 7, "prompt": "long text", "n": 3}]
    chart = line_chart(rows, **LINE, series="run", band=("lo", "hi"), tooltips=["n"])
    assert chart.rows == ({"x": 1, "y": 0.5, "low": 0.4, "high": 0.6, "series": "7", "tip0": 3},)
    assert chart.series_title == "run"
    assert chart.has_band


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_what_cannot_be_drawn_is_left_out_and_counted(bad: float | None) -> None:
    chart = line_chart([{"x": 1, "y": 2.0}, {"x": 2, "y": bad}, {"x": bad, "y": 1.0}], **LINE)
    assert [row["x"] for row in chart.rows] == [1]
    assert chart.notes == ("Left out: 2 values without a finite number.",)


def test_zero_stays_on_a_linear_axis_and_leaves_a_logarithmic_one() -> None:
    rows = [{"x": 0, "y": 1.0}, {"x": 1, "y": 0.0}, {"x": 2, "y": 1.0}]
    assert len(line_chart(rows, **LINE).rows) == 3
    chart = line_chart(rows, **LINE, log_x=True, log_y=True)
    assert [row["x"] for row in chart.rows] == [2]
    assert "logarithmic" in chart.notes[0]


def test_a_point_without_a_band_keeps_its_place() -> None:
    rows = [{"x": 1, "y": 1.0, "lo": None, "hi": 2.0}, {"x": 2, "y": 1.0, "lo": 0.5, "hi": 2.0}]
    chart = line_chart(rows, **LINE, band=("lo", "hi"))
    assert ["low" in row for row in chart.rows] == [False, True]


def test_a_chart_without_rows_is_made() -> None:
    for chart in (
        line_chart([], **LINE),
        bar_chart([], **BAR),
        histogram([math.nan], title="t", x_title="x"),
        points_with_intervals([], **POINTS),
    ):
        assert chart.rows == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: line_chart([{"x": 1}], **LINE),
        lambda: line_chart([{"x": 1, "y": 1}], **LINE, series="run"),
        lambda: bar_chart([{"a": "b"}], **BAR),
        lambda: points_with_intervals([{"a": "b", "v": 1, "lo": 0}], **POINTS),
    ],
)
def test_a_missing_column_is_named(make: Any) -> None:
    with pytest.raises(ValueError, match=r"row 1 lacks the column '(y|run|v|hi)'; it has"):
        make()


@pytest.mark.parametrize("change", [{"title": " "}, {"x_title": ""}, {"y_title": ""}])
def test_every_chart_and_axis_has_a_title(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give a title"):
        line_chart([{"x": 1, "y": 1}], **(LINE | change))


def test_limits() -> None:
    assert len(line_chart([{"x": i, "y": 1} for i in range(MAX_ROWS)], **LINE).rows) == MAX_ROWS
    with pytest.raises(ValueError, match="average them first"):
        line_chart([{"x": i, "y": 1} for i in range(MAX_ROWS + 1)], **LINE)
    runs = [{"x": 1, "y": 1, "run": i} for i in range(MAX_SERIES + 1)]
    line_chart(runs[1:], **LINE, series="run")
    with pytest.raises(ValueError, match="series, at most"):
        line_chart(runs, **LINE, series="run")


def test_bars_stack_only_parts_that_add_up() -> None:
    rows = [{"a": "sft", "v": 1, "part": "w"}, {"a": "sft", "v": -1, "part": "g"}]
    with pytest.raises(ValueError, match="must not be negative"):
        bar_chart(rows, **BAR, series="part")
    assert not bar_chart(rows, **BAR, series="part", stacked=False).stacked
    assert not bar_chart(rows[:1], **BAR).stacked  # one series has nothing to stack
    with pytest.raises(ValueError, match="'sft' has two rows"):
        bar_chart(rows, **BAR)


@pytest.mark.parametrize("interval", [(0.6, 0.7), (0.2, 0.4), (0.7, 0.3)])
def test_an_interval_holds_its_value(interval: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="does not hold its value"):
        points_with_intervals([{"a": "b", "v": 0.5, "lo": interval[0], "hi": interval[1]}], **POINTS)


def counts(chart: Chart) -> list[int]:
    return [row["y"] for row in chart.rows]


def test_bins_by_hand() -> None:
    # four bins of 0.25; an inner edge belongs to the bin above it, the last edge to the last bin
    chart = histogram([0, 0.1, 0.25, 0.5, 0.75, 1.0], title="t", x_title="x", num_bins=4, bounds=(0, 1))
    assert counts(chart) == [2, 1, 1, 2]
    assert [(row["low"], row["high"]) for row in chart.rows][1] == (0.25, 0.5)


def test_values_outside_the_bounds_are_counted_in_the_note() -> None:
    chart = histogram([-0.1, 0.5, 1.1, None], title="t", x_title="x", num_bins=2, bounds=(0, 1))
    assert counts(chart) == [0, 1]
    assert chart.notes == ("Left out: 3 values without a finite number or outside 0 to 1.",)


def test_equal_values_share_one_bin() -> None:
    assert histogram([3, 3, 3], title="t", x_title="x").rows == ({"low": 2.5, "high": 3.5, "y": 3},)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(1, 30))
def test_every_value_is_in_one_bin(values: list[float], num_bins: int) -> None:
    assert sum(counts(histogram(values, title="t", x_title="x", num_bins=num_bins))) == len(values)


@pytest.mark.parametrize("change", [{"num_bins": 0}, {"num_bins": 201}, {"bounds": (1, 1)}, {"bounds": (1, 0)}])
def test_impossible_bins_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"num_bins|low < high"):
        histogram([1.0], title="t", x_title="x", **change)
