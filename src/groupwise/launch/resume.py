"""Restarting a run: which stage it goes on with, what must be the same as before, and what is moved out of its way.

A finished stage is kept: checkpoint, evaluation, rows. The stage that was under way starts again from its beginning
with the weights of the one before it, because no optimizer state is kept inside a stage. Seeds depend on the recipe
alone, so that a restarted run ends as one that was never stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from groupwise.config import Recipe, dump_toml, load_recipe
from groupwise.config.load import read_text
from groupwise.errors import DataError
from groupwise.launch.assemble import Policy, RenderedSets
from groupwise.launch.run_state import Run, summary_of
from groupwise.launch.verifiers import build_verifier
from groupwise.models.restore import restore_weights
from groupwise.runs import (
    BASE,
    RESTARTED,
    FinishedStage,
    RunDirectory,
    StageLog,
    StageSummary,
    read_events,
    read_stage_log,
    read_summary,
    set_aside,
    software_versions,
    text_digest,
    write_atomic,
    write_stage_log,
    write_summary,
)

NUM_SHOWN = 5
"""Differences of two recipes that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What a restart will do.

    Example:
        Restart(recipe=recipe, text=dump_toml(...), log=log_up_to_sft, rows=(base, sft), stage="grpo")
    """

    recipe: Recipe
    text: str
    """recipe.toml of the run from now on."""
    log: StageLog
    """The finished stages that are kept."""
    rows: tuple[StageSummary, ...]
    """Their evaluations."""
    stage: str
    """Where it begins again: "base", or the name of a stage."""

    @property
    def last(self) -> FinishedStage | None:
        """The last stage that is kept."""
        return self.log.finished[-1] if self.log.finished else None


def plan_restart(directory: RunDirectory, given: Recipe | None, from_stage: str | None) -> Restart:
    """Reads the run and decides; writes nothing.

    given replaces the run's recipe and may differ from it only in the stages that are still to do. from_stage does that
    stage and those after it again, though they are finished; None = the first stage that is not.

    Raises:
        DataError: another groupwise, a recipe.toml that was edited, a recipe that differs too early, an unknown stage
            or one before which another is not finished, or nothing left to do.
    """
    log = read_stage_log(directory)
    _refuse_other_version(directory, log)
    text = read_text(directory.recipe)
    if log.recipe and log.recipe != text_digest(text):
        raise DataError(
            f"{directory.recipe} was changed since the run was trained; it says what was done, not what is to do.\n"
            "  Undo the change, write a recipe of your own, and give both: groupwise train RECIPE --resume RUN."
        )
    kept_recipe = load_recipe(directory.recipe)
    recipe = given or kept_recipe
    first = _first_stage(directory, recipe, log, from_stage)
    if given is not None:
        text = dump_toml(given.with_absolute_paths())
        _refuse_early_differences(kept_recipe, given.with_absolute_paths(), max(first, 0))
    if first == len(recipe.stages):
        raise DataError(
            f"{directory.path}: every stage is finished ({', '.join(s.name for s in recipe.stages)}); nothing is left "
            "to do.\n  Give --from-stage to do a stage again, or a recipe with more stages."
        )
    finished = log.finished[: first + 1]
    measured = [stage.name for stage in finished if stage.name != BASE or kept_recipe.evaluation.base]
    rows = read_summary(directory.summary).stages[: len(measured)] if measured else ()
    if [row.name for row in rows] != measured:
        raise DataError(
            f"{directory.summary} lacks the evaluations of finished stages; it has {', '.join(r.name for r in rows)}.\n"
            "  Restore it, or run recipe.toml anew."
        )
    return Restart(
        recipe=recipe,
        text=text,
        log=replace(log, finished=finished),
        rows=rows,
        stage=recipe.stages[first].name if first >= 0 else BASE,
    )


def inputs_digest(recipe: Recipe, sets: RenderedSets) -> str:
    """16 hexadecimal digits of everything beside recipe and weights that a run depends on: what the verifier's verdicts
    depend on, and every prompt, column, demonstration and pair as the model sees it."""
    verifier = build_verifier(recipe.with_absolute_paths())  # a version counts the paths as they are written
    try:
        digest = hashlib.sha256(verifier.version.encode())
    finally:
        verifier.close()
    for tasks in (sets.train, sets.heldout):
        for task, prompt in zip(tasks.tasks, tasks.prompts, strict=True):
            digest.update(repr((task.id, prompt.token_ids, sorted(task.columns.items(), key=str))).encode())
        digest.update(b"|")
    digest.update(repr((sets.demonstrations, sets.pairs)).encode())
    return digest.hexdigest()[:16]


def take_weights(restart: Restart, directory: RunDirectory, policy: Policy) -> None:
    """Gives the model the weights of the last stage that is kept.

    Raises:
        EngineError: if its checkpoint is gone or does not fit.
    """
    last = restart.last
    if last is None:
        return
    if last.weights is not None:
        restore_weights(policy.loaded, directory.path / last.weights)
    policy.engine.set_policy_version(last.policy_version)


def take_over(run: Run, restart: Restart) -> None:
    """Moves away what was not finished, and makes `run` go on behind the last stage that is kept.

    stages.json is rewritten first and last, so that a crash in between leaves a run that can be restarted again.
    """
    directory, last = run.directory, restart.last
    changed = restart.text != directory.recipe.read_text(encoding="utf-8")
    log = replace(restart.log, groupwise=software_versions()["groupwise"], recipe="")
    write_stage_log(directory, log)
    moved_to = set_aside(directory, log, always=changed)
    write_atomic(directory.recipe, restart.text)
    run.log = replace(log, recipe=text_digest(restart.text))
    write_stage_log(directory, run.log)
    run.summaries = list(restart.rows)
    if run.summaries:
        run.peak_before = read_summary(directory.summary).peak_memory_bytes or 0
        write_summary(directory.summary, summary_of(run))
    else:
        directory.summary.unlink(missing_ok=True)  # rows of stages that were not finished; a copy is set aside
    if last is not None:
        run.policy_version, run.weights = last.policy_version, last.weights
        run.spending.restore(read_events(directory.events) if directory.events.exists() else ())
    run.recorder.event(
        RESTARTED,
        {
            "stage": restart.stage,
            "weights": run.weights,
            "policy_version": run.policy_version,
            "set_aside": moved_to,
            "recipe_changed": changed,
            "versions": software_versions(),
        },
    )
    weights = "the untrained model" if run.weights is None else f"the weights of {run.weights}"
    run.display.line(f"Restarting at {restart.stage}, from its beginning, with {weights}.")
    if moved_to:
        run.display.line(f"What was there of it and of later stages is kept in {directory.path / moved_to}.")


def refuse_other_inputs(restart: Restart, directory: RunDirectory, inputs: str) -> None:
    """Stops where the data or the verifier are no longer those that the finished stages were trained and measured with.

    Raises:
        DataError: says so.
    """
    if restart.log.inputs != inputs:
        raise DataError(
            f"{directory.path}: the tasks or what the verifier depends on (its code, its databases) have changed since "
            "the run began, so that its stages could not be compared.\n"
            "  Restore them, or start a new run; model.name may be a checkpoint of this one."
        )


def _refuse_other_version(directory: RunDirectory, log: StageLog) -> None:
    installed = software_versions()["groupwise"]
    if log.groupwise != installed:
        raise DataError(
            f"{directory.path} was made by groupwise {log.groupwise}, this is {installed}: its stages might not mean "
            f"the same.\n  Install groupwise {log.groupwise}, or start a new run from its last checkpoint (model.name)."
        )


def _first_stage(directory: RunDirectory, recipe: Recipe, log: StageLog, from_stage: str | None) -> int:
    """Index of the first stage to do; -1 = the measurement of the base comes first."""
    num_finished = len(log.finished) - 1
    if from_stage is None:
        return num_finished
    names = [stage.name for stage in recipe.stages]
    if from_stage not in names:
        raise DataError(f"--from-stage {from_stage}: the recipe has no such stage; it has {', '.join(names)}.")
    wanted = names.index(from_stage)
    if wanted > max(num_finished, 0):
        missing = names[max(num_finished, 0)]
        raise DataError(
            f"--from-stage {from_stage}: stage {missing!r} before it is not finished in {directory.path}.\n"
            "  Leave --from-stage out to go on with that one."
        )
    return min(wanted, num_finished)


def _refuse_early_differences(kept: Recipe, given: Recipe, first: int) -> None:
    """Stages before index `first`, and everything outside [[stages]], must be the same."""
    old, new = kept.model_dump(), given.model_dump()
    old["stages"], new["stages"] = old["stages"][:first], new["stages"][:first]
    found = _differences(old, new, "")
    if found:
        shown = "\n".join(f"  {line}" for line in found[:NUM_SHOWN])
        more = f"\n  and {len(found) - NUM_SHOWN} more" if len(found) > NUM_SHOWN else ""
        where = given.stages[first].name if first < len(given.stages) else "the new stages"
        raise DataError(
            f"the recipe differs from the run's before {where}:\n{shown}{more}\n"
            "  Change only stages that are still to do, give --from-stage to do earlier ones again, or start a new run."
        )


def _differences(old: Any, new: Any, place: str) -> list[str]:
    """One line a leaf: "rollout.group_size: 8 in the run, 16 in the recipe"."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = [*old, *(name for name in new if name not in old)]
        return [line for name in names for line in _differences(old.get(name), new.get(name), f"{place}.{name}")]
    if isinstance(old, tuple) and isinstance(new, tuple) and any(isinstance(item, Mapping) for item in (*old, *new)):
        return _differences(dict(enumerate(old)), dict(enumerate(new)), place)
    return [] if old == new else [f"{place.lstrip('.')}: {_shown(old)} in the run, {_shown(new)} in the recipe"]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('name', 'a section')!s}"
    return "nothing" if value is None else repr(value)
