"""The live view of a stage that trains: one panel at the foot of the terminal, redrawn twice a second.

Colours only repeat what words and marks say: blue for what goes on, yellow with a "!" for warnings. Where drawing
fails, for whatever reason, the stage goes on in plain lines: a picture never ends a run. The cursor stays visible, so
that a terminal is in order even after the process was killed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from textwrap import wrap

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from groupwise.cli import step_numbers
from groupwise.cli.plain_stage import PlainStage
from groupwise.cli.step_numbers import curve, duration, main_number
from groupwise.launch.display import Advance, StageOutlook, StepView

DRAWS_A_SECOND = 2
CURVE_STEPS = 40
"""Steps that the curve shows."""
NUM_WARNINGS = 2
"""The newest warnings stay in sight."""
LEAST_WIDTH, LEAST_HEIGHT = 50, 10
"""Columns and lines of a terminal; in a smaller one the run is shown in plain lines."""


LARGEST_WIDTH = 120
MARGIN = 3
"""Columns left free at the right: a terminal shows a Ctrl-C where the cursor stands, behind the panel, and would begin
a line for it that nobody counts."""
SHORT_S = 10.0
"""Seconds below which tenths are told."""
LABEL_WIDTH = 11
LEAST_BAR = 8
AROUND_CURVE = 36
"""Columns of what stands before and behind the curve in its row."""


@dataclass(slots=True)
class Piece:
    """Work inside a stage, such as an evaluation: Piece(title="step 10: held-out evaluation", done=12, total=72)."""

    title: str
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class StageState:
    """What the panel draws: filled by the run, read by the thread that draws."""

    outlook: StageOutlook
    started: float
    """On the clock of `now`."""
    view: StepView | None = None
    seen_at: float = 0.0
    """When `view` came."""
    history: deque[float] = field(default_factory=lambda: deque(maxlen=CURVE_STEPS))
    sampled: tuple[int, int] = (0, 0)
    """Completions of the step under way that have ended, and all."""
    piece: Piece | None = None
    warnings: deque[str] = field(default_factory=lambda: deque(maxlen=NUM_WARNINGS))

    def take(self, view: StepView, now: float) -> None:
        """A step has ended."""
        main = main_number(view.metrics)
        if main is not None:
            self.history.append(float(view.metrics[main.metric]))
        self.view, self.seen_at, self.sampled = view, now, (0, 0)

    def left_s(self, now: float) -> tuple[float | None, float | None]:
        """Seconds left of the stage and of the run, counted down since they were told."""
        told: StepView | StageOutlook = self.outlook if self.view is None else self.view
        since = now - (self.started if self.view is None else self.seen_at)
        stage, run = told.stage_left_s, told.run_left_s
        return (None if stage is None else max(0.0, stage - since), None if run is None else max(0.0, run - since))


def panel(state: StageState, now: float, *, width: int, height: int, ascii_only: bool = False) -> RenderableType:
    """The picture of a stage for a terminal of this size; rows that have no place are left out, the least needed first.

    ascii_only is for encodings without blocks and arrows.
    """
    outlook, inner = state.outlook, width - 4
    warnings = [line for text in state.warnings for line in _warning_lines(text, inner)]
    room = max(1, height - 4 - len(warnings))  # beside the frame and two lines of progress
    rows = [(label, text) for label, text in _rows(state, now, inner, ascii_only) if text][:room]
    lines = [
        Text(_now_doing(state, now)),
        *(Text.assemble((f"{label:<{LABEL_WIDTH}}", "bold"), text) for label, text in rows),
        *(Text(line, style="yellow") for line in warnings),
    ]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    of = f", stage {outlook.number} of {outlook.num_stages}" if outlook.num_stages > 1 else ""
    return Panel(
        Group(_bar(state, now, inner), *lines),
        title=Text(f"{outlook.run}: {outlook.name}{of}"),
        title_align="left",
        box=box.ASCII if ascii_only else box.ROUNDED,
        width=width,
        border_style="blue",
    )


def _warning_lines(text: str, width: int) -> list[str]:
    return wrap(f"! {text}", width, subsequent_indent="  ", max_lines=2, placeholder=" ...")


def _bar(state: StageState, now: float, width: int) -> RenderableType:
    """Steps done of all, a bar, and as much of the times as there is room for."""
    outlook, view = state.outlook, state.view
    done = 0 if view is None else view.step
    stage_s, run_s = state.left_s(now)
    times = []
    if stage_s is not None:
        times.append(f"{duration(stage_s)} left")
    if view is not None and step_numbers.known(view.metrics, "seconds_step"):
        times.append(f"{step_numbers.step_seconds(view.metrics['seconds_step'])} s a step")
    if run_s is not None and outlook.num_stages > 1:
        times.append(f"run {duration(run_s)} left")
    head = Text(f"step {done}/{outlook.num_steps}", style="bold")
    while times and head.cell_len + len(", ".join(times)) + LEAST_BAR + 4 > width:
        times.pop()
    tail = Text(", ".join(times))
    room = width - head.cell_len - tail.cell_len - 4
    line = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=outlook.num_steps, completed=done, width=room, complete_style="blue", finished_style="blue")
    line.add_row(head, bar, tail)
    return line


def _now_doing(state: StageState, now: float) -> str:
    if state.piece is not None:
        piece = state.piece
        return piece.title + (f"  {piece.done}/{piece.total}" if piece.total else "")
    since = now - (state.started if state.view is None else state.seen_at)
    done, total = state.sampled
    step = (0 if state.view is None else state.view.step) + 1
    if step > state.outlook.num_steps:
        return "saving"
    doing = f"sampling {done}/{total}" if total and done < total else "judging and learning" if total else "learning"
    return f"now  step {step}, {duration(since)}: {doing}"


def _rows(state: StageState, now: float, width: int, ascii_only: bool) -> Iterator[tuple[str, str]]:
    """The most needed rows first."""
    view, outlook = state.view, state.outlook
    if view is None:
        if outlook.heldout is not None:
            yield "held-out", step_numbers.heldout_text(outlook.heldout)
        return
    metrics = view.metrics
    main = main_number(metrics)
    if main is not None and state.history:
        num_shown = max(LEAST_BAR, width - LABEL_WIDTH - AROUND_CURVE)
        yield main.label, curve(main, list(state.history), num_shown=num_shown, ascii_only=ascii_only)
    if view.heldout is not None:
        yield "held-out", step_numbers.heldout_text(view.heldout)
    yield "groups", step_numbers.group_text(metrics)
    yield "answers", step_numbers.answer_text(metrics)
    yield "memory", step_numbers.memory_text(view, outlook.memory_limit_bytes)
    spent_s = None if view.spent_s is None else view.spent_s + now - state.seen_at
    yield "spent", step_numbers.spent_text(spent_s, view.planned_s, view.budget)
    yield "learning", step_numbers.learning_text(metrics)
    yield "speed", step_numbers.speed_text(metrics)


class LiveStage:
    """A StageScreen that draws. Use `live_stage`, which opens and closes it."""

    def __init__(self, console: Console, outlook: StageOutlook, tell: Callable[[str], None]) -> None:
        self._console = console
        self._tell = tell
        self.state = StageState(outlook=outlook, started=time.monotonic())
        self._plain: PlainStage | None = None
        self._failure = ""
        self._stop = threading.Event()
        self._live = Live(
            self, console=console, auto_refresh=False, transient=True, vertical_overflow="crop", screen=False
        )
        self._thread = threading.Thread(target=self._draw_on, name="live view", daemon=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich draws: the panel, or nothing once drawing has failed."""
        try:
            picture = panel(
                self.state,
                time.monotonic(),
                width=min(options.max_width - MARGIN, LARGEST_WIDTH),
                height=options.size.height,
                ascii_only=options.ascii_only,
            )
            lines = console.render_lines(picture, options, pad=False)
        except Exception as error:  # a picture must not end a run, whatever is wrong with it
            self._failure = self._failure or f"{type(error).__name__}: {error}"
            return
        yield from (segment for line in lines for segment in (*line, Segment.line()))

    @property
    def has_failed(self) -> bool:
        """True where plain lines have taken its place."""
        return self._plain is not None

    def start(self) -> None:
        """Begins to draw."""
        with self._guarded():
            self._live.start(refresh=True)
            self._console.show_cursor(True)
        self._thread.start()
        self._fall_back_where_needed()

    def stop(self) -> None:
        """Removes the panel and leaves one line about the stage."""
        self._stop.set()
        self._thread.join(timeout=2.0)
        self._take_down()
        if self._plain is not None:
            self._plain.end()
        elif self.state.view is not None:
            options = self._console.options
            self._tell(
                closing_line(self.state, time.monotonic(), width=options.max_width, ascii_only=options.ascii_only)
            )

    def step(self, view: StepView) -> None:
        """See StageScreen."""
        self._fall_back_where_needed()
        if self._plain is not None:
            self._plain.step(view)
            return
        with self._guarded():
            self.state.take(view, time.monotonic())

    def sampling(self, done: float, total: int) -> None:
        """See StageScreen."""
        self.state.sampled = (int(done), total)
        if self._plain is not None:
            self._plain.sampling(done, total)

    def warn(self, text: str) -> None:
        """Keeps a warning in sight."""
        self.state.warnings.append(text)

    @contextmanager
    def piece(self, title: str) -> Iterator[Advance]:
        """Shows work inside the stage in the panel's second line."""
        piece = self.state.piece = Piece(title)

        def advance(done: float, total: int, note: str = "") -> None:
            piece.done, piece.total = int(done), total

        try:
            yield advance
        finally:
            self.state.piece = None

    def _draw_on(self) -> None:
        while not self._stop.wait(1 / DRAWS_A_SECOND) and not self._failure:
            with self._guarded():
                self._live.refresh()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # see __rich_console__
            self._failure = self._failure or f"{type(error).__name__}: {error}"

    def _fall_back_where_needed(self) -> None:
        if self._failure and self._plain is None:
            self._stop.set()
            self._take_down()
            self._plain = PlainStage(self._tell, self.state.outlook)
            self._tell(f"The live view cannot be drawn ({self._failure}); plain lines from here.")

    def _take_down(self) -> None:
        with suppress(Exception):  # what is left on the screen is all that can be wrong
            self._live.stop()


