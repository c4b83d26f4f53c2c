from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.pages import Chart, bar_chart, column_chart, histogram, line_chart, points_with_intervals
from groupwise.pages.chart import MAX_ROWS, MAX_SERIES
from groupwise.pages.drawing import PALETTE, vega_lite

LINE: dict[str, Any] = {"title": "t", "x": "x", "y": "y", "x_title": "step", "y_title": "reward"}
BAR: dict[str, Any] = {"title": "t", "label": "a", "value": "v", "label_title": "part", "value_title": "GB"}
POINTS: dict[str, Any] = BAR | {"low": "lo", "high": "hi"}


def test_a_line_keeps_only_what_it_draws() -> None:
    rows = [{"x": 1, "y": 0.5, "lo": 0.4, "hi": 0.6, "run": 7, "prompt": "long text", "n": 3}]
    chart = line_chart(rows, **LINE, series="run", band=("lo", "hi"), tooltips=["n"])
    assert chart.rows == ({"x": 1, "y": 0.5, "low": 0.4, "high": 0.6, "series": "7", "tip0": 3},)
    assert chart.series_title == "run"
    assert chart.has_band


def test_single_values_stand_behind_their_smoothed_course() -> None:
    rows = [{"x": 1, "y": 0.5, "one": 0.25}, {"x": 2, "y": 0.5, "one": None}]
    chart = line_chart(rows, **LINE, single="one")
    assert chart.rows == ({"x": 1, "y": 0.5, "single": 0.25}, {"x": 2, "y": 0.5})
    assert chart.has_points
    assert not line_chart(rows, **LINE).has_points


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


def test_columns_of_one_place_stand_on_top_of_each_other() -> None:
    rows = [{"a": 0.5, "b": 1.5, "n": n, "kind": kind} for kind, n in (("live", 3), ("dead", 2), ("open", None))]
    chart = column_chart(rows, title="t", low="a", high="b", y="n", series="kind", x_title="step", y_title="groups")
    assert [(row["series"], row["bottom"], row["top"]) for row in chart.rows] == [("live", 0, 3), ("dead", 3, 5)]
    assert chart.x.bounds == (0.5, 1.5)
    assert chart.notes == ("Left out: 1 value without a finite number.",)


@pytest.mark.parametrize(("high", "n"), [(0.5, 1), (1.5, -1)])
def test_columns_without_a_width_or_below_zero_are_refused(high: float, n: int) -> None:
    rows = [{"a": 0.5, "b": high, "n": n, "kind": "live"}]
    with pytest.raises(ValueError, match="column_chart 't'"):
        column_chart(rows, title="t", low="a", high="b", y="n", series="kind", x_title="step", y_title="groups")


def test_a_histogram_of_sets_gives_each_its_own_shares() -> None:
    chart = histogram([0, 0, 1, 1, 1], series=["a", "b", "a", "a", "a"], title="t", x_title="x", num_bins=2)
    # a: 1 of 4 in the first bin and 3 of 4 in the second; b: 1 of 1
    assert [(row["series"], row["y"], row["tip0"]) for row in chart.rows] == [
        ("a", 0.25, 1),
        ("a", 0.75, 3),
        ("b", 1.0, 1),
        ("b", 0.0, 0),
    ]
    with pytest.raises(ValueError, match="2 values and 1 names"):
        histogram([0, 1], series=["a"], title="t", x_title="x")


def test_a_constant_line_has_an_axis_with_a_width() -> None:
    chart = line_chart([{"x": i, "y": 2e-5} for i in range(3)], title="t", x="x", y="y", x_title="x", y_title="y")
    (scale,) = {json.dumps(layer["encoding"]["y"]["scale"]) for layer in vega_lite(chart)["layer"]}
    assert json.loads(scale)["domain"] == {"unionWith": [0.0, 4e-05]}


def test_a_series_keeps_its_colour_where_others_are_missing() -> None:
    rows = [{"x": 1, "y": 1.0, "run": "second"}]
    made = line_chart(rows, title="t", x="x", y="y", series="run", x_title="x", y_title="y")
    color = vega_lite(replace(made, series_order=("first", "second")))["layer"][0]["encoding"]["color"]
    assert color["scale"] == {"domain": ["second"], "range": [PALETTE[1]]}
