import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import clipped_value_loss, explained_variance


def test_values_and_gradients_by_hand():
    # return 1, old value 0, clip .2
    #  .1: inside, (.1 - 1)^2 / 2 = .405, gradient -.9
    #  .5: moved toward the return; max(.125, (.2 - 1)^2 / 2 = .32) = .32, gradient 0
    # -.5: moved away; max(1.125, (-.2 - 1)^2 / 2 = .72) = 1.125, gradient -1.5
    values = torch.tensor([[0.1, 0.5, -0.5, torch.nan]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 0]])
    losses = clipped_value_loss(values, torch.zeros(1, 4), torch.ones(1, 4), mask)
    assert_close(losses, torch.tensor([[0.405, 0.32, 1.125, 0.0]], dtype=torch.float64), atol=1e-7, rtol=0)
    losses.sum().backward()
    assert_close(values.grad, torch.tensor([[-0.9, 0.0, -1.5, 0.0]], dtype=torch.float64))
    plain = clipped_value_loss(values, torch.zeros(1, 4), torch.ones(1, 4), mask, clip=None)
    assert_close(plain, torch.tensor([[0.405, 0.125, 1.125, 0.0]], dtype=torch.float64))


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), clip=st.floats(0, 3))
def test_never_below_the_plain_loss_and_equal_to_it_where_nothing_moved(seed, clip):
    generator = torch.Generator().manual_seed(seed)
    values, old, returns = torch.randn(3, 2, 4, dtype=torch.float64, generator=generator)
    mask = torch.ones(2, 4)
    plain = clipped_value_loss(values, old, returns, mask, clip=None)
    assert (clipped_value_loss(values, old, returns, mask, clip=clip) >= plain).all()
    values.requires_grad_()
    losses = clipped_value_loss(values, values, returns, mask, clip=clip)
    assert_close(losses, plain)
    losses.sum().backward()
    assert_close(values.grad, (values - returns).detach())


def test_gradient_matches_finite_differences():
    values = torch.tensor([[0.1, 0.5, -0.5, 0.3]], dtype=torch.float64, requires_grad=True)
    old, returns, mask = torch.zeros(1, 4).double(), torch.tensor([[1.0, 1.0, 1.0, -2.0]]).double(), torch.ones(1, 4)
    assert torch.autograd.gradcheck(lambda x: clipped_value_loss(x, old, returns, mask), values)


@pytest.mark.parametrize("clip", [0.2, None])
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_are_exactly_zero(clip, rubbish):
    values = torch.tensor([[0.5, rubbish, 0.0], [rubbish] * 3], requires_grad=True)
    old = torch.tensor([[0.5, 0.0, rubbish], [rubbish] * 3])
    returns = torch.tensor([[1.5, rubbish, rubbish], [-rubbish] * 3])
    mask = torch.tensor([[True, False, False], [False] * 3])
    losses = clipped_value_loss(values, old, returns, mask, clip=clip)
    assert losses.tolist() == [[0.5, 0, 0], [0, 0, 0]]
    losses.sum().backward()
    assert values.grad.tolist() == [[-1, 0, 0], [0, 0, 0]]
    assert clipped_value_loss(*torch.zeros(3, 2, 0), torch.zeros(2, 0), clip=clip).shape == (2, 0)


def test_only_the_values_have_a_gradient():
    values, old, returns = (torch.ones(1, 1, requires_grad=True) for _ in range(3))
    clipped_value_loss(values, old, returns + 1, torch.ones(1, 1)).sum().backward()
    assert old.grad is None
    assert returns.grad is None


def test_a_negative_clip_is_refused():
    with pytest.raises(ValueError, match="0 or more"):
        clipped_value_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), clip=-0.1)


def test_explained_variance_by_hand():
    returns, mask = torch.tensor([0.0, 1.0, 2.0, 3.0, torch.nan]), torch.tensor([1, 1, 1, 1, 0])
    assert explained_variance(returns, returns, mask) == 1
    assert explained_variance(returns + 5, returns, mask) == 1  # an offset does not show
    assert explained_variance(torch.full((5,), 9.0), returns, mask) == 0
    # errors 0 .5 1 1.5: variance 1/4 of that of the returns
    assert_close(explained_variance(returns / 2, returns, mask), torch.tensor(0.75))
    assert explained_variance(-returns, returns, mask) == -3  # errors are twice as wide
    assert explained_variance(returns, torch.full((5,), 0.1), mask) == 0
    assert explained_variance(returns, returns, torch.zeros(5)) == 0
    assert not explained_variance(returns.requires_grad_(), returns, mask).requires_grad
