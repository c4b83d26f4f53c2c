"""Rows to preference pairs: the forms that are read, what is refused, and the ids that are trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import ColumnsSection, DataSection
from groupwise.data import PreferencePair, load_pairs, refuse_leaked_pairs, render_pair, render_prompt
from groupwise.errors import DataError
from groupwise.types import Task

END = 0
USER = {"role": "user", "content": "2 + 2?"}


class Letters:
    """One id a character, and END for "!"."""

    chat_template = None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [END if character == "!" else ord(character) for character in text]

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        raise NotImplementedError


def turn(text: str, role: str = "assistant") -> dict[str, str]:
    return {"role": role, "content": text}


def read(folder: Path, *rows: dict[str, Any], **options: Any) -> tuple[PreferencePair, ...]:
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_pairs(DataSection(pairs="pairs.jsonl", heldout="heldout.jsonl", **options), folder)


def row(prompt: Any = "2 + 2?", chosen: Any = "4", rejected: Any = "5", **others: Any) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **others}


def test_plain_rows_become_pairs_numbered_by_row(tmp_path: Path) -> None:
    first, second = read(tmp_path, row(source="x"), row("3 + 3?", "6", " 7"))
    assert first == PreferencePair(
        task=Task(id="pairs-0001", prompt="2 + 2?", columns={"source": "x"}), chosen="4", rejected="5"
    )
    assert (second.id, second.chosen, second.rejected) == ("pairs-0002", "6", " 7")


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"),
    [
        ([USER], [turn("4")], [turn("5")]),
        (None, [USER, turn("4")], [USER, turn("5")]),
        ([USER], [USER, turn("4")], [USER, turn("5")]),
        ("2 + 2?", [USER, turn("4")], [USER, turn("5")]),
    ],
)
def test_the_conversational_forms_mean_the_same_pair(tmp_path: Path, prompt: Any, chosen: Any, rejected: Any) -> None:
    given = row(prompt, chosen, rejected)
    (pair,) = read(tmp_path, {name: value for name, value in given.items() if value is not None})
    assert (pair.task.prompt, pair.chosen, pair.rejected) == ((USER,), "4", "5")


def test_the_prompt_is_built_like_every_other_prompt(tmp_path: Path) -> None:
    given = {"question": "2 + 2?", "good": "4", "bad": "5"}
    columns = ColumnsSection(chosen="good", rejected="bad")
    (pair,) = read(tmp_path, given, columns=columns, prompt_template="Q: {question}", system_prompt="Be brief.")
    assert pair.task.prompt == (turn("Be brief.", "system"), turn("Q: 2 + 2?", "user"))
    assert dict(pair.task.columns) == {"question": "2 + 2?"}


def test_filters_hold_for_pairs(tmp_path: Path) -> None:
    pairs = read(tmp_path, row(level="easy"), row(level="hard", chosen="four"), where={"level": ("hard",)})
    assert [(pair.id, pair.chosen) for pair in pairs] == [("pairs-0002", "four")]
    with pytest.raises(DataError, match=r"none of 1 rows passes data\.where"):
        read(tmp_path, row(level="easy"), where={"level": ("hard",)})


def test_a_complete_row_is_taken_as_it_is(tmp_path: Path) -> None:
    """What `groupwise pairs` writes has the recipe's system prompt in it, and none of the recipe's columns."""
    turns = [turn("Be brief.", "system"), USER]
    options = {
        "columns": ColumnsSection(prompt="question", chosen="good"),
        "system_prompt": "Be brief.",
        "where": {"level": ("hard",)},
    }
    (pair,) = read(tmp_path, row(turns, complete_prompt=True, rejected_truncated=True), **options)
    assert pair.task.prompt == tuple(turns)
    assert (pair.chosen, pair.rejected, pair.rejected_truncated) == ("4", "5", True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (row(chosen="4", rejected=" 4\n"), r"pairs\.jsonl:1: chosen and rejected are the same text, '4'"),
        (row(chosen="  "), r"pairs\.jsonl:1: the chosen completion is empty"),
        (row(rejected=""), "the rejected completion is empty"),
        ({"prompt": "?", "rejected": "5"}, r"no column 'chosen'.* A pair needs both sides; set data\.columns\.chosen"),
        ({"prompt": "?", "chosen": "5"}, r"no column 'rejected'.* set data\.columns\.rejected"),
        ({"chosen": "4", "rejected": "5"}, r"no column 'prompt'.* data\.columns\.prompt"),
        (row(chosen=[USER, turn("4")], rejected=[turn("5")]), "do not begin with the same turns"),
        (row(chosen=[USER, turn("4"), USER], rejected=[USER, turn("5")]), "does not end with the assistant's"),
        (row("other", [USER, turn("4")], [USER, turn("5")]), "another prompt than the turns"),
        (row(chosen="4", rejected="4", complete_prompt=True), "the same text"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, given)


def test_a_template_beside_whole_conversations_is_refused(tmp_path: Path) -> None:
    given = {"chosen": [USER, turn("4")], "rejected": [USER, turn("5")]}
    with pytest.raises(DataError, match=r"data\.prompt_template builds another prompt"):
        read(tmp_path, given, prompt_template="Q: {chosen}")


def test_held_out_prompts_among_the_pairs_are_refused_with_both_names(tmp_path: Path) -> None:
    pairs = read(tmp_path, row("1 + 1?"), row("2 + 2?"), row("2 +  2?", "four"))
    heldout = [Task(id="heldout-0007", prompt="2 + 2?"), Task(id="heldout-0008", prompt="5 + 5?")]
    with pytest.raises(DataError, match=r"2 of 3 pairs have a held-out prompt, for instance pairs-0002 = heldout-0007"):
        refuse_leaked_pairs(pairs, heldout)
    refuse_leaked_pairs(pairs, heldout[1:])


def pair(chosen: str, rejected: str, *, truncated: bool = False) -> PreferencePair:
    return PreferencePair(
        task=Task(id="pairs-0003", prompt="?"), chosen=chosen, rejected=rejected, rejected_truncated=truncated
    )


def test_both_sides_end_once_and_share_the_prompt() -> None:
    given = pair("a!!", "bc")
    rendered = render_pair(given, Letters(), END)
    assert rendered.prompt == render_prompt(given.task, Letters())
    assert (rendered.chosen, rendered.rejected) == ((ord("a"), END), (ord("b"), ord("c"), END))


def test_a_cut_completion_gets_no_end_token() -> None:
    assert render_pair(pair("a", "b", truncated=True), Letters(), END).rejected == (ord("b"),)


def test_sides_that_are_empty_or_equal_as_tokens_are_refused() -> None:
    with pytest.raises(DataError, match=r"pair pairs-0003: the chosen completion '!' has no token before the end"):
        render_pair(pair("!", "b"), Letters(), END)
    with pytest.raises(DataError, match="are the same tokens"):
        render_pair(pair("a", "a!"), Letters(), END)


def test_no_pairs_are_read_where_none_are_named(tmp_path: Path) -> None:
    assert load_pairs(DataSection(train="train.jsonl", heldout="heldout.jsonl"), tmp_path) == ()
