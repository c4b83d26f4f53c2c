"""From a recipe to objects: the only file that knows every part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.config import Recipe
from groupwise.config.algorithm_dpo import DpoSection
from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.curation import CurationSection
from groupwise.config.stage import OptimSection, SftSection, StageSection
from groupwise.curation import PromptLedger, RetireRule, fit_prior
from groupwise.data import TaskSets, drop_long, load_tasks, render_demonstration, render_prompt
from groupwise.errors import DataError, VerifierError
from groupwise.launch.assemble_dpo import build_dpo
from groupwise.launch.assemble_grpo import decoder, grpo_options, reference_logprobs
from groupwise.launch.assemble_ppo import build_ppo
from groupwise.launch.display import Display, Quiet
from groupwise.models import LoadedModel, ScoredSequence, load_model, padded_scores, tree_scores, why_no_tree
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing
from groupwise.models.logprobs import ScoreFunction
from groupwise.models.lora import add_lora
from groupwise.rollout import Engine, Sampling, TorchEngine
from groupwise.rollout.engine import Progress
from groupwise.training import OptimOptions, grpo, sft
from groupwise.training.algorithm import Algorithm
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import StepSampling
from groupwise.training.pairs import ScoredPair
from groupwise.types import Prompt, Task
from groupwise.verifiers import TaskVerifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The model with the two ways of using it."""

    loaded: LoadedModel
    engine: Engine
    scores: ScoreFunction
    note: str
    """Says so where the model needs the slower path; else empty."""
    value_meter: Callable[[ScoreFunction], ScoreFunction] | None = None
    """Put around the scores of a value network, where a run counts its work; see spending.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedTasks:
    """Tasks with their prompts; prompts[i] belongs to tasks[i]."""

    tasks: tuple[Task, ...]
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSets:
    """All tasks of a run as the model sees them."""

    demonstrations: tuple[ScoredSequence, ...]
    train: RenderedTasks
    heldout: RenderedTasks
    notes: tuple[str, ...]
    """One sentence for each set from which tasks were dropped."""
    pairs: tuple[ScoredPair, ...] = ()
    """What dpo and reward models learn from; empty where no stage does."""


def build_tasks(recipe: Recipe, verifier: TaskVerifier) -> tuple[TaskSets, tuple[str, ...]]:
    """The recipe's tasks, every gold of them proven usable, with a note on those that were dropped.

    Raises:
        DataError: for files, columns and sizes that cannot be used.
        VerifierError: for unusable golds, unless the recipe says to drop them.
    """
    sets = load_tasks(recipe.data, recipe.folder, recipe.seed)
    everything = [*sets.demonstrations, *sets.train, *sets.heldout]
    findings = verifier.check(everything)
    unusable = {u.task_id: u.reason for u in findings if u.blocking}
    notes: tuple[str, ...] = ()
    if weak := [found.reason for found in findings if not found.blocking]:
        reason, count = Counter(weak).most_common(1)[0]
        notes = (f"{len(weak)} of {len(everything)} golds prove little; {count} times: {reason}",)
    if unusable and recipe.verifier.unusable_gold == "refuse":
        raise VerifierError(_unusable_message(unusable, len(everything)))
    if unusable:
        reasons = Counter(reason.split(" ")[0].rstrip(":") for reason in unusable.values())
        counts = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        notes = (
            *notes,
            f"{len(unusable)} of {len(everything)} tasks dropped for their gold: {counts}",
        )
        sets = TaskSets(
            **{
                name: tuple(t for t in getattr(sets, name) if t.id not in unusable)
                for name in ("demonstrations", "train", "heldout")
            }
        )
    _refuse_small_sets(
        recipe, demonstrations=len(sets.demonstrations), train=len(sets.train), heldout=len(sets.heldout)
    )
    return sets, notes


def _unusable_message(unusable: dict[str, str], num_tasks: int) -> str:
    shown = "\n".join(f"  {task_id}: {reason}" for task_id, reason in list(unusable.items())[:5])
    return (
        f"{len(unusable)} of {num_tasks} golds cannot be used:\n{shown}\n"
        '  Mend them, filter them out with data.where_not, or set verifier.unusable_gold = "drop".'
    )


def _refuse_small_sets(recipe: Recipe, *, demonstrations: int, train: int, heldout: int) -> None:
    """A step must not hold a task twice, and an empty set teaches or measures nothing."""
    for stage in recipe.stages:
        if isinstance(stage.algorithm, SftSection) and stage.algorithm.source == "best_of_n":
            given, wanted, setting, what = train, 1, "one to sample", "training tasks"  # its demonstrations come later
        elif isinstance(stage.algorithm, DpoSection) and stage.algorithm.source == "sampled":
            given, wanted, setting, what = train, 1, "one to sample", "training tasks"  # and so do its pairs
        elif isinstance(stage.algorithm, SftSection):
            given, wanted, setting = demonstrations, stage.algorithm.tasks_per_step, "tasks_per_step"
            what = "demonstrations"
        elif stage.learns_from_rollouts:
            given, wanted, setting = train, recipe.rollout.prompts_per_step, "rollout.prompts_per_step"
            what = "training tasks"
        else:
            continue  # pairs are counted where they are read
        if given < wanted:
            raise DataError(
                f"stage {stage.name!r}: a step needs {wanted} {what} ({setting}), the data has {given}.\n"
                f"  Lower {setting} to at most {given}, or give more tasks."
            )
    if not heldout:
        raise DataError("no held-out task is left to evaluate on; give more, or filter fewer out.")


def build_policy(recipe: Recipe) -> Policy:
    """Loads the model and chooses the token tree where the model can be served by it."""
    section = recipe.model
    name = section.name
    if (recipe.folder / name).exists() or name.startswith("."):
        name = str(recipe.resolve(name))
    loaded = load_model(name, device=section.device, dtype=section.dtype, revision=section.revision)
    if section.lora is not None:
        seed = derive_seed(recipe.seed, "lora")
        add_lora(loaded.model, **section.lora.model_dump(), seed=seed, source=loaded.source)
    reason = why_no_tree(loaded.model)
    scores: ScoreFunction = tree_scores if reason is None else padded_scores
    if section.gradient_checkpointing:
        scores = with_gradient_checkpointing(scores)
    note = "" if reason is None else f"This model runs without the token tree, which is slower: {reason}."
    return Policy(
        loaded=loaded,
        engine=TorchEngine(
            loaded,
            max_rows=recipe.rollout.max_rows,
            cache_gb=recipe.rollout.cache_gb,
            use_tree=reason is None,
        ),
        scores=scores,
        note=note,
    )


def render_sets(recipe: Recipe, sets: TaskSets, loaded: LoadedModel) -> RenderedSets:
    """Tasks to token ids; a prompt longer than data.max_prompt_tokens is dropped and counted, never cut."""
    notes: list[str] = []
    limit = recipe.data.max_prompt_tokens

    def render(name: str, tasks: Sequence[Task]) -> RenderedTasks:
        prompts, num_dropped = drop_long([render_prompt(t, loaded.tokenizer) for t in tasks], max_tokens=limit)
        if num_dropped:
            notes.append(f"{num_dropped} of {len(tasks)} {name} prompts dropped: over {limit} tokens")
        kept = {prompt.task_id for prompt in prompts}
        return RenderedTasks(tasks=tuple(task for task in tasks if task.id in kept), prompts=prompts)

    demonstrations = render("demonstration", sets.demonstrations)
    end = loaded.end_token_ids[0]
    completions = [render_demonstration(task, loaded.tokenizer, end)[1] for task in demonstrations.tasks]
    train, heldout = render("training", sets.train), render("held-out", sets.heldout)
    _refuse_small_sets(recipe, demonstrations=len(completions), train=len(train.tasks), heldout=len(heldout.tasks))
    return RenderedSets(
        demonstrations=tuple(
            ScoredSequence(token_ids=(*prompt.token_ids, *completion), prompt_length=len(prompt.token_ids))
            for prompt, completion in zip(demonstrations.prompts, completions, strict=True)
        ),
        train=train,
        heldout=heldout,
        notes=tuple(notes),
    )


def sampling(recipe: Recipe) -> Sampling:
    """How training rollouts are drawn."""
    section = recipe.rollout
    return Sampling(
        max_tokens=section.max_completion_tokens,
        temperature=section.temperature,
        top_p=section.top_p,
        top_k=section.top_k,
        stop=tuple(section.stop),
    )


def step_sampling(recipe: Recipe) -> StepSampling:
    """How many rollouts a GRPO step draws."""
    section = recipe.rollout
    sizes = section.allocation
    return StepSampling(
        prompts_per_step=section.prompts_per_step,
        group_size=section.group_size,
        extra_rounds=section.extra_rounds,
        size_bounds=None if sizes is None else (sizes.min_group_size, sizes.max_group_size),
    )


def evaluation_sampling(recipe: Recipe) -> Sampling:
    """How held-out samples are drawn: from the whole vocabulary at evaluation.temperature, whatever training does."""
    return Sampling(
        max_tokens=recipe.rollout.max_completion_tokens,
        temperature=recipe.evaluation.temperature,
        stop=tuple(recipe.rollout.stop),
    )


def build_algorithm(
    recipe: Recipe,
    stage: StageSection,
    *,
    policy: Policy,
    verifier: Any,
    demonstrations: tuple[ScoredSequence, ...],
    train: RenderedTasks,
    pairs: tuple[ScoredPair, ...] = (),
    counts: Mapping[str, tuple[int, int]] | None = None,
    progress: Callable[[int], Progress] | None = None,
    display: Display | None = None,
) -> Algorithm:
    """The algorithm of one stage over its data; what it must compute before the first step is shown on `display`.

    counts are (solved, scored) by task id, measured before the stage: of all tasks, those too that are not trained on,
    because together they tell how the pass rates are distributed.
    """
    seed = derive_seed(recipe.seed, stage.name)
    section = stage.algorithm
    if isinstance(section, SftSection):
        return sft(demonstrations, tasks_per_step=min(section.tasks_per_step, len(demonstrations)), seed=seed)
    if isinstance(section, DpoSection):
        return build_dpo(
            section,
            loaded=policy.loaded,
            scores=policy.scores,
            pairs=pairs,
            seed=seed,
            tokens_per_microbatch=stage.optim.tokens_per_microbatch,
            display=display or Quiet(),
        )
    ledger = PromptLedger(
        [task.id for task in train.tasks],
        seed=derive_seed(seed, "order"),
        rule=retire_rule(recipe.curation) if stage.selects_prompts else None,
        probe_every=recipe.curation.probe_every,
        prior=fit_prior([*(counts or {}).values()]),
        counts=counts,
    )
    if isinstance(section, PpoSection):
        return build_ppo(
            section,
            recipe=recipe,
            optim=optim_options(stage.optim),
            loaded=policy.loaded,
            scores=policy.scores,
            engine=policy.engine,
            verifier=verifier,
            tasks=train.tasks,
            prompts=train.prompts,
            ledger=ledger,
            sampling=sampling(recipe),
            seed=seed,
            progress=progress,
            value_meter=policy.value_meter,
        )
    assert isinstance(section, GrpoSection), "a reward model is another network: reward_model_stage.py"
    return grpo(
        grpo_options(recipe, section, verifier),
        engine=policy.engine,
        verifier=verifier,
        tasks=train.tasks,
        prompts=train.prompts,
        ledger=ledger,
        step_sampling=step_sampling(recipe),
        sampling=sampling(recipe),
        seed=seed,
        reference_logprobs=reference_logprobs(recipe, stage, loaded=policy.loaded, scores=policy.scores),
        decode=decoder(policy.loaded),
        progress=progress,
    )


def retire_rule(section: CurationSection) -> RetireRule | None:
    """When a prompt is set aside; None where the recipe trains on every prompt."""
    if not (section.enabled and section.retire_confidence):
        return None
    return RetireRule(
        solved_above=section.solved_above,
        hopeless_below=section.hopeless_below,
        confidence=section.retire_confidence,
    )


def optim_options(section: OptimSection) -> OptimOptions:
    """The optimizer settings under the same names."""
    return OptimOptions(**section.model_dump())
