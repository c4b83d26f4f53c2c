"""A whole run in this process: measure, train stage by stage, measure again, write everything down."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from groupwise.config import Recipe, dump_toml, scoring_part
from groupwise.config.stage import SftSection, StageSection
from groupwise.launch.assemble import (
    Policy,
    RenderedSets,
    build_algorithm,
    build_policy,
    build_tasks,
    optim_options,
    render_sets,
)
from groupwise.launch.audit import audit_before_training, report_json
from groupwise.launch.display import Display, Quiet
from groupwise.launch.measure import evaluate_heldout, peak_memory_bytes, summarise
from groupwise.launch.numerics import check_paths, check_sampling, step_bounds
from groupwise.launch.select import sometimes_solved
from groupwise.launch.verifiers import build_verifier
from groupwise.runs import (
    FileRecorder,
    RunDirectory,
    RunSummary,
    StageSummary,
    software_versions,
    write_atomic,
    write_summary,
)
from groupwise.training import StageOptions, run_stage
from groupwise.types import Group, Verifier
from groupwise.verifiers import TaskVerifier


@dataclass(slots=True)
class Run:
    """The parts of a run that is under way, and what it has shown so far."""

    recipe: Recipe
    policy: Policy
    verifier: Verifier
    sets: RenderedSets
    directory: RunDirectory
    recorder: FileRecorder
    display: Display
    summaries: list[StageSummary] = field(default_factory=list)
    policy_version: int = 0
    stop_asked: bool = False


def train(
    recipe: Recipe, display: Display | None = None, *, accept_audit: bool = False
) -> tuple[RunDirectory, RunSummary]:
    """Runs every stage of a recipe; returns where it was written and what it achieved.

    Everything that can be wrong with the recipe, the data, the golds or the model is refused before a file is written.
    So is a verifier that a fast audit finds to pay for wrong answers, unless `accept_audit`.
    One Ctrl-C ends the run after the step under way, with a checkpoint and a summary; a second one ends it at once.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    display = display or Quiet()
    verifier = build_verifier(recipe)
    try:
        policy, sets = prepare(recipe, verifier, display)
        audited = (*sets.train.tasks, *sets.heldout.tasks)
        report = audit_before_training(scoring_part(recipe), verifier, audited, display, accept=accept_audit)
        numerics = check_sampling(recipe, policy, sets, display)
        directory = RunDirectory.create(recipe.resolve(recipe.output_dir), recipe.name)
        run = Run(
            recipe=recipe,
            policy=policy,
            verifier=verifier,
            sets=sets,
            directory=directory,
            recorder=FileRecorder(directory),
            display=display,
        )
        write_atomic(directory.recipe, dump_toml(recipe.with_absolute_paths()))
        write_atomic(directory.environment, json.dumps(_environment(run, verifier.version, numerics), indent=1))
        if report is not None:
            write_atomic(directory.audit, report_json(report))
        with _stop_on_interrupt(run):
            _run_stages(run)
        return directory, _summary(run)
    finally:
        verifier.close()


def prepare(recipe: Recipe, verifier: TaskVerifier, display: Display) -> tuple[Policy, RenderedSets]:
    """Everything before the first token is sampled; raises for whatever the user must mend."""
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    with display.working("checking every gold answer"):
        sets, notes = build_tasks(recipe, verifier)
    with display.working(f"loading {recipe.model.name.rsplit('/', 1)[-1]}"):
        policy = build_policy(recipe)
        rendered = render_sets(recipe, sets, policy.loaded)
    for note in (*notes, *rendered.notes, policy.note):
        if note:
            display.line(note)
    check_paths(recipe, policy, rendered)
    return policy, rendered


