"""The comparison by hand, and against what must never change a verdict."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.verifiers.sql_compare import (
    GoldRows,
    TieGroup,
    canonical_rows,
    cells_equal,
    compare_shape,
    compare_values,
    same_bag,
)


def gold(*rows, ties=None):
    return GoldRows(num_columns=len(rows[0]), rows=rows, ties=ties)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (None, None, True),
        (None, 0, False),
        (None, "", False),
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (33.333333333, 33.33, False),
        (1_234_567, 1_234_568, False),
        (1_234_567.0, 1_234_568, False),
        (0.0, 1e-10, True),
        (2**62, 2**62 + 1, False),
        ("1", 1, False),
        ("a", "A", False),
        ("a", "a ", False),
        ("a", b"a", False),
        (b"a", b"a", True),
        (float("inf"), 1.0, False),
    ],
)
def test_cells(left, right, equal):
    assert cells_equal(left, right) is equal
    assert cells_equal(right, left) is equal


def test_text_is_compared_in_one_unicode_form():
    assert canonical_rows([("Zoe\u0308", b"\xc3", 1)]) == (("Zo\u00eb", b"\xc3", 1),)


def test_bags_count_duplicates():
    assert same_bag([(1,), (1,), (2,)], [(2,), (1,), (1,)])
    assert not same_bag([(1,), (1,), (2,)], [(2,), (2,), (1,)])
    assert not same_bag([(1,)], [(1,), (1,)])


def test_bags_pair_close_numbers_one_to_one():
    assert same_bag([("a", 0.30000000000000004), ("a", 1.0)], [("a", 1), ("a", 0.3)])
    assert not same_bag([("a", 0.3), ("a", 0.30000000000000004)], [("a", 0.3), ("a", 0.5)])
    assert not same_bag([(0.3 + 1e-12,), (0.3 + 2e-12,)], [(0.3,), (0.5,)])
    assert not same_bag([("a", 0.30000000000000004)], [("b", 0.3)])


def test_shape():
    assert compare_shape(gold((1, 2)), 2, 1, False).equal
    assert compare_shape(gold((1, 2)), 1, 1, False).reason == "wrong_columns"
    assert compare_shape(gold((1, 2)), 2, 0, False).reason == "wrong_rows"
    assert compare_shape(gold((1, 2)), 2, 1, True).reason == "wrong_rows"


def test_one_permutation_must_hold_on_all_snapshots():
    swapped, straight = [(2, 1), (4, 3)], [(5, 6)]
    assert compare_values([gold((1, 2), (3, 4))], [swapped]).equal
    assert compare_values([gold((1, 2), (3, 4)), gold((5, 6))], [swapped, [(6, 5)]]).equal
    assert compare_values([gold((1, 2), (3, 4)), gold((5, 6))], [swapped, straight]).reason == "wrong_values"


def test_columns_that_agree_one_by_one_but_not_row_by_row_differ():
    assert compare_values([gold((1, 2), (2, 1))], [[(1, 1), (2, 2)]]).reason == "wrong_values"


def test_ties_may_come_in_any_order_and_limit_may_cut_one():
    ties = (TieGroup(num_shown=1, rows=(("x",),)), TieGroup(num_shown=1, rows=(("y",), ("z",))))
    limited = gold(("x",), ("y",), ties=ties)
    assert compare_values([limited], [[("x",), ("z",)]]).equal
    assert compare_values([limited], [[("z",), ("x",)]]).reason == "wrong_order"
    assert compare_values([limited], [[("x",), ("x",)]]).reason == "wrong_values"
    assert compare_values([limited], [[("y",), ("z",)]]).reason != ""


def test_order_and_permutation_together():
    ties = tuple(TieGroup(num_shown=1, rows=(row,)) for row in ((1, 2), (2, 1), (3, 3)))
    ordered = gold((1, 2), (2, 1), (3, 3), ties=ties)
    assert compare_values([ordered], [[(2, 1), (1, 2), (3, 3)]]).equal  # the columns swapped
    assert compare_values([ordered], [[(3, 3), (1, 2), (2, 1)]]).reason == "wrong_order"


def test_thirty_similar_columns_do_not_explode():
    rows = tuple(tuple((i * j) % 2 for j in range(30)) for i in range(40))
    started = time.monotonic()
    assert not compare_values([gold(*rows)], [[(*row[:-1], 7) for row in rows]]).equal
    assert compare_values([gold(*rows)], [[row[::-1] for row in rows]]).equal
    assert time.monotonic() - started < 5.0


CELLS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["", "a", "A", "0"]), st.sampled_from([0.5, -2.25]))


@st.composite
def tables(draw):
    num_columns = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[CELLS] * num_columns), min_size=1, max_size=8))


@settings(deadline=None, max_examples=150)
@given(data=st.data(), snapshots=st.lists(tables(), min_size=1, max_size=1))
def test_shuffled_rows_and_permuted_columns_stay_equal(data, snapshots):
    rows = snapshots[0]
    order = data.draw(st.permutations(range(len(rows[0]))))
    shuffled = data.draw(st.permutations(rows))
    assert compare_values([gold(*rows)], [[tuple(row[j] for j in order) for row in shuffled]]).equal


@settings(deadline=None, max_examples=150)
@given(data=st.data(), rows=tables())
def test_one_changed_cell_is_noticed(data, rows):
    i = data.draw(st.integers(0, len(rows) - 1))
    j = data.draw(st.integers(0, len(rows[0]) - 1))
    changed = [list(row) for row in data.draw(st.permutations(rows))]
    changed[i][j] = "another value"
    comparison = compare_values([gold(*rows)], [[tuple(row) for row in changed]])
    assert comparison.reason == "wrong_values"
    assert not comparison.checks[-1].passed
