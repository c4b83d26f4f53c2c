"""A plan for readers: tables for a terminal, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from groupwise.launch.plan import Plan
from groupwise.launch.plan_alternatives import duration
from groupwise.launch.plan_methods import MethodCost
from groupwise.launch.plan_stages import StagePlan
from groupwise.planning.compute import ComputeEstimate
from groupwise.planning.pass_rates import BetaRates

if TYPE_CHECKING:
    from rich.table import Table

_GB = 1e9


def plan_lines(plan: Plan) -> Iterator[str | Table]:
    """What the terminal shows, in order: the answer first, then the numbers that it rests on."""
    yield headline(plan)
    yield plan.binding
    yield ""
    yield _rich("Group sizes (share of groups)", *groups_table(plan))
    yield f"Pass rates: {plan.rates_source}."
    yield _rich("Stages, step by step", *stages_table(plan))
    yield f"Lengths: {plan.lengths.source}. Hardware: {plan.hardware.name} ({hardware_kind(plan)})."
    yield _rich(memory_title(plan), *memory_table(plan))
    yield _rich("Held-out evaluation, paired, 80 % power", *evaluation_table(plan))
    yield _rich("The methods on these prompts", *methods_table(plan))
    yield f"Method: {plan.method.summary}"
    yield from (f"  {line}" for line in method_lines(plan))
    for alternative in plan.alternatives:
        yield f"Instead: {alternative.change}\n  saves {alternative.saves}\n  costs {alternative.costs}"
    yield from plan.notes


def headline(plan: Plan) -> str:
    """The answer in one sentence."""
    price = "" if plan.price is None else f", {plan.price:.2f} at {plan.hardware.price_per_hour:g} an hour"
    signal = "" if plan.live_share is None else f", {plan.live_share:.0%} of the groups train"
    return f"{plan.name}: about {duration(plan.seconds)}{price}, {plan.peak_bytes / _GB:.1f} GB at the peak{signal}."


def plan_json(plan: Plan) -> str:
    """All numbers, for programs."""
    return json.dumps(
        {
            "name": plan.name,
            "hardware": {
                "name": plan.hardware.name,
                "measured": plan.hardware.measured,
                "memory_bytes": plan.hardware.memory_bytes,
                "price_per_hour": plan.hardware.price_per_hour,
                "ranks": plan.ranks,
            },
            "num_params": plan.shape.num_params,
            "lengths": {
                name: getattr(plan.lengths, name)
                for name in ("prompt", "trunk", "demonstration", "completion", "longest", "source")
            },
            "pass_rates": {
                "source": plan.rates_source,
                "measured": plan.rates_measured,
                **(
                    {"alpha": plan.rates.alpha, "beta": plan.rates.beta}
                    if isinstance(plan.rates, BetaRates)
                    else {"given": list(plan.rates) if not isinstance(plan.rates, float) else [plan.rates]}
                ),
            },
            "live_share": plan.live_share,
            "groups": [
                {name: getattr(g, name) for name in g.__slots__ if name != "standard_errors"} for g in plan.groups
            ],
            "stages": [_stage_json(stage) for stage in plan.stages],
            "evaluation": {
                "seconds": plan.evaluation_s,
                "times": plan.num_evaluations,
                "num_prompts": plan.num_heldout,
                "difference_shown": None if plan.heldout is None else plan.heldout.difference,
                "prompts_needed": {f"{d.difference:g}": d.num_prompts for d in plan.designs},
            },
            "seconds": plan.seconds,
            "price": plan.price,
            "peak_bytes": plan.peak_bytes,
            "methods": [_method_json(cost) for cost in plan.methods],
            "method": {
                "summary": plan.method.summary,
                "steps": [{"method": step.method, "reason": step.reason} for step in plan.method.steps],
                "left_out": [{"method": left.method, "reason": left.reason} for left in plan.method.left_out],
                "advice": list(plan.method.advice),
            },
            "binding": plan.binding,
            "alternatives": [{"change": a.change, "saves": a.saves, "costs": a.costs} for a in plan.alternatives],
            "notes": list(plan.notes),
        },
        indent=1,
    )


def _stage_json(stage: StagePlan) -> dict[str, Any]:
    return {
        "name": stage.name,
        "method": stage.method,
        "steps": stage.workload.steps,
        **_compute_json(stage.compute),
        "seconds_before": stage.before_s,
        "memory_bytes": dict(stage.memory.parts),
        "peak_bytes": stage.memory.total,
    }


def _method_json(cost: MethodCost) -> dict[str, Any]:
    return {
        "method": cost.method,
        "planned": cost.is_planned,
        "networks": list(cost.networks),
        "with_prefix_sharing": _compute_json(cost.compute),
        "without_prefix_sharing": _compute_json(cost.whole),
        "memory_bytes": {"full": dict(cost.full.parts), "lora": dict(cost.lora.parts)},
        "peak_bytes": {"full": cost.full.total, "lora": cost.lora.total},
    }


def _compute_json(compute: ComputeEstimate) -> dict[str, Any]:
    return {
        "phases": [{"name": p.name, "flops": p.flops, "seconds": p.seconds} for p in compute.phases],
        "seconds_per_step": compute.seconds,
        "flops_per_step": compute.flops,
    }


TableParts = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Columns and rows."""


