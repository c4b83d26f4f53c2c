"""Which training prompts are worth rollouts: measured before a GRPO stage spends anything on them."""

from __future__ import annotations

import random
from collections import Counter

from groupwise.config import Recipe
from groupwise.launch.assemble import Policy, RenderedTasks, sampling
from groupwise.launch.display import Display
from groupwise.rollout import collect_groups
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import refuse_unscored
from groupwise.types import Recorder, Verifier


def sometimes_solved(
    recipe: Recipe,
    stage_name: str,
    train: RenderedTasks,
    *,
    policy: Policy,
    verifier: Verifier,
    recorder: Recorder,
    display: Display,
) -> RenderedTasks:
    """The training tasks that the model solves sometimes; the others are set aside, counted and written down.

    Measures curation.samples_per_prompt completions of each task (of curation.num_prompts of them, where that is set).

    Raises:
        VerifierError: if more than curation.max_unscored_frac of them could not be judged.
    """
    section = recipe.curation
    train = _drawn(train, section.num_prompts, derive_seed(recipe.seed, stage_name, "drawn"))
    num_samples = section.samples_per_prompt
    if num_samples < 2:
        return train
    with display.working(f"{stage_name}: pass rate of {len(train.tasks)} training prompts") as advance:
        groups = collect_groups(
            policy.engine,
            verifier,
            train.tasks,
            train.prompts,
            group_size=num_samples,
            sampling=sampling(recipe),
            seed=derive_seed(recipe.seed, stage_name, "curation"),
            progress=advance,
        ).groups
    refuse_unscored(groups, section.max_unscored_frac)
    always = [g.task.id for g in groups if g.num_scored and g.num_solved == g.num_scored]
    never = [g.task.id for g in groups if g.num_solved == 0]
    kept = [i for i, g in enumerate(groups) if not g.is_dead]
    recorder.event(
        "curated",
        {
            "stage": stage_name,
            "samples_per_prompt": num_samples,
            "kept": len(kept),
            "always_solved": always,
            "never_solved": never,
            "solved": {g.task.id: g.num_solved for g in groups},
        },
    )
    counts = Counter(g.num_solved for g in groups)
    display.line(
        f"{stage_name}: of {len(groups)} training prompts, {len(never)} are never solved and {len(always)} always: set "
        f"aside; {len(kept)} stay. Solved of {num_samples} samples: "
        + ", ".join(f"{solved} x{counts[solved]}" for solved in range(num_samples + 1))
    )
    return RenderedTasks(tasks=tuple(train.tasks[i] for i in kept), prompts=tuple(train.prompts[i] for i in kept))


def _drawn(train: RenderedTasks, num_prompts: int | None, seed: int) -> RenderedTasks:
    """num_prompts of the tasks, drawn without repetition, in their own order; all where it is None or too many."""
    if num_prompts is None or num_prompts >= len(train.tasks):
        return train
    rows = sorted(random.Random(seed).sample(range(len(train.tasks)), num_prompts))
    return RenderedTasks(tasks=tuple(train.tasks[i] for i in rows), prompts=tuple(train.prompts[i] for i in rows))
