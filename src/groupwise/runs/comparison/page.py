"""A comparison as one HTML page: the verdict, both rates with their intervals, and every prompt that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.pages import (
    Cell,
    Chart,
    Fact,
    Listing,
    Notice,
    Page,
    Section,
    Table,
    format_fixed,
    histogram,
    points_with_intervals,
    render_page,
)
from groupwise.runs.comparison.compare import Comparison, PromptChange, RateComparison
from groupwise.runs.evaluation_record import Answer, Attempts
from groupwise.runs.intervals import Interval

MAX_LISTED = 30
"""Prompts whose change stands in a table; the JSON has all of them."""
MAX_TEXTS = 12
"""Prompts whose answers are shown in full, on each of the two lists."""
MAX_CHARACTERS = 4000
"""Of one answer: a page stays readable, and small, where answers run to the limit."""
LUCK = (
    "Most changes of single prompts are luck where there are few samples: two evaluations of the same weights have "
    "such lists, too. The verdict says whether there is more to them."
)
HOW = (
    "The interval of the difference is that of Bonett and Price (2012) for paired rates, and decides: without 0 in it, "
    "one is better. The bootstrap draws prompts."
)

TableParts = tuple[tuple[str, ...], list[tuple[Cell, ...]]]


def comparison_page(comparisons: Sequence[Comparison], notes: Sequence[str] = ()) -> str:
    """The page; notes are further sentences below the verdicts."""
    first = comparisons[0]
    title = f"{first.second} against {first.first}" if len(comparisons) == 1 else f"Others against {first.first}"
    several = len(comparisons) > 1
    lead = " ".join(
        (f"{c.second}: {c.verdict}." if several else f"{_capital(c.verdict)}.")
        + (f" {c.variety}." if c.variety else "")
        for c in comparisons
    )
    sections = [_overview(comparisons, notes)]
    for comparison in comparisons:
        prefix = "" if len(comparisons) == 1 else f"{comparison.second}: "
        sections += [_changes(comparison, prefix, is_loss=True), _changes(comparison, prefix, is_loss=False)]
    main = first.main
    facts = (
        Fact(label=main.first_label, value=f"{main.first_rate:.1%}"),
        *(Fact(label=c.main.second_label, value=f"{c.main.second_rate:.1%}", note=c.main.kind) for c in comparisons),
    )
    footer = f"Made by groupwise compare. Intervals hold for new prompts of the same source, at {main.confidence:.0%}."
    return render_page(Page(title=title, lead=lead, sections=tuple(sections), facts=facts, footer=footer))


def rates_table(comparisons: Sequence[Comparison]) -> TableParts:
    """One row for each comparison and kind of answers, and for pass@k. Several comparisons have corrected p values."""
    columns = ("compared", "answers", "first", "second", "points", "interval", "bootstrap", "p", "p Holm", "prompts")
    kept = [i for i, name in enumerate(columns) if name != "p Holm" or len(comparisons) > 1]
    rows: list[tuple[Cell, ...]] = []
    for comparison in comparisons:
        for found in (comparison.sampled, comparison.greedy):
            if found is not None:
                rows.append(_rate_row(comparison, found))
        rows += [
            (
                comparison.second,
                f"pass@{row.k}",
                f"{row.first:.1%}",
                f"{row.second:.1%}",
                format_fixed(100 * row.difference.difference, 1, signed=True),
                points(row.difference.interval),
                None,
                None,
                None,
                row.difference.num_prompts,
            )
            for row in comparison.pass_at
        ]
    return tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def lengths_table(comparisons: Sequence[Comparison]) -> TableParts:
    """Mean tokens of the same prompts' answers; without a row where nobody counted tokens."""
    rows: list[tuple[Cell, ...]] = [
        (
            comparison.second,
            row.what,
            round(row.first, 1),
            round(row.second, 1),
            format_fixed(row.difference, 1, signed=True),
            f"{format_fixed(row.interval.low, 1, signed=True)} to {format_fixed(row.interval.high, 1, signed=True)}",
            row.num_prompts,
        )
        for comparison in comparisons
        for row in comparison.lengths
    ]
    return ("compared", "answers", "first", "second", "difference", "interval", "prompts"), rows


def changes_table(changes: Sequence[PromptChange], limit: int = MAX_LISTED) -> TableParts:
    """One row a prompt, in the order given."""
    rows: list[tuple[Cell, ...]] = [
        (c.task_id, _of(c.first), _of(c.second), format_fixed(100 * c.change, 0, signed=True)) for c in changes[:limit]
    ]
    return ("prompt", "first", "second", "points"), rows


def p_value_sentence(comparisons: Sequence[Comparison]) -> str:
    """Which test each p value is of."""
    found = [r for c in comparisons for r in (c.sampled, c.greedy) if r is not None]
    tests = dict.fromkeys((r.test, r.kind) for r in found)
    return "p is of the " + ", and of the ".join(f"{test}, for {kind} answers" for test, kind in tests) + "."


def points(interval: Interval) -> str:
    """-2.0 to +4.3, in points."""
    return f"{format_fixed(100 * interval.low, 1, signed=True)} to {format_fixed(100 * interval.high, 1, signed=True)}"


def left_out_sentences(comparison: Comparison) -> list[str]:
    """Which prompts one side lacks, named as far as there is room."""
    sides = ((comparison.first, comparison.only_first), (comparison.second, comparison.only_second))
    return [
        f"Left out, in {label} only: {', '.join(tasks[:5])}"
        + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
        + f" ({len(tasks)} {'prompt' if len(tasks) == 1 else 'prompts'})."
        for label, tasks in sides
        if tasks
    ]


