"""From the pairs of a recipe to a dpo stage: what is trained on, and what the reference says of it."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.config import Recipe
from groupwise.config.algorithm_dpo import SAMPLED_DEFAULTS, DpoSection
from groupwise.data import PreferencePair, drop_long, load_pairs, refuse_leaked_pairs, render_pair
from groupwise.errors import DataError
from groupwise.launch.display import Display
from groupwise.launch.reference_cache import cached_logprobs, reference_key
from groupwise.models import LoadedModel, ScoredSequence
from groupwise.models.logprobs import ScoreFunction
from groupwise.training.algorithm import Algorithm
from groupwise.training.dpo import DpoOptions, dpo, reference_logprobs
from groupwise.training.pairs import ScoredPair
from groupwise.types import Task


def build_pairs(recipe: Recipe, heldout: Sequence[Task]) -> tuple[PreferencePair, ...]:
    """The pairs of the recipe where a stage learns from pairs, else none.

    Raises:
        DataError: pairs that cannot be used, that ask what is held out, or that are too few for a step.
    """
    stages = [stage for stage in recipe.stages if stage.learns_from_pairs]
    if not stages:
        return ()
    pairs = load_pairs(recipe.data, recipe.folder)
    refuse_leaked_pairs(pairs, heldout)
    _refuse_few(recipe, len(pairs))
    return pairs


def render_pairs(
    recipe: Recipe, pairs: Sequence[PreferencePair], loaded: LoadedModel
) -> tuple[tuple[ScoredPair, ...], tuple[str, ...]]:
    """Pairs to token ids, with a note where prompts were longer than data.max_prompt_tokens: those pairs are dropped.

    Raises:
        DataError: every prompt is too long, sides that are equal or empty as tokens, or too few pairs for a step.
    """
    rendered = [render_pair(pair, loaded.tokenizer, loaded.end_token_ids[0]) for pair in pairs]
    limit = recipe.data.max_prompt_tokens
    kept, num_dropped = drop_long([pair.prompt for pair in rendered], max_tokens=limit)
    ids = {prompt.task_id for prompt in kept}
    scored = tuple(
        ScoredPair(
            *(
                ScoredSequence(token_ids=(*pair.prompt.token_ids, *side), prompt_length=len(pair.prompt.token_ids))
                for side in (pair.chosen, pair.rejected)
            )
        )
        for pair in rendered
        if pair.prompt.task_id in ids
    )
    _refuse_few(recipe, len(scored))
    note = f"{num_dropped} of {len(pairs)} pairs dropped: their prompt is over {limit} tokens"
    return scored, (note,) if num_dropped else ()


def build_dpo(
    section: DpoSection,
    *,
    loaded: LoadedModel,
    scores: ScoreFunction,
    pairs: Sequence[ScoredPair],
    seed: int,
    tokens_per_microbatch: int,
    display: Display,
) -> Algorithm:
    """The dpo stage over these pairs. The model as it is now is the reference: its log-probabilities are read from the
    user's cache, or computed and kept there."""
    options = dpo_options(section)
    if options.reference_free:
        return dpo(pairs, options, seed=seed, reference=None)
    with display.working(f"reference log-probabilities of {len(pairs)} pairs"):
        reference, note = cached_logprobs(
            reference_key(loaded.model, [side for pair in pairs for side in pair]),
            (len(pairs), 2),
            lambda: reference_logprobs(loaded, pairs, scores=scores, tokens_per_microbatch=tokens_per_microbatch),
        )
    display.line(f"Reference log-probabilities of {len(pairs)} pairs: {note}.")
    return dpo(pairs, options, seed=seed, reference=reference)


def dpo_options(section: DpoSection) -> DpoOptions:
    """The settings under the same names, with the default of length_normalize filled in."""
    return DpoOptions(
        **section.model_dump(exclude={"name", "length_normalize", "source", *SAMPLED_DEFAULTS}),
        length_normalize=section.normalizes_length,
    )


def _refuse_few(recipe: Recipe, num_pairs: int) -> None:
    for stage in recipe.stages:
        section = stage.algorithm
        if isinstance(section, DpoSection) and section.source == "data" and num_pairs < section.pairs_per_step:
            raise DataError(
                f"stage {stage.name!r}: a step needs {section.pairs_per_step} pairs (pairs_per_step), "
                f"data.pairs has {num_pairs}.\n  Lower pairs_per_step to at most {num_pairs}, or give more pairs."
            )
