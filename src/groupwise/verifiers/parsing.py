"""Takes the one declared answer out of a completion, and strict JSON out of a text. Shared by several verifiers.

Nothing here guesses: an answer stands in its declared place, once, or there is none. Every scan is linear in the text.
A failure is a Problem, whose text starts with one of these words:

    no_answer        nothing in the declared place, or a ``` block that is not closed
    several_answers  more than one block, or JSON behind JSON
    too_large        more characters, or a longer number, than is read
    too_deep         lists and objects nested deeper than is read
    not_json         not JSON: trailing comma, single quotes, a comment, prose around it, half a character
    duplicate_key    one object with the same key twice (json.loads keeps the last one)
    not_finite       NaN, Infinity or -Infinity (json.loads takes them)
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias

Json: TypeAlias = "bool | int | float | Decimal | str | list[Any] | dict[str, Any] | None"
"""A parsed JSON value. A number with a point or an exponent is a Decimal, or a float where that was asked for."""

AnswerIn = Literal["auto", "text", "fence"]

MAX_JSON_CHARS = 65_536
MAX_COMPLETION_CHARS = 4_000_000
MAX_DEPTH = 32
MAX_NUMBER_CHARS = 64
MAX_EXPONENT = 400

_JSON_SPACE = " \t\r\n"
# One alternative always matches at a quote, closed or not, so that no position is tried twice.
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is no answer: Problem(reason="duplicate_key: 'total' twice in one object")."""

    reason: str


def answer_text(completion_text: str, answer_in: AnswerIn, labels: Collection[str]) -> str | Problem:
    """The answer's text, without white space around it.

    answer_in   where the answer is
    ----------  ----------------------------------------------------------------------------------
    text        the whole completion; a ``` block is an error
    fence       in exactly one ``` block, whatever stands around it
    auto        the whole completion, or one ``` block with nothing around it

    Args:
        labels: what may stand behind the opening ```, in lower case; "" allows a block without a label.
    """
    if len(completion_text) > MAX_COMPLETION_CHARS:
        return Problem(reason=f"too_large: {len(completion_text)} characters, at most {MAX_COMPLETION_CHARS} are read")
    fenced = any(line.lstrip().startswith("```") for line in completion_text.split("\n"))
    if not fenced:
        if answer_in == "fence":
            return Problem(reason="no_answer: no ``` block")
        text = completion_text.strip(_JSON_SPACE)
        return text or Problem(reason="no_answer: the completion is empty")
    if answer_in == "text":
        return Problem(reason="no_answer: a ``` block where only the answer is expected")
    blocks, around = fenced_blocks(completion_text)
    if len(blocks) > 1:
        return Problem(reason=f"several_answers: {len(blocks)} ``` blocks, 1 expected")
    if not blocks or "```" in around:
        return Problem(reason="no_answer: a ``` block is not closed or not on lines of its own")
    if answer_in == "auto" and around.strip():
        return Problem(reason="no_answer: text around the ``` block, nothing expected")
    label, body = blocks[0]
    if label.lower() not in labels:
        return Problem(reason=f"no_answer: a block labelled {label[:20]!a}, allowed: {', '.join(map(repr, labels))}")
    return body.strip(_JSON_SPACE) or Problem(reason="no_answer: the ``` block is empty")


def fenced_blocks(text: str) -> tuple[list[tuple[str, str]], str]:
    """Every closed block as (label, content), and the text around them. A block opens with a line of three or more
    backticks and a label, and closes with a line of as many or more backticks alone. A block that is never closed
    counts as text around.
    """
    blocks: list[tuple[str, str]] = []
    around: list[str] = []
    opened: list[str] = []
    num_ticks, label = 0, ""
    for line in text.split("\n"):
        mark = line.strip()
        rest = mark.lstrip("`")
        ticks = len(mark) - len(rest)
        if num_ticks:
            opened.append(line)
            if not rest and ticks >= num_ticks:
                blocks.append((label, "\n".join(opened[1:-1])))
                num_ticks, opened = 0, []
        elif ticks >= 3 and "`" not in rest:
            num_ticks, label, opened = ticks, rest.strip(), [line]
        else:
            around.append(line)
    return blocks, "\n".join(around + opened)


def json_answer(
    completion_text: str,
    answer_in: AnswerIn = "auto",
    *,
    max_chars: int = MAX_JSON_CHARS,
    max_depth: int = MAX_DEPTH,
    exact_numbers: bool = True,
) -> Json | Problem:
    """The one JSON value of a completion: answer_text with the labels "json" and none, then parse_json."""
    text = answer_text(completion_text, answer_in, ("json", ""))
    if isinstance(text, Problem):
        return text
    return parse_json(text, max_chars=max_chars, max_depth=max_depth, exact_numbers=exact_numbers)


