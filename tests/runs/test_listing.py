"""What a list says of a run at every moment of its life."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.runs import (
    BASE,
    FileRecorder,
    Interval,
    RunDirectory,
    RunSummary,
    StageLog,
    StageSummary,
    with_finished,
    write_stage_log,
    write_summary,
)
from groupwise.runs.listing import is_claimed, list_runs

RECIPE = """\
name = "r"
[[stages]]
name = "sft"
steps = 2
[[stages]]
name = "grpo"
steps = 3
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "r", now=datetime(2026, 9, 1, 14, 30, 12))
    directory.recipe.write_text(RECIPE)
    FileRecorder(directory).event("evaluation", {"name": "base", "pass_rate": 0.25, "interval": [0.1, 0.4]})
    finish(directory, BASE)
    return directory


def finish(directory: RunDirectory, *names: str) -> None:
    log = StageLog(groupwise="0", recipe="", inputs="")
    for name in names:
        log = with_finished(directory, log, name, policy_version=0, weights=None)
    write_stage_log(directory, log)


def summarised(directory: RunDirectory, *names: str) -> None:
    stages = tuple(
        StageSummary(
            name=name,
            pass_rate=0.5,
            interval=Interval(0.4, 0.6),
            greedy_pass_rate=None,
            greedy_interval=None,
            num_prompts=4,
            mean_length_right=None,
            mean_length_wrong=None,
            truncated_frac=0.0,
            seconds=1.0,
        )
        for name in names
    )
    write_summary(directory.summary, RunSummary(stages=stages, peak_memory_bytes=None, seeds={}, versions={}))


def one(folder: Path):
    (listed,) = list_runs(folder)
    return listed


def test_a_finished_run(tmp_path: Path, run: RunDirectory) -> None:
    recorder = FileRecorder(run)
    for stage, steps in (("sft", 2), ("grpo", 3)):
        for step in range(1, steps + 1):
            recorder.metrics(stage, step, {})
    recorder.metrics("grpo-no-signal", 9, {})
    recorder.event("evaluation", {"name": "grpo", "pass_rate": 0.75})
    summarised(run, "base", "grpo")
    finish(run, BASE, "sft", "grpo")
    listed = one(tmp_path)
    assert (listed.state, listed.stages_finished, listed.num_stages) == ("finished", 2, 2)
    assert (listed.steps_done, listed.num_steps) == (5, 5)
    assert (listed.before.rate, listed.before.interval) == (0.25, Interval(0.1, 0.4))
    assert (listed.after.rate, listed.after.interval) == (
        0.75,
        Interval(0.4, 0.6),
    )  # of the summary: the event had none
    assert listed.num_bytes == sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    assert (listed.failure, listed.unreadable) == ("", ())
    assert json.loads(json.dumps(listed.as_json()))["path"] == str(run.path)


def test_a_running_run_is_told_by_its_claim(tmp_path: Path, run: RunDirectory) -> None:
    with run.claimed():
        assert is_claimed(run)
        assert one(tmp_path).state == "running"
    assert not is_claimed(run)
    with run.claimed():  # to ask has left no lock behind
        pass


def test_a_run_without_last_words_has_crashed(tmp_path: Path, run: RunDirectory) -> None:
    FileRecorder(run).metrics("sft", 1, {})
    assert (one(tmp_path).state, one(tmp_path).failure) == ("crashed", "")


def test_an_error_that_ended_it_is_named(tmp_path: Path, run: RunDirectory) -> None:
    FileRecorder(run).event("failed", {"stage": "sft", "error": "EngineError", "message": "the gap is too wide"})
    run.diagnosis.write_text("{}")
    assert (one(tmp_path).state, one(tmp_path).failure) == ("crashed", "EngineError: the gap is too wide")


def test_a_stage_that_was_stopped_is_measured_and_not_finished(tmp_path: Path, run: RunDirectory) -> None:
    FileRecorder(run).metrics("sft", 1, {})
    summarised(run, "base", "sft")
    assert one(tmp_path).state == "stopped"


def test_a_run_that_was_diagnosed_at_its_end_was_stopped_between_stages(tmp_path: Path, run: RunDirectory) -> None:
    run.diagnosis.write_text("{}")
    assert one(tmp_path).state == "stopped"
    later = run.diagnosis.stat().st_mtime_ns + 10**9
    os.utime(run.events, ns=(later, later))  # it went on afterwards, and broke off
    assert one(tmp_path).state == "crashed"


def test_a_run_that_found_nothing_to_learn_from_was_stopped(tmp_path: Path, run: RunDirectory) -> None:
    FileRecorder(run).event("no_signal", {"stage": "grpo"})
    assert one(tmp_path).state == "stopped"


def test_a_run_that_its_budget_ended_is_finished(tmp_path: Path, run: RunDirectory) -> None:
    run.recipe.write_text(RECIPE + "[budget]\nrollout_tokens = 100\n")
    recorder = FileRecorder(run)
    recorder.event("spent", {"rollout_tokens": 99})
    assert one(tmp_path).state == "crashed"
    recorder.event("spent", {"rollout_tokens": 104})
    assert one(tmp_path).state == "finished"


def test_an_older_run_without_a_stage_log_goes_by_its_summary(tmp_path: Path, run: RunDirectory) -> None:
    run.stages.unlink()
    summarised(run, "base", "sft", "grpo")
    assert (one(tmp_path).state, one(tmp_path).stages_finished) == ("finished", 2)


def test_the_newest_is_last_and_a_recipe_is_no_run(tmp_path: Path, run: RunDirectory) -> None:
    other = RunDirectory.create(tmp_path, "a")
    FileRecorder(other).metrics("sft", 1, {})
    row = json.loads(run.events.read_text().splitlines()[0])
    run.events.write_text(json.dumps(row | {"time": 1.7e9}) + "\n")  # long before the other
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "recipe.toml").write_text(RECIPE)
    assert [listed.name for listed in list_runs(tmp_path)] == [run.path.name, other.path.name]
    assert [listed.name for listed in list_runs(other.path)] == [other.path.name]


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="groupwise demo"):
        list_runs(tmp_path / "none")
    assert list_runs(tmp_path) == []
