"""`groupwise compare`: what is read, how many prompts it would take, and the lines in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist, variance
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from groupwise.errors import DataError
from groupwise.pages import format_fixed
from groupwise.runs.comparison.compare import Comparison, RateComparison
from groupwise.runs.comparison.page import (
    TableParts,
    changes_table,
    left_out_sentences,
    lengths_table,
    p_value_sentence,
    points,
    rates_table,
)
from groupwise.runs.evaluation_record import (
    EvaluationRecord,
    evaluation_names,
    evaluation_of,
    evaluation_of_run,
    with_short_labels,
)
from groupwise.runs.record import read_run
from groupwise.runs.stage_log import BASE

if TYPE_CHECKING:
    from rich.console import RenderableType

POWER = 0.8
"""Chance to see the difference with the number of prompts that is named."""
MANY = 100_000
"""Above it the number says only that nobody will have so many prompts."""
SHOWN_IN_TERMINAL = 10


def read_places(places: Sequence[str]) -> list[EvaluationRecord]:
    """The evaluations to compare, with labels that tell them apart.

    A run alone stands for two: its base, and its last evaluation.

    Raises:
        DataError: as `evaluation_of`; for one place that is no run, or a run that has nothing beside its base.
    """
    if len(places) != 1:
        return with_short_labels([evaluation_of(place) for place in places])
    run, colon, _ = places[0].rpartition(":")
    if colon and run and not Path(places[0]).exists() and Path(run).is_dir():
        raise DataError(
            f"{places[0]}: one evaluation alone cannot be compared; give a second one, or the run without :NAME"
        )
    record = read_run(places[0])
    names = evaluation_names(record)
    if BASE not in names or names == [BASE]:
        raise DataError(
            f"{record.name}: one run is compared with its own base, and it has {', '.join(names) or 'no evaluation'}; "
            "give a second run or evaluation"
        )
    return with_short_labels([evaluation_of_run(record, BASE), evaluation_of_run(record)])


def needed_sentence(found: RateComparison) -> str:
    """How many prompts would show the difference that was seen; empty where it is shown, or is 0.

        n = (z_confidence + z_power)^2 V / d^2 + z_confidence^2 / 2,   V = variance of the differences by prompt

    It is `planning.evaluation_size.prompts_needed` with V measured in place of assumed, and more than there are.
    """
    difference = found.difference.difference
    if found.is_distinguishable or difference == 0 or len(found.prompts) < 2:
        return ""
    normal = NormalDist()
    z = normal.inv_cdf((1 + found.confidence) / 2)
    spread = variance([p.change for p in found.prompts])
    estimate = (z + normal.inv_cdf(POWER)) ** 2 * spread / difference**2 + z * z / 2
    needed = max(len(found.prompts) + 1, math.ceil(min(estimate, 2.0 * MANY)))
    seen = format_fixed(100 * difference, 1, signed=True)
    number = f"more than {MANY:,}" if needed > MANY else f"about {needed:,}"
    return (
        f"If the true difference is what was seen ({seen} points, {found.kind}), {number} prompts would be "
        f"needed to see it with {POWER:.0%} chance."
    )


def notes_of(comparisons: Sequence[Comparison]) -> list[str]:
    """How many prompts it would take, for each comparison that shows nothing."""
    several = len(comparisons) > 1
    return [
        (f"{c.second}: " if several else "") + sentence
        for c in comparisons
        for sentence in [needed_sentence(c.main)]
        if sentence
    ]


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str | RenderableType]:
    """What the terminal shows: warnings, verdicts, numbers, then the prompts that changed most."""
    yield from dict.fromkeys(f"Warning: {warning}" for c in comparisons for warning in c.warnings)
    for comparison in comparisons:
        yield f"{comparison.second} against {comparison.first}: {comparison.verdict}."
        if comparison.variety:
            yield f"{comparison.variety}."
        yield from left_out_sentences(comparison)
    yield from notes_of(comparisons)
    level = f"{comparisons[0].main.confidence:.0%}"
    yield _rich(
        f"On the same prompts; differences in points with {level} intervals", _for_terminal(rates_table(comparisons))
    )
    yield f"{p_value_sentence(comparisons)} {_bootstrap_sentence(comparisons)}"
    lengths = lengths_table(comparisons)
    if lengths[1]:
        yield _rich(f"Tokens of answers to the same prompts, with {level} intervals", lengths)
    for comparison in comparisons:
        main = comparison.main
        for word, changes in (("Regressions", main.regressions), ("Improvements", main.improvements)):
            if changes:
                few = f", the first {SHOWN_IN_TERMINAL}" if len(changes) > SHOWN_IN_TERMINAL else ""
                title = f"{word} of {comparison.second}: {len(changes)} of {len(main.prompts)} prompts{few}"
                yield _rich(title, changes_table(changes, SHOWN_IN_TERMINAL))
    if len(comparisons) > 1:
        yield (
            f"{len(comparisons)} comparisons with {comparisons[0].first}: p values are corrected for their number "
            "(Holm), and a verdict needs both the interval and the corrected p value."
        )


def _for_terminal(parts: TableParts) -> TableParts:
    """Without the bootstrap, which has its sentence, and without columns in which nothing stands."""
    columns, rows = parts
    kept = [i for i, name in enumerate(columns) if name != "bootstrap" and any(row[i] is not None for row in rows)]
    return tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _bootstrap_sentence(comparisons: Sequence[Comparison]) -> str:
    several = len(comparisons) > 1
    found = [(f"{c.second} " if several else "") + f"{points(c.main.bootstrap)} ({c.main.kind})" for c in comparisons]
    return f"Bootstrap over prompts: {'; '.join(found)}."


def _rich(title: str, parts: TableParts) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in parts[0]:
        table.add_column(column, overflow="fold", no_wrap=column != "compared")
    for row in parts[1]:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    return table
