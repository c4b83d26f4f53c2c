"""Rewards that know the length: right answers alone pay, or all do; and where a token reward lands."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import gae, kl_estimate, length_shaped, masked_sum, overlong_penalty, token_rewards


def test_length_by_hand_and_clamped():
    # right answers, free up to 0, the ramp ends at 1000, strength 1/2
    tokens = torch.tensor([0, 500, 1000, 2000, 2000])
    solved = torch.tensor([True, True, True, True, False])
    rewards = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    found = length_shaped(rewards, solved, tokens, free_tokens=0, max_tokens=1000, strength=0.5)
    assert found.tolist() == [1.0, 0.75, 0.5, 0.5, 0.0]


def test_a_group_without_a_right_answer_is_not_touched():
    rewards = torch.tensor([0.2, 0.2])
    tokens = torch.tensor([1, 900])
    found = length_shaped(rewards, torch.tensor([False, False]), tokens, free_tokens=10, max_tokens=100, strength=0.9)
    assert torch.equal(found, rewards)


@pytest.mark.parametrize(("free", "longest", "strength"), [(-1, 10, 0.5), (10, 10, 0.5), (0, 10, 1.0), (0, 10, -0.1)])
def test_a_ramp_that_cannot_be_is_refused(free, longest, strength):
    one = torch.tensor([1.0])
    with pytest.raises(ValueError, match="length_shaped"):
        length_shaped(
            one, torch.tensor([True]), torch.tensor([1]), free_tokens=free, max_tokens=longest, strength=strength
        )


def test_overlong_by_hand():
    # limit 20480, buffer 4096: free up to 16384; 16385 -> -1/4096; 18432 -> -2048/4096; 20480 and beyond -> -1
    tokens = torch.tensor([0, 16384, 16385, 18432, 20480, 99999])
    found = overlong_penalty(tokens, max_tokens=20480, buffer_tokens=4096)
    assert_close(found, torch.tensor([0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]))
    assert overlong_penalty(torch.zeros(0, dtype=torch.long), max_tokens=2, buffer_tokens=1).shape == (0,)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 50), min_size=2, max_size=6), buffer=st.integers(1, 40))
def test_overlong_never_rewards_and_never_grows_with_length(lengths, buffer):
    found = overlong_penalty(torch.tensor(sorted(lengths)), max_tokens=40, buffer_tokens=buffer)
    assert (found <= 0).all()
    assert (found >= -1).all()
    assert (found.diff() <= 0).all()


@pytest.mark.parametrize("buffer", [0, -1, 11])
def test_a_buffer_outside_the_limit_is_refused(buffer):
    with pytest.raises(ValueError, match="from 1 to max_tokens = 10"):
        overlong_penalty(torch.tensor([1]), max_tokens=10, buffer_tokens=buffer)


def test_the_end_reward_lands_on_the_last_trained_token():
    # t0 t1 end pad pad; then with tool output in the middle and padding on the left; then nothing trained
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]])
    found = token_rewards(torch.tensor([1.0, 2.0, torch.nan]), mask)
    assert found.tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 2, 0], [0] * 5]


def test_the_kl_penalty_is_taken_from_each_trained_token():
    mask = torch.tensor([[True, True, False]])
    kl = torch.tensor([[0.5, -1.0, torch.nan]])
    # -0.1 * 0.5; 1 + 0.1 * 1; masked
    assert_close(token_rewards(torch.tensor([1.0]), mask, kl=kl, kl_coef=0.1), torch.tensor([[-0.05, 1.1, 0.0]]))
    assert token_rewards(torch.tensor([1.0]), mask, kl=kl).tolist() == [[0, 1, 0]]


def test_k1_in_the_reward_has_the_gradient_of_the_kl_of_whole_completions_by_exact_enumeration():
    """Two tokens from a 2-word vocabulary: E[sum of returns x score] = -coef grad KL, future tokens included."""
    logits = torch.tensor([[0.3, -0.4], [0.9, 0.1], [-0.2, 0.5]], dtype=torch.float64)  # first; after 0; after 1
    ref = torch.tensor([[0.0, 0.2], [-0.3, 0.4], [0.6, 0.0]], dtype=torch.float64).log_softmax(1)
    rows = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    cells = torch.stack([torch.zeros(4, dtype=torch.long), rows[:, 0] + 1], dim=1)
    mask = torch.ones(4, 2)

    def logprobs(x):
        return x.log_softmax(1)[cells, rows]

    leaf = logits.clone().requires_grad_()
    exact = (logprobs(leaf).sum(1).exp() * (logprobs(leaf) - ref[cells, rows]).sum(1)).sum()
    (expected,) = torch.autograd.grad(exact, leaf)

    pushed = logits.clone().requires_grad_()
    policy = logprobs(pushed)
    kl = kl_estimate(policy.detach(), ref[cells, rows], estimator="k1")
    rewards = token_rewards(torch.zeros(4, dtype=torch.float64), mask, kl=kl, kl_coef=0.7)
    returns = gae(rewards, torch.zeros_like(rewards), mask, lam=1.0).advantages
    probability = policy.detach().sum(1).exp()
    (found,) = torch.autograd.grad((probability * masked_sum(returns * policy, mask, dim=1)).sum(), pushed)
    assert_close(found, -0.7 * expected)
