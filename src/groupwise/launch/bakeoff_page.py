"""A bake-off as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from groupwise.config.budget import BudgetSection
from groupwise.launch.bakeoff_report import Arm, compared, pooled, start_arm
from groupwise.launch.bakeoff_result import RunResult
from groupwise.launch.bakeoff_show import (
    GB,
    TableParts,
    arms_table,
    comparisons_table,
    gradient_sentence,
    gradient_table,
    memory_sentence,
    memory_table,
)
from groupwise.pages import (
    Chart,
    Fact,
    Listing,
    Page,
    Section,
    Table,
    bar_chart,
    line_chart,
    points_with_intervals,
    render_page,
)
from groupwise.runs import clustered_wilson

UNIT_TITLES = {"rollout_tokens": "rollout tokens", "seconds": "time of learning (s)", "flops": "operations (FLOP)"}
LIMITS = (
    "One machine, one task and few seeds: a difference says something of this task at this budget. An arm whose stage "
    "samples nothing is not limited by a budget of rollout tokens; one that did all its steps before the budget was "
    "used up is marked so."
)


def bakeoff_page(
    name: str, start: Mapping[str, Any], results: Sequence[RunResult], budget: BudgetSection, samples_per_prompt: int
) -> str:
    """The page of bakeoff.json."""
    arms = pooled(results)
    everything = (start_arm(start, samples_per_prompt), *arms)
    usable = [arm for arm in arms if arm.runs]
    comparisons = compared(everything)
    sections = (
        Section(
            heading="Held-out pass rate",
            text=(LIMITS,),
            charts=(_rates_chart(everything), _curve_chart(start, results, budget.unit, everything[0])),
            tables=(
                _table("Each arm pooled over its seeds. Time and lengths are means over runs.", arms_table(everything)),
                _table(
                    "Every two arms on the same prompts; a verdict needs an interval without 0 and seeds that agree.",
                    comparisons_table(comparisons),
                ),
                _table("How every run ended.", _runs_table(results)),
            ),
        ),
        Section(heading="Time", charts=(_time_chart(usable),)),
        Section(
            heading="Memory",
            text=tuple(filter(None, (memory_sentence(arms),))),
            charts=(_memory_chart(usable),),
            tables=(_table("What the networks hold, counted tensor by tensor.", memory_table(usable)),),
        ),
        Section(
            heading="Rollouts without signal",
            text=("Groups whose answers are all right or all wrong have no advantage: their rollouts teach nothing.",),
            charts=(_waste_chart(usable),),
        ),
        _length_section(start["gradient"], results),
    )
    best = max(usable, key=lambda arm: arm.pass_rate or 0.0, default=None)
    facts = (
        Fact(label="budget of a run", value=_budget_text(budget)),
        Fact(label="start", value=f"{everything[0].pass_rate or 0.0:.1%}"),
        *(() if best is None else (Fact(label=f"best, {best.name}", value=f"{best.pass_rate or 0.0:.1%}"),)),
    )
    lead = " ".join(filter(None, (memory_sentence(arms), gradient_sentence(start["gradient"]))))
    footer = f"Made by groupwise bakeoff from {len(results)} runs of {start['model']}."
    return render_page(Page(title=f"Bake-off: {name}", lead=lead, sections=sections, facts=facts, footer=footer))


def _table(caption: str, parts: TableParts) -> Table:
    return Table(columns=parts[0], rows=tuple(parts[1]), caption=caption)


def _rates_chart(arms: Sequence[Arm]) -> Chart:
    rows = [
        {"arm": arm.name, "rate": arm.pass_rate, "low": arm.interval.low, "high": arm.interval.high}
        for arm in arms
        if arm.pass_rate is not None
    ]
    return points_with_intervals(
        rows,
        title="Held-out pass rate",
        label="arm",
        value="rate",
        low="low",
        high="high",
        label_title="arm",
        value_title="pass rate, sampled",
        reference=arms[0].pass_rate,
        value_format=".0%",
        caption="95 % intervals for new prompts. Arms share their prompts: the table compares them more sharply.",
    )


def _budget_text(budget: BudgetSection) -> str:
    """The limit with its unit, such as 10 TFLOP or 20,000 rollout tokens."""
    if budget.unit == "flops":
        return f"{budget.limit / 1e12:,g} TFLOP"
    return f"{budget.limit:,g} {budget.unit.replace('_', ' ')}"


def _curve_chart(start: Mapping[str, Any], results: Sequence[RunResult], unit: str, base: Arm) -> Chart:
    """The n-th evaluation of an arm, averaged over its seeds."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(result.arm for result in results):
        runs = [result for result in results if result.arm == name and result.curve]
        if not runs:
            continue
        at_start = {"arm": name, "x": 0.0, "y": base.pass_rate, "low": base.interval.low, "high": base.interval.high}
        rows.append(at_start)
        points = [list(run.curve) for run in runs]
        for number in range(min(len(p) for p in points) - 1):
            rows.append(_curve_point(name, [p[number] for p in points], runs, unit))
        rows.append(_curve_point(name, [p[-1] for p in points], runs, unit))
    return line_chart(
        rows,
        title="Pass rate against what was spent",
        x="x",
        y="y",
        band=("low", "high"),
        series="arm",
        x_title=UNIT_TITLES[unit],
        x_format="~s",  # 10T operations, 5k tokens
        y_title="held-out pass rate",
        y_format=".0%",
        caption="Means over seeds. All arms begin at the start model.",
    )


