r"""Reads a mathematical answer as a value, exactly: numbers as fractions, sets, tuples, intervals, words, clock times.

Nothing is evaluated: "20-2" is no number. What only computer algebra can read stays text (an Expression), and only if
its symbols are on a list and it is small: no power towers, no huge exponents or factorials, no integrals or sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from groupwise.verifiers.math_expression import problem_of_expression
from groupwise.verifiers.math_text import clean, split_top, unwrap_text

MAX_POWER_BITS = 40_000
MAX_SCIENTIFIC = 1000
MAX_ITEMS = 64
MAX_DEPTH = 4

Form = Literal["integer", "decimal", "fraction", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    r"""Number(value=Fraction(1, 2), form="fraction") for \frac{1}{2}; a percentage keeps its number: 50 for 50%."""

    value: Fraction
    form: Form
    percent: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A name, a choice, a clock time, an infinity: Word(text="evelyn"). Equal texts are equal words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    r"""What only computer algebra can compare: Expression(text="2\\sqrt{3}")."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An assignment: Named(name="x", value=Number(...), text="x=5")."""

    name: str
    value: Value
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Several values: Items(brackets="()", items=(...)). In "{}" (sets, and lists without brackets) order is free."""

    brackets: str
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Why there is no value: Unreadable(reason="unreadable: ..."), or too_complex."""

    reason: str


Value: TypeAlias = Number | Word | Expression | Named | Items

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"([+-]?)({_DIGITS}?)(\.\d+)?(?:[eE]([+-]?\d{{1,6}}))?")
_SCIENTIFIC = re.compile(r"(.+?)(?:\\times|\\cdot|\*)10\^(?:\{([+-]?\d{1,6})\}|(\d))")
_TEN_POWER = re.compile(r"([+-]?)10\^(?:\{([+-]?\d{1,6})\}|(\d))")
_POWER = re.compile(r"([+-]?\d+)\^(?:\{(\d{1,6})\}|(\d{1,6}))")
_FRAC = re.compile(r"([+-]?)(\d*)\\frac(?:\{([^{}]*(?:\{\d+\})?)\}|(\d))(?:\{([^{}]*(?:\{\d+\})?)\}|(\d))")
_MIXED = re.compile(r"([+-]?)(\d+) (\d+)/(\d+)")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?(?: ?([ap])\.?m\.?)?", re.I)
_NAME = re.compile(r"([A-Za-z]|\\[a-z]{2,8}|[A-Za-z]_(?:\d|\{\d+\})|[a-z]\([a-z]\)) *(?:=|\\in(?![a-z])) *([^=].*)")
_LOOSE = re.compile(r"(?<=[+\-*/^}{]) +| +(?=[+\-*/^\\}{])|(?<=\\times) +|(?<=\\cdot) +")
_WORDS = re.compile(r"[A-Za-z][A-Za-z .'\-]*")
RELATION = re.compile(r"=|<|>|\\(?:leq?|geq?|neq?)(?![a-z])")


def read_value(text: str) -> Value | Unreadable:
    """The value of an answer's text; see clean() for what is taken off first."""
    cleaned, unit = clean(text)
    if not cleaned:
        return Unreadable(reason="unreadable: the answer is empty")
    value = _read(cleaned, 0)
    if isinstance(value, Number) and unit:
        return replace(value, unit=unit)
    return value


def _read(text: str, depth: int) -> Value | Unreadable:
    if depth > MAX_DEPTH:
        return Unreadable(reason=f"too_complex: nested deeper than {MAX_DEPTH}")
    text = text.strip()
    value = read_number(text) or _word(text)
    if value is not None:
        return value
    return _pieces(text, depth) or _bracketed(text, depth) or _leaf(text, depth)


def _leaf(text: str, depth: int) -> Value | Unreadable:
    named = _NAME.fullmatch(text)
    if named and not RELATION.search(named[2]):
        value = _read(named[2], depth + 1)
        return value if isinstance(value, Unreadable) else Named(name=named[1], value=value, text=text)
    problem = problem_of_expression(text)
    return Unreadable(reason=problem) if problem else Expression(text=text)


def _pieces(text: str, depth: int) -> Value | Unreadable | None:
    """A union of intervals, a list without brackets, or plus-minus a number; None for anything else."""
    if text.startswith("\\pm"):
        number = read_number(text[3:].strip())
        if number is None:
            return Unreadable(reason="unreadable: plus-minus is read before a number only")
        return Items(brackets="{}", items=(number, replace(number, value=-number.value)))
    if "\\pm" in text:
        return Unreadable(reason="unreadable: plus-minus is read before a number only")
    union = split_top(text, "\\cup")
    if len(union) > 1:
        return _items("{}", union, depth)
    parts = split_top(text, ",")
    if len(parts) == 1:
        return None
    return _items("{}", parts, depth)


