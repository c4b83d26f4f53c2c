"""What a call is compared with: patterns of arguments, bags of calls, required steps in a partial order.

A pattern is JSON in which an object with one key that starts with "$" stands for a rule:

    {"$one_of": [p, ...]}              any of these patterns
    {"$optional": p}                   may be left out of its object; if given, p
    {"$any": example}                  any value; the example is used where a right completion is written
    {"$folded": "Main St"}             this text, but for case and white space
    {"$says": ["140.00", "Thursday"]}  a text with these phrases, see missing_phrases
    {"$from": ["approve", "id"]}       the value at this path in the result of step "approve"
    {"$argument_of": ["approve", "amount"]}    the same argument as in step "approve"

Everything else is itself: text exactly, numbers by value (140 = 140.0, True is no number), objects key by key, lists
in order, or in any order where the tool's schema says uniqueItems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.verifiers.tools_json import canonical
from groupwise.verifiers.tools_schema import part_schema

RULES = ("$one_of", "$optional", "$any", "$folded", "$says", "$from", "$argument_of")
MAX_SEARCH_NODES = 20_000

_ABSENT = object()
_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
_NUMBER_TOKEN = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?![\w])")

Bindings = Mapping[str, tuple[Mapping[str, Any], Any]]
"""Step id to (arguments, result) of the call that was taken for it."""


class SearchTooLarge(ValueError):
    """There are too many ways to take calls for steps."""


def rule_of(pattern: object) -> str:
    """The rule's name where the pattern is a rule, else ""."""
    if isinstance(pattern, Mapping) and len(pattern) == 1:
        (key,) = pattern
        return key if isinstance(key, str) and key.startswith("$") else ""
    return ""


def matches(pattern: Any, value: Any, schema: Mapping[str, Any], bound: Bindings) -> bool:
    """Whether a value fits a pattern, under the schema of its place."""
    rule = rule_of(pattern)
    if rule:
        return _matches_rule(rule, pattern[rule], value, schema, bound)
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and matches_object(pattern, value, schema, bound, exact=True)
    if isinstance(pattern, Sequence) and not isinstance(pattern, str):
        return isinstance(value, list) and _matches_list(pattern, value, schema, bound)
    if isinstance(pattern, bool) or isinstance(value, bool):
        return pattern is value
    if isinstance(pattern, (int, float)):
        return isinstance(value, (int, float)) and value == pattern
    return type(pattern) is type(value) and bool(value == pattern)


def matches_object(
    patterns: Mapping[str, Any], value: Mapping[str, Any], schema: Mapping[str, Any], bound: Bindings, *, exact: bool
) -> bool:
    """Key by key. A key with a pattern must be there unless it is $optional; exact: no other keys may be."""
    if exact and not set(value) <= set(patterns):
        return False
    for key, pattern in patterns.items():
        optional = rule_of(pattern) == "$optional"
        if key not in value:
            if not optional:
                return False
            continue
        part = part_schema(schema, key)
        if optional and "default" in part and matches(part["default"], value[key], part, {}):
            continue  # what may be left out may also be given as its default
        if not matches(pattern, value[key], part, bound):
            return False
    return True


def missing_phrases(text: str, phrases: Sequence[str]) -> list[str]:
    """The phrases that a text does not say.

    Words count where they stand between word borders, whatever their case and white space. A number counts by value,
    between borders ("140.00" is not in "1140.00"), and only if the text has no other number with as many decimals
    that is not asked for: listing many numbers says none of them.
    """
    folded = fold(text)
    present = {_number(token) for token in _NUMBER_TOKEN.findall(text)}
    asked = {_number(phrase) for phrase in phrases if _NUMBER.fullmatch(phrase)}
    strange = {num_decimals for _, num_decimals in present - asked}
    missing = []
    for phrase in phrases:
        if _NUMBER.fullmatch(phrase):
            number = _number(phrase)
            said = number in present and number[1] not in strange
        else:
            said = re.search(rf"(?<!\w){re.escape(fold(phrase))}(?!\w)", folded) is not None
        if not said:
            missing.append(phrase)
    return missing


def fold(text: str) -> str:
    """Case folded, white space collapsed."""
    return " ".join(text.casefold().split())


def match_bags(num_wanted: int, num_given: int, fits: Callable[[int, int], bool]) -> list[int | None]:
    """For each wanted item the given item taken for it, or None: a largest one-to-one assignment (Kuhn, 1955).

    A greedy choice may take the only partner of a later item; this one never does.
    """
    edges = [[g for g in range(num_given) if fits(w, g)] for w in range(num_wanted)]
    taken: list[int | None] = [None] * num_given

    def place(wanted: int, tried: set[int]) -> bool:
        for given in edges[wanted]:
            if given in tried:
                continue
            tried.add(given)
            holder = taken[given]
            if holder is None or place(holder, tried):
                taken[given] = wanted
                return True
        return False

    for wanted in range(num_wanted):
        place(wanted, set())
    partner: list[int | None] = [None] * num_wanted
    for given, holder in enumerate(taken):
        if holder is not None:
            partner[holder] = given
    return partner


def _matches_rule(rule: str, body: Any, value: Any, schema: Mapping[str, Any], bound: Bindings) -> bool:
    if rule == "$one_of":
        return any(matches(option, value, schema, bound) for option in body)
    if rule == "$optional":
        return matches(body, value, schema, bound)
    if rule == "$any":
        return True
    if rule == "$folded":
        return isinstance(value, str) and fold(value) == fold(body)
    if rule == "$says":
        return isinstance(value, str) and not missing_phrases(value, body)
    step, *path = body
    if step not in bound:
        return False
    source = bound[step][1] if rule == "$from" else bound[step][0]
    wanted = value_at(source, path)
    return wanted is not _ABSENT and matches_plain(wanted, value)


def matches_plain(wanted: object, value: object) -> bool:
    """Equal as JSON data: no rules inside, objects whatever their key order."""
    if isinstance(wanted, str) or isinstance(value, str):
        return wanted == value
    return canonical(wanted) == canonical(value)


def value_at(source: object, path: Sequence[str | int]) -> object:
    """The value at a path of keys and indices, or a mark that equals nothing."""
    for part in path:
        try:
            source = source[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return source


def is_absent(value: object) -> bool:
    """Whether value_at found nothing."""
    return value is _ABSENT


def _matches_list(pattern: Sequence[Any], value: list[Any], schema: Mapping[str, Any], bound: Bindings) -> bool:
    if len(pattern) != len(value):
        return False
    if not schema.get("uniqueItems"):
        return all(
            matches(p, v, part_schema(schema, i), bound) for i, (p, v) in enumerate(zip(pattern, value, strict=True))
        )
    item = part_schema(schema, len(pattern))
    partners = match_bags(len(pattern), len(value), lambda p, v: matches(pattern[p], value[v], item, bound))
    return None not in partners


def _number(token: str) -> tuple[str, int]:
    """A number's digits without signs of layout, and how many decimals it has."""
    plain = token.replace(",", "").removeprefix("+")
    whole, _, decimals = plain.partition(".")
    return f"{'-' if whole.startswith('-') else ''}{whole.lstrip('-').lstrip('0') or '0'}.{decimals}", len(decimals)
