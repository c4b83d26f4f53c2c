"""The live view as text, at the widths that terminals have; and what happens where it cannot be drawn."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from stage_views import METRICS, OUTLOOK, steps, view

from groupwise.cli import live_view
from groupwise.cli.live_view import Piece, StageState, can_draw, closing_line, live_stage, panel
from groupwise.cli.terminal import Terminal
from groupwise.cli.trend import BLOCKS


def state_of(kind: str, count: int = 12) -> StageState:
    state = StageState(outlook=OUTLOOK, started=0.0)
    for one in steps(kind, count):
        state.take(one, 100.0)
    return state


def text_of(
    state: StageState, width: int = 77, height: int = 24, *, ascii_only: bool = False, now: float = 103.0
) -> str:
    console = Console(record=True, width=width, height=height, file=io.StringIO())
    console.print(panel(state, now, width=width, height=height, ascii_only=ascii_only))
    return console.export_text()


def row(text: str, label: str) -> str:
    (found,) = (line for line in text.splitlines() if line[2:].startswith(label))
    return found[2 + live_view.LABEL_WIDTH : -2].strip()


@pytest.mark.parametrize("width", [50, 77, 117])
@pytest.mark.parametrize("kind", list(METRICS))
def test_every_line_has_the_width_and_the_whole_has_the_height(kind: str, width: int) -> None:
    state = state_of(kind, 40)
    state.warnings.extend(["a warning that is a good deal longer than any terminal is wide " * 3] * 2)
    for height in (10, 24):
        lines = text_of(state, width, height).splitlines()
        assert {len(line) for line in lines} == {width}
        assert len(lines) <= height
        assert sum("! a warning" in line for line in lines) == 2


def test_a_grpo_step_says_all_that_it_knows() -> None:
    state = state_of("grpo")
    state.sampled = (43, 64)
    text = text_of(state)
    assert "shop-sql: grpo, stage 2 of 3" in text
    assert "step 12/30" in text
    assert "2 min 23 s left, 8.1 s a step" in text  # 146 s told 3 s ago
    assert "step 13, 3 s: sampling 43/64" in text
    assert row(text, "pass rate").startswith("62.0%  ")
    assert row(text, "pass rate").endswith("+9.0 points in 12 steps")  # mean of steps 10 to 12 minus mean of 1 to 3
    assert row(text, "held-out") == "34.4%  [26.0%, 43.0%]  after sft"
    assert row(text, "groups") == "5 of 8 live, 1 all solved, 2 none solved"
    assert row(text, "answers") == "24 tokens, 12% cut, 25% invalid"
    assert row(text, "memory") == "3.1 of 8.0 GB (39%)"
    assert row(text, "spent") == "12 min 43 s of 20 min 00 s planned (64%), 42% of the budget"
    assert row(text, "learning") == "reward 0.55, KL 0.0123 a token, entropy 0.40, gradient 0.54"
    assert row(text, "speed") == "384 sampled, 320 trained tokens a second"


def test_each_algorithm_shows_its_own_numbers() -> None:
    assert row(text_of(state_of("sft")), "loss").startswith("0.870")
    assert row(text_of(state_of("dpo")), "accuracy").startswith("87.0%")
    assert row(text_of(state_of("dpo")), "learning") == "margin +0.100"
    assert row(text_of(state_of("ppo")), "learning") == "explained variance +0.30, KL 0.45 nats"
    assert row(text_of(state_of("reward_model")), "learning") == "margin +0.200"
    assert "groups" not in text_of(state_of("sft"))


def test_an_encoding_without_blocks_gets_letters_only() -> None:
    state = state_of("grpo", 40)
    state.warnings.append("something looks wrong")
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=77, record=True)
    console.print(panel(state, 103.0, width=77, height=24, ascii_only=True))
    assert console.export_text().isascii()
    assert closing_line(state, 103.0, width=80, ascii_only=True).isascii()


def test_before_the_first_step_there_is_a_panel_without_numbers() -> None:
    text = text_of(StageState(outlook=OUTLOOK, started=100.0))
    assert "step 0/30" in text
    assert "3 min 17 s left" in text  # 200 s as forecast, 3 s ago
    assert "step 1, 3 s: learning" in text


def test_numbers_that_are_missing_or_not_finite_leave_their_row_out() -> None:
    state = StageState(outlook=OUTLOOK, started=0.0)
    state.take(view(1, {"pass_rate": float("nan"), "reward_mean": float("nan"), "loss": 0.5}), 100.0)
    text = text_of(state)
    assert "nan" not in text
    assert row(text, "loss").startswith("0.500")


def test_work_inside_a_stage_is_told_in_the_second_line() -> None:
    state = state_of("grpo")
    state.piece = Piece("grpo step 12: held-out evaluation", 12, 72)
    assert "grpo step 12: held-out evaluation  12/72" in text_of(state)


def test_the_closing_line_fits_and_says_where_the_number_went() -> None:
    line = closing_line(state_of("grpo", 30), 243.0, width=80)
    assert line == "grpo: 30 steps in 4 min 03 s; pass rate 80.0%  " + chr(0x2191) + " +25.0 points in 30 steps"
    line = closing_line(state_of("grpo", 30), 243.0, width=100)
    assert len(line) <= 100
    assert BLOCKS[7] in line
    assert closing_line(state_of("grpo", 3), 9.5, width=80) == "grpo: 3 of 30 steps in 9.5 s; pass rate 53.0%"


@pytest.mark.parametrize(
    ("environment", "size", "drawn"),
    [
        ({"TERM": "xterm"}, (80, 24), True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, (80, 24), True),
        ({"TERM": "dumb"}, (80, 24), False),
        ({"TERM": "xterm"}, (40, 24), False),
        ({"TERM": "xterm"}, (80, 6), False),
    ],
)
def test_only_a_terminal_with_room_and_a_cursor_is_drawn_on(
    environment: dict[str, str], size: tuple[int, int], drawn: bool
) -> None:
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        force_interactive=True,
        _environ=environment,
        width=size[0],
        height=size[1],
    )
    assert can_draw(console) is drawn


def test_a_file_is_not_drawn_on() -> None:
    assert not can_draw(Console(file=io.StringIO(), width=80, height=24))


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"}), file


def test_a_drawing_that_fails_becomes_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(live_view, "panel", broken)
    console, file = terminal()
    lines: list[str] = []
    with live_stage(console, OUTLOOK, lines.append) as stage:
        for one in steps("grpo", 30):
            stage.step(one)
            stage.sampling(1, 8)
    assert lines[0] == "The live view cannot be drawn (ZeroDivisionError: no picture); plain lines from here."
    assert lines[1].startswith("  grpo  1/30  about 2 min 26 s left")
    assert lines[-1].startswith("  grpo  30/30")
    assert "Traceback" not in file.getvalue()


def test_a_line_is_printed_even_where_the_panel_below_it_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    console, file = terminal()
    lines: list[str] = []
    with live_stage(console, OUTLOOK, lines.append) as stage:
        monkeypatch.setattr(live_view, "panel", lambda *_, **__: 1 / 0)
        console.print("a line of the run")
        stage.step(next(steps("grpo", 1)))
    assert "a line of the run" in file.getvalue()
    assert "cannot be drawn (ZeroDivisionError" in lines[0]


def test_a_terminal_that_is_gone_does_not_end_the_stage() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    console = Console(file=Gone(), force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    lines: list[str] = []
    with live_stage(console, OUTLOOK, lines.append) as stage:
        for one in steps("grpo", 3):
            stage.step(one)
    assert lines[-1].startswith("  grpo  3/30")


def test_lines_for_a_terminal_that_is_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        tries = 0

        def write(self, text: str) -> int:
            Gone.tries += 1
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stdout", Gone())
    shown = Terminal()
    for number in range(3):
        shown.line(f"line {number}")
    shown.warning("a warning")
    assert Gone.tries == 1


def test_a_panel_is_drawn_while_nothing_happens_and_removed_at_the_end() -> None:
    console, file = terminal()
    lines: list[str] = []
    with live_stage(console, OUTLOOK, lines.append) as stage:
        for one in steps("grpo", 12):
            stage.step(one)
        deadline = time.monotonic() + 10
        while "step 12/30" not in file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert "step 12/30" in file.getvalue()
    assert file.getvalue().rstrip().endswith("\x1b[2K")  # the last thing written erases the panel's first line
    (line,) = lines
    assert line.startswith("grpo: 12 of 30 steps in ")


STAGE = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from stage_views import OUTLOOK, steps
from groupwise.cli.terminal import Terminal
terminal = Terminal()
with terminal.training(OUTLOOK) as screen:
    for view in steps("grpo", 12):
        screen.step(view)
    terminal.warning("something looks wrong")
    with terminal.working("an evaluation") as advance:
        advance(3, 7)
        time.sleep(1.2)
    {end}
"""


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_run_that_ends_in_the_middle_leaves_a_terminal_in_order(end: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}
    code = STAGE.format(tests=str(Path(__file__).parent), end=end)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            found = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not found:
            break
        shown += found
    _, errors = process.communicate(timeout=30)
    os.close(ours)
    assert (b"KeyboardInterrupt" in errors) == ("KeyboardInterrupt" in end)
    assert b"an evaluation  3/7" in shown
    assert b"! something looks wrong" in shown
    hidden, visible = shown.rfind(b"\x1b[?25l"), shown.rfind(b"\x1b[?25h")
    assert visible > hidden
    assert (b"grpo: 12 of 30 steps" in shown) == ("KeyboardInterrupt" in end)
    assert not any(b"\x1b[%d" % color in shown for color in range(30, 38))  # NO_COLOR
