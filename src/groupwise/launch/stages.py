"""The stages of a run, one after the other: choose what to learn from, train, measure, and say what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from groupwise.config.algorithm_dpo import DpoSection
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.stage import SftSection, StageSection
from groupwise.launch.assemble import RenderedTasks, build_algorithm, optim_options
from groupwise.launch.best_of_n import solved_demonstrations
from groupwise.launch.diagnosing import warn_early
from groupwise.launch.forecast import Forecast, Meter, errors_line
from groupwise.launch.numerics import step_bounds
from groupwise.launch.prompt_ledgers import write_ledger
from groupwise.launch.reward_model_stage import run_reward_model_stage
from groupwise.launch.run_state import Run, mark_finished, measure, summary_of
from groupwise.launch.sampled_pairs import sampled_pairs
from groupwise.launch.select import sometimes_solved
from groupwise.launch.spending import SPENT
from groupwise.launch.stage_watch import StageWatch
from groupwise.models import ScoredSequence
from groupwise.runs import BASE, StageSummary, write_summary
from groupwise.training import StageOptions, run_stage
from groupwise.training.algorithm import Algorithm
from groupwise.training.loop import StageOutcome
from groupwise.training.pairs import ScoredPair
from groupwise.training.process_memory import peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What one stage learns from."""

    demonstrations: tuple[ScoredSequence, ...]
    train: RenderedTasks
    pairs: tuple[ScoredPair, ...] = ()
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """(solved, scored) by task id, where it was measured."""
    nothing: str = ""
    """Why there is nothing to learn from; empty where there is something."""


def run_stages(run: Run) -> None:
    """Measures the base and runs every stage that run.log does not call finished.

    Each begins with the weights that the one before it left. A stage that was stopped is measured, and is not finished:
    a restart does it again from its beginning. One that a budget has ended is finished, and so is the run.
    """
    if not run.log.finished:
        if run.recipe.evaluation.base:
            measure(run, BASE, 0.0)
        mark_finished(run, BASE)
    for stage in run.recipe.stages[len(run.log.finished) - 1 :]:
        if run.stop_asked or run.spending.is_used_up:
            break
        if isinstance(stage.algorithm, RewardModelSection):
            with run.spending.learning():
                is_done = _train_reward_model(run, stage)
            _tell_spending(run, stage)
            if is_done or (run.spending.is_used_up and not run.stop_asked):
                mark_finished(run, stage.name)
            continue
        started = time.monotonic()
        with run.spending.learning():
            outcome = _run_stage(run, stage)
        _tell_spending(run, stage)
        if outcome is None or not outcome.steps_done:
            break
        measure(run, stage.name, time.monotonic() - started)
        by_budget = run.spending.is_used_up and not run.stop_asked
        if outcome.diagnosis or by_budget or outcome.steps_done == stage.steps:
            mark_finished(run, stage.name)


def material_of(run: Run, stage: StageSection) -> Material:
    """Chooses the training tasks, or samples the demonstrations, where the stage asks for it."""
    section, sets = stage.algorithm, run.sets
    if isinstance(section, SftSection) and section.source == "best_of_n":
        found = solved_demonstrations(
            run.recipe,
            stage.name,
            section,
            sets.train,
            policy=run.policy,
            policy_version=run.policy_version,
            verifier=run.verifier,
            recorder=run.recorder,
            display=run.display,
        )
        nothing = "" if found else f"{stage.name}: no training prompt was solved: there is nothing to imitate."
        return Material(demonstrations=found, train=sets.train, nothing=nothing)
    if isinstance(section, DpoSection) and section.source == "sampled":
        return _sampled_pairs_of(run, stage, section)
    if not (stage.selects_prompts and run.recipe.curation.enabled):
        return Material(demonstrations=sets.demonstrations, train=sets.train, pairs=sets.pairs)
    selection = sometimes_solved(
        run.recipe,
        stage.name,
        sets.train,
        policy=run.policy,
        verifier=run.verifier,
        recorder=run.recorder,
        display=run.display,
        saw=run.forecaster.saw_training if run.forecaster is not None else lambda groups: None,
    )
    nothing = "Every training prompt is always or never solved: GRPO has nothing to learn from."
    return Material(
        demonstrations=sets.demonstrations,
        train=selection.train,
        counts=selection.counts,
        nothing=nothing if sets.train.tasks and not selection.train.tasks else "",
    )


def _sampled_pairs_of(run: Run, stage: StageSection, section: DpoSection) -> Material:
    found = sampled_pairs(
        run.recipe,
        stage.name,
        section,
        run.sets.train,
        policy=run.policy,
        policy_version=run.policy_version,
        verifier=run.verifier,
        recorder=run.recorder,
        display=run.display,
        spending=run.spending,
    )
    nothing = ""
    if len(found) < section.pairs_per_step:
        nothing = f"{stage.name}: {len(found)} pairs were made, a step needs {section.pairs_per_step} (pairs_per_step)."
    return Material(demonstrations=(), train=run.sets.train, pairs=found, nothing=nothing)


def step_note(metrics: Mapping[str, float]) -> str:
    """The few numbers of a step worth a place beside the progress bar."""
    if "nll" in metrics:
        return f"loss {metrics['nll']:.3f}"
    if "reward_margin" in metrics:
        return f"margin {metrics['reward_margin']:.3f}  accuracy {metrics['accuracy']:.2f}"
    if "explained_variance" in metrics:
        kl = f"  KL {metrics['kl_to_ref_sum']:.2f} nats" if "kl_to_ref_sum" in metrics else ""
        return f"reward {metrics['reward_mean']:.2f}  explained variance {metrics['explained_variance']:.2f}{kl}"
    if "pass_rate" in metrics:
        live = f"{metrics['live_groups']:.0f}/{metrics['num_groups']:.0f}"
        return f"pass rate {metrics['pass_rate']:.2f}  live groups {live}"
    return ""


