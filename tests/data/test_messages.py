from __future__ import annotations

from typing import Any

import pytest

from groupwise.data.messages import read_completion, read_conversation, read_prompt
from groupwise.errors import DataError

USER = {"role": "user", "content": "How many?"}
ANSWER = {"role": "assistant", "content": "3"}


def test_text_and_turns_are_prompts() -> None:
    assert read_prompt("How many?", "p", "prompt") == "How many?"
    assert read_prompt([USER], "p", "prompt") == (USER,)


def test_a_conversation_ends_with_its_demonstration() -> None:
    assert read_conversation([USER, ANSWER, USER, ANSWER], "p", "messages") == ((USER, ANSWER, USER), "3")
    assert read_conversation([USER], "p", "messages") == ((USER,), None)


def test_completions_are_text_or_one_answer() -> None:
    assert read_completion("3", "p", "completion") == "3"
    assert read_completion([ANSWER], "p", "completion") == "3"


def test_none_never_becomes_the_word_none() -> None:
    turn = {"role": "tool", "content": None, "name": None}
    assert read_prompt([USER, turn], "p", "prompt") == (USER, {"role": "tool", "content": ""})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4, r"place: column 'prompt' holds int \(4\)"),
        (None, "holds NoneType"),
        ("  ", "is empty"),
        ([], "holds list"),
        ([{"role": "user"}], "needs role and content"),
        (["hello"], "no chat message"),
        ([{"role": "human", "content": "x"}], "role 'human' is not known; known: system"),
        ([{"role": "user", "content": ["x"]}], "content of a message holds list"),
        ([USER, ANSWER], 'Name it "messages"'),
    ],
)
def test_what_is_no_prompt_is_refused(value: Any, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_prompt(value, "place", "prompt")


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(DataError, match="messages of user, assistant; allowed: text, or one assistant message"):
        read_completion([USER, ANSWER], "p", "completion")
    with pytest.raises(DataError, match="no message before it"):
        read_conversation([ANSWER], "p", "messages")
