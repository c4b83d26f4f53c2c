"""A run that is under way: its parts, its held-out measurements, and what it keeps of every finished stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from groupwise.config import Recipe
from groupwise.launch.assemble import Policy, RenderedSets
from groupwise.launch.display import Display
from groupwise.launch.forecast import Forecaster, forecaster
from groupwise.launch.measure import evaluate_heldout, peak_memory_bytes, summarise
from groupwise.launch.spending import SPENT, Spending, metered, spending_of
from groupwise.runs import (
    FileRecorder,
    RunDirectory,
    RunSummary,
    StageLog,
    StageSummary,
    software_versions,
    with_finished,
    write_stage_log,
    write_summary,
)
from groupwise.types import Group
from groupwise.verifiers import TaskVerifier


@dataclass(slots=True)
class Run:
    """The parts of a run that is under way, and what it has shown so far."""

    recipe: Recipe
    policy: Policy
    verifier: TaskVerifier
    sets: RenderedSets
    directory: RunDirectory
    recorder: FileRecorder
    display: Display
    log: StageLog
    """The finished stages; the others are done in the order of the recipe."""
    summaries: list[StageSummary] = field(default_factory=list)
    policy_version: int = 0
    weights: str | None = None
    """The checkpoint that holds the policy as the last stage left it, as a path in the run folder; None = untrained."""
    peak_before: int = 0
    """The most memory in bytes that earlier processes of this run have held."""
    stop_asked: bool = False
    forecaster: Forecaster | None = None
    """None where this machine was not measured."""
    no_signal: str = ""
    """Why the last stage had nothing to learn from, and what to change."""
    spending: Spending = field(default_factory=Spending)
    """What the stages have spent so far, and the budget's limit."""


def new_run(
    recipe: Recipe,
    policy: Policy,
    verifier: TaskVerifier,
    sets: RenderedSets,
    directory: RunDirectory,
    display: Display,
    log: StageLog,
) -> Run:
    """A run before its first stage; nothing is written."""
    spending = spending_of(recipe, policy)
    return Run(
        recipe=recipe,
        policy=metered(policy, spending),
        spending=spending,
        verifier=verifier,
        sets=sets,
        directory=directory,
        recorder=FileRecorder(directory),
        display=display,
        log=log,
        forecaster=forecaster(
            recipe,
            policy.loaded.model.config.to_dict(),
            [prompt.token_ids for prompt in (sets.train.prompts or sets.heldout.prompts)],
            [demonstration.num_trained for demonstration in sets.demonstrations],
            [(pair.chosen.prompt_length, fmean(side.num_trained for side in pair)) for pair in sets.pairs],
        ),
    )


def measure(run: Run, name: str, train_seconds: float, *, final: bool = True) -> None:
    """Evaluates the current weights; final results go into the summary, which is rewritten each time."""
    evaluation, rendered = evaluate_heldout(
        run.recipe, run.policy, run.verifier, run.sets, run.display, f"{name}: held-out evaluation"
    )
    if run.forecaster is not None:
        run.forecaster.saw(evaluation.groups or evaluation.greedy_groups)
    summary = summarise(name, evaluation, rendered, train_seconds)
    run.recorder.event(
        "evaluation",
        {
            "name": name,
            "policy_version": run.policy_version,
            "pass_rate": summary.pass_rate,
            "greedy_pass_rate": summary.greedy_pass_rate,
            "seconds": evaluation.seconds,
            **({} if run.recipe.budget is None else {SPENT: run.spending.as_json()}),
            "solved": {g.task.id: g.num_solved for g in evaluation.groups},
            "greedy_solved": {g.task.id: g.num_solved for g in evaluation.greedy_groups},
        },
    )
    stage = f"evaluation-{name.replace(' ', '-')}"
    run.recorder.rollouts(stage, run.policy_version, evaluation.groups, _no_advantages(evaluation.groups))
    low, high = summary.interval.low, summary.interval.high
    run.display.line(
        f"{name}: held-out pass rate {summary.pass_rate:.1%} [{low:.1%}, {high:.1%}] at temperature 1"
        + (f", greedy {summary.greedy_pass_rate:.1%}" if summary.greedy_pass_rate is not None else "")
    )
    if final:
        run.summaries.append(summary)
        write_summary(run.directory.summary, summary_of(run))


def mark_finished(run: Run, name: str) -> None:
    """From here on a restart goes on behind this stage: its weights are saved and its evaluation is in the summary."""
    run.log = with_finished(run.directory, run.log, name, policy_version=run.policy_version, weights=run.weights)
    write_stage_log(run.directory, run.log)


def summary_of(run: Run) -> RunSummary:
    """What the run has achieved so far."""
    return RunSummary(
        stages=tuple(run.summaries),
        peak_memory_bytes=max(run.peak_before, peak_memory_bytes()),
        seeds={"run": run.recipe.seed},
        versions=software_versions(),
    )


def _no_advantages(groups: tuple[Group, ...]) -> list[list[float]]:
    return [[0.0] * len(g.rollouts) for g in groups]