def evaluate(recipe: Recipe, display: Display | None = None) -> StageSummary:
    """Measures the recipe's model on its held-out tasks; writes nothing.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    display = display or Quiet()
    verifier = build_verifier(recipe)
    try:
        policy, sets = prepare(recipe, verifier, display)
        return summarise("base", *evaluate_heldout(recipe, policy, verifier, sets, display, "evaluating"))
    finally:
        verifier.close()


def _run_stages(run: Run) -> None:
    _measure(run, "base", 0.0)
    for stage in run.recipe.stages:
        if run.stop_asked:
            break
        started = time.monotonic()
        if not _run_stage(run, stage):
            break
        _measure(run, stage.name, time.monotonic() - started)


def _run_stage(run: Run, stage: StageSection) -> bool:
    """True where the stage did at least one step, so that its weights are worth measuring."""
    train = run.sets.train
    if not isinstance(stage.algorithm, SftSection) and run.recipe.curation.enabled:
        train = sometimes_solved(
            run.recipe,
            stage.name,
            train,
            policy=run.policy,
            verifier=run.verifier,
            recorder=run.recorder,
            display=run.display,
        )
        if not train.tasks:
            run.display.line(
                "Every training prompt is always or never solved: GRPO has nothing to learn from. Stopped."
            )
            return False
    with run.display.working(f"{stage.name}: {stage.steps} steps") as advance:

        def on_step(step: int, metrics: dict[str, float]) -> None:
            advance(step, stage.steps, step_note(metrics))
            every = run.recipe.evaluation.every
            if every and step % every == 0 and step < stage.steps:
                _measure(run, f"{stage.name} step {step}", 0.0, final=False)

        outcome = run_stage(
            StageOptions(
                name=stage.name,
                num_steps=stage.steps,
                optim=optim_options(stage.optim),
                checkpoints=run.directory.checkpoints,
                checkpoint_every=stage.checkpoint_every,
                gap_bounds=step_bounds(run.recipe, run.policy),
            ),
            build_algorithm(
                run.recipe,
                stage,
                policy=run.policy,
                verifier=run.verifier,
                demonstrations=run.sets.demonstrations,
                train=train,
            ),
            run.policy.loaded,
            logprobs=run.policy.logprobs,
            recorder=run.recorder,
            policy_version=run.policy_version,
            on_new_weights=run.policy.engine.set_policy_version,
            on_step=on_step,
            should_stop=lambda: run.stop_asked,
        )
    run.policy_version = outcome.policy_version
    if outcome.stopped:
        run.display.line(f"Stopped after step {outcome.steps_done} of {stage.name}, as asked.")
    run.display.line(f"Checkpoint: {outcome.checkpoint}")
    return outcome.steps_done > 0


def step_note(metrics: dict[str, float]) -> str:
    """The few numbers of a step worth a place beside the progress bar."""
    if "nll" in metrics:
        return f"loss {metrics['nll']:.3f}"
    if "pass_rate" in metrics:
        live = f"{metrics['live_groups']:.0f}/{metrics['num_groups']:.0f}"
        return f"pass rate {metrics['pass_rate']:.2f}  live groups {live}"
    return ""


def _measure(run: Run, name: str, train_seconds: float, *, final: bool = True) -> None:
    """Evaluates the current weights; final results go into the summary, which is rewritten each time."""
    evaluation, rendered = evaluate_heldout(
        run.recipe, run.policy, run.verifier, run.sets, run.display, f"{name}: held-out evaluation"
    )
    summary = summarise(name, evaluation, rendered, train_seconds)
    run.recorder.event(
        "evaluation",
        {
            "name": name,
            "policy_version": run.policy_version,
            "pass_rate": summary.pass_rate,
            "greedy_pass_rate": summary.greedy_pass_rate,
            "seconds": evaluation.seconds,
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
        write_summary(run.directory.summary, _summary(run))


def _summary(run: Run) -> RunSummary:
    return RunSummary(
        stages=tuple(run.summaries),
        peak_memory_bytes=peak_memory_bytes(),
        seeds={"run": run.recipe.seed},
        versions=software_versions(),
    )


def _environment(run: Run, verifier_version: str, numerics: dict[str, object] | None) -> dict[str, object]:
    return {
        "versions": software_versions(),
        "verifier_version": verifier_version,
        "model_source": run.policy.loaded.source,
        "token_tree": not run.policy.note,
        "numerics": numerics,
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "num_tasks": {
            "demonstrations": len(run.sets.demonstrations),
            "train": len(run.sets.train.tasks),
            "heldout": len(run.sets.heldout.tasks),
        },
    }


def _no_advantages(groups: tuple[Group, ...]) -> list[list[float]]:
    return [[0.0] * len(g.rollouts) for g in groups]


@contextmanager
def _stop_on_interrupt(run: Run) -> Iterator[None]:
    """The first Ctrl-C asks the loop to end after its step; the second is an ordinary KeyboardInterrupt."""

    def ask(signum: int, frame: object) -> None:
        run.stop_asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run.display.line("Stopping after this step; press Ctrl-C again to stop at once.")

    try:
        before: Callable | int | None = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread: Ctrl-C is somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
