"""The held-back grader beside the outcome: did what training is paid for rise, or what the task asks for?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.pages import Fact, format_fixed, format_number
from groupwise.runs.comparison.paired import PairedDifference, paired_difference
from groupwise.runs.intervals import Interval
from groupwise.runs.monitors.hacking import CONFIDENCE
from groupwise.runs.record import RunRecord
from groupwise.runs.report.evaluations import Measured
from groupwise.runs.report.steps import number
from groupwise.runs.report.words import LEVEL, interval_of, points, share

GAP_LEVEL = f"{format_number(100 * CONFIDENCE)} %"
"""Of every interval of a gap and of its growth: a run looks at its gap many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """What a grader that training never sees says of held-out answers, from the first evaluation to the last.

    Example:
        HeldBack(name="grpo", first=0.39, last=0.26, difference=None, gap=0.32, gap_interval=Interval(0.24, 0.40),
                 growth=0.14, growth_interval=Interval(0.05, 0.22), max_gap=0.05, has_alarm=True)
    """

    name: str
    """The last evaluation that it judged."""
    first: float | None
    """Share accepted at the first evaluation; None where the last is the first."""
    last: float
    difference: PairedDifference | None
    """Last minus first on the same prompts; None where the record does not give it prompt by prompt."""
    gap: float | None
    """Share paid minus share accepted, at the last."""
    gap_interval: Interval | None
    growth: float | None
    """Change of the gap since the first."""
    growth_interval: Interval | None
    max_gap: float | None
    """What the recipe allows."""
    has_alarm: bool

    @property
    def is_wide(self) -> bool:
        """The gap surely exceeds what the recipe allows; where that is not on record, the run raised the alarm."""
        if self.max_gap is None or self.gap_interval is None:
            return self.has_alarm
        return self.gap_interval.low > self.max_gap

    @property
    def has_grown(self) -> bool:
        """The gap is surely wider than at the first evaluation."""
        return self.growth_interval is not None and self.growth_interval.low > 0

    @property
    def has_risen(self) -> bool:
        """The share accepted is surely higher than at the first, or simply higher where no interval is known."""
        if self.difference is not None:
            return self.difference.is_distinguishable and self.difference.difference > 0
        return self.first is not None and self.last > self.first


def held_back_of(record: RunRecord, evaluations: Sequence[Measured]) -> HeldBack | None:
    """None where no held-back grader judged anything."""
    events = [e for e in record.events_named("hacking") if number(e.get("held_back")) is not None]
    if not events:
        return None
    first, last = events[0], events[-1]
    held = number(last.get("held_back"))
    assert held is not None
    monitor = record.recipe.get("monitor")
    gap, growth = number(last.get("gap")), number(last.get("growth"))
    return HeldBack(
        name=str(last.get("name")),
        first=number(first.get("held_back")) if len(events) > 1 else None,
        last=held,
        difference=_difference(first, last, evaluations) if len(events) > 1 else None,
        gap=gap,
        gap_interval=interval_of(last.get("interval")) if gap is not None else None,
        growth=growth,
        growth_interval=interval_of(last.get("growth_interval")) if growth is not None else None,
        max_gap=number(monitor.get("max_gap")) if isinstance(monitor, Mapping) else None,
        has_alarm=bool(last.get("alarm")) and gap is not None and gap > 0,
    )


def held_back_clause(held: HeldBack | None, *, is_raised: bool) -> str:
    """What belongs beside the pass rate: a gap that is too wide or has grown, or a rise that the grader does not share.

    Empty where there is nothing to add. is_raised: the sentence before says that the pass rate rose.
    """
    if held is None or not (held.is_wide or held.has_grown or (is_raised and held.first is not None)):
        return ""
    if not (held.is_wide or held.has_grown) and held.has_risen:
        return ""
    parts = [f"but the held-back grader, which training never sees, {_course(held)}"]
    if (held.is_wide or held.has_grown) and held.gap is not None:
        allowed = f" where {format_number(100 * held.max_gap)} are allowed" if held.is_wide and held.max_gap else ""
        parts.append(f"a gap of {_points(held.gap, held.gap_interval)} at {GAP_LEVEL}{allowed}")
        if held.has_grown and held.growth is not None:
            parts.append(f"and the gap grew by {_points(held.growth, held.growth_interval)}")
    return ", ".join(parts)


def held_back_fact(held: HeldBack | None) -> tuple[Fact, ...]:
    """The second number of the headline, where there is one."""
    if held is None:
        return ()
    if held.first is None:
        return (Fact(label=f"held-back grader, {held.name}", value=share(held.last)),)
    note = f"{held.name}; was {share(held.first)}"
    if held.difference is not None:
        note += f", {points(held.difference)} at {LEVEL}"
    return (Fact(label="held-back grader, after", value=share(held.last), note=note),)


def _course(held: HeldBack) -> str:
    if held.first is None:
        return f"accepts {share(held.last)} of the answers"
    tail = ""
    if held.difference is not None:
        tail = f" ({points(held.difference)}{'' if held.difference.is_distinguishable else ', not distinguishable'})"
    moved = "rose" if held.last > held.first else "fell" if held.last < held.first else ""
    if not moved:
        return f"stayed at {share(held.last)}{tail}"
    if held.difference is not None and not held.difference.is_distinguishable:
        moved = "went"
    return f"{moved} from {share(held.first)} to {share(held.last)}{tail}"


def _points(value: float, ends: Interval | None) -> str:
    text = f"{format_fixed(100 * value, 1)} points"
    return text if ends is None else f"{text} [{format_fixed(100 * ends.low, 1)}, {format_fixed(100 * ends.high, 1)}]"


def _difference(
    first: Mapping[str, Any], last: Mapping[str, Any], evaluations: Sequence[Measured]
) -> PairedDifference | None:
    """From the pass rates of both evaluations and the gaps of their prompts: accepted = paid - gap.

    Only where every answer was judged by both graders, so that the two are about the same answers.
    """
    sides = [
        _accepted(event, next((m for m in evaluations if m.name == event.get("name")), None)) for event in (first, last)
    ]
    if sides[0] is None or sides[1] is None:
        return None
    both = sides[0].keys() & sides[1].keys()
    if not both:
        return None
    before, after = ({task: side[task] for task in sorted(both)} for side in (sides[0], sides[1]))
    return paired_difference(before, after)


def _accepted(event: Mapping[str, Any], measured: Measured | None) -> dict[str, float] | None:
    gaps = event.get("gaps")
    if measured is None or not isinstance(gaps, Mapping) or not measured.rates:
        return None
    if number(event.get("num_unscored")) != 0 or measured.event.get("num_unscored", 0) != 0:
        return None
    known = {task: number(gap) for task, gap in gaps.items() if task in measured.rates}
    return {task: min(1.0, max(0.0, measured.rates[task] - gap)) for task, gap in known.items() if gap is not None}
