from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data import TaskSets, shared_values
from groupwise.data.sources import Row
from groupwise.data.splits import RowSets, refuse_leaks, split_rows
from groupwise.errors import DataError
from groupwise.types import Task


@dataclass(frozen=True, kw_only=True)
class Numbers:
    heldout: int = 2
    demonstrations: int = 0
    train: int | None = None
    group_by: str | None = None


def rows(*databases: object) -> tuple[Row, ...]:
    return tuple(Row(columns={"db": db}, place=f"r{n}", number=n) for n, db in enumerate(databases, start=1))


def numbers_in(sets: RowSets) -> list[list[int]]:
    return [[row.number for row in part] for part in (sets.heldout, sets.demonstrations, sets.train)]


def test_each_row_is_used_once() -> None:
    sets = split_rows(rows(*range(10)), Numbers(heldout=3, demonstrations=2), seed=1)
    parts = numbers_in(sets)
    assert [len(part) for part in parts] == [3, 2, 5]
    assert sorted(number for part in parts for number in part) == list(range(1, 11))


def test_the_seed_decides_and_nothing_else() -> None:
    ten = rows(*range(10))
    assert split_rows(ten, Numbers(), 1) == split_rows(ten, Numbers(), 1)
    assert split_rows(ten, Numbers(), 1) != split_rows(ten, Numbers(), 2)


def test_the_heldout_set_does_not_depend_on_the_other_numbers() -> None:
    ten = rows(*range(10))
    plain = split_rows(ten, Numbers(heldout=3), 1).heldout
    assert split_rows(ten, Numbers(heldout=3, demonstrations=4, train=2), 1).heldout == plain


@given(
    databases=st.lists(st.integers(0, 4) | st.sampled_from(["a", "b"]), min_size=12, max_size=40),
    seed=st.integers(0, 5),
    heldout=st.integers(1, 3),
    demonstrations=st.integers(0, 3),
)
def test_no_group_is_in_two_sets(databases: list[object], seed: int, heldout: int, demonstrations: int) -> None:
    try:
        numbers = Numbers(heldout=heldout, demonstrations=demonstrations, group_by="db")
        sets = split_rows(rows(*databases), numbers, seed)
    except DataError:
        return  # too few groups
    parts = [{row.columns["db"] for row in part} for part in (sets.heldout, sets.demonstrations, sets.train)]
    assert len(sets.heldout) == heldout
    assert len(sets.demonstrations) == demonstrations
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_groups_with_room_to_spare_keep_their_sizes() -> None:
    # 3 databases of 4 rows: one each; held-out takes 3 of its 4, and the fourth is left out
    sets = split_rows(rows(*"aaaabbbbcccc"), Numbers(heldout=3, demonstrations=2, group_by="db"), 0)
    assert [len(part) for part in numbers_in(sets)] == [3, 2, 4]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (Numbers(heldout=5), r"data\.split\.heldout needs 5 rows and 4 are left of 4"),
        (Numbers(heldout=2, demonstrations=3), r"data\.split\.demonstrations needs 3 rows and 2 are left"),
        (Numbers(heldout=2, train=3), r"data\.split\.train needs 3 rows and 2 are left"),
        (Numbers(heldout=4), r"data\.split\.train needs 1 rows and 0 are left"),
        (Numbers(heldout=1, demonstrations=1, group_by="db"), r"train needs 1 .* in 2 groups by 'db'"),
        (Numbers(group_by="dbs"), r"r1: no column 'dbs'. Columns found: db. Did you mean 'db'\?"),
    ],
)
def test_too_few_rows_are_refused(numbers: Numbers, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        split_rows(rows("a", "a", "b", "b"), numbers, 0)


def task(name: str, prompt: str, db: str = "x") -> Task:
    return Task(id=name, prompt=prompt, columns={"db": db})


SETS = TaskSets(
    demonstrations=(task("d", "one", "a"),),
    train=(task("t", "two", "b"),),
    heldout=(task("h", "three", "c"), task("i", "four", "b")),
)


def test_shared_values_are_found() -> None:
    assert shared_values(SETS, "db") == {'"b"'}
    assert shared_values(replace(SETS, heldout=SETS.heldout[:1]), "db") == frozenset()
    with pytest.raises(DataError, match=r"no column 'dc'\. Columns found: db"):
        shared_values(SETS, "dc")


def test_a_heldout_prompt_that_is_trained_on_is_refused_with_an_example() -> None:
    refuse_leaks(SETS)
    leaky = replace(SETS, heldout=(*SETS.heldout, task("j", "  ONE\n")))
    with pytest.raises(DataError, match=r"1 of 3 held-out prompts .* j = d: "):
        refuse_leaks(leaky)


def test_equal_questions_under_different_turns_are_not_a_leak() -> None:
    turns = tuple({"role": "user", "content": text} for text in ("schema b", "two"))
    refuse_leaks(replace(SETS, heldout=(Task(id="k", prompt=turns),)))
    with pytest.raises(DataError, match="1 of 1"):
        refuse_leaks(replace(SETS, train=(Task(id="m", prompt=turns),), heldout=(Task(id="k", prompt=turns),)))
