"""GAE, whitening and process rewards by hand, against naive twins, and with rubbish in masked cells."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import gae, group_advantages, process_advantages, returns_to_go, token_rewards, whiten


def f64(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("gamma", "lam", "expected"),
    [
        (1.0, 1.0, [0.5, 0.4, 0.3]),  # 1 - V
        (1.0, 0.95, [0.46575, 0.385, 0.3]),  # delta = .1 .1 .3; .1 + .95 * .3 = .385; .1 + .95 * .385
        (0.99, 0.95, [0.446829, 0.37515, 0.3]),
        (1.0, 0.0, [0.1, 0.1, 0.3]),  # delta
    ],
)
def test_gae_by_hand(gamma, lam, expected):
    rewards, values = f64([0.0, 0.0, 1.0]), f64([0.5, 0.6, 0.7])
    found = gae(rewards, values, torch.ones(1, 3), gamma=gamma, lam=lam)
    assert_close(found.advantages, f64(expected), atol=1e-6, rtol=0)
    assert_close(found.returns, f64(expected) + values, atol=1e-6, rtol=0)


def test_gae_skips_masked_cells():
    # rewards 0 1, values 0 0, then a masked cell of value 100: .95 * 1 and 1, not 5.7 and 6
    found = gae(f64([0.0, 1.0, 0.0]), f64([0.0, 0.0, 100.0]), torch.tensor([[1, 1, 0]]), gamma=1, lam=0.95)
    assert_close(found.advantages, f64([0.95, 1.0, 0.0]))
    # tool output between two tokens, and padding on the left: as if it were not there
    mask = torch.tensor([[0, 1, 0, 1, 1]])
    wide = gae(f64([9.0, 0.0, 9.0, 0.0, 1.0]), f64([torch.nan, 0.5, torch.nan, 0.6, 0.7]), mask, lam=0.95)
    assert_close(wide.advantages, f64([0.0, 0.46575, 0.0, 0.385, 0.3]))
    assert_close(wide.returns, f64([0.0, 0.96575, 0.0, 0.985, 1.0]))


def test_a_truncated_completion_may_be_bootstrapped():
    # return of the last token: r + gamma 2 where it was cut off, r where it ended
    rewards, values = f64([0.0, 0.25], [0.0, 0.25]), f64([0.1, 0.2], [0.1, 0.2])
    found = gae(rewards, values, torch.ones(2, 2), gamma=0.9, lam=1.0, bootstrap_values=torch.tensor([2.0, 0.0]))
    assert_close(found.returns[:, 1], torch.tensor([0.25 + 1.8, 0.25], dtype=torch.float64))
    assert_close(found.returns[:, 0], torch.tensor([0.9 * 2.05, 0.9 * 0.25], dtype=torch.float64))


def naive_gae(rewards, values, gamma, lam, last):
    """Eq. 16 as a sum over the tokens to come."""
    following = [*values, last][1:]
    deltas = [r + gamma * n - v for r, n, v in zip(rewards, following, values, strict=True)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**31), gamma=st.floats(0, 1), lam=st.floats(0, 1), boot=st.booleans())
def test_gae_is_the_sum_over_the_trained_tokens_to_come(seed, gamma, lam, boot):
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, 3, 6, dtype=torch.float64, generator=generator)
    mask = torch.rand(3, 6, generator=generator) < 0.6
    last = torch.randn(3, dtype=torch.float64, generator=generator) if boot else None
    broken = torch.where(mask, values, torch.nan)
    found = gae(rewards, broken, mask, gamma=gamma, lam=lam, bootstrap_values=last)
    for i in range(3):
        kept = mask[i]
        tail = last[i].item() if boot else 0.0
        expected = naive_gae(rewards[i, kept].tolist(), values[i, kept].tolist(), gamma, lam, tail)
        assert_close(found.advantages[i, kept], torch.tensor(expected, dtype=torch.float64))
        assert (found.advantages[i, ~kept] == 0).all()
        assert (found.returns[i, ~kept] == 0).all()
    assert_close(found.returns[mask], (found.advantages + values)[mask])


def test_perfect_values_leave_no_advantage():
    rewards = torch.tensor([[0.0, 0.5, 0.0, 1.0]])
    values = returns_to_go(rewards, torch.ones(1, 4), gamma=1.0)
    assert values.tolist() == [[1.5, 1.5, 1.0, 1.0]]
    assert (gae(rewards, values, torch.ones(1, 4), lam=0.7).advantages == 0).all()


def test_gae_carries_no_gradient_and_keeps_the_dtype_of_the_values():
    values = torch.zeros(1, 2, requires_grad=True)
    found = gae(torch.ones(1, 2, dtype=torch.float64), values, torch.ones(1, 2))
    assert found.advantages.dtype == torch.float32
    assert not found.advantages.requires_grad
    assert not found.returns.requires_grad


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_rows_or_no_tokens(shape):
    zeros = torch.zeros(shape)
    assert gae(zeros, zeros, zeros).advantages.shape == shape
    assert whiten(zeros, zeros).shape == shape
    group_ids = torch.zeros(shape[0], dtype=torch.long)
    assert process_advantages(zeros, zeros, group_ids, zeros).shape == shape


@pytest.mark.parametrize("options", [{"gamma": 1.1}, {"lam": -0.1}, {"gamma": torch.nan}])
def test_a_discount_outside_zero_and_one_is_refused(options):
    with pytest.raises(ValueError, match="from 0 to 1"):
        gae(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), **options)


def test_whiten_by_hand():
    # 2, 4, 6: mean 4, population variance 8/3: 2 / 1.63299 = 1.22474; sample variance 4
    values, mask = f64([2.0, torch.nan], [4.0, 6.0]), torch.tensor([[1, 0], [1, 1]])
    assert_close(whiten(values, mask, eps=0), f64([-(1.5**0.5), 0.0], [0.0, 1.5**0.5]))
    assert_close(whiten(values, mask, std="sample", eps=0), f64([-1.0, 0.0], [0.0, 1.0]))
    assert_close(whiten(values, mask, shift_mean=False, std="sample", eps=0), f64([3.0, 0.0], [4.0, 5.0]))
    # 1.2, 1.3, ..., 2.0: population 1.5492, sample 1.4606
    steps = torch.arange(12, 21, dtype=torch.float64) / 10
    assert_close(whiten(steps, torch.ones(9))[-1].item(), 1.5492, atol=1e-4, rtol=0)
    assert_close(whiten(steps, torch.ones(9), std="sample")[-1].item(), 1.4606, atol=1e-4, rtol=0)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), offset=st.floats(-100, 100), factor=st.floats(0.1, 100))
def test_whitened_values_have_mean_zero_and_variance_one(seed, offset, factor):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(3, 4, dtype=torch.float64, generator=generator) * factor + offset
    mask = torch.rand(3, 4, generator=generator) < 0.7
    found = whiten(values, mask, eps=0)
    assert (found[~mask] == 0).all()
    if mask.sum() > 1:
        assert_close(found[mask].mean().item(), 0.0, atol=1e-8, rtol=0)
        assert_close(found[mask].var(correction=0).item(), 1.0)
        assert_close(whiten(values, mask, shift_mean=False, eps=0)[mask].mean(), values[mask].mean())


@pytest.mark.parametrize("std", ["population", "sample"])
def test_equal_values_and_single_ones_have_no_spread(std):
    assert whiten(torch.full((3,), 0.1), torch.ones(3), std=std).tolist() == [0, 0, 0]
    assert whiten(torch.tensor([5.0, torch.inf]), torch.tensor([1, 0]), std=std).tolist() == [0, 0]
    assert whiten(torch.tensor([5.0, torch.inf]), torch.tensor([1, 0]), std=std, shift_mean=False).tolist() == [5, 0]
    assert whiten(torch.full((2,), torch.nan), torch.zeros(2), std=std).tolist() == [0, 0]


def test_whiten_refuses_unknown_options():
    with pytest.raises(ValueError, match="population, sample"):
        whiten(torch.zeros(1), torch.ones(1), std="biased")
    with pytest.raises(ValueError, match="eps"):
        whiten(torch.zeros(1), torch.ones(1), eps=-1.0)


# Steps end at tokens 0, 2, 3 of the first completion and at 1, 2 of the second.
STEP_REWARDS = f64([1.0, 7.0, 0.0, 1.0, 7.0], [7.0, 0.0, 0.0, 7.0, 7.0])
STEP_ENDS = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 0, 0]])
BOTH = torch.zeros(2, dtype=torch.long)


def test_process_advantages_by_hand():
    # pool 1 0 1 0 0: mean .4, population std .489898: z = 1.224745 and -.816497
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    found = process_advantages(STEP_REWARDS, STEP_ENDS, BOTH, mask, eps=0.0)
    # to go: 1.224745 - .816497 + 1.224745 = 1.632993; -.816497 + 1.224745 = .408248; the token behind the last step 0
    expected = f64([1.632993, 0.408248, 0.408248, 1.224745, 0], [-1.632993, -1.632993, -0.816497, 0, 0])
    assert_close(found, expected, atol=1e-6, rtol=0)
    sample = process_advantages(STEP_REWARDS, STEP_ENDS, BOTH, mask, std="sample", eps=0.0)
    assert_close(sample[0, 0].item(), 1.460593, atol=1e-6, rtol=0)
    masked = process_advantages(STEP_REWARDS, STEP_ENDS, BOTH, torch.zeros(2, 5), eps=0.0)
    assert (masked == 0).all()


@settings(deadline=None)
@given(rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=6), data=st.data())
def test_one_step_a_completion_is_the_outcome(rewards, data):
    size = len(rewards)
    group_ids = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 4), min_size=size, max_size=size)))
    mask = torch.arange(4) < lengths[:, None]
    ends = torch.arange(4) == lengths[:, None] - 1
    outcome = torch.tensor(rewards, dtype=torch.float64)
    found = process_advantages(token_rewards(outcome, mask), ends, group_ids, mask)
    expected = group_advantages(outcome, group_ids).unsqueeze(1)
    assert_close(found, torch.where(mask, expected, 0.0))


def test_equal_steps_and_rows_without_steps_give_exactly_zero():
    rewards, mask = torch.full((3, 4), 0.1), torch.ones(3, 4)
    ends = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])
    found = process_advantages(rewards, ends, torch.zeros(3, dtype=torch.long), mask)
    assert torch.count_nonzero(found) == 0
    assert found.dtype == torch.float32
    # a third row without a step changes nothing for the others, whatever its cells hold
    more = torch.cat([STEP_REWARDS, f64([torch.nan] * 5)])
    three = process_advantages(more, torch.cat([STEP_ENDS, torch.zeros(1, 5)]), torch.zeros(3).long(), torch.ones(3, 5))
    assert_close(three[:2], process_advantages(STEP_REWARDS, STEP_ENDS, BOTH, torch.ones(2, 5)))
    assert torch.count_nonzero(three[2]) == 0
