"""The methods of the GRPO family on a tiny model: how they relate, what they leave alone, and what they report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from training_cases import MAX_TOKENS, batch_of, group, mixed_groups, small_llama, small_policy, weights

from groupwise.models import padded_logprobs, tree_scores
from groupwise.training import OptimOptions
from groupwise.training.algorithm import Algorithm, Updates
from groupwise.training.batch import Batch, cut, rows_of
from groupwise.training.group_rewards import OverlongPenalty
from groupwise.training.grpo import shaping_metrics
from groupwise.training.grpo_batch import make_batch, rollout_kl, step_advantages
from groupwise.training.grpo_loss import loss_function
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.step import LossRows, optimizer_step, scores_of
from groupwise.training.updates import Learner
from groupwise.types import Group, Stop

LOSSES = ("clipped", "gspo", "gspo_token", "cispo", "reinforce")
FAMILY = {
    "grpo": GrpoOptions(),
    "dr_grpo": GrpoOptions(scale="none", normalize="constant"),
    "dapo": GrpoOptions(normalize="token", clip_high=0.28),
    "rloo": GrpoOptions(loss="reinforce", advantage="leave_one_out", scale="none", normalize="constant"),
    "gspo": GrpoOptions(loss="gspo", clip_low=3e-4, clip_high=4e-4),
    "gspo_token": GrpoOptions(loss="gspo_token", clip_low=3e-4, clip_high=4e-4),
    "cispo": GrpoOptions(loss="cispo", normalize="token", clip_low=1.0, clip_high=4.0),
    "maxrl": GrpoOptions(advantage="max_rl", scale="none", normalize="token"),
    "reinforce_pp": GrpoOptions(advantage="batch", scale="none", normalize="token"),
    "entropy": GrpoOptions(entropy_coef=0.1, normalize="token"),
}


def step(batch: Batch, options: GrpoOptions, *, limit: int = 4096, reference: Any = None) -> tuple[Tensor, Any]:
    """The gradient of one plain descent step at rate 1, and its metrics."""
    model = small_llama()
    before = weights(model)
    metrics = optimizer_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        batch,
        loss_function(options),
        scores=tree_scores,
        temperature=1.0,
        tokens_per_microbatch=limit,
        max_grad_norm=float("inf"),
        reference=reference,
        needs_entropy=options.entropy_coef > 0 or options.report_entropy,
    )
    return before - weights(model), metrics


def gradient(batch: Batch, options: GrpoOptions, **given: Any) -> Tensor:
    return step(batch, options, **given)[0]


def moved(batch: Batch, scale: float = 0.3) -> Batch:
    """The batch as if other weights had sampled it: ratios around 1, some far away."""
    old = scores_of(
        small_llama(), batch.sequences, scores=tree_scores, temperature=1.0, tokens_per_microbatch=4096
    ).logprobs
    noise = torch.randn(old.shape, generator=torch.Generator().manual_seed(5))
    return replace(batch, old_logprobs=old + scale * noise)


@pytest.mark.parametrize("name", FAMILY)
def test_neither_the_cut_nor_the_order_of_rows_changes_the_gradient(name: str) -> None:
    options = FAMILY[name]
    batch = moved(batch_of(mixed_groups(), options))
    whole = gradient(batch, options)
    assert whole.abs().max() > 1e-3
    assert_close(gradient(batch, options, limit=9), whole, atol=2e-6, rtol=1e-5)
    order = torch.randperm(len(batch.sequences), generator=torch.Generator().manual_seed(1)).tolist()
    assert_close(gradient(rows_of(batch, order, batch.denominator), options), whole, atol=2e-6, rtol=1e-5)


def test_rloo_is_dr_grpo_times_g_over_g_minus_one() -> None:
    groups = [group(0, [1, 0, 0, 1], [2, 7, 3, 5]), group(1, [0, 0, 1, 0], [4, 2, 3, 3])]
    rloo, dr_grpo = (gradient(batch_of(groups, FAMILY[name]), FAMILY[name]) for name in ("rloo", "dr_grpo"))
    assert_close(rloo, 4 / 3 * dr_grpo, atol=1e-6, rtol=1e-5)


def test_at_one_token_gspo_is_grpo_also_where_the_policy_has_moved() -> None:
    groups = [group(0, [1, 0, 0, 1], [1, 1, 1, 1]), group(1, [0, 1, 1, 0], [1, 1, 1, 1])]
    clips: dict[str, float] = {"clip_low": 0.1, "clip_high": 0.15}
    plain = GrpoOptions(**clips)  # type: ignore[arg-type]
    batch = moved(batch_of(groups, plain))
    for loss in ("gspo", "gspo_token"):
        assert_close(gradient(batch, replace(plain, loss=loss)), gradient(batch, plain))  # type: ignore[arg-type]
    longer = moved(batch_of(mixed_groups(), plain))
    assert (gradient(longer, replace(plain, loss="gspo")) - gradient(longer, plain)).abs().max() > 1e-3


def test_gspo_and_gspo_token_have_one_gradient() -> None:
    batch = moved(batch_of(mixed_groups(), FAMILY["gspo"]), 0.01)
    wide = {"clip_low": 0.2, "clip_high": 0.2}
    gspo, token = (replace(FAMILY[name], **wide) for name in ("gspo", "gspo_token"))
    assert_close(gradient(batch, gspo), gradient(batch, token), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_on_policy_every_loss_has_the_gradient_of_reinforce(loss: Any) -> None:
    """gradient = d/dw of -1/N sum_i A_i mean_t log p(token t of completion i)"""
    options = GrpoOptions(loss=loss)
    batch = batch_of(mixed_groups(), options)
    model = small_llama()
    logprobs = padded_logprobs(model, batch.sequences, temperature=1.0)
    rows = zip(batch.sequences, batch.advantages.tolist(), strict=True)  # type: ignore[union-attr]
    sum(-a * logprobs[i, : s.num_trained].mean() / 15 for i, (s, a) in enumerate(rows)).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])  # type: ignore[union-attr]
    assert_close(gradient(batch, options), expected, atol=1e-6, rtol=0)


def test_dapo_by_hand() -> None:
    """Ratios 1.5 and 1.25 (A = 1), 0.5 and 1.25 (A = -1), over 3 tokens: -(1.28 + 1.25) + (0.8) = -1.73, / 3."""
    options = FAMILY["dapo"]
    policy = torch.tensor([[1.5, 1.25], [0.5, 9.0]]).log().requires_grad_()
    rows = LossRows(
        policy_logprobs=policy,
        old_logprobs=torch.zeros(2, 2),
        advantages=torch.tensor([1.0, -1.0]),
        mask=torch.tensor([[True, True], [True, False]]),
        denominator=3.0,
    )
    total, reported = loss_function(options)(rows)
    assert_close(total, torch.tensor((-1.28 - 1.25 + 0.8) / 3))
    total.backward()
    assert_close(policy.grad, torch.tensor([[0.0, -1.25 / 3], [0.0, 0.0]]))  # d ratio / d logprob = ratio
    assert reported["clipped_high"][0, 0] == reported["clipped_low"][0, 0] == pytest.approx(1 / 3)
    assert reported["ratio_tail_frac"].tolist() == [[0, 0], [0, 0]]  # a half is still inside


def test_one_update_reports_nothing_of_ratios() -> None:
    options = GrpoOptions()
    metrics = step(batch_of(mixed_groups(), options), options)[1]
    assert not {"ratio", "ratio_tail_frac", "clipped_low", "entropy"} & set(metrics)


def learn(options: GrpoOptions, *, lr: float, step_number: int = 1) -> tuple[dict[str, float], int, Tensor]:
    policy = small_policy()
    algorithm = Algorithm(
        collect=lambda number: None,
        loss=loss_function(options),
        temperature=1.0,
        updates=options.updates,
        needs_entropy=options.report_entropy,
    )
    learner = Learner.of(algorithm, policy.model, OptimOptions(lr=lr), num_steps=1, scores=tree_scores, reference=None)
    metrics, count = learner.learn(batch_of(mixed_groups(), options), step_number, None)
    return metrics, count, weights(policy.model)


@pytest.mark.parametrize("loss", ["clipped", "gspo", "cispo"])
def test_with_several_updates_the_clip_acts(loss: Any) -> None:
    options = replace(FAMILY["gspo" if loss == "gspo" else "dapo"], loss=loss, updates=Updates(epochs=3))
    metrics, count, _ = learn(options, lr=0.05)
    assert count == 3
    assert metrics["clipped_low"] > 0.02
    assert metrics["clipped_high"] > 0.02
    assert metrics["ratio_tail_frac"] > 0 or loss == "gspo"
    assert abs(metrics["ratio"] - 1) > 1e-3
    assert learn(options, lr=1e-9)[0]["clipped_low"] == 0


def test_the_clip_holds_the_policy_back() -> None:
    """A bad completion's tokens fall without bound where nothing clips them."""
    free = GrpoOptions(loss="cispo", clip_low=1.0, clip_high=100.0, updates=Updates(epochs=12))
    held = replace(free, loss="clipped", clip_low=0.05, clip_high=0.05)
    tails = [learn(options, lr=0.02)[0]["ratio_tail_frac"] for options in (free, held)]
    assert tails[0] > tails[1]


