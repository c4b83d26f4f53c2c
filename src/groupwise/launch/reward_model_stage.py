"""A reward_model stage of a run: pairs in, a folder with a reward model and what it is worth out.

The policy is copied and stays as it is. Of every prompt with its pairs, a share is held out and never trained on; on
these the model is measured: how often it prefers the better side, and whether it is as often right as it is sure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from groupwise.config import Recipe
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.stage import StageSection
from groupwise.errors import DataError
from groupwise.launch.assemble import optim_options
from groupwise.launch.display import Display, StageOutlook, StepView
from groupwise.models import LoadedModel
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing
from groupwise.models.reward_files import write_reward_files
from groupwise.models.reward_model import reward_model_from, rewards_of, score_function
from groupwise.objective import reliability_bins, summarise_pairs
from groupwise.runs import wilson
from groupwise.training import StageOptions, run_stage
from groupwise.training.batch import derive_seed
from groupwise.training.loop import StageOutcome
from groupwise.training.pairs import ScoredPair
from groupwise.training.reward_model import RewardModelOptions, SplitPairs, heldout_pairs, pair_scores, reward_model
from groupwise.types import Recorder

SMALLEST_STD = 1e-6
"""Of scores that are all equal, as those of one held-out pair may be: the std is what scores are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardStage:
    """How a reward_model stage ended: RewardStage(outcome=StageOutcome(...), facts={"accuracy": 0.83, ...})."""

    outcome: StageOutcome
    """Its checkpoint is what [verifier] kind = "reward_model" reads; its policy_version is not the policy's."""
    facts: Mapping[str, Any]
    """What held-out pairs said at the end, see heldout_facts."""


def split_for_stage(recipe: Recipe, stage: StageSection, pairs: Sequence[ScoredPair]) -> SplitPairs:
    """The pairs that the stage trains on and those that measure it; the same at every call.

    Raises:
        DataError: pairs of one prompt only, or too few for a step. Call it before the run writes anything.
    """
    section = stage.algorithm
    assert isinstance(section, RewardModelSection)
    if len({pair.chosen.token_ids[: pair.chosen.prompt_length] for pair in pairs}) < 2:
        raise DataError(
            f"stage {stage.name!r}: all pairs have one prompt, so none can be held out to measure the reward model.\n"
            "  Give pairs of 2 or more prompts."
        )
    split = heldout_pairs(pairs, section.heldout_frac, seed=derive_seed(recipe.seed, stage.name))
    if len(split.train) < section.pairs_per_step:
        raise DataError(
            f"stage {stage.name!r}: a step needs {section.pairs_per_step} pairs (pairs_per_step); of {len(pairs)}, "
            f"{len(split.train)} are left after {len(split.heldout)} are held out (heldout_frac).\n"
            f"  Lower pairs_per_step to at most {len(split.train)}, or give more pairs."
        )
    return split


def refuse_few_pairs(recipe: Recipe, pairs: Sequence[ScoredPair]) -> None:
    """Refuses pairs that some reward_model stage of the recipe cannot use.

    Raises:
        DataError: as split_for_stage.
    """
    for stage in recipe.stages:
        if isinstance(stage.algorithm, RewardModelSection):
            split_for_stage(recipe, stage, pairs)


