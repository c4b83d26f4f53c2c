"""The course of a number that jumps from step to step, because a step sees a few prompts only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.runs.report.steps import Steps, number

USUAL_WIDTH = 10
"""Steps of a moving mean; in long stages a tenth of the stage, in short ones a third."""
MIN_STEPS = 9
"""Of a shorter stage the steps are drawn as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Moving means of a metric: Course(points=[(4, 0.31), (5, 0.33)], widths=(10,))."""

    points: list[tuple[int, float]]
    """(step of the run, mean), one for each step that has a number."""
    widths: tuple[int, ...]
    """Of the stages that were smoothed, smallest first; empty: every point is a step as it is."""


def course_of(steps: Steps, name: str) -> Course:
    """The moving mean of a metric within each stage, weighted by the number of groups behind a step where that is on
    record. No mean reaches over the end of a stage.
    """
    points: list[tuple[int, float]] = []
    widths: set[int] = set()
    for stage in dict.fromkeys(s.stage for s in steps.rows):
        known = [(s, value) for s in steps.rows if s.stage == stage and (value := number(s.row.get(name))) is not None]
        width = width_of(len(known))
        weights = [number(s.row.get("num_groups")) or 1.0 for s, _ in known]
        means = moving_mean([value for _, value in known], weights, width)
        points += [(s.at, mean) for (s, _), mean in zip(known, means, strict=True)]
        widths |= {width} - {1}
    return Course(points=points, widths=tuple(sorted(widths)))


def width_of(num_steps: int) -> int:
    """Steps of a moving mean in a stage of that many steps; 1: it is left as it is."""
    if num_steps < MIN_STEPS:
        return 1
    return max(min(USUAL_WIDTH, num_steps // 3), math.ceil(num_steps / 10))


def moving_mean(values: Sequence[float], weights: Sequence[float], width: int) -> list[float]:
    """The weighted mean of the `width` values around each one; at both ends of those that there are.

    The window of value i goes from i - floor((width - 1) / 2) to i + floor(width / 2).
    """
    means = []
    for i in range(len(values)):
        window = slice(max(0, i - (width - 1) // 2), i + width // 2 + 1)
        total = math.fsum(weights[window])
        means.append(math.fsum(v * w for v, w in zip(values[window], weights[window], strict=True)) / total)
    return means
