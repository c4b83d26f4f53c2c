"""`groupwise curate`: a recipe's training prompts to a curated file, a ledger of reasons, and a page that sums it up.

    curated-NAME/
      ledger.jsonl    one row a prompt: counts, posterior, kept or why not; rewritten after every call of the engine
      ledger.json     what it was measured with, the fitted prior, lengths
      curated.jsonl   the rows of the training file that are kept, with all their columns
      summary.html    one page for people

A second call in the same folder goes on from the ledger: after an interruption, with more samples, with new rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from groupwise.config import Recipe
from groupwise.curation import (
    CuratedRow,
    CurateOptions,
    Curation,
    Decision,
    Exclusion,
    Reason,
    Screening,
    screen,
)
from groupwise.curation.curation_file import LEDGER, Identity, LedgerFile, read_ledger, refuse_foreign, write_ledger
from groupwise.curation.curation_page import curation_page
from groupwise.curation.decision import task_key
from groupwise.data import TaskSets, render_prompt
from groupwise.data.sources import Row
from groupwise.data.splits import RowSets
from groupwise.data.tasks import read_sets, tasks_of
from groupwise.errors import ConfigError, DataError
from groupwise.launch.assemble import RenderedSets, RenderedTasks, build_policy
from groupwise.launch.display import Display, Quiet
from groupwise.launch.numerics import check_paths
from groupwise.launch.pass_rates import curate_options, measure_pass_rates, measured_with
from groupwise.launch.questions import questions_of, same_answer
from groupwise.launch.select import drawn
from groupwise.launch.verifiers import build_verifier
from groupwise.models.token_tree import shared_prefix_length
from groupwise.pages import render_page
from groupwise.runs import write_atomic
from groupwise.training.batch import derive_seed
from groupwise.verifiers import TaskVerifier

_NOTHING = RenderedTasks(tasks=(), prompts=())


@dataclass(frozen=True, slots=True, kw_only=True)
class CurateChoices:
    """What a call asks for beyond the recipe's [curation].

    Example:
        CurateChoices(budget=20_000, drop_undetermined=True)
    """

    out: Path | None = None
    """Folder of the results; None = curated-NAME beside the recipe."""
    budget: int | None = None
    """Completions in all, those of earlier calls included; None = no limit."""
    drop_undetermined: bool = False
    """Drop prompts whose gold a wrong answer may equal, instead of marking them."""
    keep_undecided: bool = False
    """Put undecided prompts into the curated file, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curated:
    """What a call has made."""

    folder: Path
    curation: Curation
    decisions: tuple[Decision, ...]
    summary: Mapping[str, Any]
    """The contents of ledger.json."""
    num_kept: int
    """Rows of curated.jsonl."""
    data_lines: tuple[str, ...]
    """The lines of [data] that use it."""

    @property
    def ledger(self) -> Path:
        """The ledger's path."""
        return self.folder / LEDGER

    def next_lines(self, recipe: Path) -> tuple[str, ...]:
        """What to do now; `recipe` is the recipe's file."""
        if not self.num_kept:
            counts = Counter(decision.reason for decision in self.decisions)
            hard = counts[Reason.NEVER_SOLVED] + counts[Reason.TOO_HARD]
            easy = counts[Reason.ALWAYS_SOLVED] + counts[Reason.TOO_EASY]
            advice = "train an sft stage first, or give easier prompts" if hard >= easy else "give harder prompts"
            if counts[Reason.UNDECIDED] > hard + easy:
                advice = "give larger limits (--max-samples, --budget), or --keep-undecided"
            if not counts[Reason.UNDECIDED] + hard + easy:
                advice = "no prompt was left to sample, for the reasons above"
            return (f"There is nothing to train on: {advice}.",)
        return (
            f"Train on the {self.num_kept:,} kept prompts with this in [data]:",
            *(f"  {line}" for line in self.data_lines),
            f"Next: groupwise plan {recipe} --ledger {self.ledger}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What a call works on."""

    recipe: Recipe
    choices: CurateChoices
    folder: Path
    rows: RowSets
    sets: TaskSets
    display: Display


def with_samples(recipe: Recipe, samples: int | None, max_samples: int | None) -> Recipe:
    """The recipe with other numbers of samples; the larger number grows with the smaller where it is not given."""
    section = recipe.curation
    fewest = section.samples_per_prompt if samples is None else samples
    most = max(fewest, section.max_samples_per_prompt) if max_samples is None else max_samples
    changes = {"samples_per_prompt": fewest, "max_samples_per_prompt": most}
    return recipe.model_copy(update={"curation": section.model_copy(update=changes)})


def curate_recipe(recipe: Recipe, display: Display | None = None, choices: CurateChoices | None = None) -> Curated:
    """Screens and samples the recipe's training prompts with its model; writes the folder above.

    Ctrl-C loses the completions of one call of the engine at most.

    Raises:
        GroupwiseError: for what the user must mend; among it a ledger in the folder that was measured with another
            model, verifier or sampling.
    """
    choices = choices or CurateChoices()
    if recipe.curation.samples_per_prompt < 1:
        raise ConfigError(
            "curation.samples_per_prompt = 0 measures nothing; set it to 1 or more, or give --samples (4 is usual)"
        )
    options = curate_options(recipe, budget=choices.budget)
    rows = read_sets(recipe.data, recipe.folder, recipe.seed)
    sets = tasks_of(rows, recipe.data, recipe.folder)
    if not sets.train:
        raise DataError("[data] names no training tasks to curate; set data.train, or data.source with [data.split]")
    job = _Job(
        recipe=recipe,
        choices=choices,
        folder=choices.out or recipe.folder / f"curated-{recipe.name}",
        rows=rows,
        sets=sets,
        display=display or Quiet(),
    )
    ledger = job.folder / LEDGER
    earlier = read_ledger(ledger) if ledger.exists() else None
    verifier = build_verifier(recipe)
    try:
        return _curated(job, options, verifier, earlier)
    except KeyboardInterrupt:
        if ledger.exists():
            job.display.line(f"What was sampled is in {ledger}; the same command goes on from there.")
        raise
    finally:
        verifier.close()


def _curated(job: _Job, options: CurateOptions, verifier: TaskVerifier, earlier: LedgerFile | None) -> Curated:
    recipe, display = job.recipe, job.display
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    screening = _screened(job, verifier)
    with display.working(f"loading {recipe.model.name.rsplit('/', 1)[-1]}"):
        policy = build_policy(recipe)
        prompts = tuple(render_prompt(task, policy.loaded.tokenizer) for task in job.sets.train)
    if policy.note:
        display.line(policy.note)
    train = RenderedTasks(tasks=job.sets.train, prompts=prompts)
    screening = _with_limits(recipe, train, screening)
    sampled = _without(train, screening.excluded)
    if sampled.tasks:
        check_paths(recipe, policy, RenderedSets(demonstrations=(), train=sampled, heldout=_NOTHING, notes=()))
    identity = measured_with(recipe, policy, verifier)
    known = () if earlier is None else _known(earlier, identity, job)
    if earlier is not None:
        identity = replace(identity, seed=earlier.identity.seed)
    more = {"keep_undecided": job.choices.keep_undecided, "trunk_tokens": _trunk_tokens(sampled)}

    def save(curation: Curation) -> Mapping[str, Any]:
        return write_ledger(job.folder / LEDGER, curation, identity, more)

    curation = measure_pass_rates(
        recipe,
        train,
        options=options,
        policy=policy,
        verifier=verifier,
        seed=derive_seed(recipe.seed, "curate"),
        display=display,
        title=f"sampling {len(sampled.tasks)} prompts",
        screening=screening,
        known=known,
        save=save,
    )
    return _finished(job, curation, save(curation))


def _screened(job: _Job, verifier: TaskVerifier) -> Screening:
    recipe, sets, display = job.recipe, job.sets, job.display
    with display.working(f"checking {len(sets.train)} gold answers"):
        findings = verifier.check(sets.train)
    with display.working("looking for duplicates and leaks"):
        screening = screen(
            questions_of(recipe, sets.train, verifier),
            questions_of(recipe, sets.heldout, verifier),
            broken={finding.task_id: finding.reason for finding in findings if finding.blocking},
            weak={finding.task_id: finding.reason for finding in findings if not finding.blocking},
            drop_weak=job.choices.drop_undetermined,
            same_answer=same_answer(verifier, [*sets.heldout, *sets.train]),
        )
    if screening.excluded:
        counts = Counter(str(exclusion.reason) for exclusion in screening.excluded.values())
        found = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
        task_id, first = next(iter(screening.excluded.items()))
        display.line(
            f"{len(screening.excluded)} of {len(sets.train)} prompts need no sampling: {found}. "
            f"For instance {task_id}: {first.reason}, {first.detail}"
        )
    return screening


def _with_limits(recipe: Recipe, train: RenderedTasks, screening: Screening) -> Screening:
    """The screening, with prompts that are too long and those beyond curation.num_prompts."""
    limit = recipe.data.max_prompt_tokens
    excluded = dict(screening.excluded)
    for task, prompt in zip(train.tasks, train.prompts, strict=True):
        if len(prompt.token_ids) > limit and task.id not in excluded:
            detail = f"{len(prompt.token_ids)} tokens, data.max_prompt_tokens is {limit}"
            excluded[task.id] = Exclusion(reason=Reason.TOO_LONG, detail=detail)
    left = _without(train, excluded)
    chosen = drawn(left, recipe.curation.num_prompts, derive_seed(recipe.seed, "drawn"))
    kept = {task.id for task in chosen.tasks}
    for task in left.tasks:
        if task.id not in kept:
            detail = f"{len(kept)} of {len(left.tasks)} were drawn"
            excluded[task.id] = Exclusion(reason=Reason.NOT_DRAWN, detail=detail)
    return replace(screening, excluded=excluded)


def _without(train: RenderedTasks, excluded: Mapping[str, Exclusion]) -> RenderedTasks:
    pairs = [pair for pair in zip(train.tasks, train.prompts, strict=True) if pair[0].id not in excluded]
    return RenderedTasks(tasks=tuple(task for task, _ in pairs), prompts=tuple(prompt for _, prompt in pairs))


def _known(earlier: LedgerFile, identity: Identity, job: _Job) -> tuple[CuratedRow, ...]:
    """The rows to go on from.

    Raises:
        DataError: measured with something else, or mostly about other prompts.
    """
    advice = "Give another --out, or remove the folder."
    refuse_foreign(earlier, identity, advice)
    keys = {task_key(task) for task in job.sets.train}
    counted = [row for row in earlier.rows if row.num_samples]
    lost = [row for row in counted if row.key not in keys]
    if 2 * len(lost) > len(counted):
        raise DataError(
            f"{earlier.path} is about other prompts: {len(lost)} of its {len(counted)} sampled prompts are not in the "
            f"data, for instance {lost[0].id!r}, or have another gold now. {advice}"
        )
    if lost:
        job.display.line(f"{len(lost)} sampled prompts of the ledger are no longer in the data: left out")
    if counted:
        num = sum(row.num_samples for row in counted) - sum(row.num_samples for row in lost)
        job.display.line(f"going on from {num} completions in {earlier.path}")
    return earlier.rows


def _trunk_tokens(train: RenderedTasks) -> int:
    """Leading tokens that all prompts share."""
    ids = [prompt.token_ids for prompt in train.prompts]
    return min((shared_prefix_length(ids[0], other) for other in ids), default=0)


def _finished(job: _Job, curation: Curation, summary: Mapping[str, Any]) -> Curated:
    """Writes the curated rows and the page; says where they are."""
    keeps = (Reason.KEPT, Reason.UNDECIDED) if job.choices.keep_undecided else (Reason.KEPT,)
    decisions = curation.decisions()
    kept = [row for row, d in zip(job.rows.train, decisions, strict=True) if d.reason in keeps]
    files = {"train": ("curated.jsonl", kept)}
    if job.recipe.data.source is not None:  # a divided source cannot be replaced in one of its parts
        files["heldout"] = ("heldout.jsonl", list(job.rows.heldout))
        if job.rows.demonstrations:
            files["demonstrations"] = ("demonstrations.jsonl", list(job.rows.demonstrations))
    lines = []
    for key, (name, rows) in files.items():
        changed = _write_rows(job.folder / name, rows)
        if changed:
            job.display.line(f"{name}: values of {', '.join(changed)} are no JSON and became text")
        lines.append(f'{key} = "{_named(job.folder / name, job.recipe.folder)}"')
    page = curation_page(job.recipe.name, curation, summary)
    write_atomic(job.folder / "summary.html", render_page(page))
    return Curated(
        folder=job.folder,
        curation=curation,
        decisions=decisions,
        summary=summary,
        num_kept=len(kept),
        data_lines=tuple(lines),
    )


def _write_rows(path: Path, rows: Sequence[Row]) -> list[str]:
    """Writes rows as JSON lines; returns the columns with values that JSON does not have (dates), written as text."""
    changed: set[str] = set()
    lines = []
    for row in rows:
        for column, value in row.columns.items():
            try:
                json.dumps(value)
            except TypeError:
                changed.add(column)
        lines.append(json.dumps(dict(row.columns), default=str) + "\n")
    write_atomic(path, "".join(lines))
    return sorted(changed)


def _named(path: Path, folder: Path) -> str:
    """The path as a recipe in `folder` would name it."""
    try:
        return path.absolute().relative_to(folder.absolute()).as_posix()
    except ValueError:
        return path.absolute().as_posix()
