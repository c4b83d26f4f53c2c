"""A plan for readers: the tables, JSON and the page."""

from __future__ import annotations

import html as html_text
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from groupwise.launch.plan import Plan, make_plan
from groupwise.launch.plan_page import plan_page
from groupwise.launch.plan_show import (
    groups_table,
    headline,
    memory_table,
    methods_table,
    plan_json,
    plan_lines,
    stages_table,
)
from plan_job import SFT, write_plan_job

COLLECTOR = """<script>
const seen = {errors: []};
addEventListener("error", (event) => seen.errors.push(event.message));
addEventListener("load", () => setTimeout(() => {
  seen.charts = [...document.querySelectorAll(".chart svg, figure svg")].length;
  seen.headings = [...document.querySelectorAll("h2")].map((e) => e.textContent);
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify(seen);
  document.body.append(report);
}, 1500));
</script>"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("show")
    recipe = write_plan_job(
        folder, ("enabled = false", "samples_per_prompt = 2"), ("prompts_per_step = 1", "prompts_per_step = 8")
    )
    return make_plan(recipe, hardware=str(folder / "round.json"), pass_rates=[0.1], price_per_hour=3.6)


def test_the_headline_answers_first(plan: Plan) -> None:
    lines = list(plan_lines(plan))
    assert lines[0] == headline(plan)
    assert re.fullmatch(
        r"job: about .* h, .* at 3.6 an hour, 0.0 GB at the peak, 18% of the groups train\.", headline(plan)
    )
    assert lines[1] == plan.binding
    assert [line for line in lines if isinstance(line, str) and line.startswith("Instead: ")]


def test_tables_hold_the_plan_s_numbers(plan: Plan) -> None:
    _, rows = groups_table(plan)
    assert rows[0] == ("2", "81%", "1%", "18%", "8", "1.4", "0.090", "0.18")
    _, rows = stages_table(plan)
    assert ("sft", "train", "2.28e+03", "3.8 min", "") in rows
    assert rows[-1][:2] == ("", "3 evaluations")
    assert [row[1] for row in rows if row[0] == "grpo"][-2:] == ["before its first step", "4 steps"]
    columns, rows = memory_table(plan)
    assert columns == ("part", "sft", "grpo")
    assert rows[-1][0] == "total"
    columns, rows = methods_table(plan)
    assert [row[0] for row in rows] == ["sft", "dpo", "ppo", "grpo"]
    assert rows[2][-1] == "policy, critic, reference"


def test_json_keeps_its_keys_and_holds_the_numbers(plan: Plan) -> None:
    found = json.loads(plan_json(plan))
    assert list(found) == [
        "name", "hardware", "num_params", "lengths", "pass_rates", "live_share", "groups", "stages", "evaluation",
        "seconds", "price", "peak_bytes", "methods", "method", "binding", "alternatives", "notes",
    ]  # fmt: skip
    assert list(found["hardware"]) == ["name", "measured", "memory_bytes", "price_per_hour", "ranks"]
    assert list(found["groups"][0]) == [
        "group_size", "all_fail", "all_pass", "informative", "num_prompts", "usable_groups", "usable_per_rollout",
        "usable_samples", "mean_abs_advantage", "advantage_variance", "mean_abs_advantage_std",
        "advantage_variance_std",
    ]  # fmt: skip
    stage = found["stages"][1]
    assert list(stage) == [
        "name", "method", "steps", "phases", "seconds_per_step", "flops_per_step", "seconds_before", "memory_bytes",
        "peak_bytes",
    ]  # fmt: skip
    assert list(found["methods"][0]) == [
        "method", "planned", "networks", "with_prefix_sharing", "without_prefix_sharing", "memory_bytes", "peak_bytes",
    ]  # fmt: skip
    assert found["pass_rates"] == {"source": "given: 0.1", "measured": True, "given": [0.1]}
    assert found["seconds"] == plan.seconds
    assert found["price"] == pytest.approx(plan.seconds / 1000)
    assert sum(phase["seconds"] for phase in stage["phases"]) == pytest.approx(stage["seconds_per_step"])
    assert sum(stage["memory_bytes"].values()) == stage["peak_bytes"]


def test_a_plan_without_groups_says_nothing_of_them(tmp_path: Path) -> None:
    plan = make_plan(write_plan_job(tmp_path, stages=SFT), hardware=str(tmp_path / "round.json"))
    assert "groups train" not in headline(plan)
    assert json.loads(plan_json(plan))["live_share"] is None
    assert json.loads(plan_json(plan))["pass_rates"]["alpha"] == 0.5
    assert "groups that train<" not in plan_page(plan)


def test_the_page_holds_everything_in_one_file(plan: Plan) -> None:
    page = plan_page(plan)
    assert len(page.encode()) < 2_000_000
    for text in (plan.binding, plan.method.summary, *(a.change for a in plan.alternatives)):
        assert html_text.escape(text) in page
    assert not re.search(r"""(src|href)=["']https?://""", page)


def test_the_page_draws_its_curves_in_a_browser(plan: Plan, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip(
            "no Chromium on this machine: the page is not tried in a browser (Debian: apt-get install chromium)"
        )
    (tmp_path / "plan.html").write_text(plan_page(plan).replace("<head>", "<head>" + COLLECTOR, 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--window-size=1000,3000", "--virtual-time-budget=8000", "--dump-dom"]
    command = [browser, *options, (tmp_path / "plan.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    report = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert report is not None, done.stdout[-2000:]
    seen = json.loads(html_text.unescape(report[1]))
    assert seen["errors"] == []
    assert seen["charts"] >= 4
    assert {"Signal", "Time", "Memory", "Methods", "Alternatives"} <= set(seen["headings"])
