"""Which training prompts are worth rollouts: measured before a GRPO stage spends anything on them, or read."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from groupwise.config import Recipe
from groupwise.curation import CuratedRow, Decision, Reason, decide
from groupwise.curation.curation_file import LedgerFile, read_ledger, refuse_foreign
from groupwise.curation.decision import BEFORE_SAMPLING, task_key
from groupwise.errors import DataError
from groupwise.launch.assemble import Policy, RenderedTasks
from groupwise.launch.display import Display
from groupwise.launch.pass_rates import curate_options, measure_pass_rates, measured_with
from groupwise.training.batch import derive_seed
from groupwise.types import Group, Recorder
from groupwise.verifiers import TaskVerifier

LEDGER_ADVICE = (
    "Measure again with `groupwise curate`, into another --out, or remove curation.ledger: training then measures "
    "by itself."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The prompts that a stage trains on, and what is known of them."""

    train: RenderedTasks
    counts: Mapping[str, tuple[int, int]]
    """(solved, scored) by task id of every task that was measured, kept or not: together they tell how the rates are
    distributed. Empty where nothing was measured."""


def sometimes_solved(
    recipe: Recipe,
    stage_name: str,
    train: RenderedTasks,
    *,
    policy: Policy,
    verifier: TaskVerifier,
    recorder: Recorder,
    display: Display,
    saw: Callable[[Sequence[Group]], object] = lambda groups: None,
) -> Selection:
    """The training tasks that the model solves sometimes; the others are set aside, counted and written down.

    Measures curation.samples_per_prompt completions of each task (of curation.num_prompts of them, where that is set)
    and up to curation.max_samples_per_prompt of those whose answer stays open; or reads what curation.ledger, which
    was drawn and measured before, says of all of them. `saw` gets what was sampled.

    Raises:
        VerifierError: if more than curation.max_unscored_frac of them could not be judged.
        DataError: a ledger that was measured with something else, or lacks some of the tasks.
    """
    section = recipe.curation
    if section.ledger is None:
        train = drawn(train, section.num_prompts, derive_seed(recipe.seed, stage_name, "drawn"))
    if section.ledger is not None:
        ledger = read_ledger(recipe.resolve(section.ledger))
        refuse_foreign(ledger, measured_with(recipe, policy, verifier), LEDGER_ADVICE)
        rows = rows_of(ledger, train)
        options = curate_options(recipe)
        decisions = tuple(decide(row, ledger.prior, options) for row in rows)
        keep_undecided = bool(ledger.summary.get("keep_undecided"))
        how = f"by {ledger.path.name}"
    elif section.samples_per_prompt < 2:
        return Selection(train=train, counts={})
    else:
        curation = measure_pass_rates(
            recipe,
            train,
            options=curate_options(recipe),
            policy=policy,
            verifier=verifier,
            seed=derive_seed(recipe.seed, stage_name, "curation"),
            display=display,
            title=f"{stage_name}: pass rate of {len(train.tasks)} training prompts",
            saw=saw,
        )
        rows, decisions, keep_undecided = curation.rows, curation.decisions(), False
        how = f"with {section.samples_per_prompt} to {section.max_samples_per_prompt} samples"
    keeps = (Reason.KEPT, Reason.UNDECIDED) if keep_undecided else (Reason.KEPT,)
    kept = [i for i, decision in enumerate(decisions) if decision.reason in keeps]
    event = _event(rows, decisions)
    recorder.event(
        "curated",
        {
            "stage": stage_name,
            "samples_per_prompt": section.samples_per_prompt,
            "ledger": section.ledger,
            "kept": len(kept),
            "num_rollouts": sum(row.num_samples for row in rows),
            **event,
        },
    )
    display.line(f"{stage_name}: {_told(event, len(rows), len(kept), how)}")
    return Selection(
        train=RenderedTasks(tasks=tuple(train.tasks[i] for i in kept), prompts=tuple(train.prompts[i] for i in kept)),
        counts={row.id: (row.solved, row.scored) for row in rows if row.scored},
    )


