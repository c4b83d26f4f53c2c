"""What a run has cost, row by row, and over restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes import fake_task
from groupwise.launch.cost import CostRecorder, with_costs
from groupwise.runs import FileRecorder, RunDirectory, read_metrics
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Verdict


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Inner(FileRecorder):
    """A file recorder that says what it was asked."""

    closed = 0
    left_out: object = None

    def rollouts(self, stage, step, groups, advantages, *, left_out=None):  # type: ignore[no-untyped-def]
        self.left_out = left_out

    def close(self) -> None:
        self.closed += 1


def group(*lengths: int) -> Group:
    verdict = Verdict(status=Status.SCORED, reward=0.0, outcome=False, reason="wrong")
    rollouts = tuple(
        Rollout(completion=Completion(text="", token_ids=(7,) * n, sampler_logprobs=(0.0,) * n), verdict=verdict)
        for n in lengths
    )
    return Group(task=fake_task(), prompt=Prompt(task_id="q0", token_ids=(1,)), rollouts=rollouts)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "run")


def plan(directory: RunDirectory, **values: object) -> None:
    directory.plan.write_text(json.dumps({"seconds": None, "price": None} | values))


def row(directory: RunDirectory, number: int = -1) -> Mapping[str, float]:
    return read_metrics(directory.metrics)[number]


def test_a_row_tells_seconds_and_sampled_tokens(directory: RunDirectory) -> None:
    clock = Clock()
    recorder = CostRecorder(FileRecorder(directory), directory, clock=clock)
    recorder.rollouts("evaluation-base", 0, [group(50)], [[0.0]])  # held-out: not sampled to learn from
    recorder.rollouts("sft-best-of-n", 0, [group(5)], [[0.0]])
    recorder.rollouts("grpo", 1, [group(3, 4), group(2)], [[0.0, 0.0], [0.0]])
    clock.now += 30
    recorder.metrics("grpo", 1, {"loss": 0.5})
    found = row(directory)
    assert (found["loss"], found["spent_seconds"], found["spent_rollout_tokens"]) == (0.5, 30.0, 14.0)
    assert "spent_frac_of_plan" not in found
    assert "spent_price" not in found


def test_with_a_plan_the_share_and_with_its_price_the_price(directory: RunDirectory) -> None:
    clock = Clock()
    recorder = CostRecorder(FileRecorder(directory), directory, clock=clock)
    plan(directory, seconds=120.0, price=4.0)  # written after the recorder was made, as a run does
    clock.now += 30
    recorder.metrics("grpo", 1, {})
    assert row(directory)["spent_frac_of_plan"] == 0.25
    assert row(directory)["spent_price"] == 1.0
    assert recorder.planned_seconds == 120.0


@pytest.mark.parametrize("text", ["", "[1]", '{"seconds": null, "price": null}', '{"price": 2}'])
def test_a_plan_that_says_nothing_leaves_its_numbers_out(directory: RunDirectory, text: str) -> None:
    directory.plan.write_text(text)
    recorder = with_costs(FileRecorder(directory), directory)
    recorder.metrics("grpo", 1, {})
    assert "spent_frac_of_plan" not in row(directory)
    assert recorder.planned_seconds is None


def test_a_restart_goes_on_from_all_that_was_spent(directory: RunDirectory) -> None:
    clock = Clock()
    first = CostRecorder(FileRecorder(directory), directory, clock=clock)
    first.rollouts("grpo", 1, [group(10)], [[0.0]])
    clock.now += 40
    first.metrics("grpo", 1, {})
    aside = directory.path / "abandoned-1"  # the unfinished stage, as a restart sets it aside
    aside.mkdir()
    directory.metrics.rename(aside / directory.metrics.name)
    clock.now += 1000  # nobody paid for the time between
    second = CostRecorder(FileRecorder(directory), directory, clock=clock)
    second.rollouts("grpo", 1, [group(3)], [[0.0]])
    clock.now += 2
    second.metrics("grpo", 1, {})
    assert row(directory)["spent_seconds"] == 42.0
    assert row(directory)["spent_rollout_tokens"] == 13.0


def test_rows_of_older_runs_and_damaged_files_cost_nothing(directory: RunDirectory) -> None:
    directory.metrics.write_text('{"stage": "sft", "step": 1, "loss": 2}\nnot json\n{"stage": "sft", "step": 2}\n')
    clock = Clock()
    assert CostRecorder(FileRecorder(directory), directory, clock=clock).spent() == {
        "spent_seconds": 0.0,
        "spent_rollout_tokens": 0.0,
    }


def test_everything_else_goes_through(directory: RunDirectory) -> None:
    inner = Inner(directory)
    recorder = with_costs(inner, directory)
    recorder.rollouts("grpo", 1, [group(1)], [[0.0]], left_out=[["dead_group"]])
    recorder.event("checkpoint", {"step": 1})
    recorder.close()
    assert inner.left_out == [["dead_group"]]
    assert json.loads(directory.events.read_text())["event"] == "checkpoint"
    assert inner.closed == 1
    with_costs(FileRecorder(directory), directory).close()  # one that has nothing to close