def _bracketed(text: str, depth: int) -> Value | Unreadable | None:
    if text in ("\\emptyset", "\\varnothing", "\\{\\}"):
        return Items(brackets="{}", items=())
    for opening, closing in (("\\{", "\\}"), ("{", "}"), ("(", ")"), ("[", "]"), ("(", "]"), ("[", ")")):
        if not (text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing)):
            continue
        inside = text[len(opening) : -len(closing)]
        parts = split_top(inside, ",", unbalanced_is_one=False)
        if not parts:
            continue  # the brackets at both ends are not a pair: (a)(b)
        if len(parts) > 1 or opening == "\\{":
            return _items(opening[-1] + closing[-1], parts, depth)
        if opening in ("(", "{") and closing in (")", "}"):
            value = _read(inside, depth + 1)
            return value if isinstance(value, (Number, Word)) else None
    return None


def _items(brackets: str, parts: list[str], depth: int) -> Value | Unreadable:
    if len(parts) > MAX_ITEMS:
        return Unreadable(reason=f"too_complex: more than {MAX_ITEMS} values")
    items: list[Value] = []
    for part in parts:
        item = _read(part, depth + 1) if part.strip() else Unreadable(reason="unreadable: an empty item in a list")
        if isinstance(item, Unreadable):
            return item
        items.append(item)
    names = {item.name for item in items if isinstance(item, Named)}
    if len(names) == 1 and isinstance(items[0], Named) and brackets == "{}":  # n=2,3,4 and x=1, x=2 name one thing
        items = [item.value if isinstance(item, Named) else item for item in items]
    return Items(brackets=brackets, items=tuple(items))


def _word(text: str) -> Word | None:
    if text.lstrip("+-") == "\\infty":
        return Word(text="-infinity" if text.startswith("-") else "infinity")
    clock = _CLOCK.fullmatch(text)
    if clock:
        return Word(text=f"{int(clock[1])}:{clock[2]}:{clock[3] or '00'}{(clock[4] or '').lower()}")
    inside = unwrap_text(text)
    if len(inside) <= 100 and _WORDS.fullmatch(inside):
        if len(inside) == 1:
            return Word(text=inside)
        if inside != text or len(inside) > 3 or inside.istitle():
            return Word(text=" ".join(inside.lower().split()).rstrip("."))
    return None


def read_number(text: str) -> Number | None:
    """The number that a text writes down, None if it writes none. "20-2", "2*9" and "5!" are not numbers."""
    percent = text.endswith("%")
    text = text[:-1].rstrip() if percent else text
    mixed = _MIXED.fullmatch(text)
    if mixed and int(mixed[4]):
        size = int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))
        return Number(value=-size if mixed[1] == "-" else size, form="fraction", percent=percent)
    squeezed = _LOOSE.sub("", text)
    if " " in squeezed:
        return None
    found = _fraction(squeezed) or _atom(squeezed)
    if found is None:
        return None
    value, form = found
    return Number(value=value, form=form, percent=percent)


def _fraction(text: str) -> tuple[Fraction, Form] | None:
    if text.count("/") == 1 and "\\" not in text:
        top, _, bottom = text.partition("/")
        return _divide(top, _strip_parentheses(bottom))
    match = _FRAC.fullmatch(text)
    if match is None:
        return None
    found = _divide(match[3] or match[4] or "", match[5] or match[6] or "")
    if found is None:
        return None
    value = found[0] + int(match[2] or 0)
    return (-value if match[1] == "-" else value), "fraction"


def _divide(top: str, bottom: str) -> tuple[Fraction, Form] | None:
    over, under = _atom(top), _atom(bottom)
    if over is None or under is None or under[0] == 0:
        return None
    return over[0] / under[0], "power" if "power" in (over[1], under[1]) else "fraction"


def _strip_parentheses(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _atom(text: str) -> tuple[Fraction, Form] | None:
    """A decimal, a decimal times a power of ten, or a whole number to a whole power."""
    decimal = _DECIMAL.fullmatch(text)
    if decimal and (decimal[2] or decimal[3]):
        return _scaled(decimal[1] + (decimal[2].replace(",", "") or "0") + (decimal[3] or ""), decimal[4] or "0")
    ten = _TEN_POWER.fullmatch(text)
    if ten:
        return _scaled(ten[1] + "1", ten[2] or ten[3])
    scientific = _SCIENTIFIC.fullmatch(text)
    if scientific:
        mantissa = _DECIMAL.fullmatch(scientific[1])
        if mantissa and (mantissa[2] or mantissa[3]) and not mantissa[4]:
            return _scaled(scientific[1].replace(",", ""), scientific[2] or scientific[3])
        return None
    power = _POWER.fullmatch(text)
    if power:
        base, exponent = int(power[1].lstrip("+-")), int(power[2] or power[3])
        if max(base.bit_length(), 1) * exponent > MAX_POWER_BITS:
            return None
        return Fraction(base**exponent * (-1 if power[1].startswith("-") else 1)), "power"
    return None


def _scaled(digits: str, exponent: str) -> tuple[Fraction, Form] | None:
    if abs(int(exponent)) > MAX_SCIENTIFIC:
        return None
    value = Fraction(digits) * Fraction(10) ** int(exponent)
    return value, "decimal" if "." in digits or exponent != "0" else "integer"
