from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.verifiers.extraction_align import MAX_ASSIGNED, align_bag, best_assignment


def total(weights, pairs):
    return sum(weights[row][column] for row, column in pairs)


def best_by_trying(weights):
    rows, columns = len(weights), len(weights[0])
    if rows > columns:
        weights = [[weights[row][column] for row in range(rows)] for column in range(columns)]
        rows, columns = columns, rows
    return max(total(weights, enumerate(order)) for order in itertools.permutations(range(columns), rows))


def test_by_hand():
    # the greedy choice 3 leaves 0 for the second row (3); the best is 2 + 2
    assert best_assignment([[3, 2], [2, 0]]) == [(0, 1), (1, 0)]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1, max_size=5)
    )
)
def test_the_assignment_is_the_best_there_is(weights):
    pairs = best_assignment(weights)
    assert len(pairs) == min(len(weights), len(weights[0]))
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert total(weights, pairs) == best_by_trying(weights)


def test_equal_items_are_paired_each_once():
    pairs = align_bag(["a", "b", "a"], ["a", "a", "a"], lambda g, f: 0)
    assert sorted(pairs) == [(0, 0), (1, 2), (2, 1)]


def test_every_item_stands_in_one_pair():
    gold, found = [f"g{i}" for i in range(MAX_ASSIGNED + 9)], [f"f{i}" for i in range(MAX_ASSIGNED + 20)]
    pairs = align_bag(gold, found, lambda g, f: int(g == f))
    assert sorted(g for g, _ in pairs if g is not None) == list(range(len(gold)))
    assert sorted(f for _, f in pairs if f is not None) == list(range(len(found)))


def test_nothing_to_pair():
    assert align_bag([], [], lambda g, f: 0) == []
    assert align_bag(["a"], [], lambda g, f: 0) == [(0, None)]
    assert align_bag([], ["a"], lambda g, f: 0) == [(None, 0)]
