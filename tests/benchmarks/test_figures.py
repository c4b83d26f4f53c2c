"""The suite: its table from result files, and the commands it runs."""

from __future__ import annotations

import json
from pathlib import Path

import figures
import jobs
import run_all


def write(folder: Path, name: str, summary: dict) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"summary": summary, "runs": []}))


def lines(folder: Path, **options: bool) -> dict[str, str]:
    rows = figures.table(folder, **options).splitlines()
    assert rows[0].startswith("| figure | target |")
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows[2:]}


def test_the_table_says_what_was_reached_and_what_was_not_measured(tmp_path: Path) -> None:
    ratios = {
        "seconds": {"median": 10.0, "min": 9.0, "max": 11.0},
        "peak_rss_bytes": {"median": 2.9, "min": 2, "max": 3},
    }
    write(tmp_path, "step-a", {"trl_over_groupwise": ratios})
    write(tmp_path, "growth-b", {"growth": {"median": 1.6, "min": 1.5, "max": 1.7}})
    write(tmp_path, "overhead-a", {"share_outside": {"median": 0.049, "min": 0.04, "max": 0.06}})
    write(tmp_path, "training-a", {})  # no complete repetition yet
    shown = lines(tmp_path)
    assert len(shown) == 10
    step = "GRPO step, TRL / Groupwise, job a"
    assert shown[step] == f"| {step} | 10x | 10.00x | 9.00 - 11.00 | yes |"
    assert shown["peak memory, TRL / Groupwise, job a"].endswith("| 2.90x | 2.00 - 3.00 | no |")
    assert shown["step time, group of 32 / group of 16, job b"].endswith("| < 1.6x | 1.60x | 1.50 - 1.70 | no |")
    outside = shown["step outside the model's arithmetic, job a"]
    assert outside.endswith("| < 5 % | 4.9 % | 4.0 - 6.0 | yes |")
    assert "not measured" in shown["training phase, share of the fastest products, job a"]
    assert "not measured" in shown["GRPO step, TRL / Groupwise, job c"]


def test_a_quick_suite_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path, "growth-b", {"growth": {"median": 1.0, "min": 1.0, "max": 1.0}})
    assert lines(tmp_path, judged=False)["step time, group of 32 / group of 16, job b"].endswith("| 1.00 - 1.00 | - |")


def test_every_figure_has_a_measurement_and_every_measurement_a_script() -> None:
    named = {m.name for m in figures.MEASUREMENTS}
    assert {figure.measurement for figure in figures.FIGURES} == named
    assert all((run_all.HERE / m.script).is_file() for m in figures.MEASUREMENTS)


def test_the_suite_calls_each_script_with_its_job_and_its_result_file(tmp_path: Path) -> None:
    args = run_all.parse_arguments(["--results", str(tmp_path), "--append", "--threads", "2"])
    measurement = next(m for m in figures.MEASUREMENTS if m.name == "step-c")
    line = run_all.command(measurement, args)
    assert line[1:] == [
        *(str(run_all.HERE / "step_vs_trl.py"), "--job", "c", "--warm-up-steps", "0"),
        *("--output", str(tmp_path / "step-c.json")),
        *("--threads", "2", "--append"),
    ]


def test_quick_replaces_every_size(tmp_path: Path) -> None:
    args = run_all.parse_arguments(["--results", str(tmp_path), "--quick"])
    line = run_all.command(figures.MEASUREMENTS[0], args)
    assert all(f"--{name.replace('_', '-')}" in line for name in jobs.SIZES)
    assert str(tmp_path / "quick" / "step-a.json") in line
