from math import e, exp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import adapted_kl_coef, aggregate, kl_estimate, weighted_kl_estimate

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


def test_weighted_values_and_gradients_by_hand():
    # ratio 2, d = 1: k1 1, k2 1/2, k3 1/e; gradients ratio (d + 1), ratio (d^2/2 + d), ratio d
    expected = {"k1": (2.0, 4.0), "k2": (1.0, 3.0), "k3": (2 / e, 2.0)}
    for estimator, (value, gradient) in expected.items():
        policy = torch.tensor([[-1.0, torch.nan]], dtype=torch.float64, requires_grad=True)
        old = policy.detach() - torch.tensor(2.0, dtype=torch.float64).log()
        losses = weighted_kl_estimate(policy, old, policy - 1, torch.tensor([[1, 0]]), estimator=estimator)
        assert_close(losses, torch.tensor([[value, 0.0]], dtype=torch.float64))
        losses.sum().backward()
        assert_close(policy.grad, torch.tensor([[gradient, 0.0]], dtype=torch.float64))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_weighted_by_exact_enumeration_value_and_gradient_are_right_whoever_sampled(seed):
    generator = torch.Generator().manual_seed(seed)
    logits, old, ref = torch.randn(3, 3, dtype=torch.float64, generator=generator)
    old_logprobs, ref_logprobs = old.log_softmax(0), ref.log_softmax(0)
    expected = numerical_gradient(lambda x: kl(x.softmax(0), ref_logprobs.exp()), logits)
    for estimator in ESTIMATORS:
        leaf = logits.clone().requires_grad_()
        rows = [x.unsqueeze(1) for x in (leaf.log_softmax(0), old_logprobs, ref_logprobs)]
        losses = weighted_kl_estimate(*rows, torch.ones(3, 1), estimator=estimator).squeeze(1)
        mean = (old_logprobs.exp() * losses).sum()
        (gradient,) = torch.autograd.grad(mean, leaf)
        if estimator == "k2":

            def biased(x):
                return (x.softmax(0) * (x.log_softmax(0) - ref_logprobs).square() / 2).sum()

            assert_close(mean.detach(), biased(logits))
            assert_close(gradient, numerical_gradient(biased, logits), atol=1e-6, rtol=0)
        else:
            assert_close(mean.detach(), kl(logits.softmax(0), ref_logprobs.exp()))
            assert_close(gradient, expected, atol=1e-6, rtol=0)


def test_unweighted_gradients_are_wrong_off_policy():
    logits, old, ref = torch.tensor([[0.3, -1.1, 0.8], [1.0, 0.0, -1.0], [-0.5, 0.9, 0.1]], dtype=torch.float64)
    ref_logprobs = ref.log_softmax(0)
    expected = numerical_gradient(lambda x: kl(x.softmax(0), ref_logprobs.exp()), logits)
    for estimator in ("k2", "k3"):
        leaf = logits.clone().requires_grad_()
        loss = (old.softmax(0) * kl_estimate(leaf.log_softmax(0), ref_logprobs, estimator=estimator)).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert (gradient - expected).abs().max() > 0.01


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weighted_gradient_matches_finite_differences(estimator):
    generator = torch.Generator().manual_seed(1)
    policy, old, ref = torch.randn(3, 2, 3, dtype=torch.float64, generator=generator)
    mask = torch.tensor([[True, False, True], [True, True, False]])
    policy.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: weighted_kl_estimate(x, old, ref, mask, estimator=estimator), policy)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
def test_weighted_masked_cells_are_exactly_zero(estimator, rubbish):
    policy = torch.tensor([[-1.0, rubbish, -2.0], [rubbish] * 3], requires_grad=True)
    old = torch.tensor([[-1.0, rubbish, -1.0], [0.0, rubbish, -rubbish]])
    ref = torch.tensor([[-2.0, -3.0, rubbish], [rubbish] * 3])
    mask = torch.tensor([[True, False, False], [False] * 3])
    losses = weighted_kl_estimate(policy, old, ref, mask, estimator=estimator)
    assert (losses[~mask] == 0).all()
    losses.sum().backward()
    assert policy.grad[0, 0] != 0
    assert (policy.grad[~mask] == 0).all()
    assert weighted_kl_estimate(*torch.zeros(3, 2, 0), torch.zeros(2, 0)).shape == (2, 0)


def test_the_controller_by_hand():
    # 9 / 6 - 1 = .5, cut to .2; .2 * 256 / 10000 = .00512
    options = {"target": 6.0, "horizon": 10000.0, "num_samples": 256}
    assert adapted_kl_coef(0.15, 9.0, **options) == pytest.approx(0.15 * 1.00512)
    assert adapted_kl_coef(0.15, 6.0, **options) == 0.15
    assert adapted_kl_coef(0.15, 5.7, **options) == pytest.approx(0.15 * (1 - 0.05 * 0.0256))
    assert adapted_kl_coef(0.15, -3.0, **options) == pytest.approx(0.15 * (1 - 0.2 * 0.0256))
    assert adapted_kl_coef(0.15, 0.0, target=6.0, horizon=1.0, num_samples=256) == 0


@settings(deadline=None)
@given(coef=st.floats(0, 10), observed=st.floats(-5, 50), n=st.integers(1, 5000))
def test_the_controller_moves_toward_the_target(coef, observed, n):
    found = adapted_kl_coef(coef, observed, target=6.0, horizon=10000.0, num_samples=n)
    assert found >= 0
    assert (found >= coef) if observed >= 6 else (found <= coef)


@pytest.mark.parametrize("options", [{"target": 0.0}, {"horizon": -1.0}, {"kl_coef": -0.1}])
def test_the_controller_refuses_what_cannot_be(options):
    with pytest.raises(ValueError, match="must be positive"):
        adapted_kl_coef(
            **{"kl_coef": 0.1, "observed_kl": 1.0, "target": 6.0, "horizon": 1e4, "num_samples": 8, **options}
        )
    with pytest.raises(ValueError, match="not finite"):
        adapted_kl_coef(0.1, float("nan"), target=6.0, horizon=1e4, num_samples=8)
