"""Decides whether query results are the same answer. Pure functions over rows; nothing here knows of SQLite.

Differs from the usual execution accuracy: rows are bags (duplicates count), an ordered gold is compared tie group by
tie group, columns may be permuted but by one permutation for all snapshots, numbers have a tolerance, NULL equals
only NULL, and text equals only the same text.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.sandbox import Cell, Row
from groupwise.types import Check

REL_TOLERANCE = 1e-6  # another route to the same mean differs by 1e-12; a rounding to two digits by far more
ABS_TOLERANCE = 1e-9
EXACT_INTEGERS = 2**53  # whole floats below this are as exact as ints
MAX_PERMUTATION_NODES = 5040
MAX_PERMUTATION_ROWS = 2_000_000  # a few seconds; a wide and long answer must not hold up the trainer
MAX_GREEDY_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TieGroup:
    """Gold rows with equal sort keys; the result shows `num_shown` of them, fewer than all where LIMIT cuts the tie."""

    num_shown: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldRows:
    """The right answer on one snapshot.

    Example:
        GoldRows(num_columns=1, rows=((6,),), ties=None)
    """

    num_columns: int
    rows: tuple[Row, ...]
    ties: tuple[TieGroup, ...] | None
    """None: row order does not matter. Otherwise the tie groups in order; their num_shown sum to len(rows)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison(equal=False, reason="wrong_values", checks=(Check(...),)); reason is "" for equal answers."""

    equal: bool
    reason: str
    checks: tuple[Check, ...]


def canonical_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Text in Unicode normal form C; everything else as it is."""
    return tuple(tuple(_canonical(cell) for cell in row) for row in rows)


def _canonical(cell: Cell) -> Cell:
    return unicodedata.normalize("NFC", cell) if isinstance(cell, str) and not cell.isascii() else cell


def cells_equal(left: Cell, right: Cell) -> bool:
    """Numbers within 1e-6 relative or 1e-9 absolute, but two whole numbers only if they are the same."""
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if left == right:
            return True
        if _is_exact(left) and _is_exact(right):
            return False
        return math.isclose(left, right, rel_tol=REL_TOLERANCE, abs_tol=ABS_TOLERANCE)
    return type(left) is type(right) and left == right


def _is_exact(number: float) -> bool:
    return isinstance(number, int) or (number.is_integer() and abs(number) < EXACT_INTEGERS)


def rows_equal(left: Row, right: Row) -> bool:
    """Cell by cell."""
    return len(left) == len(right) and all(map(cells_equal, left, right))


def is_sub_bag(part: Sequence[Row], whole: Sequence[Row]) -> bool:
    """True if every row of `part` has a row of its own in `whole`."""
    missing = Counter(part)
    spare = Counter(whole)
    common = missing & spare
    missing -= common
    if not missing:
        return True
    spare -= common
    wanted: defaultdict[Row, list[Row]] = defaultdict(list)
    offered: defaultdict[Row, list[Row]] = defaultdict(list)
    for source, buckets in ((missing, wanted), (spare, offered)):
        for row in source.elements():
            buckets[tuple("number" if isinstance(c, (int, float)) else c for c in row)].append(row)
    return all(_match_close(rows, offered.get(shape, [])) for shape, rows in wanted.items())


def _match_close(rows: list[Row], others: list[Row]) -> bool:
    """Pairs rows that differ in their numbers only; every one of `rows` needs a partner within tolerance."""
    if len(rows) > len(others):
        return False
    rows, others = sorted(rows, key=_numbers), sorted(others, key=_numbers)
    if len(rows) == len(others) and all(map(rows_equal, rows, others)):
        return True
    if len(others) > MAX_GREEDY_ROWS:
        return False
    for row in rows:
        partner = next((index for index, other in enumerate(others) if rows_equal(row, other)), None)
        if partner is None:
            return False
        others.pop(partner)
    return True


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(cell for cell in row if isinstance(cell, (int, float)))


