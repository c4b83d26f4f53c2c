"""The kinds of a field: which form a value must have, and when two values are the same.

A value must be right *and* in canonical form: nothing is converted for the policy, so a span copied as printed
("12th of March") is wrong where the gold is "2024-03-12".

    kind        canonical form                                            the same if
    ----------  --------------------------------------------------------  ------------------------------------------
    id          text, no white space at its ends                          equal characters: "0042" is not "42"
    text        text that is not blank                                    equal after the folding below
    enum        one of `values`                                           equal characters
    bool        true or false                                             equal
    int         a JSON number without point or exponent                   equal
    decimal     a JSON number, at most `places` decimal places            equal as exact decimals: 1234.5 is 1234.50
    money       {"amount": decimal, "currency": one of `values`, or       both equal
                three capital letters}
    quantity    {"n": decimal, "unit": one of `values`, or any text}      both equal: 30 days are not one month
    date        "2024-03-12", a real day                                  equal
    datetime    "2024-03-12T09:30:00+01:00" or Z: with an offset          the same instant
    list        [item, ...]                                               the same items as often; in order if ordered
    object      the declared fields and no other                          each field the same

Folding of text: NFKC, upper and lower case alike, invisible format characters left out, any run of white space one
space, none at the ends. Nothing else: punctuation, accents and word order count.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args

from groupwise.errors import VerifierError

Kind = Literal[
    "id", "text", "enum", "bool", "int", "decimal", "money", "quantity", "date", "datetime", "list", "object"
]
Presence = Literal["required", "nullable", "optional"]

KINDS: tuple[str, ...] = get_args(Kind)
PRESENCES: tuple[str, ...] = get_args(Presence)
WITH_VALUES = ("enum", "money", "quantity")
WITH_NUMBERS = ("int", "decimal", "money", "quantity")
MAX_RULE_DEPTH = 16

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)(Z|[+-][0-9]{2}:[0-9]{2})"
)
_CURRENCY = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """What one field holds: FieldRule(kind="decimal", places=2), FieldRule(kind="list", item=FieldRule(kind="id"))."""

    kind: Kind
    presence: Presence = "required"
    """required = the key with a value; nullable = the key, maybe with null; optional = left out and null mean none."""
    values: tuple[str, ...] = ()
    """Members of an enum, currencies of money, units of a quantity."""
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    places: int | None = None
    max_chars: int = 1000
    ordered: bool = False
    item: FieldRule | None = None
    """What a list holds."""
    fields: Mapping[str, FieldRule] = field(default_factory=dict)
    """What an object holds."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A value that is not in the form of its kind: Malformed("an ISO date such as 2024-03-12")."""

    expected: str


def is_leaf(rule: FieldRule) -> bool:
    """True for everything but a list or an object: what is counted as one field."""
    return rule.kind not in ("list", "object")


def is_none(rule: FieldRule, value: object) -> bool:
    """True where the value stands for "nothing there": null, and [] for an optional list."""
    return value is None or (rule.kind == "list" and rule.presence == "optional" and value == [])


def leaf_key(rule: FieldRule, value: object) -> Hashable | Malformed:
    """Equal for two values exactly if they are the same under the rule; Malformed if the form is wrong."""
    match rule.kind:
        case "id" | "text" | "enum":
            return _text_key(rule, value)
        case "bool":
            return value if isinstance(value, bool) else Malformed("true or false")
        case "int" | "decimal":
            return _number_key(rule, value)
        case "money":
            return _pair_key(rule, value, "amount", "currency")
        case "quantity":
            return _pair_key(rule, value, "n", "unit")
        case "date":
            return _date_key(value)
        case "datetime":
            return _datetime_key(value)
        case _:
            raise AssertionError(f"{rule.kind} is no leaf")


def fold_text(text: str) -> str:
    """The text as kind "text" compares it; see the module."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(char for char in folded if unicodedata.category(char) != "Cf").split())


def _text_key(rule: FieldRule, value: object) -> Hashable | Malformed:
    if not isinstance(value, str):
        return Malformed("a text")
    if rule.kind == "enum":
        return value if value in rule.values else Malformed("one of " + ", ".join(rule.values[:12]))
    if len(value) > rule.max_chars:
        return Malformed(f"at most {rule.max_chars} characters")
    if rule.kind == "id":
        return value if value and value == value.strip() else Malformed("a text without white space at its ends")
    return fold_text(value) or Malformed("a text that is not blank")


def _number_key(rule: FieldRule, value: object) -> Decimal | Malformed:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return Malformed("a JSON number")
    if rule.kind == "int" and not isinstance(value, int):
        return Malformed("a whole number without a decimal point")
    number = Decimal(value)
    if (rule.minimum is not None and number < rule.minimum) or (rule.maximum is not None and number > rule.maximum):
        return Malformed(f"a number from {_bound(rule.minimum)} to {_bound(rule.maximum)}")
    if rule.places is not None and _num_places(number) > rule.places:
        return Malformed(f"at most {rule.places} decimal places")
    return number


def _bound(number: Decimal | None) -> str:
    return "any" if number is None else str(number)


def _num_places(number: Decimal) -> int:
    """Decimal places without trailing zeros. Exact: Decimal.normalize rounds to the context's precision."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "a JSON number is finite"
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    return max(0, -exponent - (len(written) - len(significant))) if significant else 0