def closing_line(state: StageState, now: float, *, width: int, ascii_only: bool = False) -> str:
    """What stays of a stage in the terminal: steps, time, and where its main number has gone."""
    assert state.view is not None, "a stage without a step has nothing to say"
    took = now - state.started
    of = "" if state.view.step == state.outlook.num_steps else f" of {state.outlook.num_steps}"
    head = f"{state.outlook.name}: {state.view.step}{of} steps in "
    head += duration(took) if took >= SHORT_S else f"{step_numbers.step_seconds(took)} s"
    main = main_number(state.view.metrics)
    if main is None or not state.history:
        return head
    head += f"; {main.label} "
    room = width - len(head) - AROUND_CURVE
    return head + curve(main, list(state.history), num_shown=room if room >= LEAST_BAR else 0, ascii_only=ascii_only)


def can_draw(console: Console) -> bool:
    """True on a terminal that can move its cursor and has room."""
    if not console.is_terminal or console.is_dumb_terminal or not console.is_interactive:
        return False
    width, height = console.size
    return width >= LEAST_WIDTH and height >= LEAST_HEIGHT


@contextmanager
def live_stage(console: Console, outlook: StageOutlook, tell: Callable[[str], None]) -> Iterator[LiveStage]:
    """Draws a stage for as long as the block lasts, Ctrl-C included."""
    stage = LiveStage(console, outlook, tell)
    stage.start()
    try:
        yield stage
    finally:
        stage.stop()
