"""The outcome of a run, first thing in its report: a verdict in a sentence, and the held-out rates behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from groupwise.pages import Cell, Chart, Fact, Section, Table, format_fixed, line_chart, points_with_intervals
from groupwise.runs.comparison.paired import PairedDifference
from groupwise.runs.comparison.variety import variety_sentence
from groupwise.runs.pass_at_k import k_rates, pass_all_k, pass_at_k
from groupwise.runs.record import RunRecord
from groupwise.runs.report.evaluations import Measured, greedy_difference, pass_at_difference, sampled_difference
from groupwise.runs.report.held_back import HeldBack, held_back_clause
from groupwise.runs.report.reward_models import reward_models_table
from groupwise.runs.report.steps import Steps, number
from groupwise.runs.report.words import LEVEL, listed, points, seconds, several, share, with_interval
from groupwise.runs.stage_log import BASE

INTERVALS = f"Numbers in brackets are {LEVEL} intervals for new prompts of the same source."
PAIRED = "Stages share their prompts: the paired differences in the table are sharper than two intervals side by side."
NUM_CHANGED = 12
"""Prompts that a table of changes names in each direction."""


def verdict(evaluations: Sequence[Measured], held: HeldBack | None = None, reward_models: Sequence[str] = ()) -> str:
    """The outcome in a sentence or two: before, after, the paired difference, whether greedy agrees, and whether the
    held-back grader does.

    reward_models: stages that leave the policy as it was.
    """
    finals = [m for m in evaluations if m.is_final]
    if not finals:
        return "Nothing was measured on held-out prompts, so that nobody can say what this run achieved."
    if len(finals) == 1:
        alone = _only_one(finals[0], reward_models)
        clause = held_back_clause(held, is_raised=False)
        return f"{alone} {clause[4:5].upper()}{clause[5:]}." if clause else alone
    first, last = finals[0], finals[-1]
    trained = listed([m.name for m in finals[1:]])
    sampled, greedy = sampled_difference(first, last), greedy_difference(first, last)
    if sampled is None and greedy is None:
        return (
            f"Held-out pass rate {with_interval(*(first.best_known or (None, None)))} at {first.name}, "
            f"{with_interval(*(last.best_known or (None, None)))} after {last.name}; there are no prompts that both "
            "answered, so that the difference cannot be judged."
        )
    if sampled is None:
        assert greedy is not None
        text = _moved(trained, "greedy held-out pass rate", greedy, first.greedy_rate, last.greedy_rate)
        return f"{_with_clause(text, held, greedy)}."
    moved = _moved(trained, "held-out pass rate", sampled, first.rate, last.rate)
    text = _with_clause(moved, held, sampled)
    if greedy is None:
        return f"{text}."
    told = f"greedy {share(first.greedy_rate)} to {share(last.greedy_rate)}, {points(greedy)}"
    told += "" if greedy.is_distinguishable else ", not distinguishable"
    return f"{text}; {told}." if text == moved else f"{text}. {told.capitalize()}."


def variety_of(evaluations: Sequence[Measured]) -> str:
    """What pass@k says that the pass rate does not, from the first to the last evaluation; else empty."""
    finals = [m for m in evaluations if m.is_final]
    rate = sampled_difference(finals[0], finals[-1]) if len(finals) > 1 else None
    if rate is None:
        return ""
    told = variety_sentence(rate, pass_at_difference(finals[0], finals[-1]))
    return f"{told[:1].upper()}{told[1:]}." if told else ""


def change_by_stage(evaluations: Sequence[Measured]) -> str:
    """Which stage did it: one clause a stage; empty where there is only one."""
    finals = [m for m in evaluations if m.is_final]
    if len(finals) < 3:
        return ""
    clauses = []
    for before, after in pairwise(finals):
        found = sampled_difference(before, after) or greedy_difference(before, after)
        if found is not None:
            tail = "" if found.is_distinguishable else ", not distinguishable from none"
            clauses.append(f"{after.name} {points(found)}{tail}")
    return f"By stage: {'; '.join(clauses)}." if clauses else ""


def outcome_facts(evaluations: Sequence[Measured]) -> tuple[Fact, ...]:
    """Before, after and the difference, large."""
    finals = [m for m in evaluations if m.is_final and m.best_known is not None]
    if not finals:
        return ()
    facts = []
    both = (("before", finals[0]), ("after", finals[-1]))
    alone = both[:1] if finals[0].name == BASE else both[1:]
    for label, measured in both if len(finals) > 1 else alone:
        assert measured.best_known is not None
        rate, interval = measured.best_known
        ends = f"{format_fixed(100 * interval.low, 0)} to {format_fixed(100 * interval.high, 0)}"
        note = f"{measured.name}; {LEVEL} interval {ends}"
        facts.append(Fact(label=f"held-out, {label}", value=share(rate), note=note))
    found = sampled_difference(finals[0], finals[-1]) or greedy_difference(finals[0], finals[-1])
    if len(finals) > 1 and found is not None:
        ends = f"{format_fixed(100 * found.interval.low, 1)} to {format_fixed(100 * found.interval.high, 1)}"
        note = f"points, {LEVEL} interval {ends}, paired" + ("" if found.is_distinguishable else "; may be none")
        facts.append(Fact(label="difference", value=format_fixed(100 * found.difference, 1, signed=True), note=note))
    return tuple(facts)


def outcome_section(record: RunRecord, evaluations: Sequence[Measured], steps: Steps) -> Section:
    """Held-out rates by stage and over steps, paired differences, pass@k, and the prompts that changed."""
    judged = [table] if (table := reward_models_table(record)) is not None else []
    if not evaluations:
        every = (record.recipe.get("data") or {}).get("heldout")
        why = "the recipe names no held-out file" if record.recipe and not every else "no evaluation is on record"
        return Section(heading="Outcome", text=(f"There are no held-out pass rates: {why}.",), tables=tuple(judged))
    finals = [m for m in evaluations if m.is_final]
    charts = [_rates_chart(finals)] if finals else []
    if len(evaluations) > len(finals):
        charts.append(_over_steps(evaluations, steps))
    at_k = _pass_at_k_chart(finals)
    charts += [at_k] if at_k is not None else []
    tables = [_stages_table(finals), *_differences_table(finals), *_changed_tables(finals), *judged]
    told = (change_by_stage(evaluations), _how_measured(evaluations[-1]))
    text = (*told, f"{INTERVALS} {PAIRED}" if len(finals) > 1 else INTERVALS)
    return Section(heading="Outcome", text=tuple(filter(None, text)), charts=tuple(charts), tables=tuple(tables))


def _with_clause(text: str, held: HeldBack | None, found: PairedDifference) -> str:
    is_raised = found.is_distinguishable and found.difference > 0
    clause = held_back_clause(held, is_raised=is_raised)
    return f"{text}; {clause}" if clause else text


def _only_one(measured: Measured, reward_models: Sequence[str]) -> str:
    rate, interval = measured.best_known or (None, None)
    what = "before any training" if measured.name == "base" else f"after {measured.name}"
    missing = "after it" if measured.name == "base" else "before it"
    start = (
        f"The held-out pass rate {what} is {with_interval(rate, interval)} ({LEVEL} interval) on "
        f"{several(measured.num_prompts, 'prompt')}"
    )
    if reward_models and measured.name == BASE:
        return f"{start}."
    return f"{start}; nothing was measured {missing}: there is no difference to judge."


def _moved(trained: str, what: str, found: PairedDifference, first: float | None, last: float | None) -> str:
    moved = f"went from {share(first)} to {share(last)}" if share(first) != share(last) else f"stayed at {share(last)}"
    where = f"{points(found)} at {LEVEL} on {several(found.num_prompts, 'prompt')}"
    if not found.is_distinguishable:
        return f"With {trained} the {what} {moved}: not distinguishable from no change ({where})"
    verb = "raised" if found.difference > 0 else "lowered"
    return f"{trained} {verb} the {what} from {share(first)} to {share(last)}: {where}"


def _how_measured(last: Measured) -> str:
    event = last.event
    parts = [several(last.num_prompts, "held-out prompt")]
    if last.rates:
        parts.append(f"{several(last.samples_per_prompt, 'sample')} each")
    for name, title in (("temperature", "temperature"), ("top_p", "top_p"), ("seed", "seed")):
        value = number(event.get(name))
        if value is not None:
            parts.append(f"{title} {value:g}")
    if event.get("success"):
        parts.append(f"success = {event['success']}")
    return f"Measured on {', '.join(parts)}. Sampled and greedy answers are kept apart."


def _rates_chart(finals: Sequence[Measured]) -> Chart:
    rows = []
    for m in finals:
        kinds = (("sampled", m.rate, m.interval), ("greedy", m.greedy_rate, m.greedy_interval))
        for kind, rate, interval in kinds:
            if rate is None or interval is None:
                continue
            low, high = min(rate, interval.low), max(rate, interval.high)
            rows.append({"stage": m.name, "kind": kind, "rate": rate, "low": low, "high": high, "n": m.num_prompts})
    base = finals[0].rate if finals[0].rate is not None else finals[0].greedy_rate
    return points_with_intervals(
        [{**row, "prompts": row["n"]} for row in rows],
        title="Held-out pass rate after each stage",
        label="stage",
        value="rate",
        low="low",
        high="high",
        series="kind",
        series_title="answers",
        label_title="after",
        value_title="held-out pass rate",
        value_format=".2~%",
        value_bounds=(0, 1),
        reference=base if len(finals) > 1 else None,
        tooltips=("prompts",),
        caption=f"Bars are {LEVEL} intervals. The dashed line is {finals[0].name}."
        if len(finals) > 1
        else f"Bars are {LEVEL} intervals.",
    )


def _over_steps(evaluations: Sequence[Measured], steps: Steps) -> Chart:
    rows = []
    for m in evaluations:
        stage, _, within = m.name.partition(" step ")
        ends = [s.at for s in steps.rows if s.stage == stage]
        at = steps.at(stage, int(within)) if within.isdigit() else ends[-1] if ends else 0
        if at is None or m.best_known is None:
            continue
        rate, interval = m.best_known
        rows.append({"step": at, "rate": rate, "low": interval.low, "high": interval.high, "evaluation": m.name})
    return line_chart(
        sorted(rows, key=lambda row: row["step"]),
        title="Held-out pass rate over the run",
        x="step",
        y="rate",
        band=("low", "high"),
        x_title="step of the run",
        y_title="pass rate",
        y_format=".2~%",
        markers=steps.markers,
        tooltips=("evaluation",),
        caption="Every evaluation, with its 95 % interval. Step 0 is before any training.",
    )


def _pass_at_k_chart(finals: Sequence[Measured]) -> Chart | None:
    rows = []
    for m in finals:
        for kind, estimate in (("pass@k", pass_at_k), ("pass^k", pass_all_k)):
            n = m.samples_per_prompt
            counts = [(round(rate * n), n) for rate in m.rates.values()]
            given = _given(m.event.get("pass_at" if kind == "pass@k" else "pass_all"))
            found = given or {k.k: k.rate for k in k_rates(counts, n, estimate)} if n > 1 and counts else given
            rows += [{"k": k, "rate": rate, "series": f"{m.name}, {kind}"} for k, rate in sorted(found.items())]
    if len({row["k"] for row in rows}) < 2:
        return None
    return line_chart(
        rows[: 14 * 20],
        title="Solved at least once, and every time, in k samples",
        x="k",
        y="rate",
        series="series",
        series_title="after",
        x_title="samples of a prompt (k)",
        y_title="share of prompts",
        y_format=".2~%",
        y_bounds=(0, 1),
        log_x=True,
        caption="pass@k: at least one of k samples is right; pass^k: all of them are. Both without bias.",
    )


def _given(shares: Any) -> dict[int, float]:
    if not isinstance(shares, Mapping):
        return {}
    pairs = ((str(k), number(rate)) for k, rate in shares.items())
    return {int(k): rate for k, rate in pairs if k.isdigit() and rate is not None}


def _stages_table(finals: Sequence[Measured]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for m in finals:
        took = seconds(m.summary.seconds) if m.summary else "-"
        cut = share(m.truncated_frac)
        lengths = tuple(None if (n := m.length(right=side)) is None else round(n, 1) for side in (True, False))
        rates = (with_interval(m.rate, m.interval), with_interval(m.greedy_rate, m.greedy_interval))
        rows.append((m.name, *rates, m.num_prompts, *lengths, cut, took))
    columns = ("after", "sampled", "greedy", "prompts", "tokens, right", "tokens, wrong", "cut at limit", "time")
    return Table(columns=columns, rows=tuple(rows), caption="Held-out pass rates in % with 95 % intervals.")


def _differences_table(finals: Sequence[Measured]) -> list[Table]:
    pairs = list(pairwise(finals))
    if len(finals) > 2:
        pairs.append((finals[0], finals[-1]))
    rows: list[tuple[Cell, ...]] = []
    for before, after in pairs:
        sampled, greedy = sampled_difference(before, after), greedy_difference(before, after)
        for kind, found in (("sampled", sampled), ("greedy", greedy)):
            if found is not None:
                says = "a difference" if found.is_distinguishable else "not distinguishable"
                rows.append((f"{before.name} to {after.name}", kind, points(found, ""), found.num_prompts, says))
    columns = ("from, to", "answers", "difference", "prompts", "verdict")
    caption = "Differences in percentage points on the same prompts, with 95 % intervals."
    return [Table(columns=columns, rows=tuple(rows), caption=caption)] if rows else []


def _changed_tables(finals: Sequence[Measured]) -> list[Table]:
    """Prompts whose rate moved most between the first and the last evaluation; regressions first."""
    if len(finals) < 2:
        return []
    first, last = finals[0], finals[-1]
    before, after = (first.rates, last.rates) if first.rates and last.rates else (first.greedy, last.greedy)
    changes = sorted((after[task] - before[task], task) for task in before if task in after)
    lost = [(task, share(before[task]), share(after[task])) for change, task in changes if change < 0]
    num_won = sum(change > 0 for change, _ in changes)
    if not lost:
        return []
    caption = (
        f"{several(len(lost), 'prompt')} got worse from {first.name} to {last.name} and {num_won} got better; "
        f"the {min(len(lost), NUM_CHANGED)} that lost most."
    )
    return [Table(columns=("prompt", first.name, last.name), rows=tuple(lost[:NUM_CHANGED]), caption=caption)]
