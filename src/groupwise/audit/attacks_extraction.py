"""Wrong objects made from a right one: copied forms, missing and invented values, hedges, broken JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from groupwise.audit.attack import Attack, distinct_attacks
from groupwise.types import Task

MAX_PLACES = 12
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})\Z")
_FENCED = re.compile(r"\s*```[a-z]*\n(?P<body>.*)\n```\s*\Z", re.DOTALL)
_Path = tuple[str | int, ...]


def extraction_attacks(task: Task, gold: str) -> list[Attack]:
    """The attacks of one task; none where the gold is not one JSON object."""
    fenced = _FENCED.match(gold)
    body = fenced["body"] if fenced else gold
    try:
        value = json.loads(body)
    except ValueError:
        return []
    if not isinstance(value, dict) or not value:
        return []

    def written(text: str) -> str:
        return f"```json\n{text}\n```" if fenced else text

    attacks = [
        Attack(name="empty_object", text=written("{}"), why="no field"),
        Attack(name="all_null", text=written(json.dumps(dict.fromkeys(value))), why="every field null"),
        Attack(name="two_objects", text=written(f"{{}}\n{body}"), why="two answers"),
        Attack(name="list_of_objects", text=written(f"[{body}]"), why="a list, not an object"),
        Attack(name="unclosed", text=written(body.rstrip()[:-1]), why="not JSON"),
        Attack(name="prose_before", text=f"Here it is: {body}", why="prose around the object"),
        Attack(name="two_blocks", text=f"```json\n{body}\n```\n```json\n{{}}\n```", why="two answers"),
        Attack(name="extra_key", text=written(json.dumps({**value, "zz_extra": 1})), why="a key that nobody asked for"),
    ]
    first = next(iter(value))
    doubled = "{" + json.dumps(first) + ': "zz", ' + body.lstrip()[1:]
    attacks.append(Attack(name="duplicate_key", text=written(doubled), why="one key twice"))
    if all(item is None for item in value.values()):
        attacks = [attack for attack in attacks if attack.name != "all_null"]
    for path, leaf in list(_leaves(value))[:MAX_PLACES]:
        for name, other, why in _other_values(leaf):
            text = json.dumps(_replaced(value, path, other))
            attacks.append(Attack(name=name, text=written(text), why=f"{_shown(path)}: {why}"))
    attacks += [Attack(name=name, text=written(text), why=why) for name, text, why in _structures(value)]
    return distinct_attacks(attacks, gold)


def _other_values(leaf: Any) -> Iterator[tuple[str, Any, str]]:
    """(name, value, why) of values that are not this one under any kind of field."""
    if leaf is None:
        yield "invented_value", "2024-05-03", "a value where there is none"
        return
    yield "null_value", None, "no value where there is one"
    yield "listed_value", [leaf, "zz"], "two values in a list"
    if isinstance(leaf, bool):
        yield "other_truth", not leaf, "the other truth value"
        yield "truth_as_text", str(leaf).lower(), "a text for a truth value"
    elif isinstance(leaf, int | float):
        yield "one_more", leaf + 1, "one more"
        yield "hundred_times", leaf * 100 if leaf else 100, "a hundred times as much"
        yield "number_as_text", f"EUR {leaf}", "a text with a unit for a number"
        yield "not_finite", float("nan"), "NaN"
    elif isinstance(leaf, str):
        yield "longer_text", f"{leaf} and more zz", "the value and more"
        date = _DATE.match(leaf)
        if date:
            year, month, day = date.groups()
            yield "date_as_printed", f"{day}.{month}.{year}", "a copied form of a date"
            if month != day and int(day) <= 12:
                yield "day_and_month", f"{year}-{day}-{month}", "day and month changed"
        elif leaf.isdigit():
            yield "number_for_text", int(leaf), "a number for an identifier"


def _structures(value: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Lists with an item twice or one less, and swapped values of two fields."""
    for key, item in value.items():
        if isinstance(item, list) and item:
            yield "item_twice", json.dumps({**value, key: [*item, item[-1]]}), f"{key}: an item twice"
            yield "item_missing", json.dumps({**value, key: item[:-1]}), f"{key}: an item is missing"
    texts = [(k, v) for k, v in value.items() if isinstance(v, str)]
    for (one, left), (two, right) in pairwise(texts):
        if left.casefold() != right.casefold():
            yield "swapped_fields", json.dumps({**value, one: right, two: left}), f"{one} and {two} exchanged"
            return


def _leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _replaced(value: Any, path: _Path, leaf: Any) -> Any:
    if not path:
        return leaf
    head, *rest = path
    if isinstance(value, dict):
        return {key: _replaced(item, tuple(rest), leaf) if key == head else item for key, item in value.items()}
    return [_replaced(item, tuple(rest), leaf) if index == head else item for index, item in enumerate(value)]


def _shown(path: _Path) -> str:
    return ".".join(map(str, path))
