import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import clip_shares, clipped_policy_loss, sequence_policy_loss


def from_ratios(ratios, rows=1):
    return torch.tensor([ratios] * rows, dtype=torch.float64).log(), torch.zeros(rows, len(ratios), dtype=torch.float64)


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
    assert_close(torch.stack(shares), torch.tensor([1 / 6, 1 / 6, 0.0]))
    assert not shares.low.requires_grad
    assert clip_shares(policy, old, torch.ones(2), torch.zeros(2, 4)) == (0, 0, 0)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), sequence=st.booleans())
def test_with_dual_clip_and_sequence_ratios_they_still_count_the_silenced_tokens(seed, sequence):
    generator = torch.Generator().manual_seed(seed)
    policy, old = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator)
    advantages = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    mask = torch.rand(3, 5, generator=generator) < 0.7
    policy.requires_grad_()
    options = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 1.5}
    if sequence:
        loss = sequence_policy_loss(policy, old, advantages, mask, level="sequence_token", **options)
    else:
        loss = clipped_policy_loss(policy, old, advantages, mask, **options)
    loss.sum().backward()
    shares = clip_shares(policy, old, advantages, mask, level="sequence" if sequence else "token", **options)
    silenced = ((policy.grad == 0) & mask).sum() / mask.sum().clamp(min=1)
    assert_close(sum(shares), silenced)


def test_dual_share_by_hand():
    policy, old = from_ratios([0.5, 1.0, 4.0], rows=2)
    shares = clip_shares(policy, old, torch.tensor([1.0, -1.0]), torch.ones(2, 3), dual_clip=3.0)
    # 6 tokens: 0.5 with A < 0; 4.0 with A > 0; 4.0 with A < 0
    assert_close(torch.stack(shares), torch.tensor([1 / 6, 1 / 6, 1 / 6]))


def test_negative_bounds_of_the_shares_are_refused():
    with pytest.raises(ValueError, match="0 or more"):
        clip_shares(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1), torch.ones(1, 1), clip_low=-0.1)
