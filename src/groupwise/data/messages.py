"""What a row's prompt and completion may look like, turned into the one form that a Task has.

    prompt               completion                  conversation ("messages")
    "text"               "text"                      [user, assistant]: the last turn is the completion
    [system, user, ...]  [assistant]

These are the columns that TRL reads, so its data sets work as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.errors import DataError
from groupwise.types import Message

ROLES = ("system", "developer", "user", "assistant", "tool")


def read_prompt(value: Any, place: str, column: str) -> str | tuple[Message, ...]:
    """Text, or chat messages that do not end with the assistant's.

    Raises:
        DataError: anything else, or an empty prompt.
    """
    if isinstance(value, str):
        if not value.strip():
            raise DataError(f"{place}: column {column!r} is empty; a prompt needs text.")
        return value
    messages = read_messages(value, place, column)
    if messages[-1]["role"] == "assistant":
        raise DataError(
            f'{place}: column {column!r} ends with the assistant\'s message. Name it "messages" to use that message as '
            "the demonstration, or remove it."
        )
    return messages


def read_conversation(value: Any, place: str, column: str) -> tuple[tuple[Message, ...], str | None]:
    """A conversation as prompt and demonstration: the last assistant message, or None where it ends with the user's.

    Raises:
        DataError: not a list of messages, or nothing before the assistant's answer.
    """
    messages = read_messages(value, place, column)
    if messages[-1]["role"] != "assistant":
        return messages, None
    if len(messages) == 1:
        raise DataError(f"{place}: column {column!r} has an answer and no message before it.")
    return messages[:-1], messages[-1]["content"]


def read_completion(value: Any, place: str, column: str) -> str:
    """Text, or a list of exactly one assistant message.

    Raises:
        DataError: anything else.
    """
    if isinstance(value, str):
        return value
    messages = read_messages(value, place, column)
    if len(messages) != 1 or messages[0]["role"] != "assistant":
        roles = ", ".join(message["role"] for message in messages)
        raise DataError(f"{place}: column {column!r} has messages of {roles}; allowed: text, or one assistant message.")
    return messages[0]["content"]


def read_messages(value: Any, place: str, column: str) -> tuple[Message, ...]:
    """Chat messages with a role and text. Content None becomes "" (not the word None); other keys that are None go.

    Raises:
        DataError: not a list of messages, an unknown role, or content that is not text.
    """
    if not isinstance(value, list | tuple) or not value:
        raise DataError(
            f"{place}: column {column!r} holds {type(value).__name__} ({_short(value)}); "
            "allowed: text, or a list of chat messages."
        )
    return tuple(_message(message, place, column) for message in value)


def _message(value: Any, place: str, column: str) -> Message:
    if not isinstance(value, Mapping) or "role" not in value or "content" not in value:
        raise DataError(f"{place}: column {column!r}: {_short(value)} is no chat message; it needs role and content.")
    if value["role"] not in ROLES:
        raise DataError(f"{place}: column {column!r}: role {value['role']!r} is not known; known: {', '.join(ROLES)}.")
    message = {key: text for key, text in value.items() if text is not None}
    message.setdefault("content", "")
    for key, text in message.items():
        if not isinstance(text, str):
            raise DataError(
                f"{place}: column {column!r}: {key} of a message holds {type(text).__name__}; only text is read."
            )
    return message


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
