"""Length by correctness: are answers longer because that solves tasks, or for no reason?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from groupwise.errors import DataError
from groupwise.pages import (
    Cell,
    Chart,
    Notice,
    Section,
    Table,
    format_fixed,
    histogram,
    line_chart,
    points_with_intervals,
)
from groupwise.runs.monitors.lengths import GradientShare, gradient_shares, matched_lengths, samples_of_rollouts
from groupwise.runs.record import EVALUATION, RecordedRollout, RunRecord
from groupwise.runs.report.evaluations import Measured
from groupwise.runs.report.rollouts import Digest, Lengths, lengths_of
from groupwise.runs.report.steps import Steps, curve, markers_from, number, spread_evenly
from groupwise.runs.report.words import LEVEL, several, share

_SIDES = (("mean_length_right", "right"), ("mean_length_wrong", "wrong"))
NUM_BINS = 24
MIN_ANSWERS = 8
"""Fewer lengths are no distribution."""
MAX_STEPS = 16
"""Training steps that the shares of the gradient are taken from."""


def lengths_section(record: RunRecord, steps: Steps, digest: Digest, evaluations: Sequence[Measured]) -> Section:
    """Mean lengths over the run, the matched difference of every evaluation, and the distributions."""
    events = _matched(record, evaluations)
    notices = tuple(
        Notice(title=f"Length alarm after {event.get('name')}", text=(str(event["alarm"]),), tone="problem")
        for event in events
        if event.get("alarm")
    )[-3:]
    charts = [_over_steps(steps), _matched_chart(events)]
    heldout = _heldout_lengths(record, evaluations)
    if heldout is not None:
        charts.append(heldout)
    charts.append(_histogram("Lengths of training answers", digest.lengths, digest.note))
    shown = [chart for chart in charts if chart is not None and chart.rows]
    if not shown:
        return Section(heading="Length by correctness", text=("No answer was sampled, so that there are no lengths.",))
    text = [
        "Compare right and wrong answers to the same prompts: hard prompts have longer answers, and more wrong ones.",
        _matched_sentence(events),
    ]
    tables = [table for table in (_matched_table(events), _gradient_table(record)) if table is not None]
    return Section(
        heading="Length by correctness",
        text=tuple(filter(None, text)),
        notices=notices,
        charts=tuple(shown),
        tables=tuple(tables),
    )


def _over_steps(steps: Steps) -> Chart | None:
    rows = [row | {"side": side} for name, side in _SIDES for row in curve((s.at, s.row.get(name)) for s in steps.rows)]
    if not rows:
        return None
    made = line_chart(
        rows,
        title="Mean length of training answers",
        x="x",
        y="y",
        band=("low", "high") if any(row["low"] is not None for row in rows) else None,
        series="side",
        series_title="answers",
        x_title="step of the run",
        y_title="tokens",
        markers=markers_from(steps, min(row["x"] for row in rows)),
        caption="Over all answers of a step: different prompts are in the two lines.",
    )
    return replace(made, small=True)


def _matched_chart(events: Sequence[Mapping[str, Any]]) -> Chart | None:
    rows = []
    for event in events:
        ends, value = event.get("interval"), number(event.get("difference"))
        if value is None or not isinstance(ends, list) or len(ends) != 2 or None in ends:
            continue
        low, high = min(ends[0], value), max(ends[1], value)
        n = event.get("num_matched_prompts")
        rows.append({"evaluation": str(event.get("name")), "d": value, "low": low, "high": high, "matched prompts": n})
    if not rows:
        return None
    made = points_with_intervals(
        rows[-24:],
        title="Wrong minus right, same prompts",
        label="evaluation",
        value="d",
        low="low",
        high="high",
        label_title="held-out evaluation",
        value_title="tokens",
        reference=0.0,
        tooltips=("matched prompts",),
        caption=f"Above 0 wrong answers are longer than right ones to the same prompt. Bars are {LEVEL} intervals.",
    )
    return replace(made, small=True)


def _matched_sentence(events: Sequence[Mapping[str, Any]]) -> str:
    for event in reversed(events):
        value, ends = number(event.get("difference")), event.get("interval")
        if value is not None and isinstance(ends, list) and len(ends) == 2 and None not in ends:
            on = several(int(event.get("num_matched_prompts") or 0), "prompt")
            return (
                f"After {event.get('name')}, wrong answers are {abs(value):.1f} tokens "
                f"{'longer' if value > 0 else 'shorter'} than right ones [{format_fixed(ends[0], 1)}, "
                f"{format_fixed(ends[1], 1)}] at {LEVEL}, on {on} that "
                "have both."
            )
    return ""


def _heldout_lengths(record: RunRecord, evaluations: Sequence[Measured]) -> Chart | None:
    finals = [m for m in evaluations if m.is_final and m.event]
    if not finals:
        return None
    last = finals[-1]
    lengths = lengths_of(record, EVALUATION + last.name.replace(" ", "-"), last.policy_version)
    return _histogram(f"Lengths of held-out answers after {last.name}", lengths, "")


def _histogram(title: str, lengths: Lengths, note: str) -> Chart | None:
    named = (("right", lengths.right), ("wrong", lengths.wrong))
    values = [tokens for _, of in named for tokens in of]
    if len(values) < MIN_ANSWERS:
        return None
    counts = [f"{len(of):,} {name} (mean {fmean(of):.1f})" for name, of in named if of]
    if lengths.cut:
        counts.append(f"left out: {len(lengths.cut):,} cut at the limit, whose length is not known")
    made = histogram(
        values,
        series=[name for name, of in named for _ in of],
        series_title="answers",
        title=title,
        x_title="tokens",
        y_title="share of those answers",
        num_bins=min(NUM_BINS, max(1, max(values) - min(values))),
        caption=f"{'; '.join(counts)}. {note}".strip(),
    )
    return replace(made, small=True)


def _matched_table(events: Sequence[Mapping[str, Any]]) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    for event in events[-12:]:
        tokens = (number(event.get(name)) for name in ("right_tokens", "wrong_tokens", "difference"))
        shown = tuple(None if value is None else round(value, 1) for value in tokens)
        cut = tuple(share(number(event.get(f"truncated_{side}_frac"))) for side in ("right", "wrong"))
        matched = number(event.get("num_matched_prompts"))
        rows.append((str(event.get("name")), matched if matched is None else int(matched), *shown, *cut))
    columns = ("after", "matched prompts", "right", "wrong", "difference", "right, cut", "wrong, cut")
    caption = "Mean tokens on prompts with right and wrong answers, cut ones apart."
    return Table(columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _matched(record: RunRecord, evaluations: Sequence[Measured]) -> list[Mapping[str, Any]]:
    """The "length" events; for a run that wrote none, the same numbers from its recorded held-out answers."""
    written = record.events_named("length")
    if written:
        return written
    made: list[Mapping[str, Any]] = []
    for m in evaluations:
        rows = _rollouts(record, EVALUATION + m.name.replace(" ", "-"), m.policy_version) if m.is_final else []
        found = matched_lengths(samples_of_rollouts(rows))
        if found.right_tokens is None or found.wrong_tokens is None:
            continue
        made.append(
            {
                "name": m.name,
                "num_matched_prompts": found.num_matched_prompts,
                "right_tokens": found.right_tokens,
                "wrong_tokens": found.wrong_tokens,
                "difference": found.wrong_tokens - found.right_tokens,
                "interval": [found.interval.low, found.interval.high] if found.interval else None,
                "truncated_right_frac": found.num_cut_right / found.num_right if found.num_right else None,
                "truncated_wrong_frac": found.num_cut_wrong / found.num_wrong if found.num_wrong else None,
            }
        )
    return made


def _rollouts(record: RunRecord, stage: str, step: int) -> list[RecordedRollout]:
    try:
        return record.rollouts(stage, step)
    except DataError:
        return []


def _gradient_table(record: RunRecord) -> Table | None:
    """How much of the gradient long wrong answers carry, under each normalization, for each stage that samples."""
    rows: list[tuple[Cell, ...]] = []
    for table in record.stages:
        name, algorithm = str(table.get("name")), table.get("algorithm") or {}
        recorded = [step for stage, step in record.recorded() if stage == name]
        if algorithm.get("name") == "ppo" or not recorded:
            continue
        found: dict[str, list[GradientShare]] = {}
        for step in spread_evenly(recorded, MAX_STEPS):
            for part in gradient_shares(samples_of_rollouts(_rollouts(record, name, step))):
                if part.long_wrong is not None:
                    found.setdefault(part.normalize, []).append(part)
        for normalize, parts in found.items():
            chosen = "used here" if algorithm.get("normalize") == normalize else ""
            long_wrong = fmean(part.long_wrong or 0.0 for part in parts)
            counted = sum(part.num_long_wrong for part in parts), sum(part.num_completions for part in parts)
            rows.append((name, normalize, chosen, share(long_wrong), f"{counted[0]} of {counted[1]}"))
    caption = (
        f"Share of the gradient that comes from wrong answers longer than every right one of their group, over at most "
        f"{MAX_STEPS} steps of a stage; sequence divides an answer by its own length."
    )
    columns = ("stage", "normalize", "", "gradient", "such answers")
    return Table(columns=columns, rows=tuple(rows), caption=caption) if rows else None
