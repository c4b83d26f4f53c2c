import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import (
    aggregate,
    cispo_loss,
    clip_shares,
    clipped_policy_loss,
    group_advantages,
    importance_ratio,
    reinforce_loss,
    sequence_policy_loss,
)

RATIOS = [0.5, 0.9, 1.0, 1.25, 1.3, 4.0]


def from_ratios(ratios, rows=1):
    return torch.tensor([ratios] * rows, dtype=torch.float64).log(), torch.zeros(rows, len(ratios), dtype=torch.float64)


def random_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    policy, old = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator)
    advantages = torch.randn(3, dtype=torch.float64, generator=generator)
    return policy, old, advantages, torch.rand(3, 5, generator=generator) < 0.7


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


def test_dual_clip_by_hand():
    policy, old = from_ratios(RATIOS, rows=2)
    policy.requires_grad_()
    losses = clipped_policy_loss(
        policy, old, torch.tensor([1.0, -1.0]), torch.ones(2, 6), clip_low=0.2, clip_high=0.28, dual_clip=3.0
    )
    # only the last cell differs from the plain clip: ratio 4 with A = -1 stops at 3
    expected = [[-0.5, -0.9, -1, -1.25, -1.28, -1.28], [0.8, 0.9, 1, 1.25, 1.3, 3]]
    assert_close(losses, torch.tensor(expected, dtype=torch.float64))
    losses.sum().backward()
    expected = [[-0.5, -0.9, -1, -1.25, 0, 0], [0, 0.9, 1, 1.25, 1.3, 0]]
    assert_close(policy.grad, torch.tensor(expected, dtype=torch.float64))


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), dual=st.floats(1.01, 9))
def test_dual_clip_bounds_the_loss_and_changes_nothing_else(seed, dual):
    policy, old, advantages, mask = random_batch(seed)
    plain = clipped_policy_loss(policy, old, advantages, mask)
    found = clipped_policy_loss(policy, old, advantages, mask, dual_clip=dual)
    limit = dual * advantages.abs()[:, None]
    assert (found <= limit + 1e-12).all()
    touched = found != plain
    assert (advantages[:, None].expand_as(found)[touched] < 0).all()
    assert_close(found[touched], limit.expand_as(found)[touched])


def test_sequence_loss_by_hand():
    # log-ratios .01 -.02 .03 .0004: mean .0051, ratio 1.00511303, above 1 + 4e-4
    policy = torch.tensor([[0.01, -0.02, 0.03, 0.0004, torch.nan]] * 2, dtype=torch.float64, requires_grad=True)
    old, mask = torch.zeros(2, 5, dtype=torch.float64), torch.tensor([[1, 1, 1, 1, 0]] * 2)
    losses = sequence_policy_loss(policy, old, torch.tensor([1.0, -1.0]), mask)
    expected = [[-1.0004] * 4 + [0], [1.00511303] * 4 + [0]]
    assert_close(losses, torch.tensor(expected, dtype=torch.float64), atol=1e-8, rtol=0)
    aggregate(losses, mask, normalize="sequence", denominator=1).backward()
    # the first completion is clipped whole; the second: s A / length for each of its tokens
    expected = [[0.0] * 5, [1.00511303 / 4] * 4 + [0]]
    assert_close(policy.grad, torch.tensor(expected, dtype=torch.float64), atol=1e-8, rtol=0)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31))
def test_both_sequence_forms_agree_where_a_completion_has_one_advantage(seed):
    policy, old, advantages, mask = random_batch(seed)
    found = {}
    for level in ("sequence", "sequence_token"):
        leaf = policy.clone().requires_grad_()
        losses = sequence_policy_loss(leaf, old, advantages, mask, clip_low=0.3, clip_high=0.3, level=level)
        aggregate(losses, mask, normalize="sequence", denominator=3).backward()
        found[level] = losses.detach(), leaf.grad
    assert_close(found["sequence"], found["sequence_token"])


def test_the_token_form_passes_the_gradient_to_the_token_alone():
    policy = torch.tensor([[0.1, 0.3]], dtype=torch.float64, requires_grad=True)
    advantages, mask = torch.tensor([[1.0, -2.0]]), torch.ones(1, 2)
    losses = sequence_policy_loss(
        policy, torch.zeros_like(policy), advantages, mask, clip_low=1, clip_high=1, level="sequence_token"
    )
    s = torch.tensor(0.2, dtype=torch.float64).exp()  # (.1 + .3) / 2
    assert_close(losses, torch.stack([-s, 2 * s]).unsqueeze(0))
    losses.sum().backward()
    assert_close(policy.grad, torch.stack([-s, 2 * s]).unsqueeze(0))
    assert_close(policy.grad, losses.detach())


def test_cispo_by_hand():
    # ratios 0.5, 1, 8 with bounds 0 and 5: weights 0.5, 1, 5; loss = -w A logprob, gradient -w A
    policy = torch.tensor([[-2.0, -1.0, -0.5]] * 2, dtype=torch.float64)
    old = policy - torch.tensor([[0.5, 1.0, 8.0]], dtype=torch.float64).log()
    policy.requires_grad_()
    losses = cispo_loss(policy, old, torch.tensor([1.0, -2.0]), torch.ones(2, 3))
    assert_close(losses, torch.tensor([[1.0, 1.0, 2.5], [-2.0, -2.0, -5.0]], dtype=torch.float64))
    losses.sum().backward()
    assert_close(policy.grad, torch.tensor([[-0.5, -1, -5], [1, 2, 10]], dtype=torch.float64))
    lowered = cispo_loss(policy, old, torch.ones(2), torch.ones(2, 3), clip_low=0.2, clip_high=None)
    assert_close(lowered[0].detach(), torch.tensor([1.6, 1.0, 0.6], dtype=torch.float64))  # weights .8, 1, 1.2