def _run_stage(run: Run, stage: StageSection) -> StageOutcome | None:
    """None where there was nothing to learn from; run.no_signal then says why."""
    material = material_of(run, stage)
    run.no_signal = material.nothing
    if material.nothing:
        run.display.line(f"{material.nothing} Stopped.")
        return None
    task_ids = [task.id for task in material.train.tasks]
    forecast = None if run.forecaster is None else run.forecaster.stage(stage, material.counts, task_ids)
    meter, watch = Meter(), StageWatch(run, stage)
    algorithm = build_algorithm(
        run.recipe,
        stage,
        policy=run.policy,
        verifier=run.verifier,
        demonstrations=material.demonstrations,
        train=material.train,
        pairs=material.pairs,
        counts=material.counts,
        progress=watch.sampling,
        display=run.display,
    )
    outcome = _train(run, stage, algorithm, meter, watch, forecast)
    write_ledger(run.directory, stage.name, algorithm, {entry.name for entry in run.log.finished})
    run.policy_version = outcome.policy_version
    if outcome.steps_done:
        run.weights = f"{run.directory.checkpoints.name}/{outcome.checkpoint.name}"
    if forecast is not None and meter.steps:
        _tell_forecast(run, stage.name, forecast, meter)
    _tell_outcome(run, stage, outcome)
    return outcome


def _train_reward_model(run: Run, stage: StageSection) -> bool:
    """True where it did all its steps. The policy stays as it is, and so does what was measured of it: the stage's row
    in the summary is the last one under the stage's name."""
    started = time.monotonic()
    done = run_reward_model_stage(
        run.recipe,
        stage,
        run.policy.loaded,
        run.sets.pairs,
        checkpoints=run.directory.checkpoints,
        recorder=run.recorder,
        display=run.display,
        should_stop=lambda: run.stop_asked or run.spending.is_used_up,
    )
    if run.summaries:  # none where evaluation.base leaves the base out
        run.summaries.append(_unchanged(run.summaries[-1], stage.name, time.monotonic() - started))
    write_summary(run.directory.summary, summary_of(run))
    return done.outcome.steps_done == stage.steps


def _unchanged(before: StageSummary, name: str, seconds: float) -> StageSummary:
    return replace(before, name=name, seconds=seconds, is_policy_unchanged=True)


def _train(
    run: Run, stage: StageSection, algorithm: Algorithm, meter: Meter, watch: StageWatch, forecast: Forecast | None
) -> StageOutcome:
    """The steps of the stage while its display shows them."""
    with run.display.training(watch.outlook(forecast)) as watch.screen:

        def on_step(step: int, metrics: dict[str, float]) -> None:
            meter.add(metrics)
            watch.step(step, metrics, step_note(metrics))
            run.policy_version = int(metrics["policy_version"])  # evaluations inside the stage name it
            every = run.recipe.evaluation.every
            if every and step % every == 0 and step < stage.steps:
                with run.spending.uncounted():
                    measure(run, f"{stage.name} step {step}", 0.0, final=False)
            warn_early(run, stage.name, step, metrics)
            if run.spending.is_used_up or step == stage.steps:
                run.spending.stop()  # what comes now is the checkpoint

        def on_empty(num_in_a_row: int, metrics: Mapping[str, float]) -> None:
            limit = run.recipe.curation.max_empty_steps
            run.display.line(
                f"{stage.name}: no signal, {num_in_a_row} of at most {limit} in a row: {step_note(metrics)}"
            )
            warn_early(run, stage.name, num_in_a_row, metrics)

        return run_stage(
            _stage_options(run, stage),
            algorithm,
            run.policy.loaded,
            scores=run.policy.scores,
            recorder=run.recorder,
            policy_version=run.policy_version,
            on_new_weights=run.policy.engine.set_policy_version,
            on_step=on_step,
            on_empty=on_empty,
            should_stop=lambda: run.stop_asked or run.spending.is_used_up,
        )


def _stage_options(run: Run, stage: StageSection) -> StageOptions:
    return StageOptions(
        name=stage.name,
        num_steps=stage.steps,
        optim=optim_options(stage.optim),
        checkpoints=run.directory.checkpoints,
        checkpoint_every=stage.checkpoint_every,
        gap_bounds=step_bounds(run.recipe, run.policy),
        max_empty_steps=run.recipe.curation.max_empty_steps,
    )


def _tell_outcome(run: Run, stage: StageSection, outcome: StageOutcome) -> None:
    run.no_signal = outcome.diagnosis
    if outcome.diagnosis:
        run.display.line(f"{stage.name} ended after {outcome.steps_done} of {stage.steps} steps. {outcome.diagnosis}")
    if outcome.stopped and run.stop_asked:
        run.display.line(f"Stopped after step {outcome.steps_done} of {stage.name}, as asked.")
    run.display.line(f"Checkpoint: {outcome.checkpoint}")


def _tell_spending(run: Run, stage: StageSection) -> None:
    """How much of the budget is gone after a stage."""
    if run.recipe.budget is not None:
        run.recorder.event(SPENT, {"stage": stage.name, **run.spending.as_json()})
        unit, limit = run.recipe.budget.unit, run.recipe.budget.limit
        run.display.line(f"{stage.name}: {run.spending.share:.0%} of the budget of {limit:g} {unit} spent")


def _tell_forecast(run: Run, stage_name: str, forecast: Forecast, meter: Meter) -> None:
    """What the stage was expected to take and what it took."""
    compared = meter.compared(forecast, peak_bytes())
    run.recorder.event("forecast", {"stage": stage_name, "steps": meter.steps, **compared})
    run.display.line(errors_line(stage_name, compared))
