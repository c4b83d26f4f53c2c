"""What a run looks like in a terminal: bars with the time left; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from groupwise.launch.display import Advance
    from groupwise.runs import RunDirectory, RunSummary

PLAIN_EVERY_S = 15.0
"""Seconds between progress lines where there is no terminal."""


class Terminal:
    """Draws what launch.display.Display asks for."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    def line(self, text: str) -> None:
        """See Display."""
        self._console.print(text, markup=False)

    def table(self, table: Any) -> None:
        """See Display."""
        self._console.print(table)

    @contextmanager
    def working(self, title: str) -> Iterator[Advance]:
        """See Display."""
        if not self._console.is_terminal:
            yield self._plain(title)
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            bar = progress.add_task(title, total=None, note="")
            yield lambda done, total, note="": progress.update(bar, completed=done, total=total, note=note)

    def _plain(self, title: str) -> Advance:
        started = shown = time.monotonic()
        self.line(f"{title} ...")

        def advance(done: int, total: int, note: str = "") -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < PLAIN_EVERY_S or not done:
                return
            shown = now
            left = (now - started) / done * (total - done)
            self.line(f"  {title}  {done}/{total}  about {_duration(left)} left  {note}".rstrip())

        return advance

    def outcome(self, directory: RunDirectory, summary: RunSummary) -> None:
        """The table at the end of a run, where it is, and the one command that comes next."""
        from groupwise.models.reward_files import FACTS_FILE
        from groupwise.runs import stage_table

        self.table(stage_table(summary.stages))
        self.line(f"Run directory: {directory.path}")
        # a reward model has no LM head: its stage has named its folder, and this command would make up a random one
        policies = [folder for folder in directory.checkpoints.iterdir() if not (folder / FACTS_FILE).is_file()]
        checkpoints = sorted(policies, key=lambda p: p.stat().st_mtime)
        if checkpoints:
            self.line("Load the trained model:")
            load = f"AutoModelForCausalLM.from_pretrained({str(checkpoints[-1])!r})"
            code = f"from transformers import AutoModelForCausalLM; model = {load}"
            self.line(f'  python -c "{code}"')


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