def run_reward_model_stage(
    recipe: Recipe,
    stage: StageSection,
    policy: LoadedModel,
    pairs: Sequence[ScoredPair],
    *,
    checkpoints: Path,
    recorder: Recorder,
    display: Display,
    should_stop: Callable[[], bool],
) -> RewardStage:
    """Trains a copy of the policy as a reward model and measures it at every checkpoint; the policy stays as it is.

    Its steps are no steps of the policy: no version changes, and nothing new is there to evaluate on held-out tasks.

    Raises:
        DataError: as split_for_stage.
    """
    section = stage.algorithm
    assert isinstance(section, RewardModelSection)
    split = split_for_stage(recipe, stage, pairs)
    seed = derive_seed(recipe.seed, stage.name)
    optim = optim_options(stage.optim)
    model = reward_model_from(policy.model, seed=derive_seed(seed, "head"))
    rewards = rewards_of(model)
    measured: list[dict[str, Any]] = []

    def save(folder: Path) -> None:
        scores = pair_scores(model, split.heldout, rewards=rewards, tokens_per_microbatch=optim.tokens_per_microbatch)
        measured.append(heldout_facts(scores))
        facts = {**measured[-1], "stage": stage.name, "base": policy.source, "num_train_pairs": len(split.train)}
        write_reward_files(
            folder,
            model,
            end_token_id=policy.end_token_ids[0],
            mean=scores.mean().item(),
            std=max(scores.std(correction=0).item(), SMALLEST_STD),
            facts=facts,
        )

    algorithm = reward_model(
        split.train,
        RewardModelOptions(**section.model_dump(exclude={"name", "heldout_frac"})),
        model=model,
        rewards=with_gradient_checkpointing(rewards) if recipe.model.gradient_checkpointing else rewards,
        seed=seed,
        save=save,
    )
    with display.training(_outlook(recipe, stage)) as screen:
        outcome = run_stage(
            StageOptions(
                name=stage.name,
                num_steps=stage.steps,
                optim=optim,
                checkpoints=checkpoints,
                checkpoint_every=stage.checkpoint_every,
            ),
            algorithm,
            replace(policy, model=model.body),
            scores=score_function(rewards),  # the algorithm brings its own
            recorder=recorder,
            policy_version=0,
            on_new_weights=lambda version: None,
            on_step=lambda step, metrics: screen.step(_step_view(stage, step, metrics)),
            should_stop=should_stop,
        )
    facts = measured[-1]
    recorder.event("reward_model", {"stage": stage.name, "folder": str(outcome.checkpoint), **facts})
    display.line(heldout_line(stage.name, facts))
    display.line(f"Reward model: {outcome.checkpoint}")
    return RewardStage(outcome=outcome, facts=facts)


def _outlook(recipe: Recipe, stage: StageSection) -> StageOutlook:
    names = [one.name for one in recipe.stages]
    return StageOutlook(
        run=recipe.name,
        name=stage.name,
        title=f"{stage.name}: {stage.steps} steps",
        num_steps=stage.steps,
        number=names.index(stage.name) + 1,
        num_stages=len(names),
    )


def _step_view(stage: StageSection, step: int, metrics: Mapping[str, float]) -> StepView:
    left = (stage.steps - step) * metrics["seconds_step"]
    return StepView(step=step, metrics=metrics, note=f"accuracy {metrics['accuracy']:.2f}", stage_left_s=left)


def heldout_facts(scores: Tensor) -> dict[str, Any]:
    """What held-out pairs say of a reward model, as JSON; scores [pairs, 2] of the chosen and the rejected sides.

    accuracy counts a tie as half. reliability has one row for each range of certainty: number of pairs, how sure the
    scores are (mean of sigmoid of the difference), how often they are right.
    """
    chosen, rejected = scores.unbind(dim=1)
    summary = summarise_pairs(chosen, rejected)
    interval = wilson(summary.accuracy * len(scores), len(scores))
    return {
        "num_heldout_pairs": len(scores),
        "accuracy": summary.accuracy,
        "accuracy_low": interval.low,
        "accuracy_high": interval.high,
        "margin": summary.margin,
        "calibration_error": summary.calibration_error,
        "reliability": [list(one) for one in reliability_bins(chosen, rejected)],
        "chosen_score": chosen.mean().item(),
        "rejected_score": rejected.mean().item(),
    }


def heldout_line(name: str, facts: Mapping[str, Any]) -> str:
    """The facts in one sentence."""
    low, high = facts["accuracy_low"], facts["accuracy_high"]
    return (
        f"{name}: held-out accuracy {facts['accuracy']:.1%} [{low:.1%}, {high:.1%}] "
        f"on {facts['num_heldout_pairs']} pairs, mean margin {facts['margin']:+.2f}, "
        f"calibration error {facts['calibration_error']:.3f}"
    )
