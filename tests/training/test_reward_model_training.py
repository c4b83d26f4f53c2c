"""The reward model as an algorithm: its loss by hand, its pairs, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from training_cases import END, VOCABULARY, ListRecorder, small_policy

from groupwise.models import ScoredSequence
from groupwise.models.reward_model import padded_rewards, reward_model_from, score_function, tree_rewards
from groupwise.training import OptimOptions, StageOptions, run_stage
from groupwise.training.batch import microbatches
from groupwise.training.pairs import IS_CHOSEN, ScoredPair, pair_batch
from groupwise.training.reward_model import (
    RewardModelOptions,
    heldout_pairs,
    loss_function,
    pair_scores,
    reward_model,
)
from groupwise.training.step import LossRows, optimizer_step


def pair(prompt, chosen, rejected):
    return ScoredPair(
        *(ScoredSequence(token_ids=(*prompt, *side, END), prompt_length=len(prompt)) for side in (chosen, rejected))
    )


def preferring_five(num_prompts, *, seed=0):
    """The better completion has more 5s than 6s in it; prompts and the other tokens are random."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count):
        return tuple(torch.randint(7, VOCABULARY, (count,), generator=generator).tolist())

    found = []
    for _ in range(num_prompts):
        prompt, filler = (2, 3, *ids(3)), ids(3)
        found.append(pair(prompt, (5, *filler, 5), (6, *filler, 6)))
        found.append(pair(prompt, (*filler, 5, 5), (*filler, 6, 6)))
    return found


def rows_with(scores, *, denominator):
    """Two tokens a row; the score stands at the second."""
    values = torch.tensor([[0.0, score] for score in scores], requires_grad=True)
    return values, LossRows(
        policy_logprobs=torch.zeros(len(scores), 2),
        mask=torch.ones(len(scores), 2, dtype=torch.bool),
        denominator=denominator,
        values=values,
        units=torch.tensor([7, 7, 3, 3]),
        extra={IS_CHOSEN: torch.tensor([1.0, 0.0, 0.0, 1.0])},  # the second pair comes the other way round
    )


def test_the_loss_and_the_report_by_hand():
    values, rows = rows_with([2.0, 1.0, 0.5, 0.0], denominator=4.0)
    total, reported = loss_function(RewardModelOptions())(rows)
    # pair 7: chosen 2 over rejected 1; pair 3: chosen 0 under rejected 0.5
    expected = (math.log(1 + math.exp(-1.0)) + math.log(1 + math.exp(0.5))) / 4
    assert total.item() == pytest.approx(expected)
    total.backward()
    first, second = (1 / (1 + math.exp(x)) / 4 for x in (1.0, -0.5))  # sigmoid(-margin) / denominator
    assert_close(values.grad, torch.tensor([[-first, -first], [first, first], [second, second], [-second, -second]]))
    means = {name: value.mean().item() for name, value in reported.items()}
    assert means == pytest.approx({"accuracy": 0.5, "margin": 0.25, "chosen_score": 1.0, "rejected_score": 0.75})
    assert all(value.dim() == 1 and not value.requires_grad for value in reported.values())


def test_margin_smoothing_and_centring_reach_the_loss():
    _, rows = rows_with([2.0, 1.0, 0.5, 0.0], denominator=2.0)
    options = RewardModelOptions(margin=0.5, label_smoothing=0.1, center_coef=0.01)
    total, _ = loss_function(options)(rows)

    def one(chosen, rejected):
        right, wrong = (math.log(1 + math.exp(-sign * (chosen - rejected - 0.5))) for sign in (1, -1))
        return 0.9 * right + 0.1 * wrong + 0.01 * (chosen + rejected) ** 2

    assert total.item() == pytest.approx((one(2.0, 1.0) + one(0.0, 0.5)) / 2)


@pytest.mark.parametrize("rewards", [tree_rewards, padded_rewards])
def test_no_cut_into_micro_batches_changes_the_gradient_and_no_pair_is_torn(rewards):
    pairs = preferring_five(4)
    batch = pair_batch(pairs)
    cuts = microbatches(batch.sequences, 30, batch.units)
    assert len(cuts) > 2
    assert all(sorted(batch.units[r] for r in cut)[::2] == sorted(batch.units[r] for r in cut)[1::2] for cut in cuts)
    moved = []
    for tokens in (30, 4096):
        model = reward_model_from(small_policy().model, seed=0)
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        metrics = optimizer_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            batch,
            loss_function(RewardModelOptions()),
            scores=score_function(rewards),
            temperature=1.0,
            tokens_per_microbatch=tokens,
            max_grad_norm=float("inf"),
        )
        moved.append((torch.cat([p.detach().flatten() for p in model.parameters()]) - before, metrics))
    assert_close(moved[0][0], moved[1][0], rtol=1e-3, atol=1e-5)
    assert moved[0][0].abs().max() > 1e-3
    for name in ("loss", "accuracy", "margin", "chosen_score"):
        assert moved[0][1][name] == pytest.approx(moved[1][1][name], rel=1e-4, abs=1e-6)


