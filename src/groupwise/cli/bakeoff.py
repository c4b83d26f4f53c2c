"""groupwise bakeoff RECIPE"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.config.budget import BudgetSection


def bakeoff(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe; every stage of it is an arm.")],
    out: Annotated[Path, typer.Option(help="Folder of the results; the same command again goes on in it.")],
    seeds: Annotated[str, typer.Option(help="Each arm is run once with each of these numbers.")] = "1,2,3",
    rollout_tokens: Annotated[int | None, typer.Option(min=1, help="Budget of a run: sampled tokens.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.001, help="Budget of a run: time of learning.")] = None,
    flops: Annotated[float | None, typer.Option(min=1, help="Budget of a run: floating-point operations.")] = None,
    arms: Annotated[str | None, typer.Option(help="Names of the stages to compare; default: all.")] = None,
    model: Annotated[str | None, typer.Option(help="The start model, in place of model.name.")] = None,
    accept_audit: Annotated[
        bool, typer.Option("--accept-audit", help="Go on although the audit finds that the verifier can be gamed.")
    ] = False,
    keep_checkpoints: Annotated[
        bool,
        typer.Option("--keep-checkpoints", help="Keep the weights of every run; else they go once it is measured."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print bakeoff.json.")] = False,
) -> None:
    """Compare methods: same start model, tasks, verifier, held-out prompts and budget; several seeds each.

    Every run is a process of its own. Ctrl-C and the same command again go on where it stopped. Exit code 1 where a run
    failed.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    loaded = load_recipe(recipe)  # a mistake in the recipe is told before torch is imported
    budget = _budget(rollout_tokens, seconds, flops)
    numbers = _numbers(seeds)
    from groupwise.launch.bakeoff import plan_bakeoff, run_bakeoff
    from groupwise.launch.bakeoff_page import bakeoff_page
    from groupwise.launch.bakeoff_report import compared, pooled, report_json, start_arm
    from groupwise.launch.bakeoff_show import (
        arms_table,
        comparisons_table,
        gradient_sentence,
        memory_sentence,
        terminal_table,
    )
    from groupwise.launch.display import Quiet
    from groupwise.runs import write_atomic

    terminal = Terminal()
    plan = plan_bakeoff(
        loaded,
        seeds=numbers,
        folder=out,
        arms=None if arms is None else [name.strip() for name in arms.split(",")],
        budget=budget,
        model=model,
        accept_audit=accept_audit,
        keep_checkpoints=keep_checkpoints,
    )
    start, results = run_bakeoff(plan, Quiet() if as_json else terminal)
    samples = plan.recipe.evaluation.samples_per_prompt
    report = report_json(start, results, {plan.budget.unit: plan.budget.limit}, samples)
    write_atomic(out / "bakeoff.json", json.dumps(report, indent=1) + "\n")
    write_atomic(out / "bakeoff.html", bakeoff_page(loaded.name, start, results, plan.budget, samples))
    if as_json:
        print(json.dumps(report))
    else:
        pools = pooled(results)
        everything = (start_arm(start, samples), *pools)
        title = "Held-out pass rate over seeds with 95 % intervals; mean tokens of right and wrong answers"
        terminal.table(terminal_table(title, arms_table(everything)))
        terminal.table(terminal_table("On the same prompts", comparisons_table(compared(everything))))
        for sentence in filter(None, (memory_sentence(pools), gradient_sentence(start["gradient"]))):
            terminal.line(sentence)
        terminal.line(f"Page: {out / 'bakeoff.html'}   Numbers: {out / 'bakeoff.json'}")
    raise typer.Exit(1 if any(result.ended_by == "failed" for result in results) else 0)


def _budget(rollout_tokens: int | None, seconds: float | None, flops: float | None) -> BudgetSection | None:
    from groupwise.config.budget import BudgetSection
    from groupwise.errors import ConfigError

    given = {"--rollout-tokens": rollout_tokens, "--seconds": seconds, "--flops": flops}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} are both given; a run has one budget, choose one of them.")
    return BudgetSection(rollout_tokens=rollout_tokens, seconds=seconds, flops=flops) if named else None


def _numbers(seeds: str) -> list[int]:
    from groupwise.errors import ConfigError

    try:
        return [int(text) for text in seeds.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {seeds!r} is no list of whole numbers; give them as 1,2,3.") from None