def same_bag(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """The same rows, each as often, in any order."""
    return len(left) == len(right) and is_sub_bag(left, right)


def same_order(gold: GoldRows, rows: Sequence[Row]) -> bool:
    """True if `rows` is one of the sequences that the gold's ORDER BY (and LIMIT) allows."""
    assert gold.ties is not None
    start = 0
    for tie in gold.ties:
        shown = rows[start : start + tie.num_shown]
        start += tie.num_shown
        if len(shown) != tie.num_shown or not is_sub_bag(shown, tie.rows):
            return False
    return start == len(rows)


def compare_shape(gold: GoldRows, num_columns: int, num_rows: int, truncated: bool) -> Comparison:
    """Column and row counts on one snapshot: the cheap half, and where most wrong answers end."""
    columns = Check(
        name="columns", passed=num_columns == gold.num_columns, expected=str(gold.num_columns), found=str(num_columns)
    )
    rows = Check(
        name="rows",
        passed=num_rows == len(gold.rows) and not truncated,
        expected=str(len(gold.rows)),
        found=f"more than {num_rows}" if truncated else str(num_rows),
    )
    reason = "" if columns.passed and rows.passed else "wrong_rows" if columns.passed else "wrong_columns"
    return Comparison(equal=not reason, reason=reason, checks=(columns, rows))


def compare_values(golds: Sequence[GoldRows], answers: Sequence[Sequence[Row]]) -> Comparison:
    """Values and order on all snapshots at once, under one permutation of the answer's columns.

    The shapes are known to agree. `golds[s]` and `answers[s]` belong to the same snapshot s.
    """
    ordered = golds[0].ties is not None
    values_agree = False
    for permutation in _permutations(golds, answers):
        permuted = [[tuple(row[j] for j in permutation) for row in rows] for rows in answers]
        values_agree = True
        if not ordered or all(map(same_order, golds, permuted)):
            checks = [Check(name="values", passed=True)] + [Check(name="order", passed=True)] * ordered
            return Comparison(equal=True, reason="", checks=tuple(checks))
    if values_agree:
        order = Check(name="order", passed=False, expected="the gold's ORDER BY", found="another order")
        return Comparison(equal=False, reason="wrong_order", checks=(Check(name="values", passed=True), order))
    return Comparison(equal=False, reason="wrong_values", checks=(_first_difference(golds, answers),))


def _bags_agree(gold: GoldRows, rows: Sequence[Row]) -> bool:
    """Values without order. Where LIMIT cuts a tie, any of the tied rows will do."""
    if gold.ties is None:
        return same_bag(rows, gold.rows)
    return is_sub_bag(rows, [row for tie in gold.ties for row in tie.rows])


def _permutations(golds: Sequence[GoldRows], answers: Sequence[Sequence[Row]]) -> Iterator[tuple[int, ...]]:
    """Permutations p, so that column i of the gold is column p[i] of the answer, under which the values agree.

    The identity comes first. Otherwise columns are placed one by one; a partial placement under which the projected
    rows differ is given up at once, which keeps the search small unless columns are nearly equal.
    """
    num_columns = golds[0].num_columns
    identity = tuple(range(num_columns))
    if all(map(_bags_agree, golds, answers)):
        yield identity
        if golds[0].ties is None:
            return
    contents = [tuple(tuple(row[j] for row in rows) for rows in answers) for j in identity]
    num_rows = max(1, sum(map(len, answers)))
    budget = max(2 * num_columns**2, min(MAX_PERMUTATION_NODES, MAX_PERMUTATION_ROWS // num_rows))

    def place(placed: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        nonlocal budget
        if len(placed) == num_columns:
            if placed != identity:
                yield placed
            return
        tried: set[tuple[tuple[Cell, ...], ...]] = set()
        for j in identity:
            if j in placed or contents[j] in tried or budget <= 0:
                continue
            tried.add(contents[j])  # equal columns are interchangeable
            budget -= 1
            longer = (*placed, j)
            if all(
                _bags_agree(_project(g, len(longer)), _pick(a, longer)) for g, a in zip(golds, answers, strict=True)
            ):
                yield from place(longer)

    yield from place(())


def _project(gold: GoldRows, num_columns: int) -> GoldRows:
    if num_columns == gold.num_columns:
        return gold
    ties = gold.ties and tuple(
        TieGroup(num_shown=tie.num_shown, rows=tuple(row[:num_columns] for row in tie.rows)) for tie in gold.ties
    )
    return GoldRows(num_columns=num_columns, rows=tuple(row[:num_columns] for row in gold.rows), ties=ties)


def _pick(rows: Sequence[Row], columns: tuple[int, ...]) -> list[Row]:
    return [tuple(row[j] for j in columns) for row in rows]


def _first_difference(golds: Sequence[GoldRows], answers: Sequence[Sequence[Row]]) -> Check:
    """One row that only one side has, for the reader of a report."""
    for index, (gold, rows) in enumerate(zip(golds, answers, strict=True)):
        if not _bags_agree(gold, rows):
            lost = next(iter((Counter(gold.rows) - Counter(rows)).elements()), None)
            extra = next(iter((Counter(rows) - Counter(gold.rows)).elements()), None)
            return Check(
                name="values",
                passed=False,
                expected=f"snapshot {index + 1}: {_show(lost)}",
                found=f"snapshot {index + 1}: {_show(extra)}",
            )
    return Check(name="values", passed=False, expected="one column order on all snapshots", found="none fits")


def _show(row: Row | None) -> str:
    text = "-" if row is None else repr(row)
    return text if len(text) <= 120 else text[:117] + "..."
