"""Strict JSON for text that a policy wrote: bounded, no duplicate keys, only finite numbers.

The standard decoder keeps the last of two equal keys, reads NaN and Infinity, and overflows on deep nesting or long
integers. Here each of these is a JsonProblem, found in one pass over the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_DEPTH = 32
MAX_DIGITS = 300
"""More digits do not fit a float, which a check such as multipleOf needs."""

_STRUCTURE = re.compile(r'["\[\]{}]')
_STRING_END = re.compile(r'["\\]')
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonProblem(ValueError):
    """Text that is not strict JSON; the message says why."""


def read_value(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at `start` (white space is skipped) and the position behind it.

    Raises:
        JsonProblem: no JSON value, or one outside the bounds.
    """
    start = skip_space(text, start)
    _check_depth(text, start)
    try:
        return _DECODER.raw_decode(text, start)
    except JsonProblem:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonProblem(str(error)[:120]) from error


def read_whole(text: str) -> Any:
    """The one JSON value that is all of `text`.

    Raises:
        JsonProblem: not one strict JSON value.
    """
    value, end = read_value(text, 0)
    if skip_space(text, end) != len(text):
        raise JsonProblem(f"text after the JSON value, at character {end}")
    return value


def skip_space(text: str, position: int) -> int:
    """The next position that is not JSON white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def canonical(value: object) -> str:
    """One text for equal values: keys sorted, 1.0 written as 1; True stays apart from 1.

    Raises:
        ValueError, TypeError: not JSON data.
    """
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _check_depth(text: str, start: int) -> None:
    """Refuses nesting past MAX_DEPTH in the value at `start`, before a recursive decoder sees it."""
    depth, position = 0, start
    while found := _STRUCTURE.search(text, position):
        position = found.end()
        mark = found.group()
        if mark == '"':
            position = _string_end(text, position)
        elif mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise JsonProblem(f"nested more than {MAX_DEPTH} deep")
        else:
            depth -= 1
        if depth <= 0:
            return


def _string_end(text: str, position: int) -> int:
    while found := _STRING_END.search(text, position):
        if found.group() == '"':
            return found.end()
        position = found.end() + 1
    return len(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise JsonProblem("an object has the same key twice")
    return read


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise JsonProblem(f"an integer of {len(digits)} digits; at most {MAX_DIGITS} are read")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise JsonProblem("a number is too large")
    return number


def _constant(name: str) -> Any:
    raise JsonProblem(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=True
)