def test_reinforce_by_hand():
    policy = torch.tensor([[-2.0, -1.0, torch.nan]], requires_grad=True)
    losses = reinforce_loss(policy, torch.tensor([0.5]), torch.tensor([[1, 1, 0]]))
    assert losses.tolist() == [[1.0, 0.5, 0.0]]
    losses.sum().backward()
    assert policy.grad.tolist() == [[-0.5, -0.5, 0.0]]


LOSSES = [
    clipped_policy_loss,
    sequence_policy_loss,
    cispo_loss,
    lambda *args: clipped_policy_loss(*args, dual_clip=3.0),
    lambda *args: sequence_policy_loss(*args, level="sequence_token"),
    lambda *args: sequence_policy_loss(*args, level="product", clip_low=0.9, clip_high=9.0),
    lambda policy, old, advantages, mask: reinforce_loss(policy, advantages, mask),
]


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), loss=st.sampled_from([x for x in LOSSES if x is not LOSSES[5]]))
def test_on_policy_every_loss_has_the_gradient_of_reinforce(seed, loss):
    policy, _, advantages, mask = random_batch(seed)
    leaf = policy.clone().requires_grad_()
    aggregate(loss(leaf, leaf, advantages, mask), mask, denominator=3).backward()
    other = policy.clone().requires_grad_()
    aggregate(reinforce_loss(other, advantages, mask), mask, denominator=3).backward()
    assert_close(leaf.grad, other.grad)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_are_inert_in_every_loss(loss, rubbish):
    policy = torch.tensor([[-1.0, rubbish, -2.0], [rubbish] * 3], requires_grad=True)
    old = torch.tensor([[-1.0, -3.0, rubbish], [rubbish, 0.0, -rubbish]])
    mask = torch.tensor([[True, False, False], [False] * 3])
    for advantages in (torch.tensor([0.5, rubbish]), torch.tensor([[0.5, rubbish, 1.0], [rubbish] * 3])):
        policy.grad = None
        losses = loss(policy, old, advantages, mask)
        assert (losses[~mask] == 0).all()
        losses.sum().backward()
        assert policy.grad.tolist() == [[-0.5, 0, 0], [0, 0, 0]]


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), loss=st.sampled_from(LOSSES))
def test_one_advantage_a_completion_equals_the_same_one_for_each_token(seed, loss):
    policy, old, advantages, mask = random_batch(seed)
    spread = torch.where(mask, advantages[:, None], torch.nan)
    assert torch.equal(loss(policy, old, advantages, mask), loss(policy, old, spread, mask))


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_every_loss_match_finite_differences(loss):
    # Ratios away from every corner. A weight that is a constant has no finite difference: there, against the formula.
    policy, old = from_ratios([0.5, 0.9, 1.1, 1.5], rows=2)
    policy.requires_grad_()
    advantages, mask = torch.tensor([0.7, -1.3]), torch.tensor([[True, True, False, True]] * 2)
    if loss is cispo_loss:
        loss(policy, old, advantages, mask).sum().backward()
        ratio = torch.where(mask, importance_ratio(policy.detach(), old, mask), 0.0)
        assert_close(policy.grad, -ratio * advantages.double()[:, None])
    elif loss is not LOSSES[4]:  # its value does not depend on its gradient; tested above
        assert torch.autograd.gradcheck(lambda x: loss(x, old, advantages, mask), policy)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_rows_or_no_tokens_in_every_loss(loss, shape):
    assert loss(torch.zeros(shape), torch.zeros(shape), torch.zeros(shape[0]), torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("dual", [1.0, 0.5, -3.0])
def test_a_dual_clip_that_is_no_ratio_above_one_is_refused(dual):
    one = torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1), torch.ones(1, 1)
    for function in (clipped_policy_loss, sequence_policy_loss, clip_shares):
        with pytest.raises(ValueError, match="must be above 1"):
            function(*one, dual_clip=dual)


def test_a_token_level_is_refused_by_the_sequence_loss():
    with pytest.raises(ValueError, match="sequence, sequence_token, product"):
        sequence_policy_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1), torch.ones(1, 1), level="token")


def test_the_ratio_of_whole_completions_sums_the_token_gradients():
    # ratios 1.1 and 1.2, product 1.32: clipped to 1.3 for A = 1; for A = -1 value 1.32 and gradient 1.32 on each token
    policy, old = from_ratios([1.1, 1.2], rows=2)
    policy.requires_grad_()
    mask = torch.ones(2, 2)
    losses = sequence_policy_loss(
        policy, old, torch.tensor([1.0, -1.0]), mask, clip_low=0.3, clip_high=0.3, level="product"
    )
    assert_close(losses, torch.tensor([[-1.3, -1.3], [1.32, 1.32]], dtype=torch.float64))
    aggregate(losses, mask, normalize="sequence", denominator=1).backward()
    assert_close(policy.grad, torch.tensor([[0.0, 0.0], [1.32, 1.32]], dtype=torch.float64))
