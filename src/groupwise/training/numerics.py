"""Do the numbers agree: two forwards of one model, and the sampler with the trainer, at the start and in every step.

    check_logprobs    token tree and the model's own attention             before anything is sampled
    check_sampler     what the engine reports and what the trainer says    before anything is trained
    refuse_gap        the same, on the rollouts of a step                  before its update

The gap is |sampler - trainer| in nats, less what top_p and top_k explain (`objective.logprob_gap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from groupwise.errors import EngineError
from groupwise.models.logprobs import ScoredSequence, ScoreFunction, loss_mask, padded_logprobs
from groupwise.objective import kl_estimate, logprob_gap, summarise_gap
from groupwise.rollout import Engine, Sampling
from groupwise.training.batch import padded
from groupwise.types import Prompt

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.2}
"""Largest accepted difference in nats: far above what rounding gave on real models, far below what an error gives."""

SKIP = "model.attention_check = false skips this check"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapBounds:
    """How much of a gap rounding explains: GapBounds(largest=1e-4, mean=1e-4), in nats."""

    largest: float
    """For any one token, at the start of a run."""
    mean: float
    """For the mean over tokens, at the start and in every step. A step has too many tokens for a bound on each."""


BOUNDS = {
    torch.float32: GapBounds(largest=1e-4, mean=1e-4),
    torch.bfloat16: GapBounds(largest=0.5, mean=0.15),
    torch.float16: GapBounds(largest=0.2, mean=0.03),
}
"""A model of 135 million parameters and prompts of 175 tokens gave, on a CPU (mean and largest of some 60 tokens):
float32 6e-6 and 3e-5, bfloat16 0.044 and 0.17, float16 0.007 and 0.025. One small update moves the mean by more than
1e-4, so that float32 shows stale weights; in bfloat16 they hide in the rounding unless they are far behind."""

ACCELERATOR_FLOAT32 = GapBounds(largest=1e-3, mean=1e-3)
"""Kernels of an accelerator add in another order for each shape, and may round products to fewer bits."""


def gap_bounds(model: PreTrainedModel) -> GapBounds:
    """The bounds for the model's number format and device."""
    if model.dtype == torch.float32 and model.device.type != "cpu":
        return ACCELERATOR_FLOAT32
    return BOUNDS.get(model.dtype, BOUNDS[torch.float32])


def min_kept_mass(sampling: Sampling) -> float:
    """The smallest probability that the tokens which `sampling` keeps can have: 1 where it keeps all.

    A nucleus holds at least top_p. With top_k nothing is known: the k most likely of V tokens hold k / V or more.
    """
    return 0.0 if sampling.top_k > 0 else sampling.top_p


def check_logprobs(model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, scores: ScoreFunction) -> float:
    """The largest difference in nats between the path in use and the padded one on these sequences.

    Raises:
        EngineError: if it is larger than rounding explains.
    """
    with torch.no_grad():
        used = scores(model, list(sequences), temperature=1.0).logprobs
        plain = padded_logprobs(model, list(sequences), temperature=1.0)
    mask = loss_mask(sequences, device=used.device)
    gap = (used - plain)[mask].abs().max().item() if bool(mask.any()) else 0.0
    tolerance = TOLERANCE.get(model.dtype, 1e-3)
    if not gap <= tolerance:
        raise EngineError(
            f"the token tree and the model's own attention disagree by {gap:.2g} nats (allowed: {tolerance:.2g}); "
            f"training on it would be wrong.\n  Please report the model; {SKIP}."
        )
    return gap


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerGap:
    """How well an engine and the trainer agree on sampled tokens, in nats.

    Example:
        SamplerGap(mean=6e-6, p99=2e-5, largest=3e-5, kl_sampler_trainer=4e-11, num_tokens=64, min_kept_mass=1.0)
    """

    mean: float
    p99: float
    largest: float
    kl_sampler_trainer: float
    """Mean of k3 over the tokens; with top_p and top_k it holds the restriction, which the other numbers leave out."""
    num_tokens: int
    min_kept_mass: float
    """1 = the whole vocabulary was sampled from; less = see `min_kept_mass`."""


def check_sampler(
    engine: Engine,
    model: PreTrainedModel,
    prompts: Sequence[Prompt],
    *,
    scores: ScoreFunction,
    sampling: Sampling,
    group_size: int,
    seed: int,
) -> SamplerGap:
    """Samples a few completions and compares the engine's log-probabilities with the trainer's on the same weights.

    Raises:
        EngineError: if the gap is larger than rounding explains, see BOUNDS.
    """
    groups = engine.generate(prompts, group_size, sampling, seed=seed)
    pairs = [(p, c) for p, group in zip(prompts, groups, strict=True) for c in group if c.token_ids]
    sequences = [
        ScoredSequence(token_ids=(*p.token_ids, *c.token_ids), prompt_length=len(p.token_ids)) for p, c in pairs
    ]
    kept = min_kept_mass(sampling)
    found = SamplerGap(mean=0.0, p99=0.0, largest=0.0, kl_sampler_trainer=0.0, num_tokens=0, min_kept_mass=kept)
    if sequences:
        with torch.no_grad():
            policy = scores(model, sequences, temperature=sampling.temperature).logprobs
        mask = loss_mask(sequences, device=policy.device)
        sampler = padded([c.sampler_logprobs for _, c in pairs], mask)
        mean, p99, largest = summarise_gap(logprob_gap(policy, sampler, min_kept_mass=kept)[mask])
        kl = kl_estimate(sampler[mask].double(), policy[mask].double(), estimator="k3").mean().item()
        found = SamplerGap(
            mean=mean, p99=p99, largest=largest, kl_sampler_trainer=kl, num_tokens=int(mask.sum()), min_kept_mass=kept
        )
    bounds = gap_bounds(model)
    if not (found.largest <= bounds.largest and found.mean <= bounds.mean):
        raise EngineError(
            f"the sampler and the trainer disagree on the same weights: mean {found.mean:.2g}, largest "
            f"{found.largest:.2g} nats over {found.num_tokens} tokens (allowed for {_name(model.dtype)}: mean "
            f"{bounds.mean:.2g}, largest {bounds.largest:.2g}).\n"
            '  GRPO would learn from the difference. Try model.dtype = "float32"; if it stays, please report the '
            f"model and the device; {SKIP}."
        )
    return found


def refuse_gap(metrics: Mapping[str, float], bounds: GapBounds, *, where: str) -> None:
    """Stops before an update whose rollouts were sampled from something else than the weights being trained.

    Raises:
        EngineError: if the step's mean gap is over bounds.mean, or NaN. `where` names the step.
    """
    gap = metrics.get("logprob_gap_mean", 0.0)
    if gap <= bounds.mean:
        return
    raise EngineError(
        f"{where}: what the engine sampled with and what the trainer computes differ by {gap:.2g} nats a token on "
        f"average, the largest by {metrics['logprob_gap_max']:.2g} (allowed mean: {bounds.mean:.2g}). The update was "
        "not made.\n"
        "  Likely causes: the engine still holds older weights, it samples at another temperature or from fewer tokens "
        "than the recipe says, or it runs in a number format with fewer bits.\n"
        "  The weights are those of the step before. model.attention_check = false turns this refusal off."
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