def test_minibatches_share_the_batch_and_dual_clip_is_reported() -> None:
    options = replace(FAMILY["dapo"], dual_clip=1.5, updates=Updates(epochs=2, minibatches=3))
    metrics, count, _ = learn(options, lr=0.05)
    assert count == 6
    assert "clipped_dual" in metrics
    batch = batch_of(mixed_groups(), options)
    parts = cut(batch, 3, seed=0)
    total = sum(gradient(part, options) for part in parts)
    assert_close(total / 3, gradient(batch, options), atol=1e-6, rtol=1e-5)


def test_a_long_wrong_answer_is_pushed_less_a_token_only_where_the_loss_is_a_mean_over_it() -> None:
    """Gradient of the loss with respect to each log-probability, on a tiny model: wrong answers of 2 and 8 tokens."""
    groups = [group(5, [0, 0, 1], [2, 8, 4])]
    push: dict[str, list[float]] = {}
    for normalize in ("sequence", "token", "constant"):
        options = GrpoOptions(scale="none", normalize=normalize)  # type: ignore[arg-type]
        batch = batch_of(groups, options)
        logprobs = padded_logprobs(small_llama(), batch.sequences, temperature=1.0)
        logprobs.retain_grad()
        mask = torch.arange(8)[None] < torch.tensor([2, 8, 4])[:, None]
        rows = LossRows(policy_logprobs=logprobs, mask=mask, denominator=batch.denominator, advantages=batch.advantages)
        loss_function(options)(rows)[0].backward()
        assert logprobs.grad is not None
        push[normalize] = [row[cells].unique().item() for row, cells in zip(logprobs.grad, mask, strict=True)]
    for normalize in ("token", "constant"):
        assert push[normalize][0] == push[normalize][1] > 0
    assert push["sequence"][0] == pytest.approx(4 * push["sequence"][1])


