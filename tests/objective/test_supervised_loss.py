import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import aggregate, negative_log_likelihood


def test_by_hand():
    logprobs = torch.tensor([[-0.5, -1.5, -9.0]])
    mask = torch.tensor([[True, True, False]])
    losses = negative_log_likelihood(logprobs, mask)
    assert losses.tolist() == [[0.5, 1.5, 0.0]]
    assert aggregate(losses, mask, normalize="token", denominator=2) == 1.0  # (.5 + 1.5) / 2


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), batch=st.integers(0, 4), length=st.integers(0, 6))
def test_agrees_with_cross_entropy_that_ignores_masked_tokens(seed, batch, length):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, length, 5, dtype=torch.float64, generator=generator)
    token_ids = torch.randint(5, (batch, length), generator=generator)
    mask = torch.rand(batch, length, generator=generator) < 0.5
    logprobs = logits.log_softmax(-1).gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), token_ids.masked_fill(~mask, -100).flatten(), reduction="none"
    )
    assert_close(negative_log_likelihood(logprobs, mask).flatten(), expected)


@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf])
def test_masked_cells_are_inert(rubbish):
    logprobs = torch.tensor([[-1.0, rubbish]], requires_grad=True)
    losses = negative_log_likelihood(logprobs, torch.tensor([[True, False]]))
    assert losses.tolist() == [[1.0, 0.0]]
    losses.sum().backward()
    assert logprobs.grad.tolist() == [[-1.0, 0.0]]


def test_gradient_matches_finite_differences():
    logprobs = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert torch.autograd.gradcheck(lambda x: negative_log_likelihood(x, mask), logprobs)
