"""Plan against actual: time, memory, live groups and price as they were expected and as they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.pages import Cell, Section, Table
from groupwise.runs.record import RunRecord
from groupwise.runs.report.steps import number, samples_groups, stage_names
from groupwise.runs.report.words import seconds, share, size

_HEADING = "Plan against actual"
_FAR = 1.25
"""Memory that is off by this factor is told in words."""
_SMALL = 0.25
"""Share of the memory below which the networks are not what takes it."""


def plan_section(record: RunRecord) -> Section:
    """What the plan said, the forecasts made before each stage, and what was spent."""
    tables = [t for t in (_plan_table(record), _forecast_table(record), _spent_table(record)) if t is not None]
    text = []
    if record.plan is None:
        text.append(
            "No plan is on record: it is made where planning can describe the model. `groupwise doctor --measure` "
            "measures this machine, so that time can be planned too."
        )
    else:
        text += [_plan_sentence(record.plan), *_memory_sentences(record)]
    return Section(heading=_HEADING, text=tuple(text), tables=tuple(tables))


def _memory_sentences(record: RunRecord) -> list[str]:
    """How far the memory of a stage is from its plan, where that is far, and what it is made of."""
    planned = {str(s.get("name")): s for s in (record.plan or {}).get("stages") or () if isinstance(s, Mapping)}
    far = []
    for stage in stage_names(record):
        expected, came = number(planned.get(stage, {}).get("peak_bytes")), _most_memory(record, stage)
        if expected and came and not 1 / _FAR < came / expected < _FAR:
            off = f"{came / expected:.1f} times" if came > expected else f"{share(came / expected)} of"
            far.append((stage, expected, came, off))
    if not far:
        return []
    told = "; ".join(f"{stage} took {size(came)}, {off} the {size(plan)} planned" for stage, plan, came, off in far)
    lines = [f"Memory is not as planned: {told}."]
    networks = max((_held_bytes(event.get("bytes")) for event in record.events_named("memory")), default=0.0)
    is_cpu = str(record.environment.get("device") or "").startswith("cpu")
    most = max(came for *_, came, _ in far)
    if networks and networks < _SMALL * most and any(came > plan for _, plan, came, _ in far):
        lines.append(
            f"The networks with gradients and optimizer hold {size(networks)} of it. The rest is the process: its "
            "libraries, activations, keys and values. With a model this small that is nearly all of it"
            + (", and a plan knows it only as it is before the first stage." if is_cpu else ".")
        )
    return lines


def _most_memory(record: RunRecord, stage: str) -> float | None:
    found = (number(row.get("memory_bytes")) for row in record.steps(stage))
    return max((m for m in found if m is not None), default=None)


def actual_seconds(record: RunRecord) -> float:
    """Wall-clock time of all steps and evaluations on record."""
    steps = sum(number(row.get("seconds_step")) or 0.0 for row in record.metrics)
    return steps + sum(number(event.get("seconds")) or 0.0 for event in record.events_named("evaluation"))


def _plan_sentence(plan: Mapping[str, Any]) -> str:
    hardware = plan.get("hardware")
    name = hardware.get("name") if isinstance(hardware, Mapping) else hardware
    parts = [seconds(number(plan["seconds"]))] if number(plan.get("seconds")) else []
    parts.append(f"{size(number(plan.get('peak_bytes')))} at the peak")
    if number(plan.get("price")) is not None:
        parts.append(f"price {plan['price']:.2f}")
    where = f" on {name}" if name else ""
    source = f"; pass rates: {plan['rates_source']}" if plan.get("rates_source") else ""
    return f"Planned: {', '.join(parts)}{where}{source}."


def _plan_table(record: RunRecord) -> Table | None:
    planned = {str(s.get("name")): s for s in (record.plan or {}).get("stages") or () if isinstance(s, Mapping)}
    rows: list[tuple[Cell, ...]] = []
    for stage in dict.fromkeys((*planned, *stage_names(record))):
        plan, done = planned.get(stage, {}), record.steps(stage)
        took = sum(number(row.get("seconds_step")) or 0.0 for row in record.collections(stage))
        memory = _most_memory(record, stage)
        rows.append(
            (
                stage,
                _pair(plan.get("steps"), len(done), lambda n: f"{n:.0f}"),
                _pair(plan.get("seconds"), took if done else None, seconds),
                _pair(plan.get("step_seconds"), took / len(done) if done else None, seconds),
                _pair(plan.get("peak_bytes"), memory, size),
                _pair(plan.get("live_share"), _live_share(record, stage), share),
            )
        )
    columns = ("stage", "steps", "time", "time of a step", "memory", "live groups")
    caption = "What each stage took, and in parentheses what was planned. Memory: the most at the end of a step."
    return Table(columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _live_share(record: RunRecord, stage: str) -> float | None:
    rows = [row for row in record.collections(stage) if samples_groups(row)]
    live = sum(number(row.get("live_groups")) or 0.0 for row in rows)
    groups = sum(number(row.get("num_groups")) or 0.0 for row in rows)
    return live / groups if groups else None


def _pair(planned: Any, actual: float | None, show: Any) -> str:
    expected = number(planned)
    came = show(actual) if actual is not None else "-"
    return came if expected is None else f"{came} (plan {show(expected)})"


def _forecast_table(record: RunRecord) -> Table | None:
    shows = {"seconds_generate": seconds, "seconds_train": seconds, "peak_bytes": size, "live_share": share}
    alone = {name for name in stage_names(record) if not any(map(samples_groups, record.collections(name)))}
    names = {
        "seconds_generate": "sampling",
        "seconds_train": "training",
        "peak_bytes": "peak memory",
        "live_share": "live groups",
    }
    rows: list[tuple[Cell, ...]] = []
    for event in record.events_named("forecast"):
        for name, show in shows.items():
            pair = event.get(name)
            if not isinstance(pair, Mapping) or (name == "live_share" and event.get("stage") in alone):
                continue
            expected, measured = number(pair.get("forecast")), number(pair.get("measured"))
            if expected is None or measured is None:
                continue
            off = f"{100 * (expected / measured - 1):+.0f} %" if measured else "-"
            rows.append((str(event.get("stage")), names[name], show(expected), show(measured), off))
    columns = ("stage", "what", "forecast", "measured", "forecast off by")
    caption = "Forecasts made before each stage, from answers of the weights that it starts from."
    return Table(columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _spent_table(record: RunRecord) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    last = record.metrics[-1] if record.metrics else {}
    frac, price = number(last.get("spent_frac_of_plan")), number(last.get("spent_price"))
    wall = number(last.get("spent_seconds"))
    if wall is not None:
        rows.append(("wall clock since the first stage", seconds(wall)))
    else:
        rows.append(("steps and evaluations", seconds(actual_seconds(record))))
    if frac is not None:
        rows.append(("share of the planned time", share(frac)))
    if price is not None:
        rows.append(("price so far", f"{price:.2f}"))
    sampled = sum(number(row.get("num_generated_tokens")) or 0.0 for row in record.metrics)
    trained = sum(number(row.get("num_trained_tokens")) or 0.0 for row in record.metrics)
    rows += [("tokens sampled in training", int(sampled)), ("tokens trained", int(trained))]
    if record.summary is not None and record.summary.peak_memory_bytes:
        rows.append(("peak memory of the process", size(record.summary.peak_memory_bytes)))
    for event in record.events_named("memory"):
        held = _held(event.get("bytes"))
        if held:
            rows.append((f"held by the networks of {event.get('stage')}", held))
    return Table(columns=("what", "amount"), rows=tuple(rows), caption="What the run has taken.")


def _held_bytes(networks: Any) -> float:
    """All bytes of a "memory" event."""
    parts = (
        [p for n in networks.values() for p in (n.values() if isinstance(n, Mapping) else (n,))]
        if isinstance(networks, Mapping)
        else []
    )
    return sum(number(part) or 0.0 for part in parts)


def _held(networks: Any) -> str:
    if not isinstance(networks, Mapping):
        return ""
    parts = []
    for network, by_part in networks.items():
        total = sum(by_part.values()) if isinstance(by_part, Mapping) else number(by_part)
        if total:
            parts.append(f"{network} {size(total)}")
    return ", ".join(parts)
