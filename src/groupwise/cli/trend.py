"""A short series as one line of text: a sparkline, and which way it goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

BLOCKS = "".join(chr(0x2581 + i) for i in range(8))
"""Unicode's lower blocks, from one eighth to full."""
ASCII_BLOCKS = "_.-~=+*#"
"""For terminals whose encoding has no blocks, from low to high."""
SMOOTH_STEPS = 5
"""A point of the sparkline is the mean of this many steps up to it."""
CERTAIN = 2.0
"""A change is called one from this many standard errors on; less is drawn as flat."""
LEAST_STEPS = 4
"""With fewer there is no trend to speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Where a series goes: Trend(change=0.12, direction=1, steps=12)."""

    change: float
    """Mean of its last quarter (at most SMOOTH_STEPS values) minus that of its first."""
    direction: int
    """1 = up, -1 = down, 0 = no more than its values scatter from step to step."""
    steps: int


def smoothed(values: Sequence[float], window: int = SMOOTH_STEPS) -> list[float]:
    """Each value replaced by the mean of the last `window` up to it."""
    return [fmean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


def sparkline(values: Sequence[float], *, least_span: float = 0.0, ascii_only: bool = False) -> str:
    """One block a value from the lowest to the highest. A span below least_span fills its part of the height only, so
    that noise does not look like a mountain."""
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    if not values:
        return ""
    low, high = min(values), max(values)
    span = max(high - low, least_span)
    if span == 0:
        return blocks[0] * len(values)
    low -= (span - (high - low)) / 2
    return "".join(blocks[min(len(blocks) - 1, int((v - low) / span * len(blocks)))] for v in values)


def trend(values: Sequence[float]) -> Trend | None:
    """The change over the series, None for fewer than LEAST_STEPS values.

    The scatter s of one value comes from the differences of neighbours, s^2 = mean(d^2) / 2, so that a slope does not
    count as scatter; the difference of two means of k values then has the standard error s sqrt(2 / k).
    """
    if len(values) < LEAST_STEPS:
        return None
    k = min(SMOOTH_STEPS, max(1, len(values) // 4))
    change = fmean(values[-k:]) - fmean(values[:k])
    squares = [(b - a) ** 2 for a, b in pairwise(values)]
    error = math.sqrt(fmean(squares) / 2) * math.sqrt(2 / k)
    direction = 0 if abs(change) <= CERTAIN * error or change == 0 else int(math.copysign(1, change))
    return Trend(change=change, direction=direction, steps=len(values))
