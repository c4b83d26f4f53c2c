"""The example page in a headless Chromium, as wide as a phone: every chart is drawn, no script fails, nothing is asked
from a network, and hostile text stays text."""

from __future__ import annotations

import html as html_text
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from example_page import example_page

from groupwise.pages import render_page

PHONE_WIDTH = 390

# Stands before the page's policy, which would forbid it, and reports to the page around it.
COLLECTOR = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => errors.push("policy: " + event.violatedDirective));
function texts(place, selector) { return [...place.querySelectorAll(selector)].map((text) => text.textContent); }
function report() {
  const bar = document.querySelector(".chart .mark-rect.role-mark path");
  const box = bar.getBoundingClientRect();
  const at = { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
  bar.dispatchEvent(new PointerEvent("pointermove", at));
  setTimeout(() => parent.postMessage(JSON.stringify({
    errors,
    hacked: document.documentElement.dataset.hacked ?? null,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name),
    width: document.documentElement.scrollWidth,
    tooltip: document.querySelector("#vg-tooltip-element.visible")?.textContent ?? null,
    charts: [...document.querySelectorAll("[data-chart]")].map((place) => ({
      title: place.parentElement.querySelector("h3").textContent,
      marks: place.querySelectorAll(".role-mark > path, .role-mark > line, .role-mark > g > path").length,
      heights: [...place.querySelectorAll(".mark-rect path")].map((path) => path.getBoundingClientRect().height),
      axes: texts(place, ".role-axis-title text"),
      ticks: texts(place, ".role-axis-label text"),
      legend: texts(place, ".role-legend-label text"),
      width: place.querySelector("svg")?.getBoundingClientRect().width ?? 0,
    })),
  }), "*"), 300);
}
addEventListener("load", () => setTimeout(report, 1500));
</script>"""
FRAME = """<!doctype html><body><iframe src="page.html" style="border:0;width:{width}px;height:3000px"></iframe>
<pre id="report"></pre><script>
addEventListener("message", (event) => document.getElementById("report").textContent = event.data);
</script></body>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser made of the page."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip(
            "no Chromium on this machine: the page is not tried in a browser (Debian: apt-get install chromium)"
        )
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.html").write_text(render_page(example_page()).replace("<head>", "<head>" + COLLECTOR, 1))
    (folder / "frame.html").write_text(FRAME.format(width=PHONE_WIDTH))
    return report_of(browser, folder)


def report_of(browser: str, folder: Path) -> dict[str, Any]:
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    options += ["--window-size=800,3100", "--virtual-time-budget=8000", "--dump-dom"]
    command = [browser, *options, (folder / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    report = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert report is not None, done.stdout[-2000:]
    return json.loads(html_text.unescape(report[1]))


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
