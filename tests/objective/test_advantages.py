import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import group_advantages, leave_one_out, max_rl_advantages

ONE_GROUP = torch.zeros(4, dtype=torch.long)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_the_worked_example():
    # mean 1/2; population std sqrt(4 * (1/2)^2 / 4) = 1/2; (1 - 1/2) / (1/2) = 1
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
    assert_close(group_advantages(rewards, ONE_GROUP, eps=0), torch.tensor([1.0, -1.0, -1.0, 1.0]))
    assert_close(group_advantages(rewards, ONE_GROUP, scale="none"), torch.tensor([0.5, -0.5, -0.5, 0.5]))
    assert_close(group_advantages(rewards, ONE_GROUP), torch.tensor([1.0, -1.0, -1.0, 1.0]), atol=3e-6, rtol=0)


def test_population_and_sample_std():
    # mean 1/4; squares 9/16 + 3/16 = 3/4; population sqrt(3/4 / 4) = .433013; sample sqrt(3/4 / 3) = 1/2
    rewards = f64(1, 0, 0, 0)
    third = -1 / 3**0.5
    assert_close(group_advantages(rewards, ONE_GROUP, eps=0), f64(3**0.5, third, third, third))
    assert_close(group_advantages(rewards, ONE_GROUP, std="sample", eps=0), f64(1.5, -0.5, -0.5, -0.5))
    # eps is added to the std: .75 / (.5 + .25) = 1
    assert_close(group_advantages(rewards, ONE_GROUP, std="sample", eps=0.25)[0], f64(1)[0])


def test_batch_std_is_taken_over_all_raw_rewards_and_the_mean_per_group():
    # rewards 1,0,0,0 and 1,1,1,0: mean of all 1/2, squares 8/4 = 2, population 1/2, sample sqrt(2/7) = .534522
    rewards, group_ids = f64(1, 0, 0, 0, 1, 1, 1, 0), torch.tensor([5] * 4 + [3] * 4)
    centred = f64(0.75, -0.25, -0.25, -0.25, 0.25, 0.25, 0.25, -0.75)
    assert_close(group_advantages(rewards, group_ids, scale="batch_std", eps=0), centred * 2)
    sample = group_advantages(rewards, group_ids, scale="batch_std", std="sample", eps=0)
    assert_close(sample, centred / (2 / 7) ** 0.5)


def test_leave_one_out_by_hand():
    # 1 - (0 + 0 + 0)/3 and 0 - (1 + 0 + 0)/3
    assert_close(leave_one_out(f64(1, 0, 0, 0), ONE_GROUP), f64(1, -1 / 3, -1 / 3, -1 / 3))


def test_centred_batch_std_by_hand():
    # centred rewards: .75 -.25 x3 and .25 x3 -.75: squares 2 * 3/4 over 8 -> population .433013, over 7 -> .46291
    rewards, group_ids = f64(1, 0, 0, 0, 1, 1, 1, 0), torch.tensor([5] * 4 + [3] * 4)
    centred = f64(0.75, -0.25, -0.25, -0.25, 0.25, 0.25, 0.25, -0.75)
    found = group_advantages(rewards, group_ids, scale="centered_batch_std", eps=0)
    assert_close(found, centred / (1.5 / 8) ** 0.5)
    sample = group_advantages(rewards, group_ids, scale="centered_batch_std", std="sample", eps=0)
    assert_close(sample, centred / (1.5 / 7) ** 0.5)


def test_max_rl_by_hand():
    # mean 1/4: (1 - 1/4) / (1/4) = 3, -1; mean 3/4: 1/3, -1; mean 0 and mean 1: nothing
    assert_close(max_rl_advantages(f64(1, 0, 0, 0), ONE_GROUP), f64(3, -1, -1, -1))
    assert_close(max_rl_advantages(f64(1, 1, 1, 0), ONE_GROUP), f64(1 / 3, 1 / 3, 1 / 3, -1))
    for value in (0, 1):
        assert max_rl_advantages(f64(*[value] * 4), ONE_GROUP).tolist() == [0] * 4


def test_max_rl_refuses_rewards_that_would_turn_the_sign():
    with pytest.raises(ValueError, match=r"lowest reward is -1\.0"):
        max_rl_advantages(f64(1, -1, -1, -1), ONE_GROUP)
    found = max_rl_advantages(f64(1, -1, 0, 0), ONE_GROUP, scored=torch.tensor([1, 0, 1, 1]))
    assert_close(found, f64(2, 0, -1, -1))


def test_groups_are_formed_by_id_not_by_position():
    group_ids = torch.tensor([9, -4, 9, -4, 9], dtype=torch.int32)
    rewards = f64(1, 5, 0, 3, 0)
    # group 9: mean 1/3; group -4: mean 4
    assert_close(group_advantages(rewards, group_ids, scale="none"), f64(2 / 3, 1, -1 / 3, -1, -1 / 3))


