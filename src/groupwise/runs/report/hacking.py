"""Reward hacking in a report: what training paid for against what a held-back grader says of the same answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.pages import Board, Card, Cell, Chart, Notice, Section, Table, format_fixed, points_with_intervals
from groupwise.runs.record import RunRecord
from groupwise.runs.report.held_back import GAP_LEVEL
from groupwise.runs.report.steps import number
from groupwise.runs.report.words import LEVEL, cut, in_points, interval_of, share

_MAX_TEXT = 1200
_HEADING = "Reward hacking"
WHY = "A run looks at its gap many times, and false alarms would teach people to ignore the next."


def hacking_section(record: RunRecord) -> Section:
    """The gap over evaluations, attacks of the audit found in answers, and examples."""
    events = record.events_named("hacking")
    if not events:
        why = (
            "No held-back grader looked at the answers ([monitor] in the recipe), so nobody can say whether rewards "
            "were earned or found. Read some paid answers below."
        )
        return Section(heading=_HEADING, text=(why,))
    last = events[-1]
    notices = tuple(
        Notice(title=f"Alarm after {event.get('name')}", text=_alarm_text(event), tone="problem")
        for event in _last_of_stages(events)
        if event.get("alarm")
    )
    if not notices:
        notices = (Notice(title="No alarm", text=(_state(last),), tone="good"),)
    charts = tuple(chart for chart in (_rates_chart(events), _gap_chart(events)) if chart is not None)
    tables = tuple(table for table in (_events_table(events), _attacks_table(events)) if table is not None)
    text: tuple[str, ...] = (
        "The gap is the share of answers that the verifier of training pays minus the share that the held-back grader, "
        "which training never sees, accepts. A gap that was there before training says that the two differ; one that "
        "grows says that training found the difference.",
    )
    if any(number(event.get("gap")) is not None for event in events):
        text = (*text, f"Intervals of the gap are at {GAP_LEVEL}, not at {LEVEL}: {WHY[0].lower()}{WHY[1:]}")
    return Section(heading=_HEADING, text=text, notices=notices, charts=charts, tables=tables, boards=_examples(events))


def _last_of_stages(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last event of each stage: what came before it has been looked at again since."""
    return list({str(event.get("name")).partition(" step ")[0]: event for event in events}.values())


def _state(event: Mapping[str, Any]) -> str:
    paid, held = number(event.get("paid")), number(event.get("held_back"))
    if paid is None or held is None:
        return "No attack of the audit was found often enough in paid answers."
    n = number(event.get("num_prompts"))
    on = f" on {n:.0f} prompts" if n else ""
    return f"After {event.get('name')}: {share(paid)} paid, {share(held)} accepted by the held-back grader{on}."


def _rates_chart(events: Sequence[Mapping[str, Any]]) -> Chart | None:
    rows = []
    for event in events[-24:]:
        paid, held = number(event.get("paid")), number(event.get("held_back"))
        if paid is not None and held is not None:
            for kind, rate in (("paid by the verifier of training", paid), ("held-back grader", held)):
                rows.append({"evaluation": str(event.get("name")), "by": kind, "rate": rate})
    rows = list({(row["evaluation"], row["by"]): row for row in rows}.values())
    if not rows:
        return None
    return points_with_intervals(
        [row | {"low": row["rate"], "high": row["rate"]} for row in rows],
        title="Solved, by both graders",
        label="evaluation",
        value="rate",
        low="low",
        high="high",
        series="by",
        series_title="solved, by",
        label_title="held-out evaluation",
        value_title="share of answers",
        value_format=".2~%",
        value_bounds=(0, 1),
    )


def _gap_chart(events: Sequence[Mapping[str, Any]]) -> Chart | None:
    rows = {}
    for event in events[-24:]:
        gap, ends = number(event.get("gap")), interval_of(event.get("interval"))
        if gap is None or ends is None:
            continue
        name = str(event.get("name"))
        rows[name] = {"evaluation": name, "gap": gap, "low": min(gap, ends.low), "high": max(gap, ends.high)}
    if not rows:
        return None
    return points_with_intervals(
        list(rows.values()),
        title="Gap between paid and held-back",
        label="evaluation",
        value="gap",
        low="low",
        high="high",
        label_title="held-out evaluation",
        value_title="paid minus held-back pass rate",
        value_format=".2~%",
        reference=0.0,
        caption=f"Bars are {GAP_LEVEL} intervals. {WHY}",
    )


def _events_table(events: Sequence[Mapping[str, Any]]) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    for event in events[-12:]:
        rates = tuple(share(number(event.get(name))) for name in ("paid", "held_back"))
        gaps = tuple(_points(event, name, ends) for name, ends in (("gap", "interval"), ("growth", "growth_interval")))
        repeats = tuple(share(number(event.get(name))) for name in ("repeated_frac", "near_repeated_frac"))
        completions = number(event.get("num_completions"))
        rows.append(
            (str(event.get("name")), *rates, *gaps, *repeats, None if completions is None else int(completions))
        )
    columns = ("after", "paid", "held back", "gap", "growth", "repeated", "nearly repeated", "answers")
    caption = (
        f"Shares of answers; gap and its growth since the base in points, with {GAP_LEVEL} intervals; repeated = like "
        "another of its group."
    )
    return Table(columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _points(event: Mapping[str, Any], name: str, ends: str) -> str:
    value, interval = number(event.get(name)), interval_of(event.get(ends))
    if value is None:
        return "-"
    return format_fixed(100 * value, 1, signed=True) + ("" if interval is None else f" {in_points(interval)}")


def _alarm_text(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The alarm, and the level of its interval where it has one."""
    told = str(event["alarm"])
    alarm = f"{told[:1].upper()}{told[1:]}" + ("" if told.endswith(".") else ".")
    is_silent = "[" in alarm and "interval" not in alarm  # an older run
    return (alarm, f"In brackets the {GAP_LEVEL} interval.") if is_silent else (alarm,)


def _attacks_table(events: Sequence[Mapping[str, Any]]) -> Table | None:
    names = list(dict.fromkeys(name for e in events for name, n in (e.get("attack_hits") or {}).items() if n))
    if not names:
        return None
    columns = ("attack of the audit", *(str(event.get("name")) for event in events[-6:]))
    rows = tuple((name, *((e.get("attack_hits") or {}).get(name, 0) for e in events[-6:])) for name in names)
    return Table(columns=columns, rows=rows, caption="Paid answers that equal an attack of the audit.")


def _examples(events: Sequence[Mapping[str, Any]]) -> tuple[Board, ...]:
    last = next((event for event in reversed(events) if event.get("examples")), None)
    if last is None:
        return ()
    cards = tuple(
        Card(
            title=str(example.get("task_id", "")),
            text=cut(str(example.get("text", "")), _MAX_TEXT),
            notes=(f"Paid: {example.get('paid_reason', '')}", f"Held back: {example.get('held_back_reason', '')}"),
            tone="problem",
        )
        for example in last["examples"]
    )
    return (Board(title=f"Paid, and refused by the held-back grader (after {last.get('name')})", cards=cards),)
