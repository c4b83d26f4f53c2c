"""Before an sft stage with source = "best_of_n": the model's own right completions become its demonstrations."""

from __future__ import annotations

from groupwise.config import Recipe
from groupwise.config.stage import SftSection
from groupwise.curation.best_of_n import SolvedChoice, choose_solved
from groupwise.launch.assemble import Policy, RenderedTasks, sampling
from groupwise.launch.display import Display
from groupwise.models import ScoredSequence
from groupwise.rollout import collect_groups
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import refuse_unscored
from groupwise.types import Group, Recorder, Verifier


def solved_demonstrations(
    recipe: Recipe,
    stage_name: str,
    section: SftSection,
    train: RenderedTasks,
    *,
    policy: Policy,
    policy_version: int,
    verifier: Verifier,
    recorder: Recorder,
    display: Display,
) -> tuple[ScoredSequence, ...]:
    """Samples every training prompt section.samples_per_prompt times with the present weights, as [rollout] says, and
    keeps right completions as `choose_solved` describes; none where nothing was solved.

    All completions are recorded under the stage's name with "-best-of-n", advantage 1 for a demonstration and 0 else;
    the event "best_of_n" counts the prompts that gave none. The token ids are those that were sampled.

    Raises:
        VerifierError: if more than curation.max_unscored_frac of the completions could not be judged.
    """
    assert section.samples_per_prompt is not None, "filled in where source says so"
    assert section.max_per_prompt is not None
    assert section.prefer is not None
    seed = derive_seed(recipe.seed, stage_name, "best_of_n")
    title = f"{stage_name}: {section.samples_per_prompt} completions of {len(train.tasks)} training prompts"
    with display.working(title) as advance:
        groups = collect_groups(
            policy.engine,
            verifier,
            train.tasks,
            train.prompts,
            group_size=section.samples_per_prompt,
            sampling=sampling(recipe),
            seed=seed,
            progress=advance,
        ).groups
    choice = choose_solved(groups, max_per_prompt=section.max_per_prompt, prefer=section.prefer, seed=seed)
    recorder.rollouts(f"{stage_name}-best-of-n", policy_version, groups, _advantages(groups, choice))
    recorder.event("best_of_n", {"stage": stage_name, **_counts(groups, choice)})
    display.line(f"{stage_name}: {told(choice)}")
    refuse_unscored(groups, recipe.curation.max_unscored_frac)
    return tuple(
        ScoredSequence(
            token_ids=(*group.prompt.token_ids, *rollout.completion.token_ids),
            prompt_length=len(group.prompt.token_ids),
        )
        for group, chosen in zip(groups, choice.rollouts, strict=True)
        for rollout in chosen
    )


def told(choice: SolvedChoice) -> str:
    """One sentence for the user: how many demonstrations of how many prompts, and why the others gave none."""
    num_giving = sum(reason is None for reason in choice.reasons)
    text = f"{choice.num_chosen} demonstrations from {num_giving} of {len(choice.reasons)} training prompts"
    counts = ", ".join(f"{reason} {count}" for reason, count in choice.counts().items())
    return f"{text}; the others: {counts}." if counts else f"{text}."


def _counts(groups: list[Group], choice: SolvedChoice) -> dict[str, object]:
    return {
        "demonstrations": choice.num_chosen,
        "prompts": len(groups),
        "prompts_without": choice.counts(),
        "samples": sum(len(group.rollouts) for group in groups),
        "unscored": sum(len(group.rollouts) - group.num_scored for group in groups),
        "solved": {group.task.id: group.num_solved for group in groups},
    }


def _advantages(groups: list[Group], choice: SolvedChoice) -> list[list[float]]:
    """1 for what is imitated and 0 for the rest: the policy gradient that this fine-tuning is."""
    return [
        [float(any(rollout is one for one in chosen)) for rollout in group.rollouts]
        for group, chosen in zip(groups, choice.rollouts, strict=True)
    ]
