"""What runs say together: pooling, verdicts, waste, and the page in a browser where there is one."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from groupwise.config.budget import BudgetSection
from groupwise.launch.bakeoff_page import bakeoff_page
from groupwise.launch.bakeoff_report import compared, pooled, report_json, start_arm, value_network_share, wasted_share
from groupwise.launch.bakeoff_result import RunResult, failed_result
from groupwise.launch.bakeoff_show import arms_table, gradient_sentence, memory_sentence

PARTS = {"parameters": 400, "gradients": 400, "optimizer": 800}
START: Mapping[str, Any] = {
    "model": "start",
    "evaluations": [
        {"seed": seed, "solved": {str(i): 1 for i in range(40)}, "greedy_solved": {str(i): i % 2 for i in range(40)}}
        for seed in (1, 2)
    ],
    "gradient": None,
}


def result(arm: str, seed: int, solved: int, **changes: Any) -> RunResult:
    """Every one of 40 prompts is solved by `solved` of its 4 samples."""
    rates = {str(i): solved / 4 for i in range(40)}
    point = {"name": arm, "rollout_tokens": 100, "seconds": 2.0, "flops": 1e9, "rates": rates, "greedy_pass_rate": 0.5}
    fields: dict[str, Any] = {
        "method": "grpo",
        "steps": 2,
        "ended_by": "budget",
        "spent": {"rollout_tokens": 100, "seconds": 2.0, "flops": 1e9},
        "samples_per_prompt": 4,
        "solved": {str(i): solved for i in range(40)},
        "greedy_solved": {str(i): 1 for i in range(40)},
        "mean_length_right": 10.0,
        "mean_length_wrong": 20.0,
        "wall_s": 6.0,
        "phases_s": {"generate": 1.0, "judge": 1.0, "score": 0.0, "train": 1.0, "evaluate": 1.0, "other": 2.0},
        "peak_bytes": 5000,
        "held_bytes": {"policy": PARTS},
        "trained_tokens": 90.0,
        "num_rollouts": 32,
        "wasted_rollouts": 8,
        "wasted_tokens": 24,
        "num_groups": 8,
        "wasted_groups": 2,
        "curve": (point,),
        "lengths": ({"step": 1, "rollout_tokens": 50.0, "right": 10.0, "wrong": None},),
    }
    return RunResult(arm=arm, seed=seed, **{**fields, **changes})


PPO = {"method": "ppo", "held_bytes": {"policy": PARTS, "critic": PARTS, "reference": {"parameters": 400}}}


def test_an_arm_is_the_mean_of_its_seeds_and_leaves_out_what_failed() -> None:
    grpo, ppo = pooled(
        [
            result("grpo", 1, 2),
            result("ppo", 1, 1, **PPO),
            result("grpo", 2, 3),
            failed_result("ppo", 2, "ppo", "x", 1.0),
        ]
    )
    assert (grpo.pass_rate, ppo.pass_rate) == (0.625, 0.25)
    assert grpo.by_seed == {1: 0.5, 2: 0.75}
    assert (grpo.num_failed, ppo.num_failed) == (0, 1)
    assert grpo.interval.low < 0.625 < grpo.interval.high
    assert wasted_share(grpo) == 0.25
    assert start_arm(START, 4).pass_rate == 0.25


def test_better_needs_an_interval_without_0_and_seeds_that_agree() -> None:
    def verdict(*results: RunResult) -> str:
        (comparison,) = compared(pooled(results))
        return comparison.verdict

    assert verdict(result("a", 1, 1), result("a", 2, 1), result("b", 1, 3), result("b", 2, 3)) == "b is better"
    assert verdict(result("a", 1, 4), result("a", 2, 4), result("b", 1, 1), result("b", 2, 1)) == "a is better"
    assert verdict(result("a", 1, 2), result("a", 2, 0), result("b", 1, 1), result("b", 2, 4)) == "not distinguishable"
    assert verdict(result("a", 1, 2), result("b", 1, 2)) == "not distinguishable"


def test_the_value_network_is_half_of_what_is_trained() -> None:
    arms = pooled([result("ppo", 1, 1, **PPO), result("grpo", 1, 2)])
    assert value_network_share(arms) == {
        "arm": "ppo",
        "trained_bytes": 3200,
        "critic_bytes": 1600,
        "other": "grpo",
        "other_trained_bytes": 1600,
    }
    assert "50%" in memory_sentence(arms)
    assert value_network_share(pooled([result("grpo", 1, 2)])) is None
    assert memory_sentence(pooled([result("grpo", 1, 2)])) == ""


def test_numbers_survive_their_json_and_nothing_measured_is_said() -> None:
    one = result("grpo", 1, 2)
    assert RunResult.from_json(one.to_json()) == one
    report = report_json(START, [one, failed_result("ppo", 1, "ppo", "no memory", 3.0)], {"seconds": 2.0}, 4)
    assert [arm["pass_rate"] for arm in report["arms"]] == [0.25, 0.5, None]
    assert "not measured" in gradient_sentence(None)
    _, rows = arms_table([start_arm(START, 4), *pooled([one, failed_result("ppo", 1, "ppo", "x", 3.0)])])
    assert [row[1] for row in rows][2] == "failed (1)"


def test_every_chart_is_drawn_in_a_browser(tmp_path: Path) -> None:
    results = [result("ppo", 1, 1, **PPO), result("grpo", 1, 2), dataclasses.replace(result("sft", 1, 2), lengths=())]
    text = bakeoff_page("job", START, results, BudgetSection(seconds=2.0), 4)
    assert text.count("data-chart=") == 6
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine: the page is not tried in a browser")
    page = tmp_path / "page.html"
    page.write_text(text)
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=4000",
        "--dump-dom",
        str(page),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert found.count('class="marks"') == 6
