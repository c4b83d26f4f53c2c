"""The checks of a run's numbers before anything is trained: tree against plain path, sampler against trainer."""

from __future__ import annotations

from dataclasses import asdict, replace

from groupwise.config import Recipe
from groupwise.launch.assemble import Policy, RenderedSets, sampling
from groupwise.launch.display import Display
from groupwise.models import ScoredSequence
from groupwise.training.batch import derive_seed
from groupwise.training.numerics import GapBounds, SamplerGap, check_logprobs, check_sampler, gap_bounds

NUM_PROMPTS, GROUP_SIZE, MAX_TOKENS = 2, 4, 16
"""At most 128 tokens: enough to see an error, which shows in every token, and seconds on a CPU."""


def check_paths(recipe: Recipe, policy: Policy, sets: RenderedSets) -> None:
    """Compares the path in use with the model's own attention, on prompts that share what the run's prompts share.

    Raises:
        EngineError: if they differ by more than rounding.
    """
    if not recipe.model.attention_check:
        return
    prompts = [p.token_ids for p in (*sets.train.prompts[:2], *sets.heldout.prompts[:1])]
    sequences = [ScoredSequence(token_ids=(*ids, *ids[-4:]), prompt_length=len(ids)) for ids in prompts if ids]
    check_logprobs(policy.loaded.model, sequences, scores=policy.scores)


def check_sampling(recipe: Recipe, policy: Policy, sets: RenderedSets, display: Display) -> dict[str, object] | None:
    """Samples the run's first prompts and compares the engine's log-probabilities with the trainer's.

    From the whole vocabulary, and where the recipe restricts sampling also as it says. One line says what was found;
    the same numbers are returned for the run's environment, or None where model.attention_check is off.

    Raises:
        EngineError: if they differ by more than rounding, and by more than top_p and top_k explain.
    """
    if not recipe.model.attention_check:
        return None
    prompts = (*sets.train.prompts, *sets.heldout.prompts)[:NUM_PROMPTS]
    wanted = replace(sampling(recipe), max_tokens=min(MAX_TOKENS, recipe.rollout.max_completion_tokens), stop=())

    def check(top_p: float, top_k: int) -> SamplerGap:
        return check_sampler(
            policy.engine,
            policy.loaded.model,
            prompts,
            scores=policy.scores,
            sampling=replace(wanted, top_p=top_p, top_k=top_k),
            group_size=GROUP_SIZE,
            seed=derive_seed(recipe.seed, "numerics"),
        )

    bounds = gap_bounds(policy.loaded.model)
    with display.working("comparing sampler and trainer"):
        found = {"whole_vocabulary": check(1.0, 0)}
        if recipe.rollout.is_restricted:
            found["restricted"] = check(wanted.top_p, wanted.top_k)
    display.line(
        f"Sampler and trainer agree: {'; with top_p and top_k '.join(map(_shown, found.values()))} "
        f"(allowed: mean {bounds.mean:g}, largest {bounds.largest:g})"
    )
    return {
        **{name: asdict(gap) for name, gap in found.items()},
        "allowed": asdict(bounds),
        "dtype": str(policy.loaded.model.dtype).removeprefix("torch."),
        "device": str(policy.loaded.model.device),
    }


def step_bounds(recipe: Recipe, policy: Policy) -> GapBounds | None:
    """What a step's gap may be, or None where model.attention_check is off."""
    return gap_bounds(policy.loaded.model) if recipe.model.attention_check else None


def _shown(gap: SamplerGap) -> str:
    return (
        f"mean {gap.mean:.1e}, 99th percentile {gap.p99:.1e}, largest {gap.largest:.1e} nats over {gap.num_tokens} "
        f"tokens, KL {gap.kl_sampler_trainer:.1e}"
    )