def _pair_key(rule: FieldRule, value: object, number_name: str, unit_name: str) -> Hashable | Malformed:
    form = f'{{"{number_name}": number, "{unit_name}": text}}'
    if not isinstance(value, dict) or set(value) != {number_name, unit_name}:
        return Malformed(form)
    number, unit = _number_key(rule, value[number_name]), value[unit_name]
    if isinstance(number, Malformed):
        return Malformed(f"{form} with {number_name}: {number.expected}")
    if rule.values:
        known = unit in rule.values
    elif rule.kind == "money":
        known = isinstance(unit, str) and _CURRENCY.fullmatch(unit) is not None
    else:
        known = isinstance(unit, str) and 0 < len(unit) <= rule.max_chars and unit == unit.strip()
    if not known:
        allowed = ", ".join(rule.values[:12]) or ("three capital letters" if rule.kind == "money" else "a text")
        return Malformed(f"{form} with {unit_name}: {allowed}")
    return (number, unit)


def _date_key(value: object) -> date | Malformed:
    expected = Malformed("an ISO date such as 2024-03-12")
    # date.fromisoformat alone also takes 20240312 and week dates
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return expected
    try:
        return date.fromisoformat(value)
    except ValueError:
        return expected


def _datetime_key(value: object) -> timedelta | Malformed:
    """Time since year 1 in UTC; a timedelta, because a shifted datetime can leave the calendar."""
    expected = Malformed("a time with an offset such as 2024-03-12T09:30:00+01:00")
    match = _DATETIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return expected
    local, offset = match.groups()
    try:
        moment = datetime.fromisoformat(local)
        hours, minutes = (0, 0) if offset == "Z" else (int(offset[1:3]), int(offset[4:]))
    except ValueError:
        return expected
    if hours > 23 or minutes > 59:
        return expected
    shift = timedelta(hours=hours, minutes=minutes)
    return (moment - datetime.min) + (shift if offset[0] == "-" else -shift)


def rule_from_settings(path: str, settings: Mapping[str, Any]) -> FieldRule:
    """A rule without its inner fields from one entry of the recipe, such as {"kind": "decimal", "places": 2}.

    Raises:
        VerifierError: an unknown kind or setting, or settings that do not go together.
    """
    names = ("kind", "presence", "values", "minimum", "maximum", "places", "max_chars", "ordered")
    given = {name: value for name, value in settings.items() if value is not None}
    _require(isinstance(given.get("kind"), str), path, f"it has no kind; known: {', '.join(KINDS)}")
    _require(given["kind"] in KINDS, path, f"kind = {given['kind']!r} is not known; known: {', '.join(KINDS)}")
    unknown = sorted(set(given) - set(names))
    _require(not unknown, path, f"setting {unknown[:1]} is not known; known: {', '.join(names)}")
    presence = given.get("presence", "required")
    _require(presence in PRESENCES, path, f"presence = {presence!r}; allowed: {', '.join(PRESENCES)}")
    values = given.get("values", ())
    _require(_is_texts(values), path, f"values = {values!r}; give a list of texts")
    rule = FieldRule(
        kind=given["kind"],
        presence=presence,
        values=tuple(values),
        minimum=_exact(path, given.get("minimum")),
        maximum=_exact(path, given.get("maximum")),
        places=given.get("places"),
        max_chars=given.get("max_chars", 1000),
        ordered=given.get("ordered", False),
    )
    check_rule(path, rule)
    return rule


def check_rule(path: str, rule: FieldRule) -> None:
    """Refuses settings that do not go together.

    Raises:
        VerifierError: what to change, with the field's path.
    """
    kind = rule.kind
    _require(kind != "enum" or bool(rule.values), path, "an enum needs values = [...]")
    _require(
        not rule.values or kind in WITH_VALUES, path, f"values are for {', '.join(WITH_VALUES)}; the kind is {kind}"
    )
    bounded = (rule.minimum, rule.maximum, rule.places) != (None, None, None)
    _require(
        not bounded or kind in WITH_NUMBERS,
        path,
        f"minimum, maximum and places are for {', '.join(WITH_NUMBERS)}; the kind is {kind}",
    )
    _require(rule.places is None or rule.places >= 0, path, f"places = {rule.places}; give 0 or more")
    _require(rule.max_chars >= 1, path, f"max_chars = {rule.max_chars}; give 1 or more")
    _require(not rule.ordered or kind == "list", path, f"ordered is for list; the kind is {kind}")


def _is_texts(values: object) -> bool:
    return (
        isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(value, str) for value in values)
    )


def _exact(path: str, number: float | int | Decimal | None) -> Decimal | None:
    if number is None:
        return None
    _require(
        isinstance(number, int | float | Decimal) and not isinstance(number, bool), path, f"{number!r} is no number"
    )
    exact = Decimal(str(number))
    _require(exact.is_finite(), path, f"{number!r} is not finite")
    return exact


def _require(condition: bool, path: str, message: str) -> None:
    if not condition:
        raise VerifierError(f"ExtractionVerifier: field {path!r}: {message}")