def truncated(groups: Sequence[Group], row: int) -> list[Group]:
    """The same groups, with rollout `row` of each cut at the limit."""
    return [
        replace(
            g,
            rollouts=tuple(
                replace(r, completion=replace(r.completion, stop=Stop.LENGTH)) if i == row else r
                for i, r in enumerate(g.rollouts)
            ),
        )
        for g in groups
    ]


def test_masked_completions_have_no_gradient_and_stay_in_mean_and_denominator() -> None:
    groups = truncated([group(0, [1, 0, 0, 1], [2, 7, 3, 5])], 1)
    counted, masked = GrpoOptions(normalize="token"), GrpoOptions(normalize="token", mask_truncated=True)
    full, short = batch_of(groups, counted), batch_of(groups, masked)
    assert (len(full.sequences), len(short.sequences)) == (4, 3)
    assert short.denominator == full.denominator == 17
    assert short.advantages is not None
    assert short.advantages.tolist() == pytest.approx([1, -1, 1], abs=1e-5)
    only = rows_of(full, [0, 2, 3], full.denominator)
    assert_close(gradient(short, masked), gradient(only, counted), atol=0, rtol=0)
    assert shaping_metrics(groups, masked, None) == {"truncated_masked_frac": 0.25}
    everything = [replace(g, rollouts=truncated([g], i)[0].rollouts[i : i + 1]) for g in groups for i in range(4)]
    assert make_batch(everything, [(1.0,)] * 4, masked, max_completion_tokens=8) is None


