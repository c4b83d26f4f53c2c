"""A whole run in this process: measure, train stage by stage, measure again, write it all down; or go on with one."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from groupwise.config import Recipe, dump_toml, scoring_part
from groupwise.errors import DataError
from groupwise.launch.assemble import Policy, RenderedSets, build_policy, build_tasks, render_sets
from groupwise.launch.assemble_dpo import build_pairs, render_pairs
from groupwise.launch.assemble_ppo import refuse_missing_critics
from groupwise.launch.audit import audit_before_training, report_json
from groupwise.launch.diagnosing import diagnosed
from groupwise.launch.display import Display, Quiet
from groupwise.launch.environment import environment_of
from groupwise.launch.held_back import refuse_unusable_held_back
from groupwise.launch.numerics import check_paths, check_sampling
from groupwise.launch.prompt_ledgers import keep_finished
from groupwise.launch.recording import check_trackers
from groupwise.launch.resume import inputs_digest, plan_restart, refuse_other_inputs, take_over, take_weights
from groupwise.launch.reward_model_stage import refuse_few_pairs
from groupwise.launch.run_plan import plan_run, read_plan, write_plan
from groupwise.launch.run_state import Run, close_run, new_run, summary_of
from groupwise.launch.select import refuse_foreign_ledger
from groupwise.launch.spending import spending_of
from groupwise.launch.stages import run_stages
from groupwise.launch.verifiers import build_verifier
from groupwise.runs import (
    RunDirectory,
    RunSummary,
    StageLog,
    software_versions,
    text_digest,
    write_atomic,
    write_stage_log,
)
from groupwise.verifiers import TaskVerifier


def train(
    recipe: Recipe, display: Display | None = None, *, accept_audit: bool = False
) -> tuple[RunDirectory, RunSummary]:
    """Runs every stage of a recipe; returns where it was written and what it achieved.

    Everything that can be wrong with the recipe, the data, the golds or the model is refused before a file is written.
    So is a verifier that a fast audit finds to pay for wrong answers, unless `accept_audit`.
    One Ctrl-C ends the run after the step under way, with a checkpoint and a summary; a second one ends it at once.
    A stage that finds nothing to learn from ends early and says why. Where no stage did a single step, that is an
    error, so that the command's exit code says so; what was sampled is on record.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    display = display or Quiet()
    check_trackers(recipe)
    verifier = build_verifier(recipe)
    try:
        policy, sets = prepare(recipe, verifier, display, with_pairs=True)
        refuse_foreign_ledger(recipe, policy, verifier)
        audited = (*sets.train.tasks, *sets.heldout.tasks)
        report = audit_before_training(scoring_part(recipe), verifier, audited, display, accept=accept_audit)
        numerics = check_sampling(recipe, policy, sets, display)
        directory = RunDirectory.create(recipe.resolve(recipe.output_dir), recipe.name)
        with directory.claimed():
            text = dump_toml(recipe.with_absolute_paths())
            log = StageLog(
                groupwise=software_versions()["groupwise"],
                recipe=text_digest(text),
                inputs=inputs_digest(recipe, sets),
            )
            run = new_run(recipe, policy, verifier, sets, directory, display, log)
            run.plan = plan_run(recipe, policy, sets)
            write_atomic(directory.recipe, text)
            write_plan(directory, run.plan)
            write_atomic(directory.environment, json.dumps(environment_of(run, verifier.version, numerics), indent=1))
            if report is not None:
                write_atomic(directory.audit, report_json(report))
            write_stage_log(directory, log)
            return _to_its_end(run)
    finally:
        verifier.close()


