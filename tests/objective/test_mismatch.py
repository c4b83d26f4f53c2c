import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import (
    effective_share,
    logprob_gap,
    masked_importance_weight,
    summarise_gap,
    truncated_importance_weight,
)

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


def test_weights_of_whole_completions_by_hand():
    # log-ratios .5, .5 and a masked one: product e, geometric mean exp(.5) = 1.64872
    policy, sampler = torch.tensor([[-0.5, -0.5, torch.nan]]), torch.tensor([[-1.0, -1.0, 0.0]])
    mask = torch.tensor([[1, 1, 0]])
    product = truncated_importance_weight(policy, sampler, mask, cap=5.0, level="product")
    assert_close(product, torch.tensor([[math.e, math.e, 1.0]]))
    assert_close(truncated_importance_weight(policy, sampler, mask, level="product"), torch.tensor([[2.0, 2.0, 1.0]]))
    mean = truncated_importance_weight(policy, sampler, mask, level="sequence")
    assert_close(mean, torch.tensor([[1.64872, 1.64872, 1.0]]))


def test_masked_weights_by_hand():
    policy, sampler = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-1.0, -0.5, -3.0]])
    # 1 stays; exp(-.5) = .60653 stays; exp(2) = 7.389 is over 5; with floor .7 the second goes too
    assert_close(masked_importance_weight(policy, sampler, ALL), torch.tensor([[1.0, 0.60653, 0.0]]))
    assert_close(masked_importance_weight(policy, sampler, ALL, floor=0.7), torch.tensor([[1.0, 0.0, 0.0]]))
    # whole completion: product exp(1.5) = 4.48169, geometric mean exp(.5) = 1.64872
    assert_close(masked_importance_weight(policy, sampler, ALL, level="product"), torch.full((1, 3), 4.48169))
    assert (masked_importance_weight(policy, sampler, ALL, cap=4.0, level="product") == 0).all()
    assert_close(masked_importance_weight(policy, sampler, ALL, cap=2.0, level="sequence"), torch.full((1, 3), 1.64872))


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), level=st.sampled_from(["token", "product", "sequence"]))
def test_a_masked_weight_is_the_plain_ratio_or_nothing(seed, level):
    generator = torch.Generator().manual_seed(seed)
    policy, sampler = torch.randn(2, 3, 4, generator=generator)
    mask = torch.rand(3, 4, generator=generator) < 0.7
    found = masked_importance_weight(policy, sampler, mask, level=level)
    plain = truncated_importance_weight(policy, sampler, mask, cap=1e9, level=level)
    inside = (plain >= 0.5) & (plain <= 5)
    assert_close(found, torch.where(inside, plain, 0.0))
    assert (found[~mask] == 1).all()
    assert not found.requires_grad


def test_which_weight_is_biased_by_exact_enumeration():
    """Two tokens of a 2-word vocabulary. E under the sampler of weight x f against E under the policy of f."""
    policy = torch.tensor([[0.3, -0.4], [0.9, 0.1], [-0.2, 0.5]], dtype=torch.float64).log_softmax(1)
    sampler = torch.tensor([[0.1, 0.2], [-0.3, 0.4], [0.6, 0.0]], dtype=torch.float64).log_softmax(1)
    rows = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    cells = torch.stack([torch.zeros(4, dtype=torch.long), rows[:, 0] + 1], dim=1)
    mask = torch.ones(4, 2)
    policy, sampler = policy[cells, rows], sampler[cells, rows]
    f = torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    target = (policy.sum(1).exp() * f.sum(1)).sum()

    def mean(weight):
        return (sampler.sum(1).exp() * (weight * f).sum(1)).sum()

    assert_close(mean(truncated_importance_weight(policy, sampler, mask, cap=9.0, level="product")), target)
    for biased in (
        truncated_importance_weight(policy, sampler, mask, cap=9.0),
        truncated_importance_weight(policy, sampler, mask, cap=9.0, level="sequence"),
        truncated_importance_weight(policy, sampler, mask, cap=1.0, level="product"),
        masked_importance_weight(policy, sampler, mask, floor=0.9, cap=1.1, level="product"),
    ):
        assert (mean(biased) - target).abs() > 0.01
    # The last token alone is unbiased token by token, given the prefix.
    first = torch.tensor([[1.0, 0.0]] * 4)
    single = truncated_importance_weight(policy, sampler, first, cap=9.0)[:, :1]
    assert_close((sampler[[0, 2], 0].exp() * single[[0, 2], 0]).sum(), policy[[0, 2], 0].exp().sum())


@pytest.mark.parametrize("level", ["token", "product", "sequence"])
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_weigh_one_in_every_form(level, rubbish):
    policy, sampler = torch.tensor([[-1.0, rubbish], [rubbish, rubbish]]), torch.tensor([[-1.0, -2.0], [rubbish, 0.0]])
    mask = torch.tensor([[True, False], [False, False]])
    for function in (truncated_importance_weight, masked_importance_weight):
        assert (function(policy, sampler, mask, level=level) == 1).all()


@pytest.mark.parametrize("options", [{"floor": -0.1}, {"floor": 1.5}, {"cap": 0.9}, {"cap": torch.nan}])
def test_a_range_without_one_is_refused(options):
    with pytest.raises(ValueError, match="must hold 1 between them"):
        masked_importance_weight(torch.zeros(1, 3), torch.zeros(1, 3), ALL, **options)


def test_effective_share_by_hand():
    # (3 + 1)^2 / (2 (9 + 1)) = 0.8; equal weights 1; one of four 1/4; none and all 0
    assert_close(effective_share(torch.tensor([3.0, 1.0, torch.nan]), torch.tensor([1, 1, 0])), torch.tensor(0.8))
    assert effective_share(torch.full((5,), 0.3), torch.ones(5)) == 1
    assert effective_share(torch.tensor([2.0, 0.0, 0.0, 0.0]), torch.ones(4)) == 0.25
    assert effective_share(torch.ones(3), torch.zeros(3)) == 1
    assert effective_share(torch.zeros(3), torch.ones(3)) == 0
