"""Lengths from texts and from token ids, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.data import PreferencePair, TaskSets
from groupwise.launch.plan_inputs import lengths_of_run, planned_lengths, prompt_text, shared_length
from groupwise.types import Task
from plan_job import SFT, write_plan_job

CHAT = tuple(
    Task(
        id=x, prompt=({"role": "system", "content": "12345"}, {"role": "user", "content": x * 4}), demonstration="y" * n
    )
    for x, n in (("a", 2), ("b", 6))
)


@pytest.mark.parametrize(
    ("texts", "shared"), [(["abc", "abd", "ab"], 2), (["abc"], 3), (["x", "abc"], 0), ([(1, 2, 3), (1, 2, 4)], 2)]
)
def test_what_all_begin_with(texts: list, shared: int) -> None:
    assert shared_length(texts) == shared


def test_chat_turns_are_counted_with_what_surrounds_them(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, stages=SFT)
    found = planned_lengths(recipe, TaskSets(demonstrations=CHAT, train=CHAT, heldout=()), len)
    # "12345\naaaa": 10 characters, three times 5 tokens for two turns and the answer's beginning
    assert (found.prompt, found.trunk) == (25, 6 + 5)
    assert (found.demonstration, found.completion, found.longest) == (5, 4, 4)  # means of 3 and 7; the limit is 4
    assert "tokenizer" in found.source
    assert prompt_text(CHAT[0]) == "12345\naaaa"


def test_half_the_limit_where_nothing_shows_a_length(tmp_path: Path) -> None:
    tasks = (Task(id="a", prompt="abcd"),)
    found = planned_lengths(write_plan_job(tmp_path), TaskSets(demonstrations=(), train=tasks, heldout=()), len)
    assert (found.prompt, found.demonstration, found.completion, found.longest) == (5, 2, 2, 4)
    assert found.source.endswith("half the limit")


def test_pairs_show_lengths_too(tmp_path: Path) -> None:
    pairs = (PreferencePair(task=Task(id="p", prompt="abcdef"), chosen="1", rejected="123"),)
    sets = TaskSets(demonstrations=(), train=(Task(id="a", prompt="abcd"),), heldout=())
    found = planned_lengths(write_plan_job(tmp_path), sets, len, pairs)
    assert found.of_pairs == (7, 3)  # with the beginning; means of 2 and 4
    assert (found.prompt, found.completion, found.longest) == (5, 3, 4)
    only = planned_lengths(write_plan_job_in(tmp_path), TaskSets(demonstrations=(), train=(), heldout=()), len, pairs)
    assert only.prompt == 7


def write_plan_job_in(folder: Path):
    (folder / "again").mkdir()
    return write_plan_job(folder / "again")


def test_lengths_of_a_run_by_hand() -> None:
    found = lengths_of_run([(1, 2, 3), (1, 2, 4, 5, 6)], [4, 8], 20, completion=5, longest=9.5, sibling_prefix=2)
    assert (found.prompt, found.trunk, found.demonstration) == (4, 2, 6)
    assert (found.completion, found.longest, found.sibling_prefix) == (5, 9.5, 2)
    assert found.of_pairs == (4, 6)
    assert "as sampled" in found.source


def test_before_anything_was_sampled_demonstrations_stand_in() -> None:
    found = lengths_of_run([(1,)], [4, 8], 7, pairs=[(3, 2.0), (5, 4.0)])
    assert (found.completion, found.longest) == (6, 7)
    assert found.of_pairs == (4, 3)
    found = lengths_of_run([(1,)], [], 10)
    assert (found.demonstration, found.completion, found.longest) == (5, 5, 10)


def test_what_was_sampled_stays_within_the_limit_and_the_mean() -> None:
    found = lengths_of_run([(1,)], [], 10, completion=12, longest=20, sibling_prefix=30)
    assert (found.completion, found.longest, found.sibling_prefix) == (10, 10, 10)
