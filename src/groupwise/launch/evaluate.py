"""`groupwise eval`: any weights on a recipe's held-out tasks.

The recipe's model, another one, a checkpoint of a run, or a model behind an OpenAI-compatible endpoint: the tasks, the
verifier, the sampling and the seeds are the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import Recipe, load_recipe
from groupwise.errors import ConfigError, DataError, VerifierError
from groupwise.launch.assemble import RenderedTasks, build_tasks, evaluation_sampling
from groupwise.launch.display import Display, Quiet
from groupwise.launch.local import prepare
from groupwise.launch.measure import evaluate_heldout, evaluate_with, evaluation_facts, summarise
from groupwise.launch.verifiers import build_verifier
from groupwise.models.reward_files import FACTS_FILE
from groupwise.rollout.endpoint_engine import Endpoint, EndpointEngine
from groupwise.runs import RunDirectory, StageSummary, software_versions
from groupwise.runs.eval_files import EvaluatedModel, write_evaluation
from groupwise.training import Evaluation
from groupwise.training.checkpoint import PARTIAL
from groupwise.types import Prompt
from groupwise.verifiers import TaskVerifier

STATE_FILE = "groupwise.json"
"""What makes a folder of weights a checkpoint of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What `groupwise eval` found out.

    Example:
        evaluate_model(load_recipe("recipe.toml"), Quiet()).facts["pass_at"]      # {"1": 0.41, "2": 0.52, "4": 0.61}
    """

    about: EvaluatedModel
    recipe: Recipe
    """With the seed that was sampled with."""
    summary: StageSummary
    evaluation: Evaluation
    facts: Mapping[str, Any]
    """As a run records them in its event."""
    golds: Mapping[str, str]
    """A right completion of each task that has one, by task id."""
    notes: tuple[str, ...] = ()
    """What did not work as asked for, one sentence each."""

    def write(self, folder: str | Path) -> tuple[Path, Path]:
        """(results file, samples file); see runs/eval_files.py.

        Raises:
            DataError: if the folder cannot be written.
        """
        return write_evaluation(
            folder,
            self.about,
            groups=self.evaluation.groups,
            greedy_groups=self.evaluation.greedy_groups,
            golds=self.golds,
            facts=self.facts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights in a run folder.

    Example:
        Checkpoint(run=RunDirectory(Path("RUN")), folder=Path("RUN/checkpoints/grpo-30"), policy_version=30)
    """

    run: RunDirectory
    folder: Path
    policy_version: int


def evaluate(recipe: Recipe, display: Display | None = None) -> StageSummary:
    """Measures the recipe's model on its held-out tasks; writes nothing.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    return evaluate_model(recipe, display or Quiet()).summary


def evaluate_any(
    recipe: Recipe,
    display: Display,
    *,
    model: str | None = None,
    checkpoint: Checkpoint | None = None,
    endpoint: Endpoint | None = None,
    seed: int | None = None,
) -> Measured:
    """Measures what is named: the model behind an endpoint, a checkpoint, another model, or the recipe's own.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    if endpoint is not None:
        return evaluate_endpoint(recipe, endpoint, display, seed=seed)
    if checkpoint is not None:
        return evaluate_model(
            with_model(recipe, str(checkpoint.folder)),
            display,
            name=checkpoint.folder.name,
            policy_version=checkpoint.policy_version,
            seed=seed,
        )
    if model is not None:
        return evaluate_model(with_model(recipe, model), display, name=model.rstrip("/").rsplit("/", 1)[-1], seed=seed)
    return evaluate_model(recipe, display, seed=seed)


def evaluate_model(
    recipe: Recipe, display: Display, *, name: str = "base", policy_version: int = 0, seed: int | None = None
) -> Measured:
    """Measures the recipe's model on its held-out tasks; writes nothing.

    seed replaces the recipe's for sampling alone: the tasks stay the same. policy_version says how many updates the
    weights contain.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    verifier = build_verifier(recipe)
    try:
        policy, sets = prepare(recipe, verifier, display)
        seeded = _seeded(recipe, seed)
        policy.engine.set_policy_version(policy_version)
        evaluation, heldout = evaluate_heldout(seeded, policy, verifier, sets, display, f"{name}: held-out evaluation")
        return _measured(
            seeded,
            verifier,
            evaluation,
            heldout,
            name=name,
            model=policy.loaded.source,
            kind="groupwise",
            num_original=len(sets.heldout.tasks),
            policy_version=policy_version,
        )
    finally:
        verifier.close()


def evaluate_endpoint(recipe: Recipe, endpoint: Endpoint, display: Display, *, seed: int | None = None) -> Measured:
    """Measures a model behind an endpoint on the recipe's held-out tasks; no weights are loaded, nothing is written.

    No tokenizer is at hand, so that data.max_prompt_tokens drops nothing: a prompt that is too long for the server is
    a completion that does not arrive.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    verifier = build_verifier(recipe)
    try:
        with display.working("checking every gold answer"):
            sets, notes = build_tasks(recipe, verifier)
        for note in notes:
            display.line(note)
        seeded = _seeded(recipe, seed)
        tasks = sets.heldout[: seeded.evaluation.num_prompts]
        heldout = RenderedTasks(tasks=tasks, prompts=tuple(Prompt(task_id=task.id, token_ids=()) for task in tasks))
        engine = EndpointEngine(endpoint, {task.id: task.prompt for task in tasks})
        evaluation = evaluate_with(seeded, engine, verifier, heldout, display, f"{endpoint.model}: held-out evaluation")
        if engine.num_aborted:
            lost = f"{engine.num_aborted} completions did not arrive and are left out; the last one: {engine.failure}."
            engine.notes.append(lost)
        if engine.num_completion_tokens:
            engine.notes.append(
                f"The server counts {engine.num_prompt_tokens:,} prompt tokens and {engine.num_completion_tokens:,} "
                "completion tokens in all; lengths are those that it reports."
            )
        return _measured(
            seeded,
            verifier,
            evaluation,
            heldout,
            name=endpoint.model,
            model=endpoint.model,
            kind="openai-compatible",
            num_original=len(sets.heldout),
            notes=tuple(engine.notes),
            more={
                "endpoint": endpoint.url,
                "num_aborted": engine.num_aborted,
                "num_prompt_tokens": engine.num_prompt_tokens or None,
                "num_completion_tokens": engine.num_completion_tokens or None,
            },
        )
    finally:
        verifier.close()


