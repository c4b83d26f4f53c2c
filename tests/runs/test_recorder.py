from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from groupwise.errors import DataError
from groupwise.runs import FileRecorder, RunDirectory, read_events, read_metrics
from groupwise.runs.recorder import ROLLOUT_SCHEMA, readable_prompt
from groupwise.types import (
    Check,
    Completion,
    Group,
    Prompt,
    Recorder,
    Rollout,
    Status,
    Stop,
    Task,
    Verdict,
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "r")


def two_rollouts() -> Group:
    solved = Rollout(
        completion=Completion(text="SELECT 1", token_ids=(5, 6), sampler_logprobs=(-0.5, -0.25), policy_version=3),
        verdict=Verdict(
            status=Status.SCORED,
            reward=1.0,
            outcome=True,
            reason="same_rows",
            checks=(Check(name="rows", passed=True),),
            parts={"rows": 1.0},
        ),
    )
    broken = Rollout(
        completion=Completion(text="cut \udcff", stop=Stop.LENGTH),
        verdict=Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="verifier_timeout"),
    )
    return Group(
        task=Task(id="q1", prompt="?"), prompt=Prompt(task_id="q1", token_ids=(1, 2)), rollouts=(solved, broken)
    )


def test_it_is_a_recorder(run: RunDirectory) -> None:
    recorder: Recorder = FileRecorder(run)  # checked by mypy
    recorder.event("begin", {})


def test_a_right_answer_stands_beside_those_given_and_is_asked_for_once_a_task(run: RunDirectory) -> None:
    asked: list[str] = []

    def gold_of(task: Task) -> str:
        asked.append(task.id)
        if task.id == "q2":
            raise KeyError("nobody knows")
        return "SELECT 1"

    recorder = FileRecorder(run, gold_of)
    other = replace(two_rollouts(), task=Task(id="q2", prompt="?"))
    for step in (1, 2):
        recorder.rollouts("grpo", step, [two_rollouts(), other], [[0.0, 0.0]] * 2)
    golds = pq.read_table(run.rollouts_of("grpo", 2)).column("gold").to_pylist()
    assert golds == ["SELECT 1", "SELECT 1", None, None]
    assert asked == ["q1", "q2"]
    assert recorder.num_failures == 0


def test_metrics_are_one_object_a_line_and_what_is_not_finite_is_null(run: RunDirectory) -> None:
    recorder = FileRecorder(run)
    recorder.metrics("sft", 1, {"loss": 2.5, "kl": math.nan, "ratio": math.inf})
    recorder.metrics("sft", 2, {"loss": 2})
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["loss"] for line in lines] == [2.5, 2.0]
    assert list(lines[0]) == ["stage", "step", "time", "loss", "kl", "ratio"]
    assert (lines[0]["stage"], lines[0]["step"], lines[0]["kl"], lines[0]["ratio"]) == ("sft", 1, None, None)


def test_a_torn_last_line_is_ignored_and_the_next_append_removes_it(run: RunDirectory) -> None:
    recorder = FileRecorder(run)
    recorder.metrics("sft", 1, {"loss": 1.0})
    with run.metrics.open("a") as file:
        file.write('{"stage": "sft", "step": 2, "lo')
    assert [row["step"] for row in read_metrics(run.metrics)] == [1]
    recorder.metrics("sft", 3, {"loss": 3.0})
    assert [row["step"] for row in read_metrics(run.metrics)] == [1, 3]


