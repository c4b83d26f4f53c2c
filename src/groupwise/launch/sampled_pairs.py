"""Before a dpo stage with source = "sampled": the model's own right and wrong answers become its pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from groupwise.config import Recipe
from groupwise.config.algorithm_dpo import DpoSection
from groupwise.curation.preference import ChosenPair, NoPair, PairRule, choose_pairs
from groupwise.launch.assemble import Policy, RenderedTasks, sampling
from groupwise.launch.display import Display
from groupwise.launch.spending import Spending
from groupwise.models import ScoredSequence
from groupwise.rollout import collect_groups
from groupwise.training.batch import derive_seed
from groupwise.training.grpo import refuse_unscored
from groupwise.training.pairs import ScoredPair
from groupwise.types import Group, Recorder, Rollout, Verifier

SHARE_FOR_SAMPLING = 0.5
"""Of a budget of seconds or operations: the rest is for training. Of a budget of rollout tokens it is 1, because
training on pairs samples nothing."""
COMPLETIONS_AT_ONCE = 256
"""Of one call of the engine where a budget is watched: it is asked between calls."""


def sampled_pairs(
    recipe: Recipe,
    stage_name: str,
    section: DpoSection,
    train: RenderedTasks,
    *,
    policy: Policy,
    policy_version: int,
    verifier: Verifier,
    recorder: Recorder,
    display: Display,
    spending: Spending,
) -> tuple[ScoredPair, ...]:
    """Samples the training prompts section.samples_per_prompt times with the present weights, as [rollout] says, and
    pairs what the verifier has judged as `choose_pairs` describes; none where no prompt gave a pair.

    With a budget the prompts come in a random order until their share of it is spent. All completions are recorded
    under the stage's name with "-pairs", advantage 1 for a chosen one, -1 for a rejected one; the event "pairs" counts
    the prompts that gave none. The token ids are those that were sampled.

    Raises:
        VerifierError: if more than curation.max_unscored_frac of the completions could not be judged.
    """
    assert section.samples_per_prompt is not None, "filled in where source says so"
    assert section.max_per_prompt is not None
    seed = derive_seed(recipe.seed, stage_name, "pairs")
    groups: list[Group] = []
    order = sorted(range(len(train.tasks)), key=lambda i: derive_seed(seed, train.tasks[i].id))
    at_once = len(order) if recipe.budget is None else max(1, COMPLETIONS_AT_ONCE // section.samples_per_prompt)
    title = f"{stage_name}: {section.samples_per_prompt} completions of {len(order)} training prompts"
    with display.working(title) as advance:
        for start in range(0, len(order), at_once):
            if recipe.budget is not None and spending.share >= _share(recipe.budget.unit):
                break
            chosen = order[start : start + at_once]
            before = len(groups) * section.samples_per_prompt
            groups += collect_groups(
                policy.engine,
                verifier,
                [train.tasks[i] for i in chosen],
                [train.prompts[i] for i in chosen],
                group_size=section.samples_per_prompt,
                sampling=sampling(recipe),
                seed=derive_seed(seed, start),
                progress=lambda done, _, before=before: advance(  # type: ignore[misc]
                    before + done, len(order) * (section.samples_per_prompt or 0)
                ),
            ).groups
    rule = PairRule(max_pairs=section.max_per_prompt, seed=seed)
    found = [choose_pairs([group], rule) for group in groups]
    pairs = [pair for prompt_pairs in found if not isinstance(prompt_pairs, NoPair) for pair in prompt_pairs]
    reasons = Counter(str(reason) for reason in found if isinstance(reason, NoPair))
    recorder.rollouts(f"{stage_name}-pairs", policy_version, groups, _advantages(groups, pairs))
    recorder.event(
        "pairs",
        {
            "stage": stage_name,
            "pairs": len(pairs),
            "prompts": len(groups),
            "prompts_without": dict(reasons),
            "solved": {group.task.id: group.num_solved for group in groups},
        },
    )
    others = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    num_giving = len(groups) - reasons.total()
    display.line(
        f"{stage_name}: {len(pairs)} pairs from {num_giving} of {len(groups)} training prompts"
        + (f"; the others: {others}." if others else ".")
    )
    refuse_unscored(groups, recipe.curation.max_unscored_frac)
    return tuple(ScoredPair(*(_sequence(pair.group, side) for side in (pair.chosen, pair.rejected))) for pair in pairs)


def _share(unit: str) -> float:
    return 1.0 if unit == "rollout_tokens" else SHARE_FOR_SAMPLING


def _sequence(group: Group, rollout: Rollout) -> ScoredSequence:
    prompt = group.prompt.token_ids
    return ScoredSequence(token_ids=(*prompt, *rollout.completion.token_ids), prompt_length=len(prompt))


def _advantages(groups: Sequence[Group], pairs: Sequence[ChosenPair]) -> list[list[float]]:
    signs = {id(pair.chosen): 1.0 for pair in pairs} | {id(pair.rejected): -1.0 for pair in pairs}
    return [[signs.get(id(rollout), 0.0) for rollout in group.rollouts] for group in groups]
