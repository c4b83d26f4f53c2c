"""Numbers as the words of a report: shares, differences, durations, sizes."""

from __future__ import annotations

import math
from typing import Any

from groupwise.pages import format_fixed, format_number
from groupwise.runs.comparison.paired import PairedDifference
from groupwise.runs.intervals import Interval

LEVEL = "95 %"
"""Of every interval of a report that names no other level."""
_GB = 1e9
_MB = 1e6


def share(rate: float | None) -> str:
    """0.347 -> "34.7 %"; None -> "-"."""
    return "-" if rate is None else f"{100 * rate:.1f} %"


def with_interval(rate: float | None, interval: Interval | None) -> str:
    """0.347 with (0.25, 0.45) -> "34.7 % [25, 45]"; the ends in percent."""
    if rate is None or interval is None:
        return share(rate)
    return f"{share(rate)} [{format_fixed(100 * interval.low, 0)}, {format_fixed(100 * interval.high, 0)}]"


def points(difference: PairedDifference, unit: str = " points") -> str:
    """0.191 with (0.12, 0.26) -> "+19.1 points [12.0, 26.0]": percentage points with the interval."""
    moved = format_fixed(100 * difference.difference, 1, signed=True)
    return f"{moved}{unit} {in_points(difference.interval)}"


def in_points(interval: Interval) -> str:
    """(0.12, 0.26) -> "[12.0, 26.0]"."""
    return f"[{format_fixed(100 * interval.low, 1)}, {format_fixed(100 * interval.high, 1)}]"


def interval_of(ends: Any) -> Interval | None:
    """[0.12, 0.26] of a record -> Interval(0.12, 0.26); None for anything else."""
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        return None
    numbers = [end for end in ends if isinstance(end, int | float) and math.isfinite(end)]
    return Interval(numbers[0], numbers[1]) if len(numbers) == 2 else None


def seconds(value: float | None) -> str:
    """75.2 -> "75 s"; 400 -> "6.7 min"; 7500 -> "2.1 h"; None -> "-"."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def size(num_bytes: float | None) -> str:
    """3497771008 -> "3.5 GB"; 140704 -> "0.1 MB"; None -> "-"."""
    if num_bytes is None:
        return "-"
    return f"{num_bytes / _GB:.1f} GB" if num_bytes >= _GB / 10 else f"{num_bytes / _MB:.1f} MB"


def cut(text: str, most: int) -> str:
    """The text, or its first `most` characters and how many there were."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n... (the first {format_number(most)} of {format_number(len(text))} characters)"


def several(count: int, one: str, many: str = "") -> str:
    """(1, "prompt") -> "1 prompt"; (2, "prompt") -> "2 prompts"; (2, "loss", "losses") -> "2 losses"."""
    return f"{format_number(count)} {one if count == 1 else many or one + 's'}"


def listed(names: list[str]) -> str:
    """["sft", "dpo", "grpo"] -> "sft, dpo and grpo"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
