"""DPO and its kin, reward-model loss: hand values, where they start, and which options they refuse."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import (
    bradley_terry_loss,
    dpo_loss,
    implicit_rewards,
    reliability_bins,
    sequence_logprobs,
    summarise_pairs,
)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


NONE = f64(0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 0.653947),  # -log sigma(.08) = log(1 + exp(-.08))
        ({"label_smoothing": 0.1}, 0.661947),  # .9 * .653947 + .1 * .733947
        ({"loss": "robust", "label_smoothing": 0.1}, 0.643947),  # (.9 * .653947 - .1 * .733947) / .8
        ({"loss": "ipo"}, 17.64),  # (.8 - 5)^2
        ({"loss": "hinge"}, 0.92),  # 1 - .08
        ({"margin": 0.05}, 0.678259),  # log(1 + exp(-.03))
    ],
)
def test_values_by_hand(options, expected):
    # D = (-2 - -2.5) - (-3 - -2.7) = .5 + .3 = .8
    found = dpo_loss(f64(-2), f64(-3), f64(-2.5), f64(-2.7), beta=0.1, **options)
    assert_close(found, f64(expected), atol=1e-6, rtol=0)


def test_without_a_reference():
    # SimPO: means -1 and -1.5, beta 2, margin .6: x = 1 - .6 = .4; log(1 + exp(-.4)) = .513015
    found = dpo_loss(f64(-1), f64(-1.5), beta=2.0, margin=0.6)
    assert_close(found, f64(0.513015), atol=1e-6, rtol=0)
    assert_close(dpo_loss(f64(-1), f64(-1.5)), dpo_loss(f64(-1), f64(-1.5), NONE, NONE))


@settings(deadline=None)
@given(chosen=st.floats(-500, 0), rejected=st.floats(-500, 0), beta=st.floats(0.01, 5), smoothing=st.floats(0, 0.49))
def test_it_starts_at_ln_2_with_half_a_beta_on_each_side(chosen, rejected, beta, smoothing):
    policy = f64(chosen).requires_grad_(), f64(rejected).requires_grad_()
    loss = dpo_loss(*policy, f64(chosen), f64(rejected), beta=beta, label_smoothing=smoothing)
    assert_close(loss, f64(math.log(2)))
    loss.sum().backward()
    assert_close(policy[0].grad, f64(-beta / 2 * (1 - 2 * smoothing)))
    assert_close(policy[1].grad, f64(beta / 2 * (1 - 2 * smoothing)))


@pytest.mark.parametrize("loss", ["sigmoid", "robust", "ipo", "hinge"])
def test_gradient_matches_finite_differences(loss):
    smoothing = 0.2 if loss in ("sigmoid", "robust") else 0.0
    chosen, rejected = f64(-3.0, -1.0, -2.0).requires_grad_(), f64(-2.0, -4.0, -2.5).requires_grad_()
    ref = f64(-2.0, -2.0, -2.0), f64(-2.5, -2.5, -2.5)
    assert torch.autograd.gradcheck(
        lambda c, r: dpo_loss(c, r, *ref, beta=0.7, loss=loss, label_smoothing=smoothing), (chosen, rejected)
    )


def test_robust_is_unbiased_under_flipped_labels():
    # mean over flips with probability e of the robust loss = the plain loss of the right label
    chosen, rejected, e = f64(-2, -7), f64(-3, -1), 0.3
    options = {"beta": 0.5, "loss": "robust", "label_smoothing": e}
    mean = (1 - e) * dpo_loss(chosen, rejected, **options) + e * dpo_loss(rejected, chosen, **options)
    assert_close(mean, dpo_loss(chosen, rejected, beta=0.5))


def test_ipo_has_its_minimum_at_a_finite_margin():
    at = f64(5.0).requires_grad_()  # 1 / (2 * .1)
    dpo_loss(at, NONE, NONE, NONE, loss="ipo").sum().backward()
    assert at.grad == 0


@pytest.mark.parametrize("loss", ["sigmoid", "robust", "hinge"])
@pytest.mark.parametrize("margin", [-1e4, 1e4])
def test_far_apart_pairs_stay_finite(loss, margin):
    chosen = torch.tensor([margin], requires_grad=True)
    found = dpo_loss(chosen, torch.zeros(1), beta=1.0, loss=loss)
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert chosen.grad.item() in (0.0, -1.0)


def test_the_reference_is_a_constant():
    values = [torch.ones(1, requires_grad=True) for _ in range(4)]
    dpo_loss(*values).sum().backward()
    assert [v.grad is None for v in values] == [False, False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "kto"}, "sigmoid, robust, ipo, hinge"),
        ({"beta": 0.0}, "positive"),
        ({"beta": torch.nan}, "positive"),
        ({"label_smoothing": 0.5}, "under 0.5"),
        ({"loss": "ipo", "label_smoothing": 0.1}, "no label_smoothing"),
        ({"loss": "ipo", "margin": 0.1}, "no margin"),
        ({"ref_chosen": NONE}, "both"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dpo_loss(NONE, NONE, **options)


def test_no_pairs():
    empty = torch.zeros(0)
    assert dpo_loss(empty, empty, empty, empty).shape == (0,)
    assert bradley_terry_loss(empty, empty).shape == (0,)
    assert summarise_pairs(empty, empty) == (0, 0, 0)


def test_sequence_logprobs_by_hand():
    policy = torch.tensor([[-1.0, -2.0, torch.nan], [torch.inf] * 3], requires_grad=True)
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert sequence_logprobs(policy, mask).tolist() == [-3, 0]
    mean = sequence_logprobs(policy, mask, average=True)
    assert mean.tolist() == [-1.5, 0]
    mean.sum().backward()
    assert policy.grad.tolist() == [[0.5, 0.5, 0], [0, 0, 0]]


def test_implicit_rewards_by_hand():
    policy = torch.tensor([-2.0, -3.0], requires_grad=True)
    found = implicit_rewards(policy, torch.tensor([-2.5, -2.5]), beta=0.2)
    assert_close(found, torch.tensor([0.1, -0.1]))
    assert not found.requires_grad
    assert_close(implicit_rewards(policy, beta=0.2), torch.tensor([-0.4, -0.6]))


def test_bradley_terry_by_hand():
    chosen, rejected = f64(1.0, 0.0), f64(0.0, 1.0)
    # log(1 + exp(-1)) = .313262, log(1 + exp(1)) = 1.313262
    assert_close(bradley_terry_loss(chosen, rejected), f64(0.313262, 1.313262), atol=1e-6, rtol=0)
    # margins 1 and -1: ln 2 each
    assert_close(bradley_terry_loss(chosen, rejected, margin=f64(1.0, -1.0)), f64(math.log(2), math.log(2)))
    # .9 * .313262 + .1 * 1.313262 = .413262; centring .01 * (1 + 0)^2
    smoothed = bradley_terry_loss(chosen, rejected, label_smoothing=0.1, center_coef=0.01)
    assert_close(smoothed, f64(0.423262, 1.223262), atol=1e-6, rtol=0)
    # .313262 + .1 * (2 + 1)^2
    assert_close(bradley_terry_loss(f64(2), f64(1), center_coef=0.1), f64(1.213262), atol=1e-6, rtol=0)


@settings(deadline=None)
@given(scores=st.lists(st.floats(-50, 50), min_size=2, max_size=2), shift=st.floats(-50, 50), e=st.floats(0, 0.49))
def test_bradley_terry_sees_differences_only_and_its_gradients_cancel(scores, shift, e):
    chosen, rejected = f64(scores[0]).requires_grad_(), f64(scores[1]).requires_grad_()
    loss = bradley_terry_loss(chosen, rejected, label_smoothing=e)
    loss.sum().backward()
    assert_close(chosen.grad, -rejected.grad)
    assert_close(loss, bradley_terry_loss(chosen + shift, rejected + shift, label_smoothing=e), atol=1e-9, rtol=1e-9)


def test_bradley_terry_gradient_matches_finite_differences():
    pair = f64(0.3, -1.0).requires_grad_(), f64(0.1, 2.0).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c, r: bradley_terry_loss(c, r, margin=0.5, label_smoothing=0.1, center_coef=0.01), pair
    )


@pytest.mark.parametrize("options", [{"label_smoothing": 0.5}, {"label_smoothing": -0.1}, {"center_coef": -1.0}])
def test_bradley_terry_refuses_what_cannot_be(options):
    with pytest.raises(ValueError, match="bradley_terry_loss"):
        bradley_terry_loss(NONE, NONE, **options)


def test_pairs_are_summarised_by_hand():
    # margins 2, -1, 0, 3: right 1, 0, 1/2, 1 -> .625; mean margin 1
    found = summarise_pairs(f64(2, 0, 1, 3), f64(0, 1, 1, 0))
    assert found.accuracy == 0.625
    assert found.margin == 1
    # sure .880797 (bin 3 of 0..4), .731059 (2), .5 (0), .952574 (4): |.119203| + |-.731059| + 0 + |.047426|, over 4
    assert found.calibration_error == pytest.approx((0.119203 + 0.731059 + 0.047426) / 4, abs=1e-6)


def test_a_calibrated_model_has_no_calibration_error():
    # margin log 3 means 3 of 4: three right, one wrong
    margin = math.log(3)
    found = summarise_pairs(f64(margin, margin, margin, 0), f64(0, 0, 0, margin))
    assert found.accuracy == 0.75
    assert found.calibration_error == pytest.approx(0, abs=1e-12)


def test_reliability_bins_by_hand():
    # margins 2, -2, 0, 3: sure by sigmoid .8808, .8808, .5, .9526; five steps of .1 from .5: bins 3, 3, 0, 4
    found = reliability_bins(f64(2, 1, 0.5, 3), f64(0, 3, 0.5, 0))
    assert [one.num_pairs for one in found] == [1, 2, 1]
    assert_close(f64(*(one.sure for one in found)), f64(0.5, 0.880797, 0.952574), atol=1e-6, rtol=0)
    assert [one.right for one in found] == [0.5, 0.5, 1.0]
    assert reliability_bins(NONE[:0], NONE[:0]) == ()


def test_an_even_bin_is_calibrated_where_its_pairs_are_right_as_often_as_sure():
    # sigmoid(log 3) = .75, and 3 of 4 pairs are the right way round
    chosen, rejected = f64(math.log(3), math.log(3), math.log(3), 0), f64(0, 0, 0, math.log(3))
    [one] = reliability_bins(chosen, rejected, num_bins=1)
    assert one.right == pytest.approx(one.sure) == pytest.approx(0.75)
    assert summarise_pairs(chosen, rejected).calibration_error == pytest.approx(0.0, abs=1e-12)
