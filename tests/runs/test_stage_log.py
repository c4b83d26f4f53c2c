"""stages.json, and how a restart tells finished stages from what came after them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.runs import (
    FileRecorder,
    RunDirectory,
    StageLog,
    read_events,
    read_metrics,
    read_stage_log,
    set_aside,
    with_finished,
    write_stage_log,
)

EMPTY = StageLog(groupwise="1.2.3", recipe="0123456789abcdef", inputs="fedcba9876543210")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "job")
    directory.recipe.write_text("recipe")
    return directory


def stage(run: RunDirectory, log: StageLog, name: str, version: int) -> StageLog:
    """A stage of two steps with a file in each folder, finished."""
    recorder = FileRecorder(run)
    for step in (1, 2):
        recorder.metrics(name, step, {"loss": version + step})
    run.rollouts_of(name, 1).write_text(name)
    (run.checkpoints / f"{name}-2").mkdir()
    recorder.event("checkpoint", {"stage": name})
    return with_finished(run, log, name, policy_version=version, weights=f"checkpoints/{name}-2")


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_what_is_written_is_read(run: RunDirectory) -> None:
    log = stage(run, stage(run, EMPTY, "sft", 2), "grpo", 4)
    write_stage_log(run, log)
    assert read_stage_log(run) == log
    assert [entry.files for entry in log.finished] == [
        ("checkpoints/sft-2", "rollouts/sft-000001.parquet"),
        ("checkpoints/grpo-2", "rollouts/grpo-000001.parquet"),
    ]
    assert log.finished[1].metrics_bytes == len(run.metrics.read_bytes())


def test_nothing_is_set_aside_at_the_boundary_of_two_stages(run: RunDirectory) -> None:
    log = stage(run, EMPTY, "sft", 2)
    before = names(run.path)
    assert set_aside(run, log) is None
    assert names(run.path) == before
    assert set_aside(run, log, always=True) == "abandoned-1"
    assert names(run.path / "abandoned-1") == ["recipe.toml"]


def test_a_line_that_was_being_written_when_a_stage_ended_does_not_move_the_cut(run: RunDirectory) -> None:
    """A full disk may leave one; the next append removes it, and the cut must still fall between two lines."""
    recorder = FileRecorder(run)
    recorder.metrics("sft", 1, {"loss": 1.0})
    with run.metrics.open("a") as file:
        file.write('{"stage": "sft", "step": 2, "lo')
    log = with_finished(run, EMPTY, "sft", policy_version=1, weights=None)
    recorder.metrics("grpo", 1, {"loss": 3.0})
    set_aside(run, log)
    assert [row["stage"] for row in read_metrics(run.metrics)] == ["sft"]
    assert [row["stage"] for row in read_metrics(run.path / "abandoned-1" / "metrics.jsonl")] == ["grpo"]


def test_all_behind_the_last_kept_stage_is_moved_and_nothing_is_lost(run: RunDirectory) -> None:
    kept = stage(run, EMPTY, "sft", 2)
    stage(run, kept, "grpo", 4)
    FileRecorder(run).event("restarted", {"stage": "more"})
    stage(run, kept, "more", 6)
    rows = read_metrics(run.metrics)
    assert set_aside(run, kept) == "abandoned-1"
    aside = run.path / "abandoned-1"
    assert [row["stage"] for row in read_metrics(run.metrics)] == ["sft", "sft"]
    assert [*read_metrics(run.metrics), *read_metrics(aside / "metrics.jsonl")] == rows
    assert names(run.checkpoints) == ["sft-2"]
    assert names(run.rollouts) == ["sft-000001.parquet"]
    assert names(aside) == [
        "checkpoints",
        "checkpoints/grpo-2",
        "checkpoints/more-2",
        "events.jsonl",
        "metrics.jsonl",
        "recipe.toml",
        "rollouts",
        "rollouts/grpo-000001.parquet",
        "rollouts/more-000001.parquet",
    ]
    # what a restart says of itself stays where readers look
    assert [(e["event"], e["stage"]) for e in read_events(run.events)] == [("checkpoint", "sft"), ("restarted", "more")]
    assert [e["stage"] for e in read_events(aside / "events.jsonl")] == ["grpo", "more"]
    assert set_aside(run, kept) is None


def test_without_a_finished_stage_everything_is_moved(run: RunDirectory) -> None:
    stage(run, EMPTY, "sft", 2)
    set_aside(run, EMPTY)
    assert (run.metrics.read_bytes(), run.events.read_bytes()) == (b"", b"")
    assert (names(run.checkpoints), names(run.rollouts)) == ([], [])
    stage(run, EMPTY, "sft", 2)
    assert set_aside(run, EMPTY) == "abandoned-2"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"finished": [{"name": "sft"}]}', '{"finished": 3}'])
def test_a_file_that_says_nothing_is_refused(run: RunDirectory, text: str) -> None:
    run.stages.write_text(text)
    with pytest.raises(DataError, match="does not say which stages are finished"):
        read_stage_log(run)


def test_a_run_without_the_file_or_with_unknown_fields_is_refused(run: RunDirectory) -> None:
    with pytest.raises(DataError, match=r"has no stages\.json"):
        read_stage_log(run)
    write_stage_log(run, EMPTY)
    fields = json.loads(run.stages.read_text())
    run.stages.write_text(json.dumps(fields | {"new": 1}))
    with pytest.raises(DataError, match="unexpected keyword"):
        read_stage_log(run)


def test_a_run_can_be_claimed_once_and_again_when_the_claim_ends(run: RunDirectory) -> None:
    with run.claimed(), pytest.raises(DataError, match="is being written by another process"), run.claimed():
        pass
    with run.claimed():
        pass
    assert names(run.path) == ["checkpoints", "recipe.toml", "rollouts"]
