"""A stage that trains, as plain lines: its first step, its last, and in between one every 15 seconds at most."""

from __future__ import annotations

import time
from collections.abc import Callable

from groupwise.cli.step_numbers import duration
from groupwise.launch.display import StageOutlook, StepView

PLAIN_EVERY_S = 15.0
"""Seconds between two progress lines."""
SAMPLING_EVERY_S = 60.0
"""Seconds without any line after which one tells how far the sampling of a long step is."""


class PlainStage:
    """A StageScreen that prints."""

    def __init__(
        self, tell: Callable[[str], None], outlook: StageOutlook, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._outlook = outlook
        self._clock = clock
        self._shown_at = clock()
        self._last: StepView | None = None
        self._shown: StepView | None = None

    def begin(self) -> None:
        """Says that the stage begins."""
        self._tell(f"{self._outlook.title} ...")

    def step(self, view: StepView) -> None:
        """See StageScreen."""
        is_first, self._last = self._last is None, view
        is_due = self._clock() - self._shown_at >= PLAIN_EVERY_S
        if is_first or is_due or view.step == self._outlook.num_steps:
            self._show(view)

    def sampling(self, done: float, total: int) -> None:
        """See StageScreen."""
        if self._clock() - self._shown_at >= SAMPLING_EVERY_S:
            self._shown_at = self._clock()
            step = 1 if self._last is None else self._last.step + 1
            self._tell(f"  {self._outlook.name}  step {step}: {int(done)} of {total} completions sampled")

    def end(self) -> None:
        """Shows the last step that was done, where it was not."""
        if self._last is not None and self._last is not self._shown:
            self._show(self._last)

    def _show(self, view: StepView) -> None:
        self._shown, self._shown_at = view, self._clock()
        self._tell(step_line(self._outlook, view))


def step_line(outlook: StageOutlook, view: StepView) -> str:
    """ "  grpo  12/30  about 2 min 26 s left  pass rate 0.77  live groups 4/8" """
    parts = [f"  {outlook.name}", f"{view.step}/{outlook.num_steps}"]
    if view.stage_left_s is not None and view.step < outlook.num_steps:
        parts.append(f"about {duration(view.stage_left_s)} left")
    return "  ".join([*parts, *([view.note] if view.note else [])])
