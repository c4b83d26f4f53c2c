"""A page in a headless Chromium, as wide as a phone, and what it became there."""

from __future__ import annotations

import html as html_text
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

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
  if (bar) {
    const box = bar.getBoundingClientRect();
    const at = { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
    bar.dispatchEvent(new PointerEvent("pointermove", at));
  }
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


def chromium() -> str:
    """The browser's program; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip(
            "no Chromium on this machine: the page is not tried in a browser (Debian: apt-get install chromium)"
        )
    return found


def seen_on_a_phone(html: str, folder: Path) -> dict[str, Any]:
    """What the browser made of the page: script errors, requests, width, and of each chart its marks and texts."""
    browser = chromium()
    (folder / "page.html").write_text(html.replace("<head>", "<head>" + COLLECTOR, 1), encoding="utf-8")
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
