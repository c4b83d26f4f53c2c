from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from groupwise.errors import DataError
from groupwise.runs import (
    Interval,
    RunSummary,
    StageSummary,
    read_summary,
    software_versions,
    stage_table,
    write_summary,
)

BASE = StageSummary(
    name="base",
    pass_rate=0.125,
    interval=Interval(0.0625, 0.25),
    greedy_pass_rate=None,
    greedy_interval=None,
    num_prompts=40,
    mean_length_right=None,
    mean_length_wrong=44.4,
    truncated_frac=0.025,
    seconds=42.0,
)
GRPO = replace(
    BASE,
    name="GRPO",
    pass_rate=0.625,
    interval=Interval(0.5, 0.75),
    greedy_pass_rate=0.65,
    greedy_interval=Interval(0.5, 0.78),
    mean_length_right=31.0,
    seconds=4350.0,
)
SUMMARY = RunSummary(
    stages=(BASE, GRPO), peak_memory_bytes=2**30, seeds={"low": 17, "high": 18}, versions=software_versions()
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", SUMMARY)
    assert read_summary(tmp_path / "summary.json") == SUMMARY


def test_the_file_holds_plain_json(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", replace(SUMMARY, stages=(replace(GRPO, mean_length_wrong=math.nan),)))
    fields = json.loads((tmp_path / "summary.json").read_text())
    (stage,) = fields["stages"]
    assert (stage["interval"], stage["greedy_interval"], stage["mean_length_wrong"]) == ([0.5, 0.75], [0.5, 0.78], None)
    assert fields["peak_memory_bytes"] == 2**30
    assert fields["seeds"] == {"low": 17, "high": 18}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stages": [{}]}', '{"stages": [], "surprise": 1}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(DataError, match="not the summary of a finished run"):
        read_summary(tmp_path / "summary.json")


def test_versions_name_what_decides_numbers_and_import_none_of_it() -> None:
    versions = software_versions()
    assert set(versions) == {"python", "platform", "torch", "transformers", "groupwise"}
    assert all(versions.values())


def test_the_table_has_a_row_a_stage() -> None:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(stage_table(SUMMARY.stages))
    text = captured.get()
    base = next(line for line in text.splitlines() if "base" in line)
    grpo = next(line for line in text.splitlines() if "GRPO" in line)
    assert [cell.strip() for cell in base.split("  ") if cell.strip()] == [
        "base",
        "12.5% [6, 25]",
        "-",
        "40",
        "-",
        "44",
        "2%",
        "42 s",
    ]
    assert "65.0% [50, 78]" in grpo
    assert [cell.strip() for cell in grpo.split("  ") if cell.strip()][4:6] == ["31", "44"]
    assert "1 h 12 min" in grpo  # 4350 s = 72.5 min, rounded to the even 72


def shown(*stages: StageSummary) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(stage_table(stages))
    return [line.strip() for line in out.getvalue().splitlines()]


def test_a_rate_of_a_part_of_the_completions_says_so(tmp_path: Path) -> None:
    (line,) = [one for one in shown(replace(GRPO, judged_frac=0.59, greedy_judged_frac=0.949)) if "GRPO" in one]
    assert "62.5% [50, 75] of 59% judged" in line
    assert "65.0% [50, 78] of 95% judged" in line
    assert "judged" not in "".join(shown(replace(GRPO, judged_frac=0.95, greedy_judged_frac=0.951)))


def test_a_stage_that_leaves_the_policy_as_it_is_repeats_no_rate(tmp_path: Path) -> None:
    judge = replace(GRPO, name="judge", is_policy_unchanged=True)
    (line,) = [one for one in shown(GRPO, judge) if "judge" in one]
    assert line.split() == ["judge", "policy", "unchanged", "1", "h", "12", "min"]


def test_a_summary_of_before_has_every_completion_judged(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", SUMMARY)
    fields = json.loads((tmp_path / "summary.json").read_text())
    for stage in fields["stages"]:
        for name in ("judged_frac", "greedy_judged_frac", "is_policy_unchanged"):
            del stage[name]
    (tmp_path / "summary.json").write_text(json.dumps(fields))
    assert read_summary(tmp_path / "summary.json") == SUMMARY