@settings(deadline=None)
@given(
    value=st.floats(-1e6, 1e6, width=32),
    size=st.integers(1, 17),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    std=st.sampled_from(["population", "sample"]),
)
def test_equal_rewards_give_exactly_zero(value, size, dtype, std):
    rewards, group_ids = torch.full((size,), value, dtype=dtype), torch.zeros(size, dtype=torch.long)
    other = torch.tensor([0.0, 1.0], dtype=dtype)  # a live group beside it, so that batch_std is not trivial
    both, ids = torch.cat([rewards, other]), torch.cat([group_ids, torch.ones(2, dtype=torch.long)])
    for scale in ("std", "none", "batch_std", "centered_batch_std"):
        advantages = group_advantages(both, ids, scale=scale, std=std, eps=0)
        assert torch.count_nonzero(advantages[:size]) == 0
        assert advantages[size] < 0 < advantages[size + 1]
    assert torch.count_nonzero(leave_one_out(rewards, group_ids)) == 0


@st.composite
def batches(draw):
    size = draw(st.integers(1, 12))
    rewards = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=size, max_size=size))
    group_ids = draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size))
    scored = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    order = draw(st.permutations(range(size)))
    return f64(*rewards), torch.tensor(group_ids), torch.tensor(scored), torch.tensor(order)


ESTIMATORS = [
    group_advantages,
    leave_one_out,
    max_rl_advantages,
    lambda *args, **kwargs: group_advantages(*args, scale="none", **kwargs),
    lambda *args, **kwargs: group_advantages(*args, scale="centered_batch_std", **kwargs),
    lambda *args, **kwargs: group_advantages(*args, scale="batch_std", std="sample", **kwargs),
]


@settings(deadline=None)
@given(batch=batches(), estimator=st.sampled_from(ESTIMATORS))
def test_order_does_not_matter_and_groups_sum_to_zero(batch, estimator):
    rewards, group_ids, scored, order = batch
    advantages = estimator(rewards, group_ids, scored=scored)
    assert_close(estimator(rewards[order], group_ids[order], scored=scored[order]), advantages[order])
    for group_id in group_ids.unique():
        assert_close(advantages[group_ids == group_id].sum(), f64(0)[0])


@settings(deadline=None)
@given(batch=batches(), estimator=st.sampled_from(ESTIMATORS))
def test_unscored_rows_are_as_good_as_absent(batch, estimator):
    rewards, group_ids, scored, _ = batch
    broken = torch.where(scored, rewards, torch.nan)
    advantages = estimator(broken, group_ids, scored=scored)
    assert torch.count_nonzero(advantages[~scored]) == 0
    assert_close(advantages[scored], estimator(rewards[scored], group_ids[scored]))


@settings(deadline=None)
@given(batch=batches())
def test_leave_one_out_is_the_mean_of_the_others(batch):
    rewards, group_ids, scored, _ = batch
    advantages = leave_one_out(rewards, group_ids, scored=scored)
    for i in range(rewards.numel()):
        others = scored & (group_ids == group_ids[i])
        others[i] = False
        expected = rewards[i] - rewards[others].mean() if scored[i] and others.any() else f64(0)[0]
        assert_close(advantages[i], expected)


@pytest.mark.parametrize("options", [{}, {"std": "sample"}, {"scale": "batch_std"}, {"scale": "centered_batch_std"}])
def test_a_spread_whose_square_is_zero_is_no_spread(options):
    rewards = torch.tensor([0.0, 5e-324], dtype=torch.float64)
    assert group_advantages(rewards, torch.zeros(2, dtype=torch.long), eps=0.0, **options).tolist() == [0.0, 0.0]
    visible = torch.tensor([0.0, 1e-149], dtype=torch.float64)
    assert group_advantages(visible, torch.zeros(2, dtype=torch.long), eps=0.0, **options).isfinite().all()


def test_a_single_scored_row_has_no_baseline():
    rewards = f64(1, torch.nan, torch.nan, 2)
    scored, group_ids = torch.tensor([True, False, False, True]), torch.tensor([0, 0, 0, 1])
    for estimator in ESTIMATORS:
        assert estimator(rewards, group_ids, scored=scored).tolist() == [0, 0, 0, 0]


def test_nothing_in_nothing_out():
    for estimator in ESTIMATORS:
        assert estimator(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_statistics_are_taken_in_double_precision():
    # In float32, 1e8 + 1 = 1e8 and the mean would lose the difference of the pair.
    rewards = torch.tensor([1e8, 1e8 + 8])
    assert_close(group_advantages(rewards, ONE_GROUP[:2], scale="none"), torch.tensor([-4.0, 4.0]))


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.long, torch.float32),
    ],
)
def test_dtypes(given_dtype, expected):
    rewards = torch.tensor([1, 0, 0, 1], dtype=given_dtype)
    assert group_advantages(rewards, ONE_GROUP).dtype == expected
    assert leave_one_out(rewards, ONE_GROUP).dtype == expected
    assert max_rl_advantages(rewards, ONE_GROUP).dtype == expected


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_scored_reward_that_is_not_finite_is_refused(value):
    for estimator in ESTIMATORS:
        with pytest.raises(ValueError, match=r"rows \[2\].*scored = False"):
            estimator(f64(0, 1, value, 1), ONE_GROUP)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scale": "mean"}, "batch_std"), ({"std": "biased"}, "population, sample"), ({"eps": -1}, "0 or more")],
)
def test_wrong_options_are_refused_with_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(f64(0, 1, 0, 1), ONE_GROUP, **options)


def test_advantages_carry_no_gradient():
    assert not group_advantages(torch.rand(4, requires_grad=True), ONE_GROUP).requires_grad
