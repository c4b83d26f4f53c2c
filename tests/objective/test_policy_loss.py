import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import aggregate, clip_shares, clipped_policy_loss, group_advantages

RATIOS = [0.5, 0.9, 1.0, 1.25, 1.3, 4.0]


def from_ratios(ratios, rows=1):
    return torch.tensor([ratios] * rows, dtype=torch.float64).log(), torch.zeros(rows, len(ratios), dtype=torch.float64)


def test_values_and_gradients_by_hand():
    # clip to 0.8 .. 1.28; A = 1: min(r, clip r) is cut above only; A = -1: -min(-r, -clip r) = max is cut below only
    policy, old = from_ratios(RATIOS, rows=2)
    policy.requires_grad_()
    losses = clipped_policy_loss(policy, old, torch.tensor([1.0, -1.0]), torch.ones(2, 6), clip_low=0.2, clip_high=0.28)
    expected = [[-0.5, -0.9, -1, -1.25, -1.28, -1.28], [0.8, 0.9, 1, 1.25, 1.3, 4]]
    assert_close(losses, torch.tensor(expected, dtype=torch.float64))
    losses.sum().backward()  # d ratio / d logprob = ratio, 0 where the clip is active
    expected = [[-0.5, -0.9, -1, -1.25, 0, 0], [0, 0.9, 1, 1.25, 1.3, 4]]
    assert_close(policy.grad, torch.tensor(expected, dtype=torch.float64))


def test_clip_high_defaults_to_clip_low():
    policy, old = from_ratios(RATIOS)
    one, mask = torch.ones(1), torch.ones(1, 6)
    same = clipped_policy_loss(policy, old, one, mask, clip_low=0.3, clip_high=0.3)
    assert_close(clipped_policy_loss(policy, old, one, mask, clip_low=0.3), same)
    assert clipped_policy_loss(policy, old, one, mask).min() == -1.2


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("std", [-(0.5**0.5) / 2, 0.5**0.5 / 2]),  # sample std sqrt(1/2): A = 0.5 / 0.7071 = 0.7071, over 2 completions
        ("none", [-0.25, 0.25]),  # A = 0.5, over 2 completions
    ],
)
def test_first_step_has_loss_zero_and_a_gradient_that_raises_the_rewarded_token(scale, expected):
    logprobs = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    advantages = group_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), scale=scale, std="sample", eps=0)
    mask = torch.ones(2, 1)
    loss = aggregate(clipped_policy_loss(logprobs, logprobs, advantages, mask), mask, denominator=2)
    loss.backward()
    assert loss == 0
    assert_close(logprobs.grad, torch.tensor(expected).unsqueeze(1))


@pytest.mark.parametrize("normalize", ["sequence", "token", "constant"])
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_are_exactly_zero(normalize, rubbish):
    policy = torch.tensor([[-1.0, rubbish, -2.0, rubbish], [rubbish] * 4], requires_grad=True)
    old = torch.tensor([[-1.0, -3.0, rubbish, rubbish], [0.0, rubbish, -rubbish, 0.0]])
    mask = torch.tensor([[True, False, False, False], [False] * 4])
    losses = clipped_policy_loss(policy, old, torch.tensor([0.5, rubbish]), mask)
    assert losses.tolist() == [[-0.5, 0, 0, 0], [0, 0, 0, 0]]
    aggregate(losses, mask, normalize=normalize, denominator=1).backward()
    assert policy.grad.tolist() == [[-0.5, 0, 0, 0], [0, 0, 0, 0]]


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), clip_low=st.floats(0, 2), clip_high=st.none() | st.floats(0, 20))
def test_never_below_the_unclipped_loss_and_silent_without_advantage(seed, clip_low, clip_high):
    generator = torch.Generator().manual_seed(seed)
    policy, old = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator)
    advantages = torch.randn(3, dtype=torch.float64, generator=generator)
    advantages[0] = 0
    mask = torch.rand(3, 5, generator=generator) < 0.7
    policy.requires_grad_()
    losses = clipped_policy_loss(policy, old, advantages, mask, clip_low=clip_low, clip_high=clip_high)
    unclipped = torch.where(mask, -(policy - old).exp() * advantages[:, None], 0.0)
    assert (losses >= unclipped - 1e-12).all()
    losses.sum().backward()
    assert (policy.grad[0] == 0).all()
    assert (policy.grad[~mask] == 0).all()


