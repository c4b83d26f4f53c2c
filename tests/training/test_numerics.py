"""Two ways of computing log-probabilities agree, and so do the sampler and the trainer; where not, it is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from training_cases import FakeEngine, ShiftedEngine, small_llama, small_policy, tasks_and_prompts

from groupwise.errors import EngineError
from groupwise.models import LoadedModel, ScoredSequence, TokenScores, padded_logprobs, padded_scores, tree_scores
from groupwise.rollout import Engine, Sampling, TorchEngine
from groupwise.training.numerics import (
    BOUNDS,
    GapBounds,
    SamplerGap,
    check_logprobs,
    check_sampler,
    gap_bounds,
    min_kept_mass,
    refuse_gap,
)
from groupwise.types import Completion

ROWS = [ScoredSequence(token_ids=(2, 3, 4, last, 1), prompt_length=2) for last in (5, 6)]
WHOLE = Sampling(max_tokens=8, temperature=0.8)


def test_the_tree_passes() -> None:
    assert check_logprobs(small_llama(), ROWS, scores=tree_scores) < 1e-5


def test_a_path_that_forgets_a_token_is_refused() -> None:
    def forgetful(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        shifted = [
            ScoredSequence(token_ids=(2, *s.token_ids[2:]), prompt_length=s.prompt_length - 1) for s in sequences
        ]
        return padded_scores(model, shifted, temperature=temperature)

    with pytest.raises(EngineError, match=r"disagree by .* nats.*\n.*attention_check = false"):
        check_logprobs(small_llama(), ROWS, scores=forgetful)


def test_a_path_that_gives_nan_is_refused() -> None:
    def broken(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        return TokenScores(padded_logprobs(model, sequences, temperature=temperature) * float("nan"))

    with pytest.raises(EngineError, match="nan"):
        check_logprobs(small_llama(), ROWS, scores=broken)


def found(engine: Engine, policy: LoadedModel, sampling: Sampling = WHOLE, scores: Any = tree_scores) -> SamplerGap:
    prompts = tasks_and_prompts(2)[1]
    return check_sampler(engine, policy.model, prompts, scores=scores, sampling=sampling, group_size=16, seed=1)


@pytest.mark.parametrize("scores", [tree_scores, padded_scores])
@pytest.mark.parametrize(
    "sampling", [WHOLE, replace(WHOLE, top_p=0.7), replace(WHOLE, top_k=3), replace(WHOLE, top_p=0.7, top_k=5)]
)
def test_the_engine_and_the_trainer_agree(sampling: Sampling, scores: Any) -> None:
    policy = small_policy()
    gap = found(TorchEngine(policy, use_tree=scores is tree_scores), policy, sampling, scores)
    assert gap.num_tokens > 100
    assert gap.mean <= gap.p99 <= gap.largest < 1e-5
    if sampling == WHOLE:
        assert abs(gap.kl_sampler_trainer) < 1e-9
    else:
        assert gap.kl_sampler_trainer > 0.01  # what the restriction cost is in the KL, and in no gap


@pytest.mark.parametrize("offset", [2e-4, -2e-4, math.nan])
def test_an_engine_that_reports_other_numbers_is_refused(offset: float) -> None:
    policy = small_policy()
    with pytest.raises(
        EngineError, match=r"(?s)mean .* largest .* nats over \d+ tokens .*float32.*attention_check = false"
    ):
        found(ShiftedEngine(TorchEngine(policy), offset), policy)


def test_an_engine_with_other_weights_is_refused_also_under_restricted_sampling() -> None:
    for sampling in (WHOLE, replace(WHOLE, top_p=0.7), replace(WHOLE, top_k=3)):
        with pytest.raises(EngineError, match="disagree on the same weights"):
            found(TorchEngine(small_policy(1)), small_policy(), sampling)


def test_more_than_a_nucleus_explains_is_refused() -> None:
    """-ln 0.7 = 0.357 is all that leaving 30 % out can add."""
    policy, nucleus = small_policy(), replace(WHOLE, top_p=0.7)
    with pytest.raises(EngineError):
        found(ShiftedEngine(TorchEngine(policy), 0.36), policy, nucleus)
    with pytest.raises(EngineError):
        found(ShiftedEngine(TorchEngine(policy), -0.36), policy, replace(WHOLE, top_k=20))


def test_nothing_sampled_is_no_gap() -> None:
    policy = small_policy()
    gap = found(FakeEngine(lambda p, c: Completion(text="")), policy)
    assert (gap.num_tokens, gap.largest) == (0, 0.0)


def test_a_restriction_keeps_at_least_its_nucleus() -> None:
    cases = ((WHOLE, 1.0), (replace(WHOLE, top_p=0.7), 0.7), (replace(WHOLE, top_p=0.7, top_k=5), 0.0))
    assert [min_kept_mass(sampling) for sampling, _ in cases] == [kept for _, kept in cases]


def test_fewer_bits_have_wider_bounds() -> None:
    assert gap_bounds(small_llama()) == GapBounds(largest=1e-4, mean=1e-4)
    assert gap_bounds(small_llama().to(torch.bfloat16)) == BOUNDS[torch.bfloat16]
    assert BOUNDS[torch.float32].mean < BOUNDS[torch.float16].mean < BOUNDS[torch.bfloat16].mean


def test_a_gap_over_the_bound_is_refused_with_its_step() -> None:
    bounds = GapBounds(largest=1.0, mean=0.1)
    refuse_gap({"logprob_gap_mean": 0.1, "logprob_gap_max": 9.0}, bounds, where="grpo, step 3")
    refuse_gap({"loss": 1.0}, bounds, where="sft, step 3")  # nothing was sampled
    for gap in (0.11, math.nan):
        with pytest.raises(
            EngineError, match=r"(?s)^grpo, step 3: .* by (0.11|nan) nats .*9.*allowed mean: 0.1.*causes"
        ):
            refuse_gap({"logprob_gap_mean": gap, "logprob_gap_max": 9.0}, bounds, where="grpo, step 3")
