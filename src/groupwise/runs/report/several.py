"""Several runs on one page: outcomes beside each other, paired comparisons with the first, and overlaid curves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from groupwise.errors import DataError
from groupwise.pages import Cell, Chart, Fact, Notice, Page, Section, Table, format_fixed, points_with_intervals
from groupwise.runs.comparison.compare import Comparison, compare_many
from groupwise.runs.evaluation_record import EvaluationRecord, evaluation_of_run
from groupwise.runs.record import RunRecord
from groupwise.runs.report.curves import CURVES, MAX_BANDS, MAX_RUNS, metric_chart
from groupwise.runs.report.evaluations import Measured, evaluations_of
from groupwise.runs.report.findings import finding_notice, findings_of
from groupwise.runs.report.plan import actual_seconds
from groupwise.runs.report.reward_models import reward_models_sentence
from groupwise.runs.report.settings import differing_settings
from groupwise.runs.report.steps import Steps, steps_of, thinned_note
from groupwise.runs.report.words import LEVEL, listed, points, seconds, several, share, size, with_interval
from groupwise.runs.stage_log import BASE

_TIME = re.compile(r"-\d{8}-\d{6}$")
BEFORE = "Before you trust a difference"
MAX_WARNINGS = 8
MAX_NAMED = 4
"""Runs that a sentence names; of more it tells the number."""


def several_page(records: Sequence[RunRecord], command: str) -> Page:
    """The page of two runs or more as a record."""
    names = run_labels(records)
    evaluations = [evaluations_of(record) for record in records]
    steps = [steps_of(record) for record in records]
    comparisons, left_out = _comparisons(records, names)
    sections = [
        _outcome(names, records, evaluations, steps, _warnings(comparisons)),
        _compared(names, comparisons, left_out),
        _diagnoses(names, records),
        _curves(names, steps),
        _settings(names, records, command),
    ]
    lasts = [measured[-1] if measured else None for measured in evaluations]
    facts = tuple(
        Fact(label=name, value=share(m.best_known[0]) if m is not None and m.best_known else "-", note=_note(m))
        for name, m in list(zip(names, lasts, strict=True))[:8]
    )
    footer = f"Made by groupwise report from {listed([str(record.directory.path) for record in records])}."
    return Page(
        title=f"{listed(names)}" if len(names) <= MAX_NAMED else f"{several(len(names) - 1, 'run')} against {names[0]}",
        lead=" ".join(filter(None, (_lead(names, comparisons, left_out), *_beside(names, lasts, comparisons)))),
        sections=tuple(sections),
        facts=facts,
        footer=footer,
    )


def run_labels(records: Sequence[RunRecord]) -> list[str]:
    """The folder names, without the time at their end where that leaves no two alike; else numbered where they are."""
    names = [record.name for record in records]
    short = [_TIME.sub("", name) for name in names]
    if len(set(short)) == len(short):
        return short
    counts = Counter(names)
    seen: Counter[str] = Counter()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(f"{name} ({seen[name]})" if counts[name] > 1 else name)
    return labels


def _note(measured: Measured | None) -> str:
    if measured is None or measured.best_known is None:
        return "not measured"
    interval = measured.best_known[1]
    when = "before training" if measured.name == BASE else f"after {measured.name}"
    return f"{when}; {LEVEL} interval {format_fixed(100 * interval.low, 0)} to {format_fixed(100 * interval.high, 0)}"


def _comparisons(records: Sequence[RunRecord], names: Sequence[str]) -> tuple[list[tuple[str, Comparison]], list[str]]:
    """Every run that can be compared with the first, by label, and a sentence for each that cannot."""
    found: list[EvaluationRecord | None] = []
    left_out = []
    for record, name in zip(records, names, strict=True):
        try:
            found.append(replace(evaluation_of_run(record), label=name))
        except DataError as error:
            found.append(None)
            left_out.append(f"{name} cannot be compared: {error}.")
    first = found[0]
    if first is None:
        return [], left_out
    chosen, others = [], []
    for name, other in list(zip(names, found, strict=True))[1:]:
        if other is None:
            continue
        try:
            compare_many([first, other])
        except DataError as error:
            left_out.append(f"{name} cannot be compared: {error}.")
        else:
            chosen.append(name)
            others.append(other)
    return list(zip(chosen, compare_many([first, *others]), strict=True)) if others else [], left_out


def _lead(names: Sequence[str], comparisons: Sequence[tuple[str, Comparison]], left_out: Sequence[str]) -> str:
    better = [name for name, c in comparisons if c.main.is_distinguishable and c.main.difference.difference > 0]
    worse = [name for name, c in comparisons if c.main.is_distinguishable and c.main.difference.difference < 0]
    alike = [name for name, c in comparisons if not c.main.is_distinguishable]
    parts = []
    for which, says in ((better, "better than"), (worse, "worse than"), (alike, "not distinguishable from")):
        if which:
            who = listed(which) if len(which) <= MAX_NAMED else f"{len(which)} of {len(names) - 1} runs"
            parts.append(f"{who} {'is' if len(which) == 1 else 'are'} {says} {names[0]}")
    if not parts:
        return f"No run could be compared with {names[0]}. {' '.join(left_out)}".strip()
    return f"On the same held-out prompts, {'; '.join(parts)}."


def _outcome(
    names: Sequence[str],
    records: Sequence[RunRecord],
    evaluations: Sequence[list[Measured]],
    steps: Sequence[Steps],
    warnings: Sequence[str],
) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for name, record, measured, of_run in zip(names, records, evaluations, steps, strict=True):
        first = measured[0] if measured and (len(measured) > 1 or measured[0].name == BASE) else None
        last = measured[-1] if measured and measured[-1].name != BASE else None
        methods = listed([str((stage.get("algorithm") or {}).get("name")) for stage in record.stages])
        memory = record.summary.peak_memory_bytes if record.summary else None
        rows.append(
            (
                name,
                methods,
                share(first.rate) if first is not None else "-",
                with_interval(last.rate, last.interval) if last is not None else "-",
                with_interval(last.greedy_rate, last.greedy_interval) if last is not None else "-",
                measured[-1].num_prompts if measured else None,
                len(of_run.rows),
                seconds(actual_seconds(record)),
                size(memory),
            )
        )
    columns = ("run", "methods", "first", "last", "last, greedy", "prompts", "steps", "time", "memory")
    caption = f"Held-out pass rates of sampled and of greedy answers with {LEVEL} intervals, and what it took."
    table = Table(columns=columns, rows=tuple(rows), caption=caption)
    chart = _rates_chart(names, evaluations)
    judged = zip(names, map(reward_models_sentence, records), strict=True)
    text = [f"{name}: {sentence}" for name, sentence in judged if sentence]
    notices = (Notice(title=BEFORE, text=tuple(warnings), tone="warning"),) if warnings else ()
    charts = (chart,) if chart.rows else ()
    return Section(heading="Outcome", text=tuple(text), notices=notices, charts=charts, tables=(table,))


def _warnings(comparisons: Sequence[tuple[str, Comparison]]) -> list[str]:
    """What makes runs less comparable than they look, each sentence once."""
    found = list(dict.fromkeys(f"{name}: {warning}" for name, c in comparisons for warning in c.warnings))
    more = [f"And {len(found) - MAX_WARNINGS} more."] if len(found) > MAX_WARNINGS else []
    return [*found[:MAX_WARNINGS], *more]


def _beside(
    names: Sequence[str], lasts: Sequence[Measured | None], comparisons: Sequence[tuple[str, Comparison]]
) -> list[str]:
    """What a reader of the headline must know: runs without a measured stage, other words of pass@k, other settings."""
    warned = [name for name, c in comparisons if c.warnings]
    untrained = [name for name, last in zip(names, lasts, strict=True) if last is not None and last.name == BASE]
    was = "was" if len(untrained) == 1 else "were"
    parts = [f"{listed(untrained)} {was} measured before training only."] if untrained else []
    parts += [f"Beside {names[0]}, {c.variety}." for _, c in comparisons if c.variety][:MAX_NAMED]
    if warned:
        who = listed(warned) if len(warned) <= MAX_NAMED else f"{len(warned)} of {len(names) - 1} runs"
        kinds = dict.fromkeys(
            warning.partition(":")[0].lower()
            for _, c in comparisons
            for warning in c.warnings
            if warning.startswith("Different ")
        )
        why = f"; not measured as {names[0]} was: {', '.join(kinds)}" if kinds else ""
        parts.append(f"Read the warnings below first ({who}{why}).")
    return parts


def _rates_chart(names: Sequence[str], evaluations: Sequence[list[Measured]]) -> Chart:
    rows = []
    for name, measured in zip(names, evaluations, strict=True):
        if not measured:
            continue
        last = measured[-1]
        label = f"{name} (untrained)" if last.name == BASE else name
        for kind, rate, interval in (
            ("sampled", last.rate, last.interval),
            ("greedy", last.greedy_rate, last.greedy_interval),
        ):
            if rate is not None and interval is not None:
                low, high = min(rate, interval.low), max(rate, interval.high)
                rows.append({"run": label, "kind": kind, "rate": rate, "low": low, "high": high, "after": last.name})
    return points_with_intervals(
        rows,
        title="Last held-out pass rate of each run",
        label="run",
        value="rate",
        low="low",
        high="high",
        series="kind",
        series_title="answers",
        label_title="run",
        value_title="held-out pass rate",
        value_format=".2~%",
        value_bounds=(0, 1),
        reference=first.best_known[0]
        if (first := evaluations[0][-1] if evaluations[0] else None) and first.best_known
        else None,
        tooltips=("after",),
        caption=f"Bars are {LEVEL} intervals for new prompts. The dashed line is the first run.",
    )


def _compared(names: Sequence[str], comparisons: Sequence[tuple[str, Comparison]], left_out: Sequence[str]) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for name, comparison in comparisons:
        for found in (comparison.sampled, comparison.greedy):
            if found is not None:
                p = found.p_value if found.p_adjusted is None else found.p_adjusted
                verdict = "a difference" if found.is_distinguishable else "not distinguishable"
                moved = f"{len(found.regressions)} worse, {len(found.improvements)} better"
                rows.append(
                    (
                        name,
                        found.kind,
                        points(found.difference, ""),
                        found.difference.num_prompts,
                        f"{p:.2g}",
                        moved,
                        verdict,
                    )
                )
    columns = ("run", "answers", "difference", "prompts", "p", "prompts by change", "verdict")
    caption = (
        f"Each run minus {names[0]}, in percentage points on the same prompts with {LEVEL} intervals; p is corrected "
        "for several runs."
    )
    variety = [f"{c.variety}." for _, c in comparisons if c.variety]
    return Section(
        heading=f"Compared with {names[0]}",
        text=(*left_out, *variety[:MAX_WARNINGS]),
        tables=(Table(columns=columns, rows=tuple(rows), caption=caption),) if rows else (),
    )


def _diagnoses(names: Sequence[str], records: Sequence[RunRecord]) -> Section:
    notices = []
    for name, record in zip(names, records, strict=True):
        for finding in (findings_of(record) or ())[:2]:
            notices.append(finding_notice(finding, f"{name}: "))
    if not notices:
        notices.append(Notice(title="Nothing wrong was found in any run", tone="good"))
    return Section(heading="Diagnosis", text=("At most two findings of a run.",), notices=tuple(notices))


def _curves(names: Sequence[str], steps: Sequence[Steps]) -> Section:
    runs = [(name, of_run) for name, of_run in zip(names, steps, strict=True) if of_run.rows]
    charts = [chart for described in CURVES if (chart := metric_chart(described, runs)) is not None] if runs else []
    longest = max((len(of_run.rows) for _, of_run in runs), default=0)
    text = [
        "Every run on its own steps, from its first to its last.",
        thinned_note(longest, has_band=len(runs) <= MAX_BANDS),
    ]
    if len(runs) > MAX_RUNS:
        text.append(f"The first {MAX_RUNS} of {len(runs)} runs are drawn: more curves cannot be told apart.")
    return Section(heading="Curves", text=tuple(filter(None, text)), charts=tuple(charts))


def _settings(names: Sequence[str], records: Sequence[RunRecord], command: str) -> Section:
    table = differing_settings([(name, record.recipe) for name, record in zip(names, records, strict=True)])
    text = [f"This page again: {command}"]
    if table is None:
        text.insert(0, "All settings are the same.")
    return Section(heading="Settings that differ", text=tuple(text), tables=(table,) if table else ())