def test_overlong_answers_lose_and_a_group_without_a_signal_stays_so() -> None:
    penalty = OverlongPenalty(weight=0.5, buffer_tokens=4, max_tokens=8)
    options = GrpoOptions(scale="none", overlong_penalty=penalty)
    alive, dead = group(0, [1, 1, 0], [4, 8, 6]), group(1, [0, 0, 0], [2, 8, 8])
    # rewards 1, 1 - 0.5, 0 - 0.25: mean 1.25 / 3
    assert step_advantages([alive], options)[0] == pytest.approx([1 - 1.25 / 3, 0.5 - 1.25 / 3, -0.25 - 1.25 / 3])
    assert step_advantages([alive, dead], options)[1] == (0, 0, 0)
    assert shaping_metrics([alive], options, None) == {"overlong_penalty": pytest.approx(0.25)}


def test_the_kl_in_the_reward_is_what_a_completion_pays() -> None:
    groups = [group(0, [1, 0], [2, 3])]
    reference = torch.tensor([[-1.5, -2.0, 9.0], [-1.0, -1.0, -4.0]])
    kl = rollout_kl(groups, lambda sequences: reference, estimator="k1")  # the sampler says -1 everywhere
    assert kl == [[(0.5, 1.0), (0.0, 0.0, 3.0)]]
    options = GrpoOptions(scale="none", beta=0.1, kl="k1", kl_in_reward=True)
    # rewards 1 - 0.15 and 0 - 0.3: half the distance of 1.15 to each side
    assert step_advantages(groups, options, kl=kl)[0] == pytest.approx([0.575, -0.575])
    assert shaping_metrics(groups, options, kl) == {"kl_in_reward": pytest.approx(2.25)}


def test_without_groups_a_token_has_what_it_still_earns_in_stds_of_all_tokens() -> None:
    """REINFORCE++: returns 1 - 0.1 x (1.5, 1.0) and 0 - 0.1 x (3, 3, 3)."""
    groups = [group(0, [1, None], [2, 2]), group(1, [0], [3])]
    kl = [[(0.5, 1.0), (7.0, 7.0)], [(0.0, 0.0, 3.0)]]
    options = GrpoOptions(advantage="batch", scale="none", normalize="token", beta=0.1, kl="k1", kl_in_reward=True)
    found = step_advantages(groups, options, kl=kl)
    returns = torch.tensor([0.85, 0.9, -0.3, -0.3, -0.3])
    expected = ((returns - returns.mean()) / returns.std(correction=0)).tolist()
    assert found[0][0] == pytest.approx(expected[:2], abs=1e-5)
    assert found[1][0] == pytest.approx(expected[2:], abs=1e-5)
    assert found[0][1] == (0.0, 0.0)
    batch = make_batch(groups, found, options, max_completion_tokens=MAX_TOKENS)
    assert batch is not None
    assert batch.advantages is not None
    assert batch.advantages.shape == (2, 3)


def test_a_weighted_kl_has_the_reverse_gradient_and_every_row_keeps_one() -> None:
    """gradient of beta ratio k3 is beta ratio d; of plain k3 beta (1 - exp(-d))."""
    policy, old, ref = torch.tensor([[-1.0]], requires_grad=True), torch.tensor([[-1.2]]), torch.tensor([[-1.7]])
    for weighted, expected in ((True, math.exp(0.2) * 0.7), (False, 1 - math.exp(-0.7))):
        options = GrpoOptions(beta=0.5, kl_weighted=weighted)
        policy.grad = None
        rows = LossRows(
            policy_logprobs=policy,
            old_logprobs=old,
            ref_logprobs=ref,
            advantages=torch.zeros(1),
            mask=torch.ones(1, 1, dtype=torch.bool),
            denominator=1.0,
        )
        loss_function(options)(rows)[0].backward()
        assert_close(policy.grad, torch.tensor([[0.5 * expected]]))
    dead = [group(1, [1, 1], [4, 2])]
    assert len(batch_of(dead, GrpoOptions(beta=0.5)).sequences) == 2
    assert len(batch_of(dead, GrpoOptions(entropy_coef=0.5)).sequences) == 2
    reward = GrpoOptions(beta=0.5, kl_in_reward=True)
    assert make_batch(dead, step_advantages(dead, reward), reward, max_completion_tokens=8) is None


