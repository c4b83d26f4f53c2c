import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import adapted_entropy_coef, aggregate, entropy_covariance, entropy_loss


@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf])
def test_the_bonus_by_hand(rubbish):
    entropies = torch.tensor([[0.5, rubbish], [rubbish, rubbish]], requires_grad=True)
    mask = torch.tensor([[1, 0], [0, 0]])
    losses = entropy_loss(entropies, mask)
    assert losses.tolist() == [[-0.5, 0], [0, 0]]
    aggregate(losses, mask, normalize="token", denominator=2).backward()
    assert entropies.grad.tolist() == [[-0.5, 0], [0, 0]]
    assert entropy_loss(torch.zeros(2, 0), torch.zeros(2, 0)).shape == (2, 0)


def test_descent_on_the_bonus_flattens_the_policy():
    logits = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)

    def entropy(x):
        return -(x.log_softmax(1) * x.softmax(1)).sum(1, keepdim=True)

    before = entropy(logits)
    loss = lambda x: entropy_loss(entropy(x), torch.ones(1, 1)).sum()  # noqa: E731
    assert torch.autograd.gradcheck(loss, logits)
    loss(logits).backward()
    assert entropy(logits.detach() - 0.1 * logits.grad) > before


def test_the_coefficient_by_hand():
    assert adapted_entropy_coef(0.01, 0.1, target=0.2) == pytest.approx(0.015)
    assert adapted_entropy_coef(0.01, 0.2, target=0.2) == pytest.approx(0.015)
    assert adapted_entropy_coef(0.01, 0.3, target=0.2) == pytest.approx(0.005)
    assert adapted_entropy_coef(0.002, 0.3, target=0.2) == 0
    assert adapted_entropy_coef(0.998, 0.1, target=0.2) == 1
    with pytest.raises(ValueError, match="0 or more"):
        adapted_entropy_coef(0.1, 0.1, target=0.2, step=-1.0)


def test_covariance_by_hand():
    # logprobs -1, -3 with advantages 1, -1: means -2 and 0, products 1 and 1
    policy, advantages = torch.tensor([[-1.0, torch.nan], [torch.inf, -3.0]]), torch.tensor([1.0, -1.0])
    mask = torch.tensor([[1, 0], [0, 1]])
    assert entropy_covariance(policy, advantages, mask) == 1
    assert entropy_covariance(policy, -advantages, mask) == -1
    assert entropy_covariance(policy, torch.ones(2), mask) == 0
    per_token = torch.tensor([[1.0, torch.nan], [torch.nan, -1.0]])
    assert entropy_covariance(policy, per_token, mask) == 1
    assert entropy_covariance(policy, advantages, torch.zeros(2, 2)) == 0
    assert not entropy_covariance(policy.requires_grad_(), advantages, mask).requires_grad


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_a_natural_step_changes_entropy_by_minus_the_covariance(seed):
    """z += lr A, the natural gradient step of a softmax, enumerated: dH = -lr Cov_pi(log pi, A) to first order."""
    generator = torch.Generator().manual_seed(seed)
    logits, advantages = torch.randn(2, 4, dtype=torch.float64, generator=generator)

    def entropy(x):
        return -(x.softmax(0) * x.log_softmax(0)).sum()

    lr = 1e-5
    slope = (entropy(logits + lr * advantages) - entropy(logits - lr * advantages)) / (2 * lr)
    # Each token as often as the policy draws it, so that the plain mean is the mean under the policy.
    counts = (logits.softmax(0) * 20000).round().long()
    policy = logits.log_softmax(0).repeat_interleave(counts).unsqueeze(1)
    found = entropy_covariance(policy, advantages.repeat_interleave(counts), torch.ones_like(policy))
    assert_close(found.double(), -slope, atol=2e-3, rtol=2e-3)
