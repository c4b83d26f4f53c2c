"""A run that is under way: its parts, its held-out measurements, and what it keeps of every finished stage."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import fmean

from groupwise.config import Recipe
from groupwise.launch.assemble import Policy, RenderedSets
from groupwise.launch.display import Display
from groupwise.launch.forecast import Forecaster, forecaster
from groupwise.launch.measure import (
    evaluate_heldout,
    evaluation_facts,
    evaluation_line,
    summarise,
    unscored_warning,
)
from groupwise.launch.recording import build_recorder, close_recorder
from groupwise.launch.run_plan import RunPlan
from groupwise.launch.spending import SPENT, Spending, metered, spending_of
from groupwise.launch.watch_hacking import HackingWatch, hacking_watch, watch_hacking
from groupwise.launch.watch_lengths import watch_lengths
from groupwise.runs import (
    RunDirectory,
    RunSummary,
    StageLog,
    StageSummary,
    software_versions,
    with_finished,
    write_stage_log,
    write_summary,
)
from groupwise.runs.record import EVALUATION, GREEDY
from groupwise.training.process_memory import peak_bytes
from groupwise.types import Group, Recorder
from groupwise.verifiers import TaskVerifier


@dataclass(slots=True)
class Run:
    """The parts of a run that is under way, and what it has shown so far."""

    recipe: Recipe
    policy: Policy
    verifier: TaskVerifier
    sets: RenderedSets
    directory: RunDirectory
    recorder: Recorder
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
    warned: set[str] = field(default_factory=set)
    """Names of the findings that were told while the run was going on."""
    plan: RunPlan | None = None
    """What the whole run was expected to take; None where nobody can tell."""
    heldout: StageSummary | None = None
    """The last held-out evaluation, of whatever it was."""
    evaluation_s: float | None = None
    """Seconds that it took."""
    hacking: HackingWatch | None = None
    """Looks for rewards that are found and not earned."""


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
    hacking = hacking_watch(recipe, verifier, directory, display)
    hacking.recorder = recorder = build_recorder(recipe, directory, observers=hacking.observers, gold_of=verifier.gold)
    return Run(
        recipe=recipe,
        policy=metered(policy, spending),
        spending=spending,
        verifier=verifier,
        sets=sets,
        directory=directory,
        recorder=recorder,
        hacking=hacking,
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
    started = time.monotonic()
    evaluation, rendered = evaluate_heldout(
        run.recipe, run.policy, run.verifier, run.sets, run.display, f"{name}: held-out evaluation"
    )
    if run.forecaster is not None:
        run.forecaster.saw(evaluation.groups or evaluation.greedy_groups)
    summary = run.heldout = summarise(name, evaluation, rendered, train_seconds)
    facts = evaluation_facts(run.recipe, name, run.policy_version, evaluation, summary)
    run.recorder.event("evaluation", facts | ({} if run.recipe.budget is None else {SPENT: run.spending.as_json()}))
    stage = f"{EVALUATION}{name.replace(' ', '-')}"
    for recorded, groups in ((stage, evaluation.groups), (stage + GREEDY, evaluation.greedy_groups)):
        if groups:
            run.recorder.rollouts(recorded, run.policy_version, groups, _no_advantages(groups))
    if warning := unscored_warning(evaluation):
        run.display.warning(f"{name}: {warning}")
    run.display.line(f"{name}: {evaluation_line(evaluation, summary)}")
    watch_lengths(run, name, evaluation)
    watch_hacking(run, name, evaluation)
    run.evaluation_s = time.monotonic() - started
    if final:
        run.summaries.append(summary)
        write_summary(run.directory.summary, summary_of(run))


def mark_finished(run: Run, name: str) -> None:
    """From here on a restart goes on behind this stage: its weights are saved and its evaluation is in the summary."""
    run.log = with_finished(run.directory, run.log, name, policy_version=run.policy_version, weights=run.weights)
    write_stage_log(run.directory, run.log)


def close_run(run: Run) -> None:
    """Lets go of what a run holds beside its model and its verifier; it never raises, and twice is once."""
    if run.hacking is not None:
        run.hacking.close()
    close_recorder(run.recorder)


def summary_of(run: Run) -> RunSummary:
    """What the run has achieved so far."""
    return RunSummary(
        stages=tuple(run.summaries),
        peak_memory_bytes=max(run.peak_before, peak_bytes()),
        seeds={"run": run.recipe.seed},
        versions=software_versions(),
    )


def _no_advantages(groups: tuple[Group, ...]) -> list[list[float]]:
    return [[0.0] * len(g.rollouts) for g in groups]