def _curve_point(
    name: str, points: Sequence[Mapping[str, Any]], runs: Sequence[RunResult], unit: str
) -> dict[str, Any]:
    tasks = [task for task in points[0]["rates"] if all(task in point["rates"] for point in points)]
    rates = [min(1.0, fmean(point["rates"][task] for point in points)) for task in tasks]
    interval = clustered_wilson(rates, sum(run.samples_per_prompt for run in runs))
    spent = [point[unit] for point in points if point[unit] is not None]
    return {
        "arm": name,
        "x": fmean(spent) if spent else None,
        "y": fmean(rates) if rates else None,
        "low": interval.low,
        "high": interval.high,
    }


def _runs_table(results: Sequence[RunResult]) -> TableParts:
    columns = ("run", "pass rate", "steps", "ended by", "rollout tokens", "seconds", "TFLOP", "wall s", "peak GB")
    return columns, [
        (
            f"{r.arm}, seed {r.seed}",
            f"{fmean(r.rates.values()):.1%}" if r.rates else None,
            r.steps,
            r.ended_by if not r.failure else f"failed: {r.failure[:80]}",
            r.spent["rollout_tokens"],
            round(r.spent["seconds"] or 0.0, 1),
            None if r.spent["flops"] is None else round(r.spent["flops"] / 1e12, 2),
            round(r.wall_s, 1),
            round(r.peak_bytes / GB, 2),
        )
        for r in results
    ]


def _time_chart(arms: Sequence[Arm]) -> Chart:
    rows = [{"arm": a.name, "phase": p, "seconds": s} for a in arms for p, s in a.phases_s().items()]
    return bar_chart(
        rows,
        title="Where the time of a run goes",
        label="arm",
        value="seconds",
        series="phase",
        label_title="arm",
        value_title="wall-clock time (s)",
        caption="Means over seeds; other = starting, loading, checks, saving, and what comes before the first step.",
    )


def _memory_chart(arms: Sequence[Arm]) -> Chart:
    rows, rests = [], []
    for arm in arms:
        held = {
            f"{network} {part}": num / GB for network, parts in arm.held_bytes().items() for part, num in parts.items()
        }
        rest = (arm.mean("peak_bytes") or 0.0) / GB - sum(held.values())
        rows += [{"arm": arm.name, "part": part, "GB": value} for part, value in held.items() if value > 0]
        rests.append({"arm": arm.name, "part": "rest of the peak", "GB": max(0.0, rest)})
    return bar_chart(
        rows + rests,
        title="Peak memory by part",
        label="arm",
        value="GB",
        series="part",
        label_title="arm",
        value_title="memory (GB)",
        caption="Parts are counted, the peak is the process's; the rest is activations, keys and values, libraries.",
    )


def _waste_chart(arms: Sequence[Arm]) -> Chart:
    rows = []
    for arm in arms:
        sampled = sum(run.num_rollouts for run in arm.runs)
        if not sampled or all(run.num_groups == run.num_rollouts for run in arm.runs):
            continue
        wasted = sum(run.wasted_rollouts for run in arm.runs)
        rows += [
            {"arm": arm.name, "what": "all answers of the group alike", "rollouts": wasted},
            {"arm": arm.name, "what": "right and wrong answers", "rollouts": sampled - wasted},
        ]
    return bar_chart(
        rows,
        title="Rollouts by what their group shows",
        label="arm",
        value="rollouts",
        series="what",
        label_title="arm",
        value_title="rollouts of all seeds",
        caption="Arms that sample no groups are left out. A value network learns from such rollouts all the same.",
    )


def _length_section(gradient: Mapping[str, Any] | None, results: Sequence[RunResult]) -> Section:
    rows = []
    for name in dict.fromkeys(r.arm for r in results if r.lengths):
        runs = [r for r in results if r.arm == name and r.lengths]
        for number in range(min(len(r.lengths) for r in runs)):
            points = [r.lengths[number] for r in runs]
            for side in ("right", "wrong"):
                known = [p[side] for p in points if p[side] is not None]
                if known:
                    spent = fmean(p["rollout_tokens"] for p in points)
                    rows.append({"series": f"{name}, {side}", "x": spent, "y": fmean(known)})
    charts = line_chart(
        rows,
        title="Length of sampled answers over training",
        x="x",
        y="y",
        series="series",
        series_title="arm, answers",
        x_title="rollout tokens",
        y_title="mean tokens",
        caption="Training rollouts, means over seeds.",
    )
    if gradient is None:
        return Section(heading="Length", text=(gradient_sentence(None),), charts=(charts,))
    table = _table(
        "Push on every token of two wrong answers of one group, and on the weights.", gradient_table(gradient)
    )
    listings = (
        Listing(title=f"short wrong answer to {gradient['task_id']}", text=gradient["short_text"]),
        Listing(title=f"long wrong answer to {gradient['task_id']}", text=gradient["long_text"]),
    )
    return Section(
        heading="Length", text=(gradient_sentence(gradient),), charts=(charts,), tables=(table,), listings=listings
    )