def resume(
    path: str | Path,
    display: Display | None = None,
    *,
    recipe: Recipe | None = None,
    from_stage: str | None = None,
) -> tuple[RunDirectory, RunSummary]:
    """Goes on with a run that was stopped, or crashed at any moment; returns the same as `train`.

    Finished stages are kept, the next one starts from the last one's checkpoint; one that was under way starts again
    from its beginning, and what it had written is moved to abandoned-1, -2, ... in the run folder. from_stage does a
    stage and all after it again. recipe may change the stages that are still to do, and nothing else; None = the one
    in the run folder. The audit is not repeated: tasks and verifier are proven to be the same.

    Raises:
        GroupwiseError: for anything the user can mend; the run is then left as it was.
    """
    display = display or Quiet()
    directory = RunDirectory.open(path)
    with directory.claimed():
        restart = plan_restart(directory, recipe, from_stage)
        check_trackers(restart.recipe)
        verifier = build_verifier(restart.recipe)
        try:
            policy, sets = prepare(restart.recipe, verifier, display, with_pairs=True)
            refuse_other_inputs(restart, directory, inputs_digest(restart.recipe, sets))
            refuse_foreign_ledger(restart.recipe, policy, verifier)
            take_weights(restart, directory, policy)
            check_sampling(restart.recipe, policy, sets, display)
            run = new_run(restart.recipe, policy, verifier, sets, directory, display, restart.log)
            take_over(run, restart)
            _begin_again(run)
            return _to_its_end(run)
        finally:
            verifier.close()


def _begin_again(run: Run) -> None:
    """The files of the whole run for a restart: the plan that it was begun with, unless its stages were changed; the
    ledgers of finished stages; and no diagnosis of an attempt that was stopped."""
    run.plan = read_plan(run.directory, run.recipe)
    if run.plan is None:
        run.plan = plan_run(run.recipe, run.policy, run.sets)
        write_plan(run.directory, run.plan)
    keep_finished(run.directory, {entry.name for entry in run.log.finished})
    run.directory.diagnosis.unlink(missing_ok=True)


def _to_its_end(run: Run) -> tuple[RunDirectory, RunSummary]:
    try:
        with diagnosed(run), _stop_on_interrupt(run):
            run_stages(run)
    finally:
        close_run(run)
        if line := how_to_go_on(run):
            run.display.line(line)
    if run.no_signal and run.policy_version == 0:
        raise DataError(f"no step was done. {run.no_signal}\n  What was sampled: {run.directory.path}")
    return run.directory, summary_of(run)


def how_to_go_on(run: Run) -> str:
    """The command for the stages that are left after an early end; empty where there are none, or where the budget is
    spent, so that nothing would be done."""
    left = [stage.name for stage in run.recipe.stages[max(0, len(run.log.finished) - 1) :]]
    if not left or (run.spending.is_used_up and not run.stop_asked):
        return ""
    command = f"groupwise train --resume {shlex.quote(str(run.directory.path))}"
    if run.no_signal and not run.stop_asked:
        how = "To go on with other [[stages]] settings; all else needs a new run"
        return f"Left: {', '.join(left)}. {how}:\n  {command} RECIPE"
    return f"Left: {', '.join(left)}. To go on:\n  {command}"


def prepare(
    recipe: Recipe, verifier: TaskVerifier, display: Display, *, with_pairs: bool = False
) -> tuple[Policy, RenderedSets]:
    """Everything before the first token is sampled; raises for whatever the user must mend.

    Pairs are read where training needs them only: a model can be measured, and sampled for pairs, before there are any.
    """
    refuse_missing_critics(recipe)
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    with display.working("checking every gold answer"):
        sets, notes = build_tasks(recipe, verifier)
        pairs = build_pairs(recipe, sets.heldout) if with_pairs else ()
        if with_pairs:
            refuse_unusable_held_back(recipe, sets.heldout)
    with display.working(f"loading {recipe.model.name.rsplit('/', 1)[-1]}"):
        policy = build_policy(recipe)
        spending_of(recipe, policy)  # refuses a budget that cannot be counted
        rendered = render_sets(recipe, sets, policy.loaded)
        if pairs:
            scored, pair_notes = render_pairs(recipe, pairs, policy.loaded)
            refuse_few_pairs(recipe, scored)
            rendered = replace(rendered, pairs=scored, notes=(*rendered.notes, *pair_notes))
    for note in (*notes, *rendered.notes, policy.note):
        if note:
            display.line(note)
    check_paths(recipe, policy, rendered)
    return policy, rendered


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
