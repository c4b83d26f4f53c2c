"""From a recipe to what a grpo stage is given: its options, the reference of a KL in the reward, the text of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from groupwise.config import Recipe
from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.stage import StageSection
from groupwise.config.verifier import ComposeVerifierSection
from groupwise.models import LoadedModel, ScoredSequence
from groupwise.models.logprobs import ScoreFunction
from groupwise.models.reference import frozen_reference
from groupwise.training.algorithm import Updates
from groupwise.training.group_rewards import LengthPenalty, OverlongPenalty
from groupwise.training.grpo_batch import ReferenceLogprobs
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.step import scores_of
from groupwise.training.step_rewards import Decode


def grpo_options(recipe: Recipe, section: GrpoSection, verifier: Any) -> GrpoOptions:
    """The algorithm's settings, and what they take from other sections: the length limit, a composition's weights, the
    size that allocated group sizes vary around."""
    loss, advantage, kl = section.loss, section.advantage, section.kl
    penalty, limit = section.length_penalty, recipe.rollout.max_completion_tokens
    by_parts = isinstance(recipe.verifier, ComposeVerifierSection) and recipe.verifier.normalize_parts
    return GrpoOptions(
        loss=loss.kind,
        advantage=advantage.kind,
        scale=section.scale,
        std=advantage.std,
        normalize=section.normalize,
        clip_low=section.clip_low,
        clip_high=section.clip_high,
        dual_clip=loss.dual_clip,
        updates=Updates(epochs=loss.epochs, minibatches=loss.minibatches),
        beta=section.beta,
        kl=kl.estimator,
        kl_in_reward=kl.place == "reward",
        kl_weighted=kl.weighted,
        entropy_coef=loss.entropy_coef,
        report_entropy=loss.report_entropy,
        eps=advantage.eps,
        importance_cap=section.importance_cap,
        importance_level=loss.importance_level,
        importance_floor=loss.importance_floor,
        skip_dead_groups=advantage.skip_dead_groups,
        max_unscored_frac=section.max_unscored_frac,
        length_penalty=None
        if penalty is None
        else LengthPenalty(strength=penalty.strength, free_tokens=penalty.free_tokens, max_tokens=limit),
        overlong_penalty=OverlongPenalty(
            weight=advantage.overlong_penalty,
            buffer_tokens=max(1, round(advantage.overlong_share * limit)),
            max_tokens=limit,
        )
        if advantage.truncated == "penalise"
        else None,
        mask_truncated=advantage.truncated == "mask",
        step_end=advantage.step_end,
        part_weights=verifier.weights if by_parts else None,
        nominal_group_size=None if recipe.rollout.allocation is None else recipe.rollout.group_size,
    )


def reference_logprobs(
    recipe: Recipe, stage: StageSection, *, loaded: LoadedModel, scores: ScoreFunction
) -> ReferenceLogprobs | None:
    """What the model as it is now says of completions, for a KL in the reward; None where the stage has none."""
    section = stage.algorithm
    if not isinstance(section, GrpoSection) or section.kl.place != "reward":
        return None
    reference = frozen_reference(loaded.model)

    def logprobs(sequences: Sequence[ScoredSequence]) -> Tensor:
        with reference() as frozen:
            return scores_of(
                frozen,
                sequences,
                scores=scores,
                temperature=recipe.rollout.temperature,
                tokens_per_microbatch=stage.optim.tokens_per_microbatch,
            ).logprobs

    return logprobs


def decoder(loaded: LoadedModel) -> Decode:
    """The text of token ids as a verifier sees it."""
    return lambda token_ids: loaded.tokenizer.decode(list(token_ids), skip_special_tokens=True)
