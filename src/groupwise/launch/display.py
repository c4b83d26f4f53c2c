"""What a run shows while it works: the seam between launching and the terminal.

A stage that trains opens a `StageScreen` with what is known of it (`StageOutlook`) and hands it a `StepView` after
every step. launch fills these records, cli draws them, and nothing of the drawing is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Advance = Callable[..., None]
"""advance(done, total, note=""): how far the piece of work under way is, with a word on how it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutView:
    """The last held-out evaluation: HeldoutView(name="sft", rate=0.34, low=0.26, high=0.43)."""

    name: str
    """Of what was measured: base, a stage, or a step of one."""
    rate: float
    """Pass rate, 0..1."""
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutlook:
    """What is known of a stage before its first step.

    Example:
        StageOutlook(run="shop-sql", name="grpo", title="grpo: 30 steps", num_steps=30, number=2, num_stages=2)
    """

    run: str
    """The recipe's name."""
    name: str
    title: str
    """For displays that draw no stage; a forecast may stand in it."""
    num_steps: int
    number: int = 1
    """Its place in the run, from 1."""
    num_stages: int = 1
    stage_left_s: float | None = None
    """Seconds that the steps are forecast to take; None where nobody can tell."""
    run_left_s: float | None = None
    """The same of the whole run, from the beginning of this stage."""
    heldout: HeldoutView | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """What is known after a step; a number that nobody can tell is None.

    Example:
        StepView(step=12, metrics={"pass_rate": 0.77, "seconds_step": 8.1}, note="pass rate 0.77", stage_left_s=146.0)
    """

    step: int
    """Steps done, from 1."""
    metrics: Mapping[str, float]
    """What the step reported; docs/metrics.md names them."""
    note: str = ""
    """The few numbers worth a place beside a progress bar."""
    stage_left_s: float | None = None
    """Seconds until the last step of the stage has ended."""
    run_left_s: float | None = None
    """Seconds until the run has ended, later stages and evaluations included."""
    heldout: HeldoutView | None = None
    memory_bytes: int | None = None
    """Held now."""
    spent_s: float | None = None
    """Seconds of the run so far."""
    planned_s: float | None = None
    """Seconds that the run was planned to take."""
    budget: str = ""
    """What is spent of the budget, such as "42% of the budget"; empty without one."""


class StageScreen(Protocol):
    """A stage that is shown while it trains."""

    def step(self, view: StepView) -> None:
        """A step has ended."""
        ...

    def sampling(self, done: float, total: int) -> None:
        """Completions of the step under way that have ended. Called after every token: it must cost nothing."""
        ...


class Display(Protocol):
    """Shows lines, warnings, progress and tables; cli/terminal.py draws them, `Quiet` does not."""

    def line(self, text: str) -> None:
        """One sentence for the user."""
        ...

    def warning(self, text: str) -> None:
        """One sentence about what looks wrong; it stays in sight while a stage trains."""
        ...

    def table(self, table: Any) -> None:
        """A rich table."""
        ...

    def working(self, title: str) -> Any:
        """A context manager that yields an `Advance` for one piece of work."""
        ...

    def training(self, outlook: StageOutlook) -> Any:
        """A context manager that yields a `StageScreen` for a stage that trains."""
        ...


@dataclass(frozen=True, slots=True)
class BarScreen:
    """A stage as any other piece of work: one bar."""

    advance: Advance
    num_steps: int

    def step(self, view: StepView) -> None:
        """See StageScreen."""
        self.advance(view.step, self.num_steps, view.note)

    def sampling(self, done: float, total: int) -> None:
        """See StageScreen."""


class Quiet:
    """Shows nothing: for calls from Python. A display that has less to draw than a terminal begins with this one."""

    def line(self, text: str) -> None:
        """See Display."""

    def warning(self, text: str) -> None:
        """See Display."""
        self.line(text)

    def table(self, table: Any) -> None:
        """See Display."""

    @contextmanager
    def working(self, title: str) -> Iterator[Advance]:
        """See Display."""
        yield lambda done, total, note="": None

    @contextmanager
    def training(self, outlook: StageOutlook) -> Iterator[StageScreen]:
        """See Display."""
        with self.working(outlook.title) as advance:
            yield BarScreen(advance, outlook.num_steps)
