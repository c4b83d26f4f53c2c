"""The steps of a run on one axis, and how a long curve is thinned to what a screen can show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from groupwise.runs.record import NO_SIGNAL, RunRecord

MAX_POINTS = 240
"""Points of one curve. A chart is at most 900 pixels wide, so that more would fall on each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of the metrics on the axis of the whole run: Step(at=31, stage="grpo", step=1, row={"loss": 0.1})."""

    at: int
    """Its number in the run, from 1."""
    stage: str
    step: int
    """Its number in the stage, from 1."""
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """All steps of a run, in order, and the places where its stages begin."""

    rows: tuple[Step, ...]
    markers: tuple[tuple[float, str], ...]
    """(step of the run, stage); empty where there is one stage only."""

    def at(self, stage: str, step: int) -> int | None:
        """The step of the run that a step of a stage is; None where it is not on record."""
        return next((s.at for s in self.rows if s.stage == stage and s.step == step), None)


def markers_from(steps: Steps, first: float) -> tuple[tuple[float, str], ...]:
    """The markers of stages that a curve from this step of the run on reaches; none where that is one stage."""
    ends = [at for at, _ in steps.markers[1:]] + [float("inf")]
    reached = [(max(at, first), name) for (at, name), end in zip(steps.markers, ends, strict=False) if end > first]
    return tuple(reached) if len(reached) > 1 else ()


def stage_names(record: RunRecord) -> list[str]:
    """The stages that have trained, in the order of the recipe; others in the order of their first row."""
    seen = dict.fromkeys(str(row.get("stage")) for row in record.metrics)
    trained = [name for name in seen if not name.endswith(NO_SIGNAL)]
    planned = [stage.get("name") for stage in record.stages]
    return sorted(trained, key=lambda name: planned.index(name) if name in planned else len(planned))


def steps_of(record: RunRecord) -> Steps:
    """Every step of every stage; collections that were no step are not among them."""
    rows: list[Step] = []
    starts: list[tuple[float, str]] = []
    for stage in stage_names(record):
        numbered = [row for row in record.steps(stage) if isinstance(row.get("step"), int)]
        if numbered:
            starts.append((len(rows) + 1, stage))
        for row in sorted(numbered, key=lambda r: r["step"]):
            rows.append(Step(at=len(rows) + 1, stage=stage, step=row["step"], row=row))
    return Steps(rows=tuple(rows), markers=tuple(starts) if len(starts) > 1 else ())


def samples_groups(row: Mapping[str, Any]) -> bool:
    """True where a collection sampled several answers a prompt; with one there is no group to compare it with."""
    groups, rollouts = number(row.get("num_groups")), number(row.get("num_rollouts"))
    return groups is not None and (rollouts is None or rollouts > groups)


def number(value: Any) -> float | None:
    """The value where it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def curve(points: Iterable[tuple[int, Any]], most: int = MAX_POINTS) -> list[dict[str, Any]]:
    """Rows with x and y, and low and high, of points (x, y) in order; y that is no finite number is left out.

    Where there are more than `most` points, neighbours are joined: y is their mean, x the last of them, low and high
    the smallest and largest, so that no extreme is lost. Without joining low and high are None.
    """
    known = [(x, y) for x, value in points if (y := number(value)) is not None]
    width = math.ceil(len(known) / most) if known else 1
    rows = []
    for begin in range(0, len(known), width):
        ys = [y for _, y in known[begin : begin + width]]
        last = known[min(begin + width, len(known)) - 1][0]
        low, high = (min(ys), max(ys)) if width > 1 else (None, None)
        mean = min(max(fmean(ys), min(ys)), max(ys))
        rows.append({"x": last, "y": mean if width > 1 else ys[0], "low": low, "high": high})
    return rows


def thinned_note(num_steps: int, *, has_band: bool = True) -> str:
    """What a reader must know of curves with that many steps; empty where every step is drawn."""
    if num_steps <= MAX_POINTS:
        return ""
    width = math.ceil(num_steps / MAX_POINTS)
    text = f"A point of a curve is the mean of up to {width} neighbouring steps"
    return f"{text}, the band around it their smallest and largest value." if has_band else f"{text}."


def spans(rows: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """The rows in at most `most` runs of neighbours of equal length (the last may be shorter)."""
    width = max(1, math.ceil(len(rows) / most))
    return [rows[begin : begin + width] for begin in range(0, len(rows), width)]


def spread_evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
