"""Moving means of jumping curves, and how they are drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.pages.drawing import vega_lite
from groupwise.runs.report.curves import CURVES, metric_chart
from groupwise.runs.report.smoothing import course_of, moving_mean, width_of
from groupwise.runs.report.steps import Step, Steps

PASS_RATE = next(c for c in CURVES if "pass_rate" in c.metrics)


def jumping(num_steps: int, stage: str = "grpo", begin: int = 1, low: float = 0.2, high: float = 0.8) -> list[Step]:
    return [
        Step(at=begin + i, stage=stage, step=i + 1, row={"pass_rate": high if i % 2 else low}) for i in range(num_steps)
    ]


def test_a_moving_mean_by_hand() -> None:
    assert moving_mean([1, 2, 6, 7], [1, 1, 1, 1], 3) == [1.5, 3, 5, 6.5]
    assert moving_mean([1, 2, 6, 7], [1, 1, 1, 1], 2) == [1.5, 4, 6.5, 7]  # the value itself and the next
    assert moving_mean([1, 0], [3, 1], 3) == [0.75, 0.75]  # three groups to one
    assert moving_mean([1, 2], [1, 1], 1) == [1, 2]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 20))
def test_a_mean_lies_within_what_it_is_of(values: list[float], width: int) -> None:
    means = moving_mean(values, [1.0] * len(values), width)
    assert len(means) == len(values)
    assert all(min(values) - 1e-9 <= mean <= max(values) + 1e-9 for mean in means)


def test_the_width_grows_with_the_stage() -> None:
    assert [width_of(n) for n in (1, 8, 9, 15, 30, 100, 500)] == [1, 1, 3, 5, 10, 10, 50]


def test_no_mean_reaches_into_another_stage() -> None:
    rows = [*jumping(20, "one", low=0.0, high=0.0), *jumping(20, "two", 21, low=1.0, high=1.0)]
    assert [mean for _, mean in course_of(Steps(rows=tuple(rows), markers=()), "pass_rate").points] == [0.0] * 20 + [
        1.0
    ] * 20


def test_a_step_of_more_groups_weighs_more() -> None:
    rows = [
        Step(at=i, stage="g", step=i, row={"pass_rate": i % 2, "num_groups": 3 if i % 2 else 1}) for i in range(1, 10)
    ]
    means = [mean for _, mean in course_of(Steps(rows=tuple(rows), markers=()), "pass_rate").points]
    # windows of three steps: 1 0 1 with 3 1 3 groups, or 0 1 0 with 1 3 1; at the ends two
    assert means == pytest.approx([3 / 4, *[6 / 7 if i % 2 else 3 / 5 for i in range(1, 8)], 3 / 4])


def test_the_line_is_the_mean_and_steps_are_points() -> None:
    chart = metric_chart(PASS_RATE, [("", Steps(rows=tuple(jumping(40)), markers=()))])
    assert chart is not None
    assert chart.has_points
    assert chart.rows[0]["series"] == "solved, mean of 10 steps"
    assert chart.series_title == "faint points: single steps"
    middle = chart.rows[10:30]
    assert {row["single"] for row in middle} == {0.2, 0.8}
    assert all(row["y"] == pytest.approx(0.5) for row in middle)
    layers = vega_lite(chart)["layer"]
    faint = [layer for layer in layers if layer["encoding"]["y"]["field"] == "single"]
    assert [layer["mark"]["type"] for layer in faint] == ["circle"]
    assert 0 < faint[0]["mark"]["opacity"] < 0.5


def test_a_short_stage_is_drawn_as_it_is() -> None:
    chart = metric_chart(PASS_RATE, [("", Steps(rows=tuple(jumping(5)), markers=()))])
    assert chart is not None
    assert not chart.has_points
    assert [row["y"] for row in chart.rows] == [0.2, 0.8, 0.2, 0.8, 0.2]


def test_a_long_stage_keeps_its_extremes() -> None:
    chart = metric_chart(PASS_RATE, [("", Steps(rows=tuple(jumping(1000)), markers=()))])
    assert chart is not None
    assert len(chart.rows) <= 240
    assert {(row["low"], row["high"]) for row in chart.rows} == {(0.2, 0.8)}


def test_of_several_runs_the_means_alone_are_drawn() -> None:
    runs = [(name, Steps(rows=tuple(jumping(40)), markers=())) for name in ("a", "b")]
    chart = metric_chart(PASS_RATE, runs)
    assert chart is not None
    assert not chart.has_points
    assert {row["series"] for row in chart.rows} == {"a", "b"}
    assert "mean of 10 neighbouring steps" in chart.caption


def test_a_metric_of_one_run_alone_can_be_drawn_among_several() -> None:
    runs = [("a", Steps(rows=(), markers=())), ("b", Steps(rows=tuple(jumping(40)), markers=()))]
    chart = metric_chart(PASS_RATE, runs)
    assert chart is not None
    assert {row["series"] for row in chart.rows} == {"b"}
    assert vega_lite(chart)["layer"]
