"""A stage in plain lines: the first step, the last, and few in between."""

from __future__ import annotations

import io

import pytest
from stage_views import OUTLOOK, steps, view

from groupwise.cli.plain_stage import PlainStage, step_line
from groupwise.cli.terminal import Terminal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_line_every_15_seconds_and_always_the_first_and_the_last_step() -> None:
    clock, lines = Clock(), list[str]()
    stage = PlainStage(lines.append, OUTLOOK, clock)
    stage.begin()
    for one in steps("grpo", 30):
        clock.now += 4.0
        stage.step(one)
    stage.end()
    shown = [line.split()[1] for line in lines[1:]]
    assert lines[0] == "grpo: 30 steps ..."
    assert shown == ["1/30", "5/30", "9/30", "13/30", "17/30", "21/30", "25/30", "29/30", "30/30"]


def test_a_stage_that_is_stopped_shows_its_last_step() -> None:
    clock, lines = Clock(), list[str]()
    stage = PlainStage(lines.append, OUTLOOK, clock)
    for one in steps("grpo", 7):
        stage.step(one)
    stage.end()
    assert [line.split()[1] for line in lines] == ["1/30", "7/30"]
    stage.end()
    assert len(lines) == 2


def test_a_long_step_says_how_far_its_sampling_is() -> None:
    clock, lines = Clock(), list[str]()
    stage = PlainStage(lines.append, OUTLOOK, clock)
    for second in range(130):
        clock.now = float(second)
        stage.sampling(second, 200)
    assert lines == [
        "  grpo  step 1: 60 of 200 completions sampled",
        "  grpo  step 1: 120 of 200 completions sampled",
    ]


def test_a_line_has_the_time_left_until_the_last_step() -> None:
    assert step_line(OUTLOOK, view(12, {})) == "  grpo  12/30  about 2 min 26 s left  a note"
    assert step_line(OUTLOOK, view(30, {})) == "  grpo  30/30  a note"


def test_without_a_terminal_there_are_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    terminal = Terminal()
    with terminal.training(OUTLOOK) as screen:
        for one in steps("grpo", 3):
            screen.step(one)
        terminal.warning("something looks wrong")
        with terminal.working("an evaluation"):
            pass
    assert "\x1b" not in file.getvalue()
    assert [line.strip() for line in file.getvalue().splitlines()] == [
        "grpo: 30 steps ...",
        "grpo  1/30  about 2 min 26 s left  a note",
        "! something looks wrong",
        "an evaluation ...",
        "grpo  3/30  about 2 min 26 s left  a note",
    ]