def with_model(recipe: Recipe, name: str) -> Recipe:
    """The recipe with other weights, whole ones: a revision and adapters belong to the model that it names itself."""
    found = str(Path(name).resolve()) if Path(name).exists() else name
    section = recipe.model.model_copy(update={"name": found, "revision": None, "lora": None})
    return recipe.model_copy(update={"model": section})


def with_overrides(recipe: Recipe, *, samples: int | None = None, num_prompts: int | None = None) -> Recipe:
    """The recipe with another size of its evaluation; None = as it is.

    Raises:
        ConfigError: if nothing would be measured.
    """
    given = {"samples_per_prompt": samples, "num_prompts": num_prompts}
    section = recipe.evaluation.model_copy(update={key: value for key, value in given.items() if value is not None})
    if not section.samples_per_prompt and not section.greedy:
        raise ConfigError("--samples 0 with evaluation.greedy = false measures nothing; give 1 or more samples.")
    return recipe.model_copy(update={"evaluation": section})


def find_checkpoint(path: str | Path) -> Checkpoint:
    """A checkpoint of a run: RUN means the one with the most updates, whether its stage is finished or not;
    RUN/checkpoints/grpo-30 is that one. What a process left half-written when it died is none.

    Raises:
        DataError: if there is no run or no whole checkpoint of a policy at this path.
    """
    given = Path(path)
    if (given / STATE_FILE).is_file() and given.parent.name == "checkpoints":
        return _checkpoint(RunDirectory.open(given.parent.parent), given)
    run = RunDirectory.open(given)
    saved, damaged = [], ""
    for folder in run.checkpoints.glob("*"):
        if not (folder / STATE_FILE).is_file() or not _is_policy(folder) or folder.name.endswith(PARTIAL):
            continue
        try:
            saved.append(_checkpoint(run, folder))
        except DataError as error:  # an older one that is whole will do
            damaged = str(error)
    if not saved and damaged:
        raise DataError(damaged)
    if not saved:
        raise DataError(
            f"{str(path)!r} has no checkpoint of its policy yet; wait for its first stage to end, or measure the model "
            f"that it started from: groupwise eval {run.recipe}"
        )
    return max(saved, key=lambda found: (found.policy_version, found.folder.stat().st_mtime, found.folder.name))


def recipe_of(checkpoint: Checkpoint) -> Recipe:
    """The recipe of the run that a checkpoint is from.

    Raises:
        ConfigError: if the run has none that can be read.
    """
    return load_recipe(checkpoint.run.recipe)


def _checkpoint(run: RunDirectory, folder: Path) -> Checkpoint:
    if folder.name.endswith(PARTIAL):
        raise DataError(
            f"{str(folder)!r} was not written to its end: its process died; give another checkpoint, or the run folder"
        )
    if not _is_policy(folder):
        raise DataError(
            f"{str(folder)!r} is a reward model, which writes nothing; give a checkpoint of a stage that trains the "
            "policy"
        )
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        version = int(state["policy_version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{str(folder / STATE_FILE)!r} cannot be read ({type(error).__name__}: {error}); the checkpoint is damaged"
        ) from error
    return Checkpoint(run=run, folder=folder, policy_version=version)


def _is_policy(folder: Path) -> bool:
    return not (folder / FACTS_FILE).is_file()


def _seeded(recipe: Recipe, seed: int | None) -> Recipe:
    return recipe if seed is None else recipe.model_copy(update={"seed": seed})


def _measured(
    recipe: Recipe,
    verifier: TaskVerifier,
    evaluation: Evaluation,
    heldout: RenderedTasks,
    *,
    name: str,
    model: str,
    kind: str,
    num_original: int,
    policy_version: int = 0,
    notes: tuple[str, ...] = (),
    more: Mapping[str, Any] | None = None,
) -> Measured:
    summary = summarise(name, evaluation, heldout)
    sampling = evaluation_sampling(recipe)
    about = EvaluatedModel(
        task=recipe.name,
        model=model,
        kind=kind,
        verifier=recipe.verifier.kind,
        verifier_version=verifier.version,
        samples_per_prompt=evaluation.samples_per_prompt,
        num_original=num_original,
        seed=recipe.seed,
        generation={
            "do_sample": bool(evaluation.samples_per_prompt),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_gen_toks": sampling.max_tokens,
            "until": list(sampling.stop),
        },
        versions=software_versions(),
    )
    facts = evaluation_facts(recipe, name, policy_version, evaluation, summary)
    return Measured(
        about=about,
        recipe=recipe,
        summary=summary,
        evaluation=evaluation,
        facts={**facts, "verifier_version": verifier.version, **(more or {})},
        golds=_golds(verifier, heldout),
        notes=notes,
    )


def _golds(verifier: TaskVerifier, heldout: RenderedTasks) -> dict[str, str]:
    """Of the tasks that have one: a reward model, or an unusable gold that the recipe tolerates, has none."""
    golds = {}
    for task in heldout.tasks:
        try:
            golds[task.id] = verifier.gold(task)
        except (VerifierError, NotImplementedError):
            continue
    return golds