def test_the_gradient_is_that_of_the_scores_by_finite_differences():
    model = reward_model_from(small_policy().model, seed=0).double()
    batch = pair_batch(preferring_five(2))

    def total():
        found = score_function(padded_rewards)(model, batch.sequences, temperature=1.0)
        mask = torch.tensor([[True] * s.num_trained for s in batch.sequences])
        rows = LossRows(
            policy_logprobs=found.logprobs,
            mask=mask,
            denominator=batch.denominator,
            values=found.values,
            units=torch.tensor(batch.units),
            extra=batch.extra,
        )
        return loss_function(RewardModelOptions())(rows)[0]

    model.head.float()  # the head reads float32 states
    total().backward()
    weight = model.head.weight
    place = int(weight.grad.abs().argmax())
    step = 1e-2
    found = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[0, place] += sign * step
            found.append(total().item())
            weight[0, place] -= sign * step
    assert (found[0] - found[1]) / (2 * step) == pytest.approx(weight.grad[0, place].item(), rel=1e-2)


def test_it_learns_to_tell_chosen_from_rejected_on_prompts_that_it_never_saw(tmp_path):
    split = heldout_pairs(preferring_five(40), 0.25, seed=0)
    policy = small_policy()
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    model = reward_model_from(policy.model, seed=0)
    head = model.head.weight.detach().clone()
    written = []
    algorithm = reward_model(
        split.train,
        RewardModelOptions(pairs_per_step=8),
        model=model,
        rewards=tree_rewards,
        seed=0,
        save=written.append,
    )
    recorder = ListRecorder()
    outcome = run_stage(
        StageOptions(name="reward", num_steps=40, optim=OptimOptions(lr=1e-2), checkpoints=tmp_path),
        algorithm,
        replace(policy, model=model.body),
        scores=score_function(tree_rewards),
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    assert outcome.steps_done == 40
    assert len(written) == 1
    assert written[0].parent == tmp_path
    assert recorder.rows[-1]["accuracy"] == 1.0
    assert recorder.rows[-1]["margin"] > recorder.rows[0]["margin"] + 1
    assert recorder.rows[0]["num_pairs"] == 8
    scores = pair_scores(model, split.heldout, rewards=tree_rewards, tokens_per_microbatch=64)
    assert (scores[:, 0] > scores[:, 1]).float().mean() >= 0.9
    assert not torch.equal(model.head.weight, head)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.model.state_dict().items())


def test_pair_scores_do_not_depend_on_the_cut():
    model = reward_model_from(small_policy().model, seed=0)
    pairs = preferring_five(3)
    whole, cut = (pair_scores(model, pairs, rewards=tree_rewards, tokens_per_microbatch=n) for n in (4096, 10))
    assert whole.shape == (6, 2)
    assert_close(whole, cut, rtol=1e-4, atol=1e-5)
    assert_close(whole[2, 1], padded_rewards(model, [pairs[2].rejected.token_ids])[0].detach(), rtol=1e-4, atol=1e-5)


def test_held_out_pairs_have_prompts_of_their_own():
    pairs = preferring_five(20)
    split = heldout_pairs(pairs, 0.25, seed=3)
    assert len(split.heldout) == 10  # 5 of 20 prompts, 2 pairs each
    prompts = [{p.chosen.token_ids[:5] for p in side} for side in split]
    assert not prompts[0] & prompts[1]
    assert sorted(map(pairs.index, [*split.train, *split.heldout])) == list(range(40))
    assert [pairs.index(p) for p in split.train] == sorted(pairs.index(p) for p in split.train)
    assert heldout_pairs(pairs, 0.25, seed=3) == split
    assert heldout_pairs(pairs, 0.25, seed=4) != split


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_no_side_is_empty(share):
    split = heldout_pairs(preferring_five(3), share, seed=0)
    assert split.train
    assert split.heldout