def groups_table(plan: Plan) -> TableParts:
    """Columns and rows: what each group size does."""
    columns: tuple[str, ...] = (
        "G",
        "all wrong",
        "all right",
        "train",
        "prompts",
        "live groups",
        "a rollout",
        "mean |A|",
    )
    rows: list[tuple[str, ...]] = [
        (
            str(g.group_size),
            f"{g.all_fail:.0%}",
            f"{g.all_pass:.0%}",
            f"{g.informative:.0%}",
            str(g.num_prompts),
            f"{g.usable_groups:.1f}",
            f"{g.usable_per_rollout:.3f}",
            f"{g.mean_abs_advantage_std:.2f}",
        )
        for g in plan.groups
    ]
    return columns, rows


def stages_table(plan: Plan) -> TableParts:
    """Columns and rows: phases of a step, the stage, evaluations."""
    rows: list[tuple[str, ...]] = []
    for stage in plan.stages:
        for phase in stage.compute.phases:
            rows.append((stage.name, phase.name, f"{phase.flops:.2e}", duration(phase.seconds), ""))
        if stage.before_s:
            rows.append((stage.name, "before its first step", "", "", duration(stage.before_s)))
        whole = stage.compute
        rows.append(
            (
                stage.name,
                f"{whole.steps} steps",
                f"{whole.flops:.2e}",
                duration(whole.seconds),
                duration(whole.run_seconds),
            )
        )
    rows.append(("", f"{plan.num_evaluations} evaluations", "", "", duration(plan.num_evaluations * plan.evaluation_s)))
    return ("stage", "part", "FLOP a step", "a step", "in all"), rows


def memory_table(plan: Plan) -> TableParts:
    """Columns and rows: parts of memory, a column a stage."""
    names = list(dict.fromkeys(name for stage in plan.stages for name in stage.memory.parts))
    rows = [
        (name.replace("_", " "), *(f"{stage.memory.parts.get(name, 0) / _GB:.2f}" for stage in plan.stages))
        for name in names
        if any(stage.memory.parts.get(name, 0) for stage in plan.stages)
    ]
    rows.append(("total", *(f"{stage.memory.total / _GB:.2f}" for stage in plan.stages)))
    return ("part", *(stage.name for stage in plan.stages)), rows


def memory_title(plan: Plan) -> str:
    """What the table of memory shows."""
    on = "" if plan.ranks == 1 else f" on each of {plan.ranks} devices"
    return f"Memory at the peak of each stage{on} (GB)"


def methods_table(plan: Plan) -> TableParts:
    """Columns and rows: one step of every method, with and without prefix sharing, and what it holds."""
    rows: list[tuple[str, ...]] = [
        (
            cost.method,
            f"{cost.compute.flops:.2e}",
            duration(cost.compute.seconds),
            duration(cost.whole.seconds),
            f"{cost.full.total / _GB:.2f}",
            f"{cost.lora.total / _GB:.2f}",
            ", ".join(cost.networks),
        )
        for cost in plan.methods
    ]
    return ("method", "FLOP a step", "a step", "unshared", "full (GB)", "LoRA (GB)", "networks"), rows


def evaluation_table(plan: Plan) -> TableParts:
    """Columns and rows: differences and the prompts that show them."""
    rows: list[tuple[str, ...]] = [
        (f"{d.difference:.0%}", str(d.num_prompts), str(d.samples_per_prompt), str(d.num_completions))
        for d in plan.designs
    ]
    shown = "no difference" if plan.heldout is None else f"{plan.heldout.difference:.1%}"
    samples = "-" if plan.heldout is None else str(plan.heldout.samples_per_prompt)
    rows.append((f"{shown} (this recipe)", str(plan.num_heldout), samples, ""))
    return ("to see a difference of", "prompts", "samples each", "completions"), rows


def method_lines(plan: Plan) -> Iterator[str]:
    """A reason for every method, and what to do first."""
    yield from (f"{step.method}: {step.reason}" for step in plan.method.steps)
    yield from (f"not {left.method}: {left.reason}" for left in plan.method.left_out)
    yield from plan.method.advice


def hardware_kind(plan: Plan) -> str:
    """Whether its rates were measured."""
    return "measured" if plan.hardware.measured else "assumed shares of published peaks"


def _rich(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table
