"""Rewards of several parts: GDPO by hand, and what it must not mix."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import gdpo_advantages, group_advantages

PARTS = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, 0.5], dtype=torch.float64)
ONE_GROUP = torch.zeros(4, dtype=torch.long)


def test_gdpo_by_hand():
    # part 1: mean 1/2, std 1/2: +1 -1 -1 +1. part 2: mean 3/4, std sqrt(3)/4 = 0.43301: 0.57735 thrice, -1.73205.
    # sum with weights 1 and 1/2: 1.28868, -0.71132, -1.86603, 1.28868; its mean is 0 and its std 1.35163
    plain = gdpo_advantages(PARTS, WEIGHTS, ONE_GROUP, batch_scale=False, eps=0.0)
    assert_close(plain, torch.tensor([1.28868, -0.71132, -1.86603, 1.28868], dtype=torch.float64), atol=1e-5, rtol=0)
    scaled = gdpo_advantages(PARTS, WEIGHTS, ONE_GROUP, eps=1e-4)
    assert_close(scaled, torch.tensor([0.95324, -0.52618, -1.3803, 0.95324], dtype=torch.float64), atol=1e-5, rtol=0)
    sample = gdpo_advantages(PARTS, WEIGHTS, ONE_GROUP, eps=1e-4, std="sample")
    assert_close(sample, torch.tensor([0.82553, -0.45568, -1.19537, 0.82553], dtype=torch.float64), atol=1e-5, rtol=0)


def test_one_part_is_grpo():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5])
    ids = torch.tensor([0, 0, 0, 0, 1])
    found = gdpo_advantages(rewards[:, None], torch.tensor([1.0]), ids, batch_scale=False)
    assert_close(found, group_advantages(rewards, ids))


def test_mixtures_of_equal_sum_differ():
    parts = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    found = gdpo_advantages(parts, torch.tensor([1.0, 1.0]), ONE_GROUP)
    assert found[0] != found[1]
    summed = group_advantages(parts.sum(dim=1), ONE_GROUP)
    assert summed[0] == summed[1]


def test_a_group_without_differences_stays_exactly_zero_beside_one_with_them():
    parts = torch.cat([PARTS, torch.full((3, 2), 0.3, dtype=torch.float64)])
    ids = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    scored = torch.tensor([True, True, True, False, True, True, True])
    found = gdpo_advantages(parts, WEIGHTS, ids, scored=scored)
    assert torch.count_nonzero(found[3:]) == 0
    assert torch.count_nonzero(found[:3]) == 3
    assert torch.count_nonzero(gdpo_advantages(parts[4:], WEIGHTS, ids[4:])) == 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shapes=st.lists(st.floats(0, 1), min_size=4, max_size=8),
    solved=st.lists(st.booleans(), min_size=8, max_size=8),
    weight=st.floats(0.1, 10),
)
def test_where_wrong_answers_earn_nothing_no_right_one_is_below_them(shapes, solved, weight):
    right = torch.tensor(solved[: len(shapes)])
    parts = torch.stack([right.double(), torch.where(right, torch.tensor(shapes, dtype=torch.float64), 0.0)], dim=1)
    ids = torch.zeros(len(shapes), dtype=torch.long)
    found = gdpo_advantages(parts, torch.tensor([1.0, weight]), ids)
    if right.any() and not right.all():
        assert found[right].min() > found[~right].max()
