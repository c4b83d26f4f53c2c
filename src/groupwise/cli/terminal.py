"""What a run looks like in a terminal: bars with the time left, and live_view.py while a stage trains.

Where there is no terminal, plain lines.
"""

from __future__ import annotations

import shlex
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
from rich.text import Text

from groupwise.cli.live_view import LiveStage, can_draw, live_stage
from groupwise.cli.plain_stage import PLAIN_EVERY_S, PlainStage
from groupwise.cli.step_numbers import duration

if TYPE_CHECKING:
    from groupwise.launch.display import Advance, StageOutlook, StageScreen
    from groupwise.runs import RunDirectory, RunSummary


class Terminal:
    """Draws what launch.display.Display asks for."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self._stage: LiveStage | None = None

    def line(self, text: str) -> None:
        """See Display."""
        self._print(text, markup=False)

    def warning(self, text: str) -> None:
        """See Display."""
        self._print(Text(f"! {text}", style="yellow"))
        if self._stage is not None:
            self._stage.warn(text)

    def table(self, table: Any) -> None:
        """See Display."""
        self._print(table)

    @contextmanager
    def working(self, title: str) -> Iterator[Advance]:
        """See Display."""
        if self._stage is not None and not self._stage.has_failed:
            with self._stage.piece(title) as advance:
                yield advance
            return
        if self._stage is not None or not can_draw(self._console):
            yield self._plain(title)
            return
        begins = (SpinnerColumn(), TextColumn("{task.description}"))
        unknown = (*begins, TimeElapsedColumn())
        known = (
            *begins,
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*unknown, console=self._console, transient=True) as progress:
            bar = progress.add_task(title, total=None, note="")

            def advance(done: float, total: int, note: str = "") -> None:
                progress.columns = known
                progress.update(bar, completed=done, total=total, note=note)

            yield advance

    @contextmanager
    def training(self, outlook: StageOutlook) -> Iterator[StageScreen]:
        """See Display."""
        if not can_draw(self._console):
            plain = PlainStage(self.line, outlook)
            plain.begin()
            try:
                yield plain
            finally:
                plain.end()
            return
        with live_stage(self._console, outlook, self.line) as stage:
            self._stage = stage
            try:
                yield stage
            finally:
                self._stage = None

    def _plain(self, title: str) -> Advance:
        started = shown = time.monotonic()
        self.line(f"{title} ...")

        def advance(done: float, total: int, note: str = "") -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < PLAIN_EVERY_S or not done:
                return
            shown = now
            left = (now - started) / done * (total - done)
            self.line(f"  {title}  {int(done)}/{total}  about {duration(left)} left  {note}".rstrip())

        return advance

    def outcome(self, directory: RunDirectory, summary: RunSummary) -> None:
        """The table at the end of a run, where it is, how to load what was trained, and the command to go on with."""
        from groupwise.models.reward_files import FACTS_FILE
        from groupwise.runs import stage_table
        from groupwise.training.checkpoint import PARTIAL

        self.table(stage_table(summary.stages))
        for line in _reward_model_lines(directory):
            self.line(line)
        self.line(f"Run directory: {directory.path}")
        # a reward model has no LM head: its stage has named its folder, and this command would make up a random one
        folders = [folder for folder in directory.checkpoints.iterdir() if not folder.name.endswith(PARTIAL)]
        policies = [folder for folder in folders if not (folder / FACTS_FILE).is_file()]
        checkpoints = sorted(policies, key=lambda p: p.stat().st_mtime)
        if checkpoints:
            self.line("Load the trained model:")
            load = f"AutoModelForCausalLM.from_pretrained({str(checkpoints[-1])!r})"
            code = f"from transformers import AutoModelForCausalLM; model = {load}"
            self._command(f'python -c "{code}"')
        self.line("See what happened in it:")
        self._command(f"groupwise report {shlex.quote(str(directory.path))}")

    def _command(self, text: str) -> None:
        """A command that can be copied: the terminal breaks the line, this program does not."""
        self._print(f"  {text}", markup=False, soft_wrap=True)

    def _print(self, what: Any, **options: Any) -> None:
        try:
            self._console.print(what, **options)
        except OSError:  # the terminal is gone, and the run is not: it goes on without being seen
            self._console.quiet = True


def _reward_model_lines(directory: RunDirectory) -> list[str]:
    """What each reward_model stage of the run says of its held-out pairs, the newest time it was trained."""
    from groupwise.launch.reward_model_stage import heldout_line
    from groupwise.runs import read_events

    events = read_events(directory.events) if directory.events.exists() else []
    newest = {str(event["stage"]): event for event in events if event.get("event") == "reward_model"}
    return [heldout_line(stage, event) for stage, event in newest.items()]