def parse_json(
    text: str, *, max_chars: int = MAX_JSON_CHARS, max_depth: int = MAX_DEPTH, exact_numbers: bool = True
) -> Json | Problem:
    """The text as one JSON value, as strictly as RFC 8259 allows; None is the value null.

    Refused beyond what json.loads refuses: a key twice in one object, NaN and Infinity, half of a surrogate pair, a
    number of more than MAX_NUMBER_CHARS characters or beyond 10 ** MAX_EXPONENT either way.

    Args:
        max_depth: how many lists and objects may be nested; 1 is a flat one.
        exact_numbers: numbers with a point or exponent as Decimal with the digits that were written, else as float.
    """
    if len(text) > max_chars:
        return Problem(reason=f"too_large: a JSON text of {len(text)} characters, at most {max_chars} are read")
    if _depth(text) > max_depth:
        return Problem(reason=f"too_deep: JSON nested deeper than {max_depth}")
    decoder = json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=_no_constant,
        parse_int=_int,
        parse_float=_decimal if exact_numbers else _float,
    )
    text = text.strip(_JSON_SPACE)
    try:
        value, end = decoder.raw_decode(text)
    except _Refused as refused:
        return Problem(reason=str(refused))
    except json.JSONDecodeError as error:
        return Problem(reason=f"not_json: {error.msg} at line {error.lineno}, column {error.colno}")
    rest = text[end:].lstrip(_JSON_SPACE)
    if rest:
        word = "several_answers" if rest[0] in "{[" else "not_json"
        return Problem(reason=f"{word}: more text after the JSON value, from character {len(text) - len(rest)}")
    if _HALF_CHARACTER.search(text) or ("\\u" in text and _has_half_character(value)):
        return Problem(reason="not_json: half of a surrogate pair")
    parsed: Json = value
    return parsed


def dump_json(value: object) -> str:
    """The value as JSON on one line, a Decimal with its digits; parse_json reads it back.

    Raises:
        TypeError: it holds something that JSON has no form for.
        ValueError: a number that is not finite.
    """
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is not a JSON number")
        return str(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key that is not text")
        return "{" + ", ".join(f"{dump_json(key)}: {dump_json(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(dump_json(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def tagged(text: str, tag: str) -> tuple[str, ...]:
    """What stands between every <tag> and the next </tag>, in order, as written: tagged("<a>1</a> <a>2</a>", "a")
    is ("1", "2"). A tag that is not closed gives nothing.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    found: list[str] = []
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        found.append(text[start:end])
        start = text.find(opening, end + len(closing))
    return tuple(found)


def after_marker(text: str, marker: str) -> tuple[str, ...]:
    """The rest of the line behind every marker, stripped: after_marker("so\\n#### 18", "####") is ("18",)."""
    parts = text.split(marker)[1:]
    return tuple(part.partition("\n")[0].strip() for part in parts)


class _Refused(Exception):
    """Raised inside json's hooks, which can stop a parse no other way."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"duplicate_key: {key[:40]!a} twice in one object")
            seen.add(key)
    return value


def _no_constant(name: str) -> None:
    raise _Refused(f"not_finite: {name} is not a JSON number")


def _int(literal: str) -> int:
    return int(_bounded(literal))


def _decimal(literal: str) -> Decimal:
    return Decimal(_bounded(literal))


def _float(literal: str) -> float:
    value = float(_bounded(literal))
    if value in (float("inf"), float("-inf")):
        raise _Refused(f"too_large: the number {literal[:20]} does not fit a float")
    return value


def _bounded(literal: str) -> str:
    if len(literal) > MAX_NUMBER_CHARS:
        raise _Refused(f"too_large: a number of {len(literal)} characters, at most {MAX_NUMBER_CHARS} are read")
    exponent = literal.lower().partition("e")[2] or "0"
    if abs(int(exponent)) > MAX_EXPONENT:
        raise _Refused(f"too_large: the exponent of {literal}, at most {MAX_EXPONENT} is read")
    return literal


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        mark = match[0]
        if mark in ("{", "["):
            depth += 1
            deepest = max(deepest, depth)
        elif mark in ("}", "]"):
            depth -= 1
    return deepest


def _has_half_character(value: Json) -> bool:
    if isinstance(value, str):
        return _HALF_CHARACTER.search(value) is not None
    if isinstance(value, list):
        return any(_has_half_character(item) for item in value)
    if isinstance(value, dict):
        return any(_has_half_character(key) or _has_half_character(item) for key, item in value.items())
    return False