def _overview(comparisons: Sequence[Comparison], notes: Sequence[str]) -> Section:
    warnings = tuple(dict.fromkeys(warning for c in comparisons for warning in c.warnings))
    text = [sentence for c in comparisons for sentence in left_out_sentences(c)]
    if len(comparisons) > 1:
        text.append(
            f"{len(comparisons)} comparisons with {comparisons[0].first}: p values are corrected for their number "
            "(Holm), and a verdict needs both."
        )
    level = f"{comparisons[0].main.confidence:.0%}"
    rates, lengths = rates_table(comparisons), lengths_table(comparisons)
    tables = [
        Table(
            columns=rates[0],
            rows=tuple(rates[1]),
            caption=f"Pass rates on the shared prompts; points with {level} intervals.",
        )
    ]
    if lengths[1]:
        tables.append(
            Table(
                columns=lengths[0],
                rows=tuple(lengths[1]),
                caption=f"Mean tokens of answers to the same prompts, with {level} intervals.",
            )
        )
    charts = [_differences_chart(comparisons)]
    if len(comparisons) == 1:
        charts.append(_spread_chart(comparisons[0].main))
    return Section(
        heading="Difference on the same prompts",
        text=(*dict.fromkeys(text), *notes, f"{HOW} {p_value_sentence(comparisons)}"),
        notices=(Notice(title="Before you trust the difference", text=warnings, tone="warning"),) if warnings else (),
        charts=tuple(charts),
        tables=tuple(tables),
    )


def _differences_chart(comparisons: Sequence[Comparison]) -> Chart:
    rows: list[Mapping[str, Any]] = []
    for c in comparisons:
        named = [(found.kind, found.difference) for found in (c.sampled, c.greedy) if found is not None]
        for kind, found in [*named, *((f"pass@{row.k}", row.difference) for row in c.pass_at)]:
            label = kind if len(comparisons) == 1 else f"{c.second}, {kind}"
            rows.append(
                {
                    "what": label,
                    "points": 100 * found.difference,
                    "low": 100 * found.interval.low,
                    "high": 100 * found.interval.high,
                }
            )
    return points_with_intervals(
        rows,
        title=f"Difference to {comparisons[0].first}",
        label="what",
        value="points",
        low="low",
        high="high",
        label_title="answers",
        value_title="difference of pass rates (points)",
        reference=0.0,
        caption=f"Bars are {comparisons[0].main.confidence:.0%} intervals; with 0 inside: not distinguishable.",
    )


def _spread_chart(found: RateComparison) -> Chart:
    return histogram(
        [100 * p.change for p in found.prompts],
        title="Change by prompt",
        x_title="second minus first (points)",
        y_title="prompts",
        bounds=(-105.0, 105.0),  # 0 is the middle of a bin, not an edge
        num_bins=21,
        caption=f"{found.kind} answers; {len(found.prompts)} prompts.",
    )


def _changes(comparison: Comparison, prefix: str, *, is_loss: bool) -> Section:
    main = comparison.main
    changes = main.regressions if is_loss else main.improvements
    word = "Regressions" if is_loss else "Improvements"
    shown = "" if len(changes) <= MAX_LISTED else f" The first {MAX_LISTED} are listed."
    text = (f"{len(changes)} of {len(main.prompts)} prompts ({main.kind} answers).{shown} {LUCK}",)
    columns, rows = changes_table(changes)
    listings = [_listing(comparison, c) for c in changes[:MAX_TEXTS] if c.first.answers and c.second.answers]
    order = "the worst" if is_loss else "the best"
    tables = (Table(columns=columns, rows=tuple(rows), caption=f"Solved of scored attempts, {order} first."),)
    return Section(heading=prefix + word, text=text, tables=tables if rows else (), listings=tuple(listings))


def _listing(comparison: Comparison, change: PromptChange) -> Listing:
    prompt = comparison.prompts.get(change.task_id, "")
    parts = [f"Prompt\n{prompt[:MAX_CHARACTERS]}"] if prompt else []
    for label, attempts in ((comparison.first, change.first), (comparison.second, change.second)):
        parts += [f"{label}: {_of(attempts)} solved", *map(_answer, _distinct(attempts.answers))]
    title = f"{change.task_id}: {_of(change.first)} to {_of(change.second)}"
    return Listing(title=title, text="\n\n".join(parts))


def _distinct(answers: Sequence[Answer]) -> list[Answer]:
    """Each text once."""
    return list({answer.text: answer for answer in reversed(answers)}.values())[::-1]


def _answer(answer: Answer) -> str:
    mark = {True: "right", False: "wrong", None: "not judged"}[answer.outcome]
    cut = " (cut here)" if len(answer.text) > MAX_CHARACTERS else ""
    reason = f", {answer.reason}" if answer.reason else ""
    return f"[{mark}{reason}]\n{answer.text[:MAX_CHARACTERS]}{cut}"


def _rate_row(comparison: Comparison, found: RateComparison) -> tuple[Cell, ...]:
    return (
        comparison.second,
        found.kind,
        f"{found.first_rate:.1%}",
        f"{found.second_rate:.1%}",
        format_fixed(100 * found.difference.difference, 1, signed=True),
        points(found.difference.interval),
        points(found.bootstrap),
        f"{found.p_value:.2g}",
        None if found.p_adjusted is None else f"{found.p_adjusted:.2g}",
        found.difference.num_prompts,
    )


def _of(attempts: Attempts) -> str:
    return f"{attempts.solved} of {attempts.scored}"


def _capital(sentence: str) -> str:
    """Only a word of ours begins with a capital: a label keeps its letters."""
    return "N" + sentence[1:] if sentence.startswith("not ") else sentence
