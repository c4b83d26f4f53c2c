"""Held-out evaluation of a recipe's tasks: its row in the summary, its facts on record, its line for a person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.config import Recipe
from groupwise.launch.assemble import Policy, RenderedSets, RenderedTasks, evaluation_sampling
from groupwise.launch.display import Display
from groupwise.rollout import Engine
from groupwise.runs import KRate, StageSummary, clustered_wilson, k_rates, pass_all_k, wilson
from groupwise.runs.summary import UNSCORED_TOLD, judged_note
from groupwise.training import Evaluation, evaluate_tasks
from groupwise.training.batch import derive_seed
from groupwise.types import Group, Verifier

UNSCORED_REASON = 200
"""Characters of a verifier's reason that a warning shows."""


def evaluate_heldout(
    recipe: Recipe, policy: Policy, verifier: Verifier, sets: RenderedSets, display: Display, title: str
) -> tuple[Evaluation, RenderedTasks]:
    """Samples the held-out tasks (the first evaluation.num_prompts of them); returns them beside what they showed."""
    num = recipe.evaluation.num_prompts or len(sets.heldout.tasks)
    heldout = RenderedTasks(tasks=sets.heldout.tasks[:num], prompts=sets.heldout.prompts[:num])
    return evaluate_with(recipe, policy.engine, verifier, heldout, display, title), heldout


def evaluate_with(
    recipe: Recipe, engine: Engine, verifier: Verifier, heldout: RenderedTasks, display: Display, title: str
) -> Evaluation:
    """What these tasks show of what is behind the engine, by the settings of [evaluation]."""
    section = recipe.evaluation
    with display.working(title) as advance:
        return evaluate_tasks(
            engine,
            verifier,
            heldout.tasks,
            heldout.prompts,
            samples_per_prompt=section.samples_per_prompt,
            greedy=section.greedy,
            sampling=evaluation_sampling(recipe),
            seed=derive_seed(recipe.seed, "evaluation"),
            success_reward=section.success_reward,
            progress=advance,
        )


def summarise(name: str, evaluation: Evaluation, heldout: RenderedTasks, train_seconds: float = 0.0) -> StageSummary:
    """An evaluation as a row of the table: rates with 95 % intervals, lengths of right and wrong answers."""
    rates = evaluation.prompt_rates
    greedy = evaluation.greedy_outcomes
    if not rates:  # only greedy was asked for: it stands in both places
        rates = [float(outcome) for outcome in greedy]
    return StageSummary(
        name=name,
        pass_rate=sum(rates) / len(rates) if rates else float("nan"),
        interval=clustered_wilson(rates, max(1, evaluation.samples_per_prompt)),
        greedy_pass_rate=sum(greedy) / len(greedy) if greedy else None,
        greedy_interval=wilson(sum(greedy), len(greedy)) if greedy else None,
        num_prompts=len(heldout.tasks),
        mean_length_right=evaluation.mean_length(right=True),
        mean_length_wrong=evaluation.mean_length(right=False),
        truncated_frac=evaluation.truncated_frac,
        seconds=train_seconds + evaluation.seconds,
        judged_frac=judged_frac(evaluation.groups or evaluation.greedy_groups),
        greedy_judged_frac=judged_frac(evaluation.greedy_groups),
    )


def judged_frac(groups: Sequence[Group]) -> float:
    """Share of the completions that have a verdict; 1 where there are no completions."""
    total = sum(len(group.rollouts) for group in groups)
    return sum(group.num_scored for group in groups) / total if total else 1.0


def unscored_warning(evaluation: Evaluation) -> str:
    """What to think of rates that leave out more than UNSCORED_TOLD of the completions; empty where they do not."""
    groups = (*evaluation.groups, *evaluation.greedy_groups)
    if min(judged_frac(evaluation.groups), judged_frac(evaluation.greedy_groups)) >= 1 - UNSCORED_TOLD:
        return ""
    total = sum(len(group.rollouts) for group in groups)
    unscored = evaluation.num_unscored + evaluation.num_greedy_unscored
    lost = (one for group in groups for one in group.rollouts if one.verdict.outcome is None)
    reason = " ".join(next(lost).verdict.reason.split())[:UNSCORED_REASON]
    return (
        f"{unscored / total:.0%} of the completions ({unscored} of {total}) have no verdict, so that the rates are of "
        "the rest alone. They are too high where the verifier fails more often on wrong answers, too low where it "
        f"fails more often on right ones. First reason: {reason or 'none was given'}"
    )


