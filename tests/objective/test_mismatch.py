import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import logprob_gap, summarise_gap, truncated_importance_weight

ALL = torch.ones(1, 3, dtype=torch.bool)


def test_the_gap_by_hand():
    policy, sampler = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-0.75, -1.5, -1.0])
    assert_close(logprob_gap(policy, sampler), torch.tensor([0.25, 0.5, 0.0]))
    # a nucleus of 0.8 explains up to -ln 0.8 = 0.22314 above, nothing below
    assert_close(logprob_gap(policy, sampler, min_kept_mass=0.8), torch.tensor([0.25 - 0.22314, 0.5, 0.0]))
    # top_k explains whatever lies above
    assert_close(logprob_gap(policy, sampler, min_kept_mass=0.0), torch.tensor([0.0, 0.5, 0.0]))


def test_a_gap_that_is_no_number_stays_one():
    policy, sampler = torch.tensor([torch.nan, -1.0, -torch.inf]), torch.tensor([-1.0, torch.nan, -1.0])
    for mass in (1.0, 0.5):
        assert not torch.isfinite(logprob_gap(policy, sampler, min_kept_mass=mass)).any()
    assert math.isnan(summarise_gap(torch.tensor([0.0, torch.nan])).mean)


def test_the_gap_passes_no_gradient():
    policy = torch.tensor([-1.0], requires_grad=True)
    assert not logprob_gap(policy, torch.tensor([-2.0])).requires_grad


@pytest.mark.parametrize("mass", [-0.1, 1.1, torch.nan])
def test_a_mass_that_is_no_probability_is_refused(mass):
    with pytest.raises(ValueError, match="from 0 to 1"):
        logprob_gap(torch.zeros(1), torch.zeros(1), min_kept_mass=mass)


def test_the_summary_takes_the_nearest_rank():
    gap = torch.arange(1.0, 201.0).flip(0)  # 1 .. 200: the mean is 100.5, and 99 % of 200 is the 198th
    assert summarise_gap(gap) == (100.5, 198.0, 200.0)
    assert summarise_gap(torch.tensor([3.0])) == (3.0, 3.0, 3.0)
    assert summarise_gap(torch.zeros(0)) == (0.0, 0.0, 0.0)


def test_weights_by_hand():
    policy, sampler = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.0, -0.5, -3.0]])
    # exp(0) = 1; exp(-0.5) = 0.60653; exp(2) = 7.389, cut at the cap
    assert_close(truncated_importance_weight(policy, sampler, ALL, cap=2.0), torch.tensor([[1.0, 0.60653, 2.0]]))
    assert truncated_importance_weight(policy, sampler, ALL, cap=1.0).max() == 1


@settings(deadline=None, max_examples=50)
@given(logits=st.lists(st.floats(-8, 8), min_size=3, max_size=8), data=st.data())
def test_under_restricted_sampling_the_weight_is_the_mass_of_what_was_kept(logits, data):
    """For every token of any kept set: sampler probability x weight = the model's own probability; weight <= 1."""
    model = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), dim=0)
    kept = data.draw(st.lists(st.sampled_from(range(len(logits))), min_size=1, unique=True))
    mass = model[kept].exp().sum()
    policy = model[kept].unsqueeze(0)
    sampler = policy - mass.log()
    mask = torch.ones_like(policy, dtype=torch.bool)
    weight = truncated_importance_weight(policy, sampler, mask)
    assert_close(weight, mass.expand_as(weight))
    assert_close(sampler.exp() * weight, policy.exp())
    assert logprob_gap(policy, sampler, min_kept_mass=float(mass) * (1 - 1e-9)).max() < 1e-8


def test_the_weight_is_a_constant():
    """d/dp of exp(p - s) * p is w + w p if the weight had a gradient, w if it has none; also against differences."""
    policy = torch.tensor([[-1.0, -0.2, -2.0]], dtype=torch.float64, requires_grad=True)
    sampler = torch.tensor([[-0.5, -0.2, -4.0]], dtype=torch.float64, requires_grad=True)
    weight = truncated_importance_weight(policy, sampler, ALL)
    assert not weight.requires_grad
    (weight * policy).sum().backward()
    assert_close(policy.grad, weight)
    assert sampler.grad is None
    assert torch.autograd.gradcheck(lambda p: weight * p, policy)


@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_weigh_one(rubbish):
    policy, sampler = torch.tensor([[-1.0, rubbish], [rubbish, rubbish]]), torch.tensor([[-1.0, -2.0], [rubbish, 0.0]])
    mask = torch.tensor([[True, False], [False, False]])
    assert (truncated_importance_weight(policy, sampler, mask) == 1).all()


def test_no_tokens():
    assert truncated_importance_weight(torch.zeros(2, 0), torch.zeros(2, 0), torch.zeros(2, 0)).shape == (2, 0)


def test_a_cap_under_one_is_refused():
    with pytest.raises(ValueError, match=r"cap = 0\.5 must be 1 or more"):
        truncated_importance_weight(torch.zeros(1, 3), torch.zeros(1, 3), ALL, cap=0.5)