def test_the_entropy_bonus_makes_the_policy_less_sure_and_is_reported() -> None:
    dead = [group(1, [1, 1], [4, 2])]
    options = GrpoOptions(entropy_coef=1.0)
    batch = batch_of(dead, options)
    model = small_llama()
    change, metrics = step(batch, options)
    before = metrics["entropy"]
    with torch.no_grad():
        flat = weights(model) - 0.05 * change
        torch.nn.utils.vector_to_parameters(flat, model.parameters())
        scores = tree_scores(model, batch.sequences, temperature=1.0, entropy=True).entropies
    assert scores is not None
    assert scores[scores != 0].mean().item() > before > 0
    watched = GrpoOptions(report_entropy=True)
    metrics = step(batch_of(mixed_groups(), watched), watched)[1]
    assert metrics["entropy"] > 0
    plain = batch_of(mixed_groups(), GrpoOptions())
    assert_close(gradient(plain, watched), gradient(plain, GrpoOptions()), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected", "name"),
    [
        ({}, [2.0, 2.0, 1.0], "importance_capped_frac"),
        ({"importance_level": "product"}, [2.0, 2.0, 2.0], "importance_capped_frac"),
        ({"importance_level": "sequence"}, [2.0, 2.0, 2.0], "importance_capped_frac"),
        ({"importance_floor": 0.5}, [0.0, 2.0, 1.0], "importance_masked_frac"),
        ({"importance_level": "product", "importance_floor": 0.5}, [0.0, 0.0, 0.0], "importance_masked_frac"),
    ],
)
def test_what_sampled_otherwise_is_weighted_at_the_level_asked_for(
    settings: dict[str, Any], expected: list[float], name: str
) -> None:
    """Ratios 8, 2 and 1 to the sampler: product 16, geometric mean 2.52; cap 2."""
    options = GrpoOptions(importance_cap=2.0, normalize="token", **settings)
    policy = torch.full((1, 3), -1.0, requires_grad=True)
    rows = LossRows(
        policy_logprobs=policy,
        sampler_logprobs=-1.0 - torch.tensor([[8.0, 2.0, 1.0]]).log(),
        advantages=torch.tensor([1.0]),
        mask=torch.ones(1, 3, dtype=torch.bool),
        denominator=1.0,
    )
    total, reported = loss_function(options)(rows)
    total.backward()
    assert_close(policy.grad, -torch.tensor([expected]), atol=1e-5, rtol=0)
    assert name in reported


@pytest.mark.parametrize("name", FAMILY)
def test_no_step_is_nan(name: str) -> None:
    options = FAMILY[name]
    for groups in (
        [group(0, [1, 0], [1, 1])],
        [group(0, [1, None], [2, 3]), group(1, [0, 0], [1, 8])],
        [group(0, [1], [3])],
        [group(0, [0, 0], [3, 3])],
        [group(0, [None, None], [3, 3]), group(1, [1, 0], [2, 2])],
    ):
        rows = step_advantages(groups, options)
        numbers = [x for row in rows for a in row for x in (a if isinstance(a, tuple) else (a,))]
        assert all(map(math.isfinite, numbers))
        batch = make_batch(groups, rows, options, max_completion_tokens=MAX_TOKENS)
        if batch is not None:
            assert torch.isfinite(gradient(batch, options)).all()


def test_equal_rewards_teach_nothing_in_any_method() -> None:
    for options in FAMILY.values():
        assert all(not any(map(any_token, row)) for row in step_advantages([group(1, [1, 1, 1], [4, 2, 3])], options))


def any_token(advantage: Any) -> bool:
    return any(advantage) if isinstance(advantage, tuple) else bool(advantage)
