from math import e, exp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import aggregate, kl_estimate

ESTIMATORS = ("k1", "k2", "k3")


@pytest.mark.parametrize(
    ("d", "k1", "k2", "k3"),
    [
        (0.1, 0.1, 0.005, 0.004837418),  # e^-.1 - 1 + .1 = .904837418 - .9
        (-0.1, -0.1, 0.005, 0.005170918),  # e^.1 - 1 - .1 = 1.105170918 - 1.1
        (1.0, 1.0, 0.5, 1 / e),  # 1/e - 1 + 1
        (-1.0, -1.0, 0.5, e - 2),  # e - 1 - 1
    ],
)
def test_values_by_hand(d, k1, k2, k3):
    policy, ref = torch.tensor([d - 3], dtype=torch.float64), torch.tensor([-3.0], dtype=torch.float64)
    for estimator, expected in zip(ESTIMATORS, (k1, k2, k3), strict=True):
        value = kl_estimate(policy, ref, estimator=estimator)
        assert_close(value, torch.tensor([expected], dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("policy", "ref", "gradient"), [(-2.0, -1.0, 1 - e), (-1.0, -2.0, 1 - 1 / e), (-1.0, -1.0, 0.0)]
)
def test_descent_on_k3_moves_toward_the_reference(policy, ref, gradient):
    # d/dlp (exp(ref - lp) - 1 + lp - ref) = 1 - exp(ref - lp)
    logprobs = torch.tensor([policy], requires_grad=True)
    kl_estimate(logprobs, torch.tensor([ref]), estimator="k3").sum().backward()
    assert_close(logprobs.grad, torch.tensor([gradient]))


def kl(p, q):
    return (p * (p / q).log()).sum()


def numerical_gradient(f, x, step=1e-5):
    rows = torch.eye(x.numel(), dtype=x.dtype) * step
    return torch.stack([(f(x + row) - f(x - row)) / (2 * step) for row in rows])


def expected_over_samples(loss_of_logprobs, logits):
    """Exact mean, over tokens drawn from the softmax, of a per-token loss and of its gradient."""
    leaf = logits.clone().requires_grad_()
    per_token = loss_of_logprobs(leaf.log_softmax(0))
    mean = (logits.softmax(0) * per_token).sum()  # the sampling probabilities are constants
    (gradient,) = torch.autograd.grad(mean, leaf)
    return mean.detach(), gradient


def test_which_estimator_has_which_gradient_by_exact_enumeration():
    logits = torch.tensor([0.3, -1.1, 0.8], dtype=torch.float64)
    ref_logprobs = torch.tensor([-0.5, 0.9, 0.1], dtype=torch.float64).log_softmax(0)
    ref = ref_logprobs.exp()
    reverse = numerical_gradient(lambda x: kl(x.softmax(0), ref), logits)
    forward = numerical_gradient(lambda x: kl(ref, x.softmax(0)), logits)
    assert (reverse - forward).abs().max() > 0.1  # the two directions can be told apart here

    mean, gradient = {}, {}
    for name in ESTIMATORS:
        mean[name], gradient[name] = expected_over_samples(
            lambda lp, name=name: kl_estimate(lp, ref_logprobs, estimator=name), logits
        )
    assert_close(mean["k1"], kl(logits.softmax(0), ref))
    assert_close(mean["k3"], kl(logits.softmax(0), ref))
    assert (mean["k2"] - mean["k1"]).abs() > 0.01  # biased
    assert_close(gradient["k1"], torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert_close(gradient["k2"], reverse, atol=1e-8, rtol=0)
    assert_close(gradient["k3"], forward, atol=1e-8, rtol=0)
    # In the reward, k1 is a constant that weighs the score.
    _, in_reward = expected_over_samples(lambda lp: kl_estimate(lp, ref_logprobs, estimator="k1").detach() * lp, logits)
    assert_close(in_reward, reverse, atol=1e-8, rtol=0)


@settings(deadline=None)
@given(logprobs=st.lists(st.floats(-1e4, 0, width=32), min_size=0, max_size=6), estimator=st.sampled_from(ESTIMATORS))
def test_an_identical_reference_gives_exactly_zero(logprobs, estimator):
    policy = torch.tensor(logprobs, requires_grad=True)
    value = kl_estimate(policy, policy, estimator=estimator)
    assert torch.count_nonzero(value) == 0
    value.sum().backward()
    assert (policy.grad == (1 if estimator == "k1" else 0)).all()


@settings(deadline=None)
@given(d=st.floats(-100, 100), estimator=st.sampled_from(["k2", "k3"]))
def test_k2_and_k3_are_never_negative_and_finite(d, estimator):
    policy = torch.tensor([d], dtype=torch.float32, requires_grad=True)
    value = kl_estimate(policy, torch.zeros(1), estimator=estimator)
    value.sum().backward()
    assert value >= 0
    assert torch.isfinite(value).all()
    assert torch.isfinite(policy.grad).all()


def test_small_differences_keep_their_digits():
    # k3 = d^2/2 - d^3/6 + ..., so 5e-11 at d = 1e-5; exp(-d) - 1 + d in float32 gives noise of 1e-8
    value = kl_estimate(torch.tensor([1e-5]), torch.zeros(1), estimator="k3")
    assert value.item() < 1e-10


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradient_matches_finite_differences(estimator):
    policy = torch.randn(5, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: kl_estimate(x, ref, estimator=estimator), policy)


def test_k3_far_from_the_reference_is_cut():
    policy = torch.tensor([-20.0, -21.0, -torch.inf, 50.0], requires_grad=True)
    value = kl_estimate(policy, torch.zeros(4), estimator="k3")
    value.sum().backward()
    limit = exp(20) - 21  # 4.85e8
    assert_close(value, torch.tensor([limit, limit, limit, 49.0]))
    assert_close(policy.grad, torch.tensor([1 - exp(20), 0.0, 0.0, 1.0]))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_masked_cells_are_inert_after_aggregation(estimator, rubbish):
    policy = torch.tensor([[-1.0, rubbish, -2.0, rubbish]], requires_grad=True)
    ref = torch.tensor([[-2.0, -3.0, rubbish, rubbish]])
    mask = torch.tensor([[True, False, False, False]])
    loss = aggregate(kl_estimate(policy, ref, estimator=estimator), mask, normalize="token", denominator=1)
    loss.backward()
    assert torch.isfinite(loss)
    assert policy.grad[0, 0] != 0
    assert policy.grad[0, 1:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_trained_nan_is_not_hidden(estimator):
    assert torch.isnan(kl_estimate(torch.tensor([torch.nan]), torch.zeros(1), estimator=estimator)).all()


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match="k1, k2, k3"):
        kl_estimate(torch.zeros(1), torch.zeros(1), estimator="abs")