@settings(deadline=None)
@given(seed=st.integers(0, 2**31))
def test_clip_shares_count_the_tokens_whose_gradient_is_silenced(seed):
    generator = torch.Generator().manual_seed(seed)
    policy, old = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator) / 2
    advantages = torch.randn(3, dtype=torch.float64, generator=generator)
    mask = torch.rand(3, 5, generator=generator) < 0.7
    policy.requires_grad_()
    clipped_policy_loss(policy, old, advantages, mask, clip_high=0.28).sum().backward()
    shares = clip_shares(policy, old, advantages, mask, clip_high=0.28)
    silenced = ((policy.grad == 0) & mask).sum() / mask.sum().clamp(min=1)
    assert_close(shares.low + shares.high, silenced)
    step = int(mask.sum())
    parts = [
        clip_shares(policy[i], old[i], advantages[i], mask[i], clip_high=0.28, denominator=step) for i in ([0], [1, 2])
    ]
    assert_close(parts[0].low + parts[1].low, shares.low)
    assert_close(parts[0].high + parts[1].high, shares.high)


def test_clip_shares_by_hand():
    policy, old = from_ratios([0.5, 1.0, 4.0, torch.nan], rows=2)
    policy.requires_grad_()
    mask = torch.tensor([[True, True, True, False]] * 2)
    shares = clip_shares(policy, old, torch.tensor([1.0, -1.0]), mask)
    # 6 trained tokens: 4.0 with A > 0 is clipped high, 0.5 with A < 0 is clipped low; the other two keep their gradient
    assert_close(torch.stack(shares), torch.tensor([1 / 6, 1 / 6]))
    assert not shares.low.requires_grad
    assert clip_shares(policy, old, torch.ones(2), torch.zeros(2, 4)) == (0, 0)


def test_gradient_matches_finite_differences():
    # Ratios away from the corners at 0.8 and 1.2, where the loss has no derivative.
    policy, old = from_ratios([0.5, 0.9, 1.1, 1.5, 2.0], rows=2)
    policy.requires_grad_()
    advantages, mask = torch.tensor([0.7, -1.3]), torch.tensor([[True, True, False, True, True]] * 2)
    assert torch.autograd.gradcheck(lambda x: clipped_policy_loss(x, old, advantages, mask), policy)


def test_gradient_equals_plain_policy_gradient_by_exact_enumeration():
    # One token from a 3-way softmax, on-policy: E[grad loss] = -grad E[A]
    logits = torch.tensor([0.3, -1.1, 0.8], dtype=torch.float64)
    rewards = torch.tensor([1.0, 0.0, 0.25], dtype=torch.float64)
    sampled, pushed = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    (sampled.softmax(0) * rewards).sum().backward()
    logprobs = pushed.log_softmax(0).unsqueeze(1)
    losses = clipped_policy_loss(logprobs, logprobs, rewards, torch.ones(3, 1))
    (logits.softmax(0) * losses.squeeze(1)).sum().backward()
    assert_close(pushed.grad, -sampled.grad)


def test_the_loss_keeps_the_dtype_of_the_policy():
    losses = clipped_policy_loss(
        torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, dtype=torch.float64), torch.ones(1, 2)
    )
    assert losses.dtype == torch.float32


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_rows_or_no_tokens(shape):
    assert (
        clipped_policy_loss(torch.zeros(shape), torch.zeros(shape), torch.zeros(shape[0]), torch.zeros(shape)).shape
        == shape
    )


@pytest.mark.parametrize("bounds", [{"clip_low": -0.2}, {"clip_high": -0.1}])
def test_negative_bounds_are_refused(bounds):
    for function in (clipped_policy_loss, clip_shares):
        with pytest.raises(ValueError, match="0 or more"):
            function(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1), torch.ones(1, 1), **bounds)
