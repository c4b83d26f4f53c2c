"""The score of a sequence: one head at its last token, the same by tree and by padded batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing import assert_close

from groupwise.models import ScoredSequence
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing
from groupwise.models.lora import adapted_layers, add_lora
from groupwise.models.reward_model import (
    RewardModel,
    padded_rewards,
    reward_model_from,
    score_function,
    tree_rewards,
    why_no_reward_tree,
)
from groupwise.models.trained_layers import has_fused_layers

SEQUENCES = [(5, 7, 8, 9), (5, 7, 10), (5, 7, 8, 9, 11, 12), (6, 7)]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2"])
def test_tree_and_padded_batch_agree_in_value_and_gradient(tiny_model, family):
    model = reward_model_from(tiny_model(family).model, seed=1)
    assert why_no_reward_tree(model) is None
    gradients = []
    for rewards in (tree_rewards, padded_rewards):
        model.zero_grad()
        scores = rewards(model, SEQUENCES)
        (scores * torch.tensor([1.0, -2.0, 3.0, 0.5])).sum().backward()
        gradients.append(
            (scores.detach(), model.head.weight.grad.clone(), torch.cat([p.grad.flatten() for p in body(model)]))
        )
    for tree, padded in zip(*gradients, strict=True):
        assert_close(tree, padded, rtol=1e-4, atol=1e-5)
        assert tree.abs().max() > 0.01


def body(model):
    return [p for p in model.body.parameters() if p.grad is not None]


def test_the_score_is_the_head_times_the_last_hidden_state(tiny_model):
    """By hand: transformers' own hidden states, the sequence alone, the last position."""
    policy = tiny_model("llama").model
    model = reward_model_from(policy, seed=0)
    hidden = policy(torch.tensor([SEQUENCES[0]]), output_hidden_states=True).hidden_states[-1][0, -1]
    assert_close(tree_rewards(model, SEQUENCES)[0], hidden @ model.head.weight[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["gemma2", "mistral_window"])
def test_a_model_that_no_tree_serves_is_padded_and_says_why(tiny_model, family):
    model = reward_model_from(tiny_model(family).model, seed=0)
    assert "Attention uses" in why_no_reward_tree(model)
    together = padded_rewards(model, SEQUENCES)
    alone = torch.cat([padded_rewards(model, [s]) for s in SEQUENCES])
    assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rewards", [tree_rewards, padded_rewards])
def test_layers_may_be_computed_again(tiny_model, rewards):
    gradients = []
    for forward in (rewards, with_gradient_checkpointing(rewards)):
        model = reward_model_from(tiny_model().model, seed=0)
        forward(model, SEQUENCES).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_the_values_hold_the_score_at_the_last_token_and_nothing_else(tiny_model):
    model = reward_model_from(tiny_model().model, seed=0)
    rows = [ScoredSequence(token_ids=s, prompt_length=1) for s in SEQUENCES]
    scores = score_function(tree_rewards)(model, rows, temperature=1.0)
    expected = torch.zeros(4, 5)
    for row, (sequence, score) in enumerate(zip(SEQUENCES, tree_rewards(model, SEQUENCES), strict=True)):
        expected[row, len(sequence) - 2] = score
    assert_close(scores.values, expected)
    assert scores.logprobs.shape == scores.values.shape
    assert not scores.logprobs.any()


def test_the_copy_leaves_the_policy_alone_and_the_seed_decides_the_head(tiny_model):
    policy = tiny_model().model
    before = copy.deepcopy(policy.state_dict())
    model = reward_model_from(policy, seed=3)
    tree_rewards(model, SEQUENCES).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())
    assert all(p.grad is None for p in policy.parameters())
    same, other = (reward_model_from(policy, seed=seed).head.weight for seed in (3, 4))
    assert torch.equal(same, reward_model_from(policy, seed=3).head.weight)
    assert not torch.equal(same, other)


def test_below_adapters_the_base_is_shared_and_the_adapters_are_not(tiny_model):
    policy = copy.deepcopy(tiny_model().model)
    add_lora(policy, rank=2, alpha=4, seed=0, source="tiny")
    model = reward_model_from(policy, seed=0)
    own = {id(p) for p in policy.parameters() if p.requires_grad}
    assert len(adapted_layers(model)) == len(adapted_layers(policy)) > 0
    assert not own & {id(p) for p in model.parameters()}
    frozen = {p.data_ptr() for p in model.body.parameters() if not p.requires_grad}
    assert frozen <= {p.data_ptr() for p in policy.parameters()}
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert "head.weight" in trained
    assert all(".lora_" in name for name in trained if name != "head.weight")


def test_a_body_without_its_lm_head_trains_in_the_same_layers(tiny_model):
    model = reward_model_from(tiny_model("qwen3").model, seed=0)
    assert has_fused_layers(model.body)
    assert isinstance(model, RewardModel)
