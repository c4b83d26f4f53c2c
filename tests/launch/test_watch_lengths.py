"""The event "length" of a real run, and alarms of runs whose evaluations were written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evaluated_run import evaluate_into, group, new_run, rollout
from groupwise.config import Recipe, load_recipe
from groupwise.launch.display import Quiet
from groupwise.launch.local import train
from groupwise.launch.run_state import Run
from groupwise.launch.watch_lengths import watch_lengths
from groupwise.runs import FileRecorder, RunDirectory, read_events, read_run
from groupwise.training import Evaluation
from groupwise.types import Group, Rollout
from tiny_job import write_job


class Warned(Quiet):
    """Keeps what was warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Stages sft and grpo."""
    return load_recipe(write_job(tmp_path_factory.mktemp("job")))


def run_in(recipe: Recipe, directory: RunDirectory, display: Quiet) -> Run:
    parts = {"recipe": recipe, "directory": directory, "recorder": FileRecorder(directory), "display": display}
    return cast(Run, SimpleNamespace(**parts, policy_version=7))


def held_out(num_tokens: int, *, num_prompts: int = 16) -> list[Group]:
    """One right and one wrong answer a prompt; a wrong one is two tokens longer."""
    return [
        group(
            f"q{i}", [rollout(True, num_tokens=num_tokens + i % 3), rollout(False, num_tokens=num_tokens + i % 3 + 2)]
        )
        for i in range(num_prompts)
    ]


def seen(run: Run, name: str, groups: Sequence[Group]) -> dict[str, Any]:
    """What is written after this evaluation, which is recorded before it is watched, as in a run."""
    evaluate_into(run.directory, name, groups, version=7)
    evaluation = Evaluation(groups=tuple(groups), greedy_groups=(), samples_per_prompt=2, seconds=1.0)
    watch_lengths(run, name, evaluation)
    return read_events(run.directory.events)[-1]


def test_a_whole_run_has_one_event_after_each_evaluation(recipe: Recipe) -> None:
    directory, _ = train(recipe, display=Quiet())
    record = read_run(directory.path)
    events = record.events_named("length")
    assert [e["name"] for e in events] == ["base", "sft", "grpo"]
    assert all(e["num_completions"] == 6 for e in events)  # 3 held-out prompts, 2 samples
    assert all(e["alarm"] == "" for e in events)
    assert "reference" not in events[1]  # demonstrations set the length of what they teach
    assert events[2]["reference"] == "sft"
    assert events[2]["normalize"] == "sequence"
    assert not any("unreadable" in e for e in events)


def test_longer_answers_without_more_right_ones_are_told_once_a_stage(recipe: Recipe, tmp_path: Path) -> None:
    display = Warned()
    run = run_in(recipe, new_run(tmp_path), display)
    base = seen(run, "base", held_out(10))
    assert (base["num_matched_prompts"], base["difference"], base["alarm"]) == (16, 2.0, "")
    assert seen(run, "sft", held_out(30))["alarm"] == ""  # three times as long, taught by demonstrations
    assert seen(run, "grpo step 5", held_out(31))["alarm"] == ""
    alarmed = seen(run, "grpo step 10", held_out(70))
    assert alarmed["alarm_kinds"] == ["longer_not_better"]
    assert "as long as at sft" in alarmed["alarm"]
    assert len(display.warnings) == 1
    assert seen(run, "grpo", held_out(90))["alarm_kinds"] == ["longer_not_better"]
    assert len(display.warnings) == 1  # told already


def test_reward_that_rises_while_right_answers_collapse(recipe: Recipe, tmp_path: Path) -> None:
    display = Warned()
    run = run_in(recipe, new_run(tmp_path), display)
    seen(run, "sft", held_out(30))
    for step in range(1, 10):
        run.recorder.metrics("grpo", step, {"reward_mean": 0.1 * step})
    assert seen(run, "grpo", held_out(3))["alarm_kinds"] == ["paid_not_better", "paid_collapse"]
    assert len(display.warnings) == 2


def pushed(advantages: Sequence[float], rollouts: Sequence[Rollout], run: Run, step: int) -> None:
    run.recorder.rollouts("grpo", step, [group("t", rollouts)], [advantages])


def test_the_share_of_long_wrong_answers_is_a_mean_over_the_last_steps(recipe: Recipe, tmp_path: Path) -> None:
    run = run_in(recipe, new_run(tmp_path), Quiet())
    answers = [rollout(True, num_tokens=10), rollout(False, num_tokens=30)]
    pushed([1.0, -1.0], answers, run, 1)  # half of the push by sequence, 30 of 40 by token
    pushed([1.0, -1.0], [rollout(True, num_tokens=10), rollout(False, num_tokens=5)], run, 2)  # none of it
    pushed([0.0, 0.0], answers, run, 3)  # nothing was pushed: no share
    event = seen(run, "grpo", held_out(10))
    assert event["long_wrong_share"] == {"sequence": 0.25, "token": 0.375, "constant": 0.375}
    assert event["no_right_share"] == {"sequence": 0.0, "token": 0.0, "constant": 0.0}
    assert (event["num_gradient_steps"], event["num_long_wrong"], event["num_pushed"]) == (2, 1, 4)
    assert event["normalize"] == "sequence"


def test_a_damaged_folder_stops_nothing(recipe: Recipe, tmp_path: Path) -> None:
    run = run_in(recipe, new_run(tmp_path), Quiet())
    seen(run, "sft", held_out(10))
    next(run.directory.rollouts.glob("evaluation-sft-*")).write_bytes(b"no parquet")
    event = seen(run, "grpo", held_out(40))
    assert event["alarm"] == ""
    assert "cannot be read" in event["unreadable"]
    assert event["difference"] == 2.0


def test_an_evaluation_without_samples_is_watched_by_its_greedy_answers(recipe: Recipe, tmp_path: Path) -> None:
    run = run_in(recipe, new_run(tmp_path), Quiet())
    greedy = [group(f"q{i}", [rollout(i % 2 == 0, num_tokens=9)]) for i in range(4)]
    evaluate_into(run.directory, "base", [], greedy)
    watch_lengths(run, "base", Evaluation(groups=(), greedy_groups=tuple(greedy), samples_per_prompt=0, seconds=1.0))
    event = read_events(run.directory.events)[-1]
    assert (event["mean_tokens"], event["num_matched_prompts"], event["difference"]) == (9, 0, None)
