from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from groupwise.errors import DataError
from groupwise.runs import FileRecorder, RunDirectory, find_runs, read_rollouts, read_run
from groupwise.types import Check, Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "r")


def group() -> Group:
    verdict = Verdict(
        status=Status.INVALID, reward=0.0, outcome=False, reason="no_query", checks=(Check(name="sql", passed=False),)
    )
    completion = Completion(text="?", token_ids=(5,), sampler_logprobs=(-0.5,), stop=Stop.LENGTH, policy_version=3)
    return Group(
        task=Task(id="q1", prompt="how many?"),
        prompt=Prompt(task_id="q1", token_ids=(1, 2)),
        rollouts=(Rollout(completion=completion, verdict=verdict),),
    )


def test_what_was_recorded_is_read_back(run: RunDirectory) -> None:
    run.recipe.write_text('name = "r"\n[[stages]]\nname = "grpo"\n')
    recorder = FileRecorder(run)
    recorder.metrics("grpo", 1, {"loss": 2.5})
    recorder.metrics("grpo-no-signal", 1, {"pass_rate": 0.0})
    recorder.metrics("grpo", 2, {"loss": 2.0})
    recorder.event("checkpoint", {"step": 2})
    recorder.rollouts("grpo", 2, [group()], [[-1.0]], left_out=[["truncated"]])

    record = read_run(run.path)

    assert [stage["name"] for stage in record.stages] == ["grpo"]
    assert [row["loss"] for row in record.steps("grpo")] == [2.5, 2.0]
    assert [row["stage"] for row in record.collections("grpo")] == ["grpo", "grpo-no-signal", "grpo"]
    assert [event["step"] for event in record.events_named("checkpoint")] == [2]
    assert record.recorded() == [("grpo", 2)]
    (rollout,) = record.rollouts("grpo", 2)
    assert (rollout.task_id, rollout.prompt, rollout.text, rollout.stop) == ("q1", "how many?", "?", "length")
    assert (rollout.reward, rollout.outcome, rollout.advantage, rollout.left_out) == (0.0, False, -1.0, "truncated")
    assert (rollout.checks[0]["name"], rollout.policy_version, rollout.num_tokens) == ("sql", 3, 1)
    assert record.unreadable == ()


def test_a_run_that_has_only_begun_is_a_run(run: RunDirectory) -> None:
    record = read_run(run.path)
    assert (record.recipe, record.stages, record.metrics, record.events, record.summary, record.log, record.plan) == (
        {},
        (),
        (),
        (),
        None,
        None,
        None,
    )
    assert record.rollouts("grpo", 1) == []


@pytest.mark.parametrize("name", ["recipe.toml", "environment.json", "audit.json", "plan.json", "summary.json"])
def test_a_damaged_file_is_named_and_costs_only_itself(run: RunDirectory, name: str) -> None:
    FileRecorder(run).metrics("grpo", 1, {"loss": 2.5})
    (run.path / name).write_bytes(b"\xff[[")
    record = read_run(run.path)
    assert len(record.unreadable) == 1
    assert record.unreadable[0].startswith(name)
    assert record.steps("grpo")[0]["loss"] == 2.5


def test_an_environment_that_is_no_object_is_unreadable(run: RunDirectory) -> None:
    run.environment.write_text("[1]")
    assert "expected a JSON object" in read_run(run.path).unreadable[0]


def test_a_stage_name_may_hold_what_a_file_name_may_not(run: RunDirectory) -> None:
    FileRecorder(run).rollouts("a/b-7", 12, [group()], [[0.0]])
    assert read_run(run.path).recorded() == [("a/b-7", 12)]


def test_rollouts_of_an_older_run_have_defaults(run: RunDirectory) -> None:
    FileRecorder(run).rollouts("grpo", 1, [group()], [[0.5]])
    path = run.rollouts_of("grpo", 1)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["prompt", "parts", "left_out", "gold"]), path)
    (rollout,) = read_rollouts(path)
    assert (rollout.prompt, rollout.parts, rollout.left_out, rollout.gold) == ("", None, "", "")


def test_a_parquet_file_that_was_cut_is_an_error_with_its_name(run: RunDirectory) -> None:
    path = run.rollouts_of("grpo", 1)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"grpo-000001\.parquet"):
        read_run(run.path).rollouts("grpo", 1)


def test_runs_are_found_by_what_they_hold(tmp_path: Path) -> None:
    first = RunDirectory.create(tmp_path, "a")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file.txt").write_text(json.dumps({}))
    assert list(find_runs(tmp_path)) == [first.path]
    assert list(find_runs(tmp_path / "missing")) == []
