"""A chart as a record: what is drawn, without a drawing library. `charts` makes it, `drawing` makes a picture of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MAX_ROWS = 5000
"""What a reader can tell apart, and what keeps a page of several charts below 2 MB."""
MAX_SERIES = 14
"""Seven colours, whole and dashed."""

Row = Mapping[str, Any]
Mark = Literal["line", "bar", "histogram", "interval", "column"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: Axis(title="time (s)", log=True)."""

    title: str
    """With the unit in parentheses."""
    log: bool = False
    format: str = ""
    """A d3 number format, such as ".0%" for shares; empty: chosen from the numbers."""
    bounds: tuple[float, float] | None = None
    """What the axis shows at least; None: what the numbers need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart, ready to be drawn. Made by the functions of `charts`."""

    mark: Mark
    title: str
    caption: str
    x: Axis
    y: Axis
    rows: tuple[dict[str, Any], ...]
    """Columns x, y, low, high, single, series, label, bottom, top as far as the mark has them; tip0, tip1 ... for
    further tooltips."""
    series_title: str | None = None
    """Heading of the legend; None: one series, no legend."""
    series_order: tuple[str, ...] = ()
    """Series in the order of colours, drawn here or not: so that one has the same colour in several charts."""
    has_band: bool = False
    has_points: bool = False
    """The rows have a column "single": values drawn as faint points, of which y is the smoothed course."""
    stacked: bool = False
    reference: float | None = None
    """A value on the x axis that everything is compared with."""
    tooltips: tuple[str, ...] = ()
    """Titles of the columns tip0, tip1 ..."""
    notes: tuple[str, ...] = ()
    """What was left out."""
    markers: tuple[tuple[float, str], ...] = ()
    """Places on the x axis of lines and columns that have a name, such as the step where a stage begins."""
    small: bool = False
    """True: lower, and beside the next small one where the page is wide enough."""
