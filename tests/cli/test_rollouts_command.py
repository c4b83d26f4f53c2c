"""`groupwise rollouts` as a user calls it: three distances, and text that stays text."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.cli.rollouts import _answers, _side_by_side
from groupwise.errors import DataError
from groupwise.runs import FileRecorder, RunDirectory, read_run
from groupwise.runs.rollout_view import groups_of
from groupwise.types import Check, Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict

TEXT = "[bold red]SELECT[/] 1\x1b[2J\r\u202egone :smile: 日本"


def answer(text: str, outcome: bool | None, stop: Stop = Stop.END, checks: tuple[Check, ...] = ()) -> Rollout:
    verdict = Verdict(
        status=Status.UNSCORED if outcome is None else Status.SCORED,
        reward=None if outcome is None else 0.25 + 0.5 * outcome,
        outcome=outcome,
        reason="[link]rows\x07",
        checks=checks,
        parts={} if outcome is None else {"format": 0.5, "rows": float(outcome)},
    )
    ids = (1,) * 5
    completion = Completion(text=text, token_ids=ids, sampler_logprobs=(-0.1,) * 5, stop=stop, policy_version=9)
    return Rollout(completion=completion, verdict=verdict)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    wrong = answer("SELECT 2", False, Stop.LENGTH, (Check(name="rows", passed=False, expected="[1]", found="[2]"),))
    group = Group(
        task=Task(id="train-7", prompt="How many [i]singers[/i]?\x1b[1m"),
        prompt=Prompt(task_id="train-7", token_ids=(1,)),
        rollouts=(answer(TEXT, True), wrong, answer("", None)),
    )
    directory = RunDirectory.create(tmp_path, "r")
    recorder = FileRecorder(directory)
    reasons = [["", "truncated", "unscored"]]
    recorder.rollouts("grpo", 12, [group], [[0.7, -0.7, 0.0]], left_out=reasons)
    recorder.rollouts("grpo", 13, [group], [[0.7, -0.7, 0.0]], left_out=reasons)
    recorder.rollouts("evaluation-base", 0, [group], [[0.0, 0.0, 0.0]])
    return directory.path


def call(*arguments: object):
    done = CliRunner().invoke(app, ["rollouts", *(str(argument) for argument in arguments)])
    assert done.exception is None, done.exception
    return done.output


def test_first_what_there_is(run: Path) -> None:
    shown = call(run)
    assert "12-13 (2)" in shown
    assert "evaluation-base" in shown
    assert shown.splitlines()[-1].endswith("--stage grpo --step 13")
    assert [one["num_live"] for one in json.loads(call(run, "--stage", "grpo", "--json"))] == [1, 1]
    assert "13" in call(run, "--stage", "grpo")


def test_then_the_groups_of_a_step(run: Path) -> None:
    shown = call(run, "--step", 12)
    assert shown.splitlines()[0] == "grpo step 12: 1 groups, 1 live"
    (line,) = (line for line in shown.splitlines() if "1/2" in line)
    assert line.split() == ["train-7", "1/2", "0.500", "live", "5", "5", "5", "1", "1", "truncated,", "1", "unscored"]
    assert json.loads(call(run, "--step", 12, "--json"))[0]["left_out"] == {"truncated": 1, "unscored": 1}


def test_then_the_answers_of_a_group(run: Path) -> None:
    shown = call(run, "--step", 12, "--prompt", "train-7")
    first, second, third = shown.split("--- answer ")[1:]
    assert r"How many [i]singers[/i]?\x1b[1m" in shown
    assert r"[bold red]SELECT[/] 1\x1b[2J\r\u202egone :smile: 日本" in first
    assert "outcome right, reward 0.75 (format 0.5, rows 1)" in first
    assert r"verdict scored: [link]rows\x07" in first
    assert "advantage +0.700" in first
    assert "5 tokens, stop end, policy version 9" in first
    assert "left out" not in first
    assert "failed check rows: expected [1], found [2]" in second
    assert "5 tokens, cut at the limit" in second
    assert "left out of the loss: it was cut at the token limit" in second
    assert "outcome not judged, reward none" in third
    assert "left out of the loss: the verifier failed" in third
    assert not [char for char in shown if ord(char) < 32 and char != "\n"]
    assert "\u202e" not in shown
    full = json.loads(call(run, "--step", 12, "--prompt", "train-7", "--json"))
    assert full[0]["rollouts"][0]["text"] == TEXT  # JSON is for programs: nothing is escaped away
    assert full[0]["prompt"] == "How many [i]singers[/i]?\x1b[1m"


def test_an_evaluation_needs_no_step_and_has_no_advantage(run: Path) -> None:
    assert "evaluation-base step 0" in call(run, "--stage", "evaluation-base")
    shown = call(run, "--stage", "evaluation-base", "--prompt", "train-7")
    assert "answer 3 of 3" in shown
    assert "advantage" not in shown


def test_one_prompt_over_the_run(run: Path) -> None:
    shown = call(run, "--prompt", "train-7")
    assert [name in shown for name in ("grpo 12", "grpo 13", "evaluation-base 0")] == [True, True, True]


@pytest.mark.parametrize("more", [["--step", "3"], ["--stage", "x"], ["--step", "12", "--prompt", "q"]])
def test_what_is_not_there_is_refused(run: Path, more: list[str]) -> None:
    done = CliRunner().invoke(app, ["rollouts", str(run), *more])
    assert isinstance(done.exception, DataError)
    assert "there are" in str(done.exception)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert isinstance(CliRunner().invoke(app, ["rollouts", str(tmp_path / "empty")]).exception, DataError)


@pytest.mark.parametrize(("width", "abreast"), [(30, 1), (90, 2), (200, 3)])
def test_in_a_terminal_answers_stand_side_by_side_and_wrap(run: Path, width: int, abreast: int) -> None:
    answers = _answers(groups_of(read_run(run), "grpo", 12)[0])
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None, markup=False).print(
        _side_by_side(answers, width)
    )
    lines = out.getvalue().splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert max(line.count("╭") for line in lines) == abreast
    assert sum(line.count("╭") for line in lines) == 3
    assert "\x1b[2J" not in out.getvalue()
    whole = "".join(char for line in lines for char in line if char not in "│ ")
    assert "[boldred]SELECT[/]1" in whole


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    """Answers 1, 3 and 4 have one text; the third of them was not judged."""
    answers = (answer("SELECT 1", True), answer("SELECT 2", False), answer("SELECT 1", True), answer("SELECT 1", None))
    group = Group(task=Task(id="t", prompt="?"), prompt=Prompt(task_id="t", token_ids=(1,)), rollouts=answers)
    directory = RunDirectory.create(tmp_path, "twins")
    FileRecorder(directory, lambda task: f"SELECT 1 -- {task.id}").rollouts("grpo", 1, [group], [[0.5, -1.5, 0.5, 0.0]])
    return directory.path


def test_the_same_text_stands_once_with_what_all_its_answers_share(twins: Path) -> None:
    shown = call(twins, "--step", 1, "--prompt", "t")
    assert "--- a right answer ---\nSELECT 1 -- t\n" in shown
    assert [line for line in shown.splitlines() if line.startswith("--- answer")] == [
        "--- answers 1, 3, 4 of 4: the same text ---",
        "--- answer 2 of 4 ---",
    ]
    first, second = shown.split("--- answer")[1:]
    assert first.count("5 tokens, stop end") == 1
    assert first.count("SELECT 1") == 1
    assert "answer 1: outcome right" in first
    assert "answer 3: outcome right" in first
    assert "answer 4: outcome not judged" in first
    assert "answer 2:" not in second
    assert json.loads(call(twins, "--step", 1, "--prompt", "t", "--json"))[0]["gold"] == "SELECT 1 -- t"
    styles = [one.style for one in _answers(groups_of(read_run(twins), "grpo", 1)[0])]
    assert styles == ["yellow", "red"]


def test_a_run_that_knows_no_right_answer_shows_none(run: Path) -> None:
    assert "a right answer" not in call(run, "--step", 12, "--prompt", "train-7")
