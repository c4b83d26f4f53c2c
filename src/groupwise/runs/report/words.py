"""Numbers as the words of a report: shares, differences, durations, sizes."""

from __future__ import annotations

from groupwise.pages import format_number
from groupwise.runs.comparison.paired import PairedDifference
from groupwise.runs.intervals import Interval

_GB = 1e9
_MB = 1e6


def share(rate: float | None) -> str:
    """0.347 -> "34.7 %"; None -> "-"."""
    return "-" if rate is None else f"{100 * rate:.1f} %"


def with_interval(rate: float | None, interval: Interval | None) -> str:
    """0.347 with (0.25, 0.45) -> "34.7 % [25, 45]"; the ends in percent."""
    if rate is None or interval is None:
        return share(rate)
    return f"{share(rate)} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def points(difference: PairedDifference, unit: str = " points") -> str:
    """0.191 with (0.12, 0.26) -> "+19.1 points [12, 26]": percentage points with the interval."""
    low, high = 100 * difference.interval.low, 100 * difference.interval.high
    return f"{100 * difference.difference:+.1f}{unit} [{low:.0f}, {high:.0f}]".replace("[-0,", "[0,")


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
