"""What a run shows while it works: the seam between launching and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

Advance = Callable[..., None]
"""advance(done, total, note=""): how far the piece of work under way is, with a word on how it goes."""


class Display(Protocol):
    """Shows lines, progress and tables; cli/terminal.py draws them, `Quiet` does not."""

    def line(self, text: str) -> None:
        """One sentence for the user."""
        ...

    def table(self, table: Any) -> None:
        """A rich table."""
        ...

    def working(self, title: str) -> Any:
        """A context manager that yields an `Advance` for one piece of work."""
        ...


class Quiet:
    """Shows nothing: for calls from Python."""

    def line(self, text: str) -> None:
        """See Display."""

    def table(self, table: Any) -> None:
        """See Display."""

    @contextmanager
    def working(self, title: str) -> Iterator[Advance]:
        """See Display."""
        yield lambda done, total, note="": None
