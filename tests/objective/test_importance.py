import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import importance_ratio

ALL = torch.ones(1, 4, dtype=torch.bool)
LEVELS = ["token", "sequence", "sequence_token", "product"]


def test_ratios_by_hand():
    log_ratios = torch.tensor([[0.01, -0.02, 0.03, 0.0004]], dtype=torch.float64)
    old = torch.full((1, 4), -1.0, dtype=torch.float64)
    assert_close(importance_ratio(old + log_ratios, old, ALL), log_ratios.exp())
    # mean (.01 - .02 + .03 + .0004) / 4 = .0051; exp(.0051) = 1.00511303
    sequence = importance_ratio(old + log_ratios, old, ALL, level="sequence")
    assert_close(sequence, torch.full((1, 4), 1.00511303, dtype=torch.float64), atol=1e-8, rtol=0)
    # sum .0204; exp(.0204) = 1.0206095
    product = importance_ratio(old + log_ratios, old, ALL, level="product")
    assert_close(product, torch.full((1, 4), 1.0206095, dtype=torch.float64), atol=1e-7, rtol=0)


def test_the_sequence_mean_runs_over_trained_tokens_only():
    policy, old = torch.tensor([[0.2, 0.4, 9.0, torch.nan]]), torch.zeros(1, 4)
    mask = torch.tensor([[True, True, False, False]])
    expected = torch.tensor([[0.3, 0.3, 0.0, 0.0]]).exp()  # (.2 + .4) / 2; masked cells are 1
    assert_close(importance_ratio(policy, old, mask, level="sequence"), expected)


@settings(deadline=None)
@given(
    logprobs=st.lists(st.floats(-1e4, 0, width=32), min_size=1, max_size=8),
    level=st.sampled_from(["token", "sequence", "sequence_token"]),
    detached=st.booleans(),
)
def test_the_first_ratio_is_exactly_one_and_still_has_a_gradient(logprobs, level, detached):
    policy = torch.tensor([logprobs], requires_grad=True)
    ratio = importance_ratio(policy, policy.detach() if detached else policy, torch.ones(1, len(logprobs)), level=level)
    assert (ratio == 1).all()
    ratio.sum().backward()
    assert_close(policy.grad, torch.ones_like(policy))  # sequence: n cells, each with weight 1/n for every token


@pytest.mark.parametrize("level", ["token", "sequence", "product"])
def test_gradient_matches_finite_differences(level):
    policy = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    old = torch.randn(2, 4, dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True], [False, False, False, False]])
    assert torch.autograd.gradcheck(lambda x: importance_ratio(x, old, mask, level=level), policy)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_are_one_and_pass_no_gradient(level, rubbish):
    policy = torch.tensor([[-1.0, rubbish, -2.0], [rubbish, rubbish, rubbish]], requires_grad=True)
    old = torch.tensor([[-1.0, -3.0, rubbish], [rubbish, 0.0, -rubbish]])
    mask = torch.tensor([[True, False, False], [False, False, False]])
    ratio = importance_ratio(policy, old, mask, level=level)
    assert (ratio == 1).all()
    ratio.sum().backward()
    assert policy.grad.tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("level", LEVELS)
def test_a_broken_ratio_stays_finite(level):
    policy = torch.tensor([[0.0, -torch.inf]], requires_grad=True)
    old = torch.tensor([[-1000.0, -1.0]])
    for cell in (0, 1):
        mask = torch.tensor([[cell == 0, cell == 1]])
        ratio = importance_ratio(policy, old, mask, level=level)
        assert_close(ratio[0, cell], torch.tensor([20.0, -torch.inf]).exp()[cell])
        policy.grad = None
        ratio.sum().backward()
        assert policy.grad.tolist() == [[0, 0]]


def test_no_tokens():
    for level in LEVELS:
        assert importance_ratio(torch.zeros(2, 0), torch.zeros(2, 0), torch.zeros(2, 0), level=level).shape == (2, 0)


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="token, sequence"):
        importance_ratio(torch.zeros(1, 4), torch.zeros(1, 4), ALL, level="group")


def test_gradients_of_the_levels_by_hand():
    # one row, ratios of the first of two trained tokens; d/d policy of the first cell only
    expected = {"token": [2.0, 0.0], "sequence": [1.0, 1.0], "sequence_token": [2.0, 0.0], "product": [4.0, 4.0]}
    for level, gradient in expected.items():
        policy = torch.tensor([[2.0, 2.0, 9.0]], dtype=torch.float64).log().requires_grad_()
        ratio = importance_ratio(policy, torch.zeros_like(policy), torch.tensor([[1, 1, 0]]), level=level)
        assert_close(ratio[0, 0], torch.tensor(4.0 if level == "product" else 2.0, dtype=torch.float64))
        ratio[0, 0].backward()
        assert_close(policy.grad, torch.tensor([[*gradient, 0.0]], dtype=torch.float64))


@settings(deadline=None)
@given(logprobs=st.lists(st.floats(-30, 0), min_size=4, max_size=4), at=st.integers(0, 3))
def test_with_one_trained_token_all_levels_are_one(logprobs, at):
    policy, old = torch.tensor([logprobs], dtype=torch.float64), torch.full((1, 4), -3.0, dtype=torch.float64)
    mask = torch.arange(4).unsqueeze(0) == at
    found = []
    for level in LEVELS:
        leaf = policy.clone().requires_grad_()
        ratio = importance_ratio(leaf, old, mask, level=level)
        ratio.sum().backward()
        found.append((ratio.detach(), leaf.grad))
    assert_close(found, found[:1] * 4)