def refuse_foreign_ledger(recipe: Recipe, policy: Policy, verifier: TaskVerifier) -> None:
    """Stops before anything is trained where curation.ledger will not fit the stage that reads it.

    Raises:
        DataError: with what differs, or with the stage that trains the weights first.
    """
    section = recipe.curation
    learners = [i for i, stage in enumerate(recipe.stages) if stage.selects_prompts]
    if section.ledger is None or not section.enabled or not learners:
        return
    ledger = read_ledger(recipe.resolve(section.ledger))
    if learners[0] > 0:
        raise DataError(
            f"curation.ledger = {section.ledger!r} was measured before the run, but stage "
            f"{recipe.stages[learners[0]].name!r} starts from the weights of stage "
            f"{recipe.stages[learners[0] - 1].name!r}, of which its counts say nothing.\n"
            "  Train the earlier stages in a run of their own and curate with their checkpoint, or remove "
            "curation.ledger: training then measures by itself."
        )
    refuse_foreign(ledger, measured_with(recipe, policy, verifier), LEDGER_ADVICE)


def rows_of(ledger: LedgerFile, train: RenderedTasks) -> tuple[CuratedRow, ...]:
    """The ledger's row of each task, found by the task's content: ids change when rows are dropped from a file.

    Raises:
        DataError: where tasks are missing in the ledger.
    """
    known: dict[str, list[CuratedRow]] = {}
    for row in sorted(ledger.rows, key=lambda row: row.excluded is not None):
        known.setdefault(row.key, []).append(row)
    keys = [task_key(task) for task in train.tasks]
    missing = [task.id for task, key in zip(train.tasks, keys, strict=True) if key not in known]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(train.tasks)} training tasks are not in {ledger.path}, for instance "
            f"{missing[0]!r}: they are new, or their prompt or gold has changed.\n"
            "  Run `groupwise curate` again: it measures what is missing and keeps the rest."
        )
    found = []
    for key, task in zip(keys, train.tasks, strict=True):
        same = known[key]  # equal tasks: one has the counts, the others are its duplicates
        found.append(replace(same.pop(0) if len(same) > 1 else same[0], id=task.id))
    return tuple(found)


def _event(rows: Sequence[CuratedRow], decisions: Sequence[Decision]) -> dict[str, object]:
    """Task ids by outcome. An undecided prompt also counts with those that it looks like."""
    ids: dict[str, list[str]] = {"always_solved": [], "never_solved": [], "undecided": [], "not_sampled": []}
    for row, decision in zip(rows, decisions, strict=True):
        if decision.reason in BEFORE_SAMPLING or not row.scored:
            ids["not_sampled"].append(row.id)
            continue
        if decision.reason is Reason.UNDECIDED:
            ids["undecided"].append(row.id)
        if decision.reason is not Reason.KEPT:
            ids["always_solved" if 2 * row.solved > row.scored else "never_solved"].append(row.id)
    return {
        **ids,
        "solved": {row.id: row.solved for row in rows},
        "scored": {row.id: row.scored for row in rows},
    }


def _told(event: Mapping[str, object], num_prompts: int, num_kept: int, how: str) -> str:
    num = {name: len(ids) for name, ids in event.items() if isinstance(ids, list)}
    text = (
        f"of {num_prompts} training prompts, {num['never_solved']} are never solved and {num['always_solved']} always: "
        f"set aside; {num_kept} stay ({how})."
    )
    if num["undecided"]:
        text += f" {num['undecided']} are not surely so: more samples would tell."
    if num["not_sampled"]:
        text += f" {num['not_sampled']} have no count: their golds, duplicates or leaks; see the ledger."
    return text


def drawn(train: RenderedTasks, num_prompts: int | None, seed: int) -> RenderedTasks:
    """num_prompts of the tasks, drawn without repetition, in their own order; all where it is None or too many."""
    if num_prompts is None or num_prompts >= len(train.tasks):
        return train
    rows = sorted(random.Random(seed).sample(range(len(train.tasks)), num_prompts))
    return RenderedTasks(tasks=tuple(train.tasks[i] for i in rows), prompts=tuple(train.prompts[i] for i in rows))
