"""Reports in a headless Chromium, as wide as a phone, and printed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from recorded_run import make_run

from groupwise.runs import read_run
from groupwise.runs.report.page import report_page
from page_browser import PHONE_WIDTH, chromium, seen_on_a_phone


@pytest.fixture(scope="module", params=["one run", "two runs"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser made of the page of one run, and of that of two."""
    folder = tmp_path_factory.mktemp("report")
    runs = [make_run(folder, "first"), make_run(folder, "second", last_solved=2)]
    records = [read_run(run.path) for run in runs]
    return seen_on_a_phone(report_page(records[:1] if request.param == "one run" else records), folder)


def test_no_script_fails_nothing_is_requested_and_no_answer_runs(seen: dict[str, Any]) -> None:
    assert seen["errors"] == []
    assert seen["requests"] == []
    assert seen["hacked"] is None


def test_every_chart_is_drawn_with_marks_and_titles(seen: dict[str, Any]) -> None:
    assert len(seen["charts"]) >= 5
    assert [chart["title"] for chart in seen["charts"] if chart["marks"] == 0] == []
    assert all(len(chart["axes"]) == 2 and all(chart["axes"]) for chart in seen["charts"])


def test_nothing_is_wider_than_a_phone(seen: dict[str, Any]) -> None:
    assert seen["width"] <= PHONE_WIDTH
    assert all(200 < chart["width"] <= PHONE_WIDTH for chart in seen["charts"])


def test_the_page_can_be_printed(tmp_path: Path) -> None:
    browser = chromium()
    (tmp_path / "page.html").write_text(report_page([read_run(make_run(tmp_path).path)]), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--virtual-time-budget=4000", f"--print-to-pdf={tmp_path / 'page.pdf'}"]
    subprocess.run([browser, *options, (tmp_path / "page.html").as_uri()], capture_output=True, timeout=120, check=True)
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes()))
    assert 3 <= pages <= 40