def test_a_file_that_is_one_torn_line_starts_anew(run: RunDirectory) -> None:
    run.metrics.write_text('{"sta')
    assert read_metrics(run.metrics) == []
    FileRecorder(run).metrics("sft", 1, {})
    assert [row["step"] for row in read_metrics(run.metrics)] == [1]


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(run: RunDirectory) -> None:
    run.metrics.write_text('{"stage": "a", "step": 1}\nbroken\n{"stage": "a", "step": 2}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 is not JSON"):
        read_metrics(run.metrics)
    run.metrics.write_text("[1]\n")
    with pytest.raises(DataError, match="not a JSON object"):
        read_metrics(run.metrics)
    run.metrics.write_text('{"stage": ["a"], "step": 1}\n')
    with pytest.raises(DataError, match="has no stage and step"):
        read_metrics(run.metrics)
    with pytest.raises(DataError, match="cannot be read"):
        read_metrics(run.path / "missing.jsonl")


def test_a_reader_that_is_told_of_broken_lines_gets_the_others(run: RunDirectory) -> None:
    run.metrics.write_text('{"stage": "a", "step": 1}\nbroken\n{"step": 1}\n{"stage": "a", "step": 2}\n')
    broken: list[str] = []
    assert [row["step"] for row in read_metrics(run.metrics, on_broken=broken.append)] == [1, 2]
    assert [sentence.split("metrics.jsonl:")[1][:11] for sentence in broken] == ["2 is not JS", "3 has no st"]


def test_rows_of_one_step_are_merged_and_the_later_value_wins(run: RunDirectory) -> None:
    recorder = FileRecorder(run)
    recorder.metrics("grpo", 1, {"loss": 1.0})
    recorder.metrics("grpo", 2, {"loss": 9.0})
    recorder.metrics("grpo", 2, {"pass_rate": 0.5})  # an evaluation after the step
    recorder.metrics("grpo", 2, {"loss": 2.0})  # the step again, after a resume
    rows = read_metrics(run.metrics)
    assert [(row["step"], row["loss"], row.get("pass_rate")) for row in rows] == [(1, 1.0, None), (2, 2.0, 0.5)]


def test_events_keep_any_payload(run: RunDirectory) -> None:
    FileRecorder(run).event("checkpoint", {"path": Path("x/y"), "counts": {"dead": (1, math.nan)}})
    (event,) = read_events(run.events)
    assert (event["event"], event["path"], event["counts"]) == ("checkpoint", "x/y", {"dead": [1, None]})


def test_rollouts_are_one_parquet_row_each(run: RunDirectory) -> None:
    FileRecorder(run).rollouts("grpo", 7, [two_rollouts()], [[0.75, 0.0]], left_out=[["", "unscored"]])
    table = pq.read_table(run.rollouts_of("grpo", 7))
    assert table.schema.equals(ROLLOUT_SCHEMA)
    solved, broken = table.to_pylist()
    assert solved == {
        "stage": "grpo",
        "step": 7,
        "task_id": "q1",
        "group": 0,
        "rollout": 0,
        "prompt_ids": [1, 2],
        "completion_ids": [5, 6],
        "text": "SELECT 1",
        "stop": "end",
        "status": "scored",
        "reward": 1.0,
        "outcome": True,
        "reason": "same_rows",
        "checks": '[{"name": "rows", "passed": true, "expected": "", "found": ""}]',
        "advantage": 0.75,
        "num_tokens": 2,
        "sampler_logprobs": [-0.5, -0.25],
        "policy_version": 3,
        "prompt": "?",
        "parts": '{"rows": 1.0}',
        "left_out": "",
        "gold": None,
    }
    assert (broken["rollout"], broken["reward"], broken["outcome"], broken["stop"]) == (1, None, None, "length")
    assert (broken["text"], broken["parts"], broken["left_out"]) == ("cut ?", None, "unscored")
    assert [p.name for p in run.rollouts.iterdir()] == ["grpo-000007.parquet"]


def test_nobody_knows_what_was_left_out_where_nobody_said_so(run: RunDirectory) -> None:
    FileRecorder(run).rollouts("evaluation-base", 0, [two_rollouts()], [[0.0, 0.0]])
    assert pq.read_table(run.rollouts_of("evaluation-base", 0))["left_out"].null_count == 2


def test_duckdb_reads_all_steps_of_a_stage_in_one_query(run: RunDirectory) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the package duckdb is not installed")
    for step in (1, 2):
        FileRecorder(run).rollouts("grpo", step, [two_rollouts()], [[0.75, 0.0]], left_out=[["", "unscored"]])
    rows = duckdb.sql(
        f"""SELECT task_id, any_value(prompt), count(*), avg(reward), count(*) FILTER (left_out = 'unscored'),
                   max(len(completion_ids)), max(parts::JSON ->> 'rows')
            FROM '{run.rollouts}/grpo-*.parquet' GROUP BY task_id"""
    ).fetchall()
    assert rows == [("q1", "?", 4, 1.0, 2, 2, "1.0")]


def test_pandas_reads_a_step(run: RunDirectory) -> None:
    pandas = pytest.importorskip("pandas", reason="the package pandas is not installed")
    FileRecorder(run).rollouts("grpo", 1, [two_rollouts()], [[0.75, 0.0]], left_out=[["", "unscored"]])
    frame = pandas.read_parquet(run.rollouts_of("grpo", 1))
    assert list(frame.columns) == ROLLOUT_SCHEMA.names
    assert frame["left_out"].tolist() == ["", "unscored"]
    assert frame["reward"].isna().tolist() == [False, True]
    assert frame["sampler_logprobs"][0].tolist() == [-0.5, -0.25]


def test_rollouts_are_on_the_disk_before_they_have_their_name(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr("os.fsync", lambda file: order.append("on disk"))
    replace = os.replace
    monkeypatch.setattr("os.replace", lambda old, new: (order.append("named"), replace(old, new)))
    FileRecorder(run).rollouts("grpo", 1, [two_rollouts()], [[0.75, 0.0]])
    assert order == ["on disk", "named"]


def test_what_a_person_reads_of_a_prompt() -> None:
    def turn(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    system = turn("system", "schema")
    assert readable_prompt("plain") == "plain"
    assert readable_prompt((system, turn("user", "how many?"))) == "how many?"
    several = (system, turn("user", "a?"), turn("assistant", "b"), turn("user", "c?"))
    assert readable_prompt(several) == "user: a?\n\nassistant: b\n\nuser: c?"
    assert readable_prompt((system,)) == ""


def test_a_step_without_groups_has_a_file_without_rows(run: RunDirectory) -> None:
    FileRecorder(run).rollouts("grpo", 1, [], [])
    assert pq.read_table(run.rollouts_of("grpo", 1)).num_rows == 0


def test_failures_are_logged_once_counted_and_never_raised(run: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    run.metrics.mkdir()  # neither file can be opened for writing
    run.events.mkdir()
    recorder = FileRecorder(run)
    with caplog.at_level(logging.WARNING):
        recorder.metrics("grpo", 1, {"loss": 1.0})
        recorder.event("begin", {})
        recorder.metrics("grpo", 1, {"loss": "not a number"})  # type: ignore[dict-item]
        recorder.rollouts("grpo", 1, [two_rollouts()], [[0.0]])  # one advantage for two rollouts
        recorder.rollouts("grpo", 1, [two_rollouts()], [[0.0, 0.0]], left_out=[[""]])
    assert recorder.num_failures == 5
    assert len(caplog.records) == 1
    assert "metrics of grpo step 1" in caplog.text
    assert list(run.rollouts.iterdir()) == []


def test_recording_recovers_when_the_disk_does(run: RunDirectory) -> None:
    run.metrics.mkdir()
    recorder = FileRecorder(run)
    recorder.metrics("grpo", 1, {})
    run.metrics.rmdir()
    recorder.metrics("grpo", 2, {})
    assert [row["step"] for row in read_metrics(run.metrics)] == [2]
