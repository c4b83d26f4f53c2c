"""Copies within a group, near copies, and texts that turn in a circle."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs.monitors.repetition import distinct_share, is_looping, repetition, similarity

SENTENCE = "The customer asks for a refund of the second order, which has not been sent to the new address yet."
OTHER = "Nothing here is like the first text: a wholly different matter about fourteen bicycles and one green lamp."


def test_copies_are_counted_inside_a_group_only() -> None:
    found = repetition([["SELECT 1", "select  1 ", "SELECT 2"], ["SELECT 2"]])
    assert found.num_answers == 4
    assert found.repeated_frac == 2 / 4  # the first two; SELECT 2 stands once in each group


def test_a_near_copy_differs_in_a_few_characters() -> None:
    near = SENTENCE.replace("second", "third")
    assert 0.8 < similarity(SENTENCE, near) < 0.9
    nearer = SENTENCE.replace("yet.", "yet!")
    found = repetition([[SENTENCE, nearer, near, OTHER]])
    assert (found.repeated_frac, found.near_repeated_frac) == (0.0, 2 / 4)


def test_similarity_by_hand() -> None:
    # shingles of 5: abcde bcdef | bcdef cdefg; one of three is shared
    assert similarity("abcdef", "bcdefg") == pytest.approx(1 / 3)
    assert similarity("", "") == 1.0
    assert similarity("a", "b") == 0.0


def test_nothing_is_no_repetition() -> None:
    assert repetition([]) == repetition([[]])
    assert repetition([]).near_repeated_frac == 0.0
    assert repetition([["", ""]]).repeated_frac == 1.0


@given(st.lists(st.lists(st.text(max_size=12), max_size=5), max_size=4))
def test_shares_are_shares_and_copies_are_near_copies(groups: list[list[str]]) -> None:
    found = repetition(groups)
    assert 0 <= found.repeated_frac <= found.near_repeated_frac <= 1
    assert 0 <= found.looping_frac <= 1


def test_distinct_share_by_hand() -> None:
    assert distinct_share("abab", 2) == 2 / 3  # ab ba ab
    assert distinct_share("short") == 1.0
    with pytest.raises(ValueError, match="gram must be 1 or more"):
        distinct_share("text", 0)


def test_a_loop_is_found_and_prose_code_and_lists_are_not() -> None:
    assert is_looping("I am sure. " * 40)
    assert is_looping("the same line of words again\n" * 12)
    assert not is_looping(f"{SENTENCE} {OTHER}")
    assert not is_looping("ha " * 20)  # too short to say
    rows = ", ".join(f'{{"id": {n}, "name": "item {n * n}", "price": {n * 7919 % 1000}}}' for n in range(20))
    assert not is_looping(rows)


def test_a_big_group_of_long_texts_takes_no_time() -> None:
    texts = [f"{OTHER} {SENTENCE} {n} " * 40 for n in range(32)]
    began = time.process_time()
    repetition([texts])
    assert time.process_time() - began < 3.0
