"""A plan as one HTML page with the trade-off curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from groupwise.launch.plan import Plan
from groupwise.launch.plan_alternatives import duration
from groupwise.launch.plan_show import (
    TableParts,
    evaluation_table,
    groups_table,
    hardware_kind,
    memory_table,
    memory_title,
    method_lines,
    methods_table,
    stages_table,
)
from groupwise.pages import Chart, Fact, Page, Section, Table, bar_chart, line_chart, render_page
from groupwise.planning.method_facts import COMPARISON_COLUMNS, comparison_rows

_GB = 1e9


def plan_page(plan: Plan) -> str:
    """The plan as one HTML file."""

    def table(caption: str, make: Callable[[Plan], TableParts]) -> Table:
        columns, rows = make(plan)
        return Table(columns=columns, rows=tuple(rows), caption=caption)

    methods = Table(columns=COMPARISON_COLUMNS, rows=comparison_rows(), caption="How the methods differ.")
    sections = (
        Section(
            heading="Signal",
            text=(f"Pass rates: {plan.rates_source}.",),
            charts=_signal_charts(plan),
            tables=(table("What a group size does with these pass rates, for the same rollouts.", groups_table),),
        ),
        Section(
            heading="Time",
            text=(f"Lengths: {plan.lengths.source}. Hardware: {plan.hardware.name} ({hardware_kind(plan)}).",),
            charts=_cost_charts(plan),
            tables=(table("Operations and seconds, phase by phase.", stages_table),),
        ),
        Section(heading="Memory", tables=(table(f"{memory_title(plan)}.", memory_table),)),
        _methods_section(plan),
        Section(
            heading="Evaluation",
            tables=(table("Held-out prompts for a paired comparison with 80 % power.", evaluation_table),),
        ),
        Section(heading="Choice of the method", text=(plan.method.summary, *method_lines(plan)), tables=(methods,)),
        Section(
            heading="Alternatives",
            tables=(
                Table(
                    columns=("change", "saves", "costs"),
                    rows=tuple((a.change, a.saves, a.costs) for a in plan.alternatives),
                    caption="Each worked out like the plan itself.",
                ),
            ),
        ),
    )
    facts = (
        Fact(
            label="time",
            value=duration(plan.seconds),
            note=f"{len(plan.stages)} stages and {plan.num_evaluations} evaluations",
        ),
        Fact(
            label="peak memory",
            value=f"{plan.peak_bytes / _GB:.1f} GB",
            note=f"of {plan.hardware.memory_bytes / _GB:.0f} GB",
        ),
        *_signal_fact(plan),
    )
    return render_page(
        Page(title=f"Plan: {plan.name}", lead=plan.binding, sections=sections, facts=facts, footer=" ".join(plan.notes))
    )


def _signal_fact(plan: Plan) -> tuple[Fact, ...]:
    if plan.live_share is None:
        return ()
    note = "the others are all right or all wrong"
    return (Fact(label="groups that train", value=f"{plan.live_share:.0%}", note=note),)


def _methods_section(plan: Plan) -> Section:
    """The methods side by side: seconds phase by phase with and without prefix sharing, memory part by part."""
    columns, rows = methods_table(plan)
    bars = [
        {"method": cost.method, "phase": phase.name.replace("_", " "), "seconds": phase.seconds}
        for cost in plan.methods
        for phase in cost.compute.phases
    ]
    names = list(dict.fromkeys(name for cost in plan.methods for name in (*cost.full.parts, *cost.lora.parts)))
    memory = [
        (
            name.replace("_", " "),
            *(f"{m.parts.get(name, 0) / _GB:.2f}" for cost in plan.methods for m in (cost.full, cost.lora)),
        )
        for name in names
    ]
    return Section(
        heading="Methods",
        text=(
            "One step of each method on this model and these prompts: the recipe's own stage of it, or else its "
            "defaults with as many prompts as GRPO has. PPO samples as many completions, each of a prompt of its own, "
            "and passes over them more than once. DPO's reference is asked once, before the first step.",
        ),
        charts=(
            bar_chart(
                bars,
                title="A step of each method",
                label="method",
                value="seconds",
                series="phase",
                label_title="method",
                value_title="time of a step (s)",
            ),
        ),
        tables=(
            Table(columns=columns, rows=tuple(rows), caption="One step; unshared = every sequence whole and padded."),
            Table(
                columns=("method", "phase", "FLOP", "s", "FLOP unshared", "s unshared"),
                rows=tuple(_phase_rows(plan)),
                caption="Phases of a step, with and without prefix sharing.",
            ),
            Table(
                columns=("part (GB)", *(f"{c.method} {kind}" for c in plan.methods for kind in ("full", "LoRA"))),
                rows=tuple(memory),
                caption="Memory at the fullest moment, all weights trained and with adapters.",
            ),
        ),
    )


def _phase_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for cost in plan.methods:
        whole = {phase.name: phase for phase in cost.whole.phases}
        for phase in cost.compute.phases:
            other = whole[phase.name]
            numbers = (f"{v:.3g}" for p in (phase, other) for v in (p.flops, p.seconds))
            yield (cost.method, phase.name.replace("_", " "), *numbers)


def _signal_charts(plan: Plan) -> tuple[Chart, ...]:
    shares = [
        {"G": g.group_size, "share": value, "what": what}
        for g in plan.groups
        for what, value in (("all wrong", g.all_fail), ("all right", g.all_pass), ("trains", g.informative))
    ]
    yields = [{"G": g.group_size, "live": g.usable_groups, "prompts": g.num_prompts} for g in plan.groups]
    return (
        line_chart(
            shares,
            title="What becomes of a group",
            x="G",
            y="share",
            series="what",
            x_title="group size",
            y_title="share of groups",
            log_x=True,
            y_format=".0%",
            y_bounds=(0.0, 1.0),
        ),
        line_chart(
            yields,
            title="Live groups for the same rollouts",
            x="G",
            y="live",
            x_title="group size",
            y_title="groups that train, a step",
            log_x=True,
            tooltips=("prompts",),
            caption="Larger groups are seldom dead, and there are fewer of them.",
        ),
    )


def _cost_charts(plan: Plan) -> tuple[Chart, ...]:
    rows = [
        {
            "stage": stage.name,
            "phase": phase.name.replace("_", " "),
            "minutes": phase.seconds * stage.compute.steps / 60,
        }
        for stage in plan.stages
        for phase in stage.compute.phases
    ]
    rows += [
        {"stage": stage.name, "phase": "before its first step", "minutes": stage.before_s / 60}
        for stage in plan.stages
        if stage.before_s
    ]
    return (
        bar_chart(
            rows,
            title="Where the time goes",
            label="stage",
            value="minutes",
            series="phase",
            label_title="stage",
            value_title="time (min)",
        ),
    )