def pass_rates_by_k(evaluation: Evaluation) -> tuple[tuple[KRate, ...], tuple[KRate, ...]]:
    """(pass@k, pass^k) of the sampled completions for k = 1, 2, 4 ... and the number of samples; empty without any."""
    counts, num_samples = evaluation.counts, evaluation.samples_per_prompt if evaluation.groups else 0
    return k_rates(counts, num_samples), k_rates(counts, num_samples, pass_all_k)


def evaluation_facts(
    recipe: Recipe, name: str, policy_version: int, evaluation: Evaluation, summary: StageSummary
) -> dict[str, Any]:
    """An evaluation in plain JSON values: the event of a run, and what `groupwise eval` writes. Settings and seed stand
    beside the numbers. Rates that nobody could measure are None."""
    sampling, greedy = evaluation.sampling, summary.greedy_interval
    pass_at, pass_all = pass_rates_by_k(evaluation)
    return {
        "name": name,
        "policy_version": policy_version,
        "pass_rate": _finite(summary.pass_rate),
        "interval": [summary.interval.low, summary.interval.high],
        "greedy_pass_rate": summary.greedy_pass_rate,
        "greedy_interval": None if greedy is None else [greedy.low, greedy.high],
        "num_prompts": summary.num_prompts,
        "samples_per_prompt": evaluation.samples_per_prompt,
        "temperature": None if sampling is None else sampling.temperature,
        "top_p": None if sampling is None else sampling.top_p,
        "max_completion_tokens": None if sampling is None else sampling.max_tokens,
        "seed": recipe.seed,
        "success": evaluation.success,
        "seconds": evaluation.seconds,
        **held_out_counts(evaluation),
        "num_unscored": evaluation.num_unscored,
        "num_greedy_unscored": evaluation.num_greedy_unscored,
        "pass_at": {str(found.k): _finite(found.rate) for found in pass_at},
        "pass_at_intervals": _intervals(pass_at),
        "pass_all": {str(found.k): _finite(found.rate) for found in pass_all},
        "pass_all_intervals": _intervals(pass_all),
        "truncated_frac": summary.truncated_frac,
        "mean_length_right": summary.mean_length_right,
        "mean_length_wrong": summary.mean_length_wrong,
    }


def held_out_counts(evaluation: Evaluation) -> dict[str, dict[str, int]]:
    """solved, scored, greedy_solved and greedy_scored: counts by task id."""
    return {
        "solved": {group.task.id: group.num_solved for group in evaluation.groups},
        "scored": {group.task.id: group.num_scored for group in evaluation.groups},
        "greedy_solved": {group.task.id: group.num_solved for group in evaluation.greedy_groups},
        "greedy_scored": {group.task.id: group.num_scored for group in evaluation.greedy_groups},
    }


def evaluation_line(evaluation: Evaluation, summary: StageSummary) -> str:
    """The rates in one sentence: sampled and greedy apart, with what could not be scored."""
    parts = []
    if evaluation.groups:
        low, high = summary.interval.low, summary.interval.high
        known = f"{summary.pass_rate:.1%} [{low:.1%}, {high:.1%}]{judged_note(summary.judged_frac)}"
        rate = "unknown" if math.isnan(summary.pass_rate) else known
        parts.append(f"held-out pass rate {rate} at temperature {_temperature(evaluation)}")
        pass_at, pass_all = (rates[-1] for rates in pass_rates_by_k(evaluation))
        if pass_at.k > 1 and pass_at.num_prompts:
            parts.append(f"pass@{pass_at.k} {pass_at.rate:.1%}, pass^{pass_all.k} {pass_all.rate:.1%}")
    if summary.greedy_pass_rate is not None:
        parts.append(f"greedy {summary.greedy_pass_rate:.1%}{judged_note(summary.greedy_judged_frac)}")
    elif evaluation.greedy_groups:
        parts.append("greedy unknown")
    if evaluation.success_reward is not None:
        parts.append(f"solved = {evaluation.success}")
    if unscored := evaluation.num_unscored + evaluation.num_greedy_unscored:
        parts.append(f"{unscored} completions could not be scored and are left out")
    return ", ".join(parts)


def _temperature(evaluation: Evaluation) -> str:
    return "1" if evaluation.sampling is None else f"{evaluation.sampling.temperature:g}"


def _intervals(rates: Sequence[KRate]) -> Mapping[str, list[float]]:
    return {str(found.k): [found.interval.low, found.interval.high] for found in rates}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
