"""The dead-group ledger of a report: which groups taught something, and what became of every prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Any

from groupwise.pages import Cell, Chart, Section, Table, bar_chart, column_chart, histogram
from groupwise.runs.record import RunRecord
from groupwise.runs.report.rollouts import Digest, GroupDigest
from groupwise.runs.report.steps import number, samples_groups, spans, stage_names
from groupwise.runs.report.words import listed, several, share

MAX_COLUMNS = 80
MAX_BARS = 8
"""Bars of a small chart."""
NUM_PROMPTS = 15
"""Rows of a table of prompts."""
_KINDS = {
    "live_groups": "right and wrong answers",
    "dead_groups_all_solved": "all solved",
    "dead_groups_none_solved": "none solved",
    "unscored_groups": "not judged",
}


class Fate(StrEnum):
    """What became of a prompt over the run."""

    ALWAYS = "always solved"
    LEARNED = "learned"
    SOMETIMES = "solved at times"
    FORGOTTEN = "solved, then lost"
    NEVER = "never solved"


MEANINGS: Mapping[Fate, str] = {
    Fate.ALWAYS: "by every answer of every visit: nothing to learn from it",
    Fate.LEARNED: "by less than half of the answers at first, by half or more of them at last",
    Fate.SOMETIMES: "by some answers, without a clear direction",
    Fate.FORGOTTEN: "by half of the answers or more at an earlier visit, by none at the last",
    Fate.NEVER: "by no answer of any visit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPast:
    """Every visit of one prompt: PromptPast(task_id="q17", visits=(first, last))."""

    task_id: str
    visits: tuple[GroupDigest, ...]
    """In the order sampled, each with a judged answer; one or more."""

    @property
    def fate(self) -> Fate:
        """Where it ended up."""
        rates = [visit.solved / visit.scored for visit in self.visits]
        if all(rate == 1 for rate in rates):
            return Fate.ALWAYS
        if not any(rates):
            return Fate.NEVER
        if rates[-1] == 0 and max(rates) >= 0.5:
            return Fate.FORGOTTEN
        return Fate.LEARNED if rates[0] < 0.5 <= rates[-1] else Fate.SOMETIMES


def pasts_of(digest: Digest) -> list[PromptPast]:
    """The past of every prompt that was judged at least once, in the order first sampled."""
    visits: dict[str, list[GroupDigest]] = {}
    for group in digest.groups:
        if group.scored:
            visits.setdefault(group.task_id, []).append(group)
    return [PromptPast(task_id=task_id, visits=tuple(seen)) for task_id, seen in visits.items()]


def prompts_section(record: RunRecord, digest: Digest) -> Section:
    """Groups over the run, prompts by what became of them, and those set aside."""
    rows = _collections(record)
    pasts = pasts_of(digest)
    if not rows and not pasts:
        return Section(heading="Groups and prompts", text=("No stage of this run samples groups of answers.",))
    charts: list[Chart] = []
    text = [_live_sentence(rows), _single_sentence(record)]
    if rows:
        charts.append(_groups_chart(rows))
    tables = []
    if pasts:
        charts += [_fates_chart(pasts), _visits_chart(pasts)]
        text.append(digest.note)
        tables += [t for fate in (Fate.FORGOTTEN, Fate.NEVER) if (t := _prompts_table(pasts, fate)) is not None]
    aside, endings = _aside_table(record), _ending_lines(record)
    tables += [aside] if aside is not None else []
    return Section(
        heading="Groups and prompts",
        text=tuple(filter(None, [*text, *endings, *digest.unreadable[:3]])),
        charts=tuple(charts),
        tables=tuple(tables),
    )


def _collections(record: RunRecord) -> list[Mapping[str, Any]]:
    """Rows of every collection that sampled groups, by stage and time."""
    rows = [row for stage in stage_names(record) for row in record.collections(stage)]
    return [row for row in rows if number(row.get("live_groups")) is not None and samples_groups(row)]


def _live_sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    totals = {kind: sum(number(row.get(kind)) or 0.0 for row in rows) for kind in _KINDS}
    total = sum(totals.values())
    if not total:
        return ""
    parts = [f"{share(count / total)} {_KINDS[kind]}" for kind, count in totals.items() if count]
    return (
        f"Of {total:,.0f} groups: {', '.join(parts)}. A group whose answers are all right or all wrong has no "
        "advantage and teaches nothing (a critic may learn from it all the same)."
    )


def _single_sentence(record: RunRecord) -> str:
    """Which stages sample one answer a prompt: their groups are not counted."""
    counted = {name: record.collections(name) for name in stage_names(record)}
    single = [
        name
        for name, rows in counted.items()
        if any(number(row.get("num_groups")) for row in rows) and not any(map(samples_groups, rows))
    ]
    if not single:
        return ""
    verb = "samples" if len(single) == 1 else "sample"
    return f"{listed(single)} {verb} one answer a prompt, so that there are no groups with right and wrong answers."


def _groups_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    drawn = []
    numbered = list(enumerate(rows, start=1))
    for group in spans(numbered, MAX_COLUMNS):
        first, last = group[0][0], group[-1][0]
        label = f"{group[0][1].get('stage')} {group[0][1].get('step')}" + (
            "" if first == last else f" to {group[-1][1].get('stage')} {group[-1][1].get('step')}"
        )
        edges = {"low": first - 0.5, "high": last + 0.5, "steps": label}
        for kind, title in _KINDS.items():
            drawn.append(edges | {"kind": title, "y": _mean_count([number(row.get(kind)) or 0.0 for _, row in group])})
    present = {row["kind"] for row in drawn if row["y"] > 0}
    return column_chart(
        [row for row in drawn if row["kind"] in present],
        title="Groups of a step by what their answers show",
        low="low",
        high="high",
        y="y",
        series="kind",
        series_title="answers of the group",
        x_title="collection of answers",
        y_title="groups",
        tooltips=("steps",),
        caption="Only groups with right and wrong answers train. A collection without any of them is no step.",
    )


def _mean_count(counts: Sequence[float]) -> float:
    """A whole number where it is one, which the chart then marks as such."""
    mean = fmean(counts)
    return int(mean) if mean.is_integer() else mean


def _fates_chart(pasts: Sequence[PromptPast]) -> Chart:
    counts = Counter(past.fate for past in pasts)
    rows = [{"fate": str(fate), "n": counts[fate], "means": MEANINGS[fate]} for fate in Fate if counts[fate]]
    made = bar_chart(
        rows,
        title="What became of the training prompts",
        label="fate",
        value="n",
        label_title="over the run",
        value_title="prompts",
        tooltips=("means",),
        caption="; ".join(f"{row['fate']}: {row['means']}" for row in rows) + ".",
    )
    return replace(made, small=True)


def _visits_chart(pasts: Sequence[PromptPast]) -> Chart:
    visits = [len(past.visits) for past in pasts]
    caption = f"{several(len(pasts), 'prompt')}, {fmean(visits):.1f} groups each on average."
    title, counted = "How often prompts were sampled", Counter(visits)
    if max(visits) > MAX_BARS:
        made = histogram(visits, title=title, x_title="groups of a prompt", y_title="prompts", caption=caption)
    else:
        made = bar_chart(
            [{"visits": several(n, "time"), "prompts": counted[n]} for n in range(1, max(visits) + 1)],
            title=title,
            label="visits",
            value="prompts",
            label_title="sampled",
            value_title="prompts",
            caption=caption,
        )
    return replace(made, small=True)


def _prompts_table(pasts: Sequence[PromptPast], fate: Fate) -> Table | None:
    found = sorted((p for p in pasts if p.fate is fate), key=lambda p: -len(p.visits))
    found = [p for p in found if len(p.visits) > 1] if fate is Fate.NEVER else found
    if not found:
        return None
    rows: list[tuple[Cell, ...]] = []
    for past in found[:NUM_PROMPTS]:
        course = ", ".join(f"{visit.solved}/{visit.scored}" for visit in past.visits[-8:])
        last = past.visits[-1]
        rows.append((past.task_id, len(past.visits), course, f"{last.stage} {last.step}"))
    more = f"; the {NUM_PROMPTS} most sampled" if len(found) > NUM_PROMPTS else ""
    again = " in more than one visit" if fate is Fate.NEVER else ""
    return Table(
        columns=("prompt", "visits", "solved of judged, latest last", "last sampled"),
        rows=tuple(rows),
        caption=f"{several(len(found), 'prompt')} {fate}{again}{more}.",
    )


def _aside_table(record: RunRecord) -> Table | None:
    """Prompts set aside, by stage and reason: before the stage (curated) and within it (the ledger)."""
    rows: list[tuple[Cell, ...]] = []
    for event in record.events_named("curated"):
        stage = str(event.get("stage", ""))
        rows.append((stage, "kept", number(event.get("kept")), "before the stage"))
        for reason, tasks in event.items():
            if isinstance(tasks, list):
                rows.append((stage, reason.replace("_", " "), len(tasks), "before the stage"))
    for stage in stage_names(record):
        last: Mapping[str, Any] = (record.collections(stage) or [{}])[-1]
        for name, count in last.items():
            if name.startswith("set_aside_") and number(count):
                reason = name.removeprefix("set_aside_").replace("_", " ")
                rows.append((stage, reason, int(count), "at the end of the stage"))
    if not rows:
        return None
    columns = ("stage", "why", "prompts", "when")
    return Table(columns=columns, rows=tuple(rows), caption="Training prompts kept and set aside.")


def _ending_lines(record: RunRecord) -> list[str]:
    """Stages that ended because nothing was left to learn from."""
    events = [*record.events_named("no_signal"), *record.events_named("nothing_left")]
    return [f"{event.get('stage')} ended at step {event.get('step')}: {event.get('diagnosis')}" for event in events]
