"""The example page in a headless Chromium, as wide as a phone: every chart is drawn, no script fails, nothing is asked
from a network, and hostile text stays text."""

from __future__ import annotations

from typing import Any

import pytest
from example_page import example_page

from groupwise.pages import render_page
from page_browser import PHONE_WIDTH, seen_on_a_phone


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser made of the page."""
    return seen_on_a_phone(render_page(example_page()), tmp_path_factory.mktemp("page"))


def chart(seen: dict[str, Any], title: str) -> dict[str, Any]:
    return next(drawn for drawn in seen["charts"] if drawn["title"].startswith(title))


def test_no_script_fails_and_nothing_is_requested(seen: dict[str, Any]) -> None:
    assert seen["errors"] == []
    assert seen["requests"] == []


def test_hostile_text_does_not_run(seen: dict[str, Any]) -> None:
    assert seen["hacked"] is None
    assert set(chart(seen, "Two metrics")["legend"]) == {"pass@1", "pass@4 <i>"}
    assert "<b>base</b>" in chart(seen, "Two metrics")["ticks"]


def test_every_chart_has_its_marks_and_titles(seen: dict[str, Any]) -> None:
    assert {drawn["title"].split(" <")[0]: drawn["marks"] for drawn in seen["charts"]} == {
        "Groups with a signal, by group size": 3 + 3 + 18,  # bands, lines, points
        "Pass rates of the prompts": 16,
        "Memory by method": 4 + 5 + 6 + 6,
        "Held-out pass rate": 1 + 3 + 3,  # reference, intervals, points
        "Seconds of a step": 4,
        "Mean reward": 1 + 200,
        "Loss of nine runs": 9 + 9 * 58,
        "Two metrics": 4 + 4,
        "Time of a step by phase": 20 + 2,  # parts of columns, lines of markers
        "Lengths by correctness": 3 + 3,
    }
    assert all(len(drawn["axes"]) == 2 and all(drawn["axes"]) for drawn in seen["charts"])


def test_bars_of_a_histogram_stand_on_zero(seen: dict[str, Any]) -> None:
    heights = chart(seen, "Pass rates")["heights"]
    assert heights[0] / heights[1] == pytest.approx(100 / 44, rel=0.05)  # 100 and 44 prompts


def test_charts_fit_on_a_phone(seen: dict[str, Any]) -> None:
    assert seen["width"] <= PHONE_WIDTH
    assert all(250 < drawn["width"] <= PHONE_WIDTH for drawn in seen["charts"])


def test_group_sizes_are_marked_and_series_keep_their_order(seen: dict[str, Any]) -> None:
    drawn = chart(seen, "Groups with a signal")
    assert [text for text in drawn["ticks"] if "%" not in text] == ["2", "4", "8", "16", "32", "64"]
    assert drawn["legend"] == ["pass rate 0.05", "pass rate 0.1", "pass rate 0.5"]
    assert chart(seen, "Memory by method")["legend"][:3] == ["weights", "gradients", "optimizer"]
    assert [t for t in chart(seen, "Memory by method")["ticks"] if t.isalpha()] == ["sft", "dpo", "grpo", "ppo"]


def test_the_pointer_shows_the_numbers(seen: dict[str, Any]) -> None:
    assert seen["tooltip"] is not None
    assert "prompts" in seen["tooltip"]
    assert "100" in seen["tooltip"]
