"""What must be the same as what, and what each estimator optimises: exact identities across the whole room."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import (
    aggregate,
    clipped_policy_loss,
    group_advantages,
    leave_one_out,
    max_rl_advantages,
    reinforce_loss,
    sequence_policy_loss,
    truncated_importance_weight,
)


def random_batch(seed, batch=4, length=5):
    generator = torch.Generator().manual_seed(seed)
    policy, old, mu = torch.randn(3, batch, length, dtype=torch.float64, generator=generator)
    advantages = torch.randn(batch, dtype=torch.float64, generator=generator)
    return policy, old, mu, advantages, torch.rand(batch, length, generator=generator) < 0.7


def value_and_gradient(loss_of, policy):
    leaf = policy.clone().requires_grad_()
    loss = loss_of(leaf)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


SEEDS = st.integers(0, 2**31)


@settings(deadline=None)
@given(seed=SEEDS, level=st.sampled_from(["sequence", "sequence_token"]))
def test_gspo_is_grpo_where_completions_have_one_token(seed, level):
    policy, old, _, advantages, _ = random_batch(seed)
    mask = torch.arange(5) == torch.randint(5, (4, 1), generator=torch.Generator().manual_seed(seed))
    options = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}
    grpo = value_and_gradient(lambda x: clipped_policy_loss(x, old, advantages, mask, **options), policy)
    gspo = value_and_gradient(lambda x: sequence_policy_loss(x, old, advantages, mask, level=level, **options), policy)
    assert_close(gspo, grpo)


@settings(deadline=None)
@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=9))
def test_rloo_is_dr_grpo_times_n_over_n_minus_1(rewards):
    n, one_group = len(rewards), torch.zeros(len(rewards), dtype=torch.long)
    values = torch.tensor(rewards, dtype=torch.float64)
    dr_grpo = group_advantages(values, one_group, scale="none")
    assert_close(leave_one_out(values, one_group), n / (n - 1) * dr_grpo)


@settings(deadline=None)
@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=9))
@example(rewards=[0.0, 5e-324])
def test_sample_std_is_population_std_times_a_constant(rewards):
    n, one_group = len(rewards), torch.zeros(len(rewards), dtype=torch.long)
    values = torch.tensor(rewards, dtype=torch.float64)
    population = group_advantages(values, one_group, eps=0)
    sample = group_advantages(values, one_group, std="sample", eps=0)
    assert_close(sample, population * math.sqrt((n - 1) / n))


@settings(deadline=None)
@given(seed=SEEDS)
def test_the_decoupled_loss_is_the_plain_one_where_the_sampler_is_the_old_policy(seed):
    policy, old, mu, advantages, mask = random_batch(seed)

    def decoupled(x, sampler):
        weight = truncated_importance_weight(old, sampler, mask, cap=1e9)
        return weight * clipped_policy_loss(x, old, advantages, mask)

    plain = value_and_gradient(lambda x: clipped_policy_loss(x, old, advantages, mask), policy)
    assert_close(value_and_gradient(lambda x: decoupled(x, old), policy), plain)
    # Without clips it is the ratio to the sampler itself: old cancels.
    wide = {"clip_low": 1e9, "clip_high": 1e9}
    direct = value_and_gradient(lambda x: clipped_policy_loss(x, mu, advantages, mask, **wide), policy)
    weight = truncated_importance_weight(old, mu, mask, cap=1e9)
    through = value_and_gradient(lambda x: weight * clipped_policy_loss(x, old, advantages, mask, **wide), policy)
    assert_close(through, direct)


@settings(deadline=None)
@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=8))
def test_rewards_of_minus_one_and_one_are_those_of_zero_and_one(rewards):
    values, one_group = torch.tensor(rewards, dtype=torch.float64), torch.zeros(len(rewards), dtype=torch.long)
    assert_close(group_advantages(2 * values - 1, one_group, eps=0), group_advantages(values, one_group, eps=0))


NORMALIZE = {
    "sequence": lambda mask: mask.shape[0],
    "token": lambda mask: max(1, int(mask.sum())),
    "constant": lambda mask: mask.shape[0] * 7,
}


@settings(deadline=None)
@given(seed=SEEDS, normalize=st.sampled_from(sorted(NORMALIZE)), copies=st.integers(1, 3))
def test_splits_order_duplication_and_padding_change_no_gradient(seed, normalize, copies):
    policy, old, _, advantages, mask = random_batch(seed)
    denominator = NORMALIZE[normalize](mask)

    def loss(x, rows, width=0, times=1):
        pad = (0, width)
        losses = clipped_policy_loss(
            torch.nn.functional.pad(x[rows], pad, value=torch.nan),
            torch.nn.functional.pad(old[rows], pad, value=torch.inf),
            advantages[rows],
            torch.nn.functional.pad(mask[rows], pad),
        )
        trained = torch.nn.functional.pad(mask[rows], pad)
        return aggregate(losses, trained, normalize=normalize, denominator=denominator * times)

    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    whole = value_and_gradient(lambda x: loss(x, torch.arange(4)), policy)
    split = value_and_gradient(lambda x: loss(x, order[:1]) + loss(x, order[1:], width=3), policy)
    assert_close(split, whole)
    repeated = value_and_gradient(lambda x: loss(x, order.repeat(copies), times=copies), policy)
    assert_close(repeated, whole)


def weight_by_counts(advantages_of, p, group_size):
    """w(p) in E[gradient] = w(p) grad p. S is grad p / p for a right answer and -grad p / (1 - p) for a wrong one."""
    group_ids, total = torch.zeros(group_size, dtype=torch.long), 0.0
    for k in range(group_size + 1):
        rewards = torch.tensor([1.0] * k + [0.0] * (group_size - k), dtype=torch.float64)
        advantages = advantages_of(rewards, group_ids)
        scores = torch.where(rewards == 1, 1 / p, -1 / (1 - p))
        chance = math.comb(group_size, k) * p**k * (1 - p) ** (group_size - k)
        total += chance * (advantages * scores).mean().item()
    return total


def grpo(rewards, group_ids):
    return group_advantages(rewards, group_ids, eps=0)


def dr_grpo(rewards, group_ids):
    return group_advantages(rewards, group_ids, scale="none")


RATES = (0.01, 0.05, 0.1, 0.3, 0.5)


@pytest.mark.parametrize(
    ("group_size", "expected"),
    [
        (4, (1.727, 1.710, 1.690, 1.635, 1.616)),
        (8, (2.609, 2.473, 2.328, 1.963, 1.856)),
        (16, (3.733, 3.267, 2.848, 2.092, 1.934)),
    ],
)
def test_grpo_weighs_rare_and_sure_prompts_more(group_size, expected):
    # E[sqrt(q (1 - q))] / (p (1 - p)), q = share solved
    for p, value in zip(RATES, expected, strict=True):
        assert weight_by_counts(grpo, p, group_size) == pytest.approx(value, abs=6e-4)


@settings(deadline=None, max_examples=30)
@given(p=st.floats(0.01, 0.99), group_size=st.integers(2, 12))
def test_what_the_other_estimators_optimise(p, group_size):
    share = (group_size - 1) / group_size
    assert weight_by_counts(leave_one_out, p, group_size) == pytest.approx(1)
    assert weight_by_counts(dr_grpo, p, group_size) == pytest.approx(share)
    assert weight_by_counts(max_rl_advantages, p, group_size) == pytest.approx((1 - (1 - p) ** (group_size - 1)) / p)
    sample = weight_by_counts(lambda r, g: group_advantages(r, g, std="sample", eps=0), p, group_size)
    assert sample == pytest.approx(weight_by_counts(grpo, p, group_size) * math.sqrt(share))


@pytest.mark.parametrize("loss", [clipped_policy_loss, sequence_policy_loss, "reinforce"])
@pytest.mark.parametrize("estimator", [grpo, dr_grpo, leave_one_out, max_rl_advantages])
def test_the_weights_hold_for_the_gradient_of_the_loss_by_exact_enumeration(loss, estimator):
    """Groups of 3 one-token answers from a 2-word softmax, word 0 right: all 8 groups, each as often as drawn."""
    logits = torch.tensor([-0.7, 0.4], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(0)
    p = logprobs[0].detach().exp().item()
    (grad_p,) = torch.autograd.grad(logprobs[0].exp(), logits, retain_graph=True)
    mask, total = torch.ones(3, 1), torch.zeros(2, dtype=torch.float64)
    for words in itertools.product((0, 1), repeat=3):
        policy = logprobs[list(words)].unsqueeze(1)
        rewards = torch.tensor([1.0 - word for word in words], dtype=torch.float64)
        advantages = estimator(rewards, torch.zeros(3, dtype=torch.long))
        losses = (
            reinforce_loss(policy, advantages, mask) if loss == "reinforce" else loss(policy, policy, advantages, mask)
        )
        (gradient,) = torch.autograd.grad(
            aggregate(losses, mask, normalize="token", denominator=3), logits, retain_graph=True
        )
        total += policy.detach().sum().exp() * gradient
    assert_close(total, -weight_by_counts(estimator, p, 3) * grad_p)
