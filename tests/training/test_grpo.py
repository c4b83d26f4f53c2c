"""What GRPO learns from: advantages, denominators, gradients, and the numbers it reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from training_cases import (
    MAX_TOKENS,
    FakeEngine,
    SaysYes,
    batch_of,
    group,
    mixed_groups,
    said,
    small_llama,
    tasks_and_prompts,
    weights,
    weights_after_plain_descent,
)

from groupwise.curation import PromptLedger, RetireRule
from groupwise.errors import VerifierError
from groupwise.models import padded_logprobs, tree_scores
from groupwise.rollout import Sampling
from groupwise.training.batch import Batch
from groupwise.training.grpo import (
    GrpoOptions,
    StepSampling,
    group_metrics,
    grpo,
    loss_function,
    make_batch,
    refuse_unscored,
    step_advantages,
)
from groupwise.training.step import LossRows, optimizer_step
from groupwise.types import Stop, Verifier

NORMALIZE = ("sequence", "token", "constant")


@pytest.mark.parametrize("normalize", NORMALIZE)
def test_how_the_step_is_cut_changes_no_gradient(normalize: Any) -> None:
    options = GrpoOptions(normalize=normalize)
    batch = batch_of(mixed_groups(), options)
    whole = weights_after_plain_descent(batch, options)
    assert (whole - weights(small_llama())).abs().max() > 1e-3  # the step does something
    for limit in (1, 9, 20):
        cut = weights_after_plain_descent(batch, options, tokens_per_microbatch=limit)
        assert_close(cut, whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize("normalize", NORMALIZE)
def test_the_order_of_the_rows_changes_no_gradient(normalize: Any) -> None:
    options = GrpoOptions(normalize=normalize)
    batch = batch_of(mixed_groups(), options)
    order = torch.randperm(len(batch.sequences), generator=torch.Generator().manual_seed(1))
    assert batch.sampler_logprobs is not None
    shuffled = Batch(
        sequences=tuple(batch.sequences[i] for i in order),
        advantages=batch.advantages[order],
        sampler_logprobs=tuple(batch.sampler_logprobs[i] for i in order),
        denominator=batch.denominator,
    )
    whole = weights_after_plain_descent(batch, options)
    assert_close(weights_after_plain_descent(shuffled, options), whole, atol=1e-6, rtol=0)
    cut = weights_after_plain_descent(shuffled, options, tokens_per_microbatch=9)
    assert_close(cut, whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize("normalize", NORMALIZE)
def test_leaving_dead_groups_out_changes_no_gradient(normalize: Any) -> None:
    skipping = GrpoOptions(normalize=normalize)
    keeping = replace(skipping, skip_dead_groups=False)
    short, full = batch_of(mixed_groups(), skipping), batch_of(mixed_groups(), keeping)
    assert (len(short.sequences), len(full.sequences)) == (7, 15)
    assert_close(
        weights_after_plain_descent(short, skipping), weights_after_plain_descent(full, keeping), atol=1e-6, rtol=0
    )


def test_the_first_on_policy_step_is_reinforce() -> None:
    """gradient = d/dw of -1/N sum_i A_i mean_t log p(token t of completion i), clip or no clip."""
    options = GrpoOptions()
    batch = batch_of(mixed_groups(), options)
    model = small_llama()
    logprobs = padded_logprobs(model, batch.sequences, temperature=1.0)
    loss = torch.zeros(())
    for row, (sequence, advantage) in enumerate(zip(batch.sequences, batch.advantages.tolist(), strict=True)):
        loss = loss - advantage * logprobs[row, : sequence.num_trained].mean() / 15  # 15 scored rollouts
    loss.backward()
    expected = weights(model) - torch.cat([p.grad.flatten() for p in model.parameters()])
    assert_close(weights_after_plain_descent(batch, options), expected, atol=1e-6, rtol=0)


def test_a_long_wrong_answer_weighs_less_a_token_only_with_sequence() -> None:
    """Advantages -1 and +1 for lengths 8 and 2, by hand: the gradient of a token is -A / (N x length), -A / all tokens,
    or -A / (N x 8)."""
    groups = [group(5, [0, 1], [8, 2])]
    expected = {
        "sequence": (1 / (2 * 8), -1 / (2 * 2)),
        "token": (1 / 10, -1 / 10),
        "constant": (1 / (2 * 8), -1 / (2 * 8)),
    }
    mask = torch.arange(8)[None] < torch.tensor([8, 2])[:, None]
    for normalize, (wrong, right) in expected.items():
        options = GrpoOptions(normalize=normalize, eps=0.0)  # type: ignore[arg-type]
        batch = batch_of(groups, options)
        logprobs = torch.full((2, 8), -2.0, requires_grad=True)
        rows = LossRows(policy_logprobs=logprobs, mask=mask, denominator=batch.denominator, advantages=batch.advantages)
        loss_function(options)(rows)[0].backward()
        assert_close(logprobs.grad, torch.where(mask, torch.tensor([[wrong], [right]]), 0.0))


def test_the_denominator_counts_every_scored_rollout_of_the_step() -> None:
    """15 of 16 are scored; their lengths: 2+7+3+5, 4+2+3+3, 6+8+2 (3 is unscored), 3+3+2+8."""
    tokens = 17 + 12 + 16 + 16
    found = {n: batch_of(mixed_groups(), GrpoOptions(normalize=n)).denominator for n in NORMALIZE}  # type: ignore[arg-type]
    assert found == {"sequence": 15, "token": tokens, "constant": 15 * MAX_TOKENS}


def test_an_unscored_rollout_moves_no_sibling_and_is_not_learned_from() -> None:
    for scale in ("std", "none"):
        options = GrpoOptions(scale=scale)  # type: ignore[arg-type]
        with_it = step_advantages([group(2, [1, None, 0, 0], [6, 3, 8, 2])], options)[0]
        without = step_advantages([group(2, [1, 0, 0], [6, 8, 2])], options)[0]
        assert with_it == (without[0], 0.0, *without[1:])
    unscored = mixed_groups()[2]
    batch = batch_of([unscored], GrpoOptions())
    assert [s.num_trained for s in batch.sequences] == [6, 8, 2]


def test_groups_without_a_gradient_give_no_batch_unless_there_is_a_kl() -> None:
    dead = [mixed_groups()[1], mixed_groups()[3]]
    for options in (GrpoOptions(), GrpoOptions(skip_dead_groups=False)):
        assert make_batch(dead, step_advantages(dead, options), options, max_completion_tokens=8) is None
    assert len(batch_of(dead, GrpoOptions(beta=0.1)).sequences) == 8


def test_dead_groups_are_counted_by_the_value_they_collapsed_to() -> None:
    metrics = group_metrics([*mixed_groups(), group(6, [None, None], [2, 2]), group(7, [0, 0], [2, 2])])
    assert metrics["num_groups"] == 6
    assert metrics["live_groups"] == 2
    assert metrics["dead_groups_all_solved"] == 1
    assert metrics["dead_groups_none_solved"] == 2
    assert metrics["unscored_groups"] == 1
    assert metrics["unscored_frac"] == pytest.approx(3 / 20)
    # a mean over the five prompts with a scored rollout: 2/4, 4/4, 1/3, 0/4, 0/2
    assert metrics["pass_rate"] == metrics["reward_mean"] == pytest.approx((1 / 2 + 1 + 1 / 3) / 5)
    # right: 2 and 5, 4 2 3 3, 6 tokens; wrong: 7 3, 8 2, 3 3 2 8, 2 2
    assert metrics["mean_length_right"] == pytest.approx(25 / 7)
    assert metrics["mean_length_wrong"] == pytest.approx(40 / 10)
    assert metrics["num_generated_tokens"] == 25 + 40 + 3 + 4


def test_completions_cut_at_the_limit_are_counted() -> None:
    cut = group(0, [1, 0], [2, 2])
    rollouts = (replace(r, completion=replace(r.completion, stop=Stop.LENGTH)) for r in cut.rollouts[:1])
    metrics = group_metrics([replace(cut, rollouts=(*rollouts, cut.rollouts[1]))])
    assert metrics["truncated_frac"] == 0.5


def test_a_verifier_that_fails_too_often_stops_the_run() -> None:
    groups = [group(0, [1, 0, 0, 0, 1, 1, 0, 0, 0, None], [2] * 10)]
    refuse_unscored(groups, 0.1)  # 1 of 10 is allowed
    with pytest.raises(VerifierError, match=r"1 of 10 completions; max_unscored_frac allows 9%.*\n.*snapshot_missing"):
        refuse_unscored(groups, 0.09)


def algorithm(
    engine: FakeEngine,
    options: GrpoOptions,
    *,
    rule: RetireRule | None = None,
    num_tasks: int = 4,
    counts: Mapping[str, tuple[int, int]] | None = None,
    verifier: Verifier | None = None,
    **step: Any,
) -> Any:
    tasks, prompts = tasks_and_prompts(num_tasks)
    ledger = PromptLedger([t.id for t in tasks], seed=3, rule=rule, counts=counts)
    return grpo(
        options,
        engine=engine,
        verifier=verifier or SaysYes(),
        tasks=tasks,
        prompts=prompts,
        ledger=ledger,
        step_sampling=StepSampling(**{"prompts_per_step": 2, "group_size": 4, **step}),
        sampling=Sampling(max_tokens=8, temperature=0.7),
        seed=5,
    )


def test_a_step_samples_a_group_for_each_prompt_with_a_seed_of_its_own() -> None:
    engine = FakeEngine(lambda p, c: said("yes" if c == 0 else "no"))
    grpo_algorithm = algorithm(engine, GrpoOptions())
    first, second = grpo_algorithm.collect(0), grpo_algorithm.collect(1)
    assert len({g.task.id for g in (*first.groups, *second.groups)}) == 4  # two prompts a step, each once an epoch
    assert all(g.prompt.task_id == g.task.id and len(g.rollouts) == 4 for g in first.groups)
    assert first.metrics["pass_rate"] == 0.25
    assert engine.calls[0][2] != engine.calls[1][2]
    assert grpo_algorithm.temperature == 0.7
    assert grpo_algorithm.state()["rows"]["q0"]["solved"] == 1


def test_a_verifier_that_raises_stops_the_step_with_its_words() -> None:
    engine = FakeEngine(lambda p, c: said("broken" if c else "yes"))
    with pytest.raises(VerifierError, match=r"6 of 8 .*\n.*no database"):
        algorithm(engine, GrpoOptions()).collect(0)


def test_collecting_ends_when_every_prompt_is_set_aside() -> None:
    hasty = RetireRule(hopeless_below=0.5, confidence=0.5)  # after one group of 4
    grpo_algorithm = algorithm(FakeEngine(lambda p, c: said("no")), GrpoOptions(), rule=hasty)
    assert grpo_algorithm.collect(0).batch is None
    assert grpo_algorithm.collect(1).metrics["set_aside_never_solved"] == 4
    assert grpo_algorithm.collect(2) is None


def loss_by_token(options: GrpoOptions, rows: LossRows) -> Tensor:
    """[B, L] of what each token adds to the loss, found by leaving all others out; 0 where none is trained."""
    found = torch.zeros(rows.mask.shape)
    for cell in rows.mask.nonzero().tolist():
        alone = torch.zeros_like(rows.mask)
        alone[tuple(cell)] = True
        total, _ = loss_function(replace(options, normalize="token"))(replace(rows, mask=alone))
        found[tuple(cell)] = total.detach()
    return found


def test_the_kl_is_added_per_token_with_its_weight() -> None:
    """k3 by hand, policy -1 and reference -2: exp(-1) - (-1) - 1 = 0.36788; advantage 0, so only the KL is left."""
    mask = torch.tensor([[True, False]])
    rows = LossRows(
        policy_logprobs=torch.tensor([[-1.0, -9.0]]),
        ref_logprobs=torch.tensor([[-2.0, 5.0]]),
        advantages=torch.zeros(1),
        mask=mask,
        denominator=1.0,
    )
    total, reported = loss_function(GrpoOptions(beta=0.5))(rows)
    assert_close(total, torch.tensor(0.5 * 0.367879))
    assert_close(reported["kl_to_ref"], torch.tensor([[0.367879, 0.0]]))


def test_the_weight_multiplies_loss_and_kl_of_its_token_and_carries_no_gradient() -> None:
    """A = 2, policy -1, sampler -0.5 and -3: weights exp(-0.5) = 0.60653 and min(exp(2), 1.5). k3 to a reference at -2
    is 0.36788, its gradient 1 - exp(-1) = 0.63212. Loss (-2 + 0.5 k3) w, gradient (-2 + 0.5 x 0.63212) w."""
    rows = LossRows(
        policy_logprobs=torch.full((1, 3), -1.0, requires_grad=True),
        ref_logprobs=torch.full((1, 3), -2.0),
        advantages=torch.tensor([2.0]),
        mask=torch.tensor([[True, True, False]]),
        denominator=1.0,
        sampler_logprobs=torch.tensor([[-0.5, -3.0, 0.0]]),
    )
    weight = torch.tensor([[0.60653, 1.5, 0.0]])
    options = GrpoOptions(normalize="token", beta=0.5, importance_cap=1.5)
    total, reported = loss_function(options)(rows)
    total.backward()
    assert_close(loss_by_token(options, rows), (-2 + 0.5 * 0.367879) * weight)
    assert_close(total.detach(), (-2 + 0.5 * 0.367879) * weight.sum())
    assert_close(rows.policy_logprobs.grad, (-2 + 0.5 * 0.632121) * weight)
    assert reported["importance_capped_frac"].tolist() == [[0, 1, 0]]
    plain = replace(options, importance_cap=None)
    _, without = loss_function(plain)(rows)
    assert_close(loss_by_token(plain, rows), torch.tensor([[-2 + 0.5 * 0.367879] * 2 + [0.0]]))
    assert set(without) == {"kl_to_ref"}


def test_where_sampler_and_trainer_agree_the_weight_changes_no_gradient() -> None:
    options = GrpoOptions()
    batch = batch_of(mixed_groups(), options)
    exact = padded_logprobs(small_llama(), batch.sequences, temperature=1.0).detach()
    batch = replace(
        batch,
        sampler_logprobs=tuple(tuple(exact[r, : s.num_trained].tolist()) for r, s in enumerate(batch.sequences)),
    )
    weighted = weights_after_plain_descent(batch, replace(options, importance_cap=2.0))
    assert_close(weighted, weights_after_plain_descent(batch, options), atol=1e-6, rtol=0)


def test_the_sampler_gap_is_reported_over_all_trained_tokens_of_the_step() -> None:
    """33 tokens, in several micro-batches: all off by 0.5, but for one of the first row that is off by 2."""
    model = small_llama()
    batch = batch_of(mixed_groups(), GrpoOptions())
    exact = padded_logprobs(model, batch.sequences, temperature=1.0).detach()
    exact[0, 1] -= 1.5
    shifted = tuple(tuple((exact[r, : s.num_trained] - 0.5).tolist()) for r, s in enumerate(batch.sequences))
    metrics = optimizer_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        replace(batch, sampler_logprobs=shifted),
        loss_function(GrpoOptions()),
        scores=tree_scores,
        temperature=1.0,
        tokens_per_microbatch=12,
        max_grad_norm=1.0,
    )
    assert metrics["logprob_gap_mean"] == pytest.approx((32 * 0.5 + 2) / 33, abs=1e-5)
    assert metrics["logprob_gap_max"] == pytest.approx(2, abs=1e-5)
    assert metrics["logprob_gap_p99"] == pytest.approx(2, abs=1e-5)  # the 33rd of 33
    k3 = [math.exp(gap) - 1 - gap for gap in (0.5, 2.0)]
    assert metrics["kl_sampler_trainer"] == pytest.approx((32 * k3[0] + k3[1]) / 33, abs=1e-4)
    assert metrics["num_trained_tokens"] == 33
    assert metrics["num_plain_tokens"] == 33 + 7 * 4
