r"""Decides whether an answer is the gold value. Pure, except for the function that compares expressions.

Numbers are compared exactly, as fractions. Where the gold is a plain number, the answer must be one too: an expression
that would have to be worked out first (20-2, 36/2, 2^4, \sqrt{324}) is not an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from groupwise.verifiers.math_value import RELATION, Expression, Items, Named, Number, Value, Word

Percent = Literal["refuse", "ignore", "fraction"]
SameExpression = Callable[[str, str], bool]
"""same_expression(gold, answer): True where computer algebra finds two LaTeX texts equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a data set allows: Rules(percent="refuse", rel_tolerance=0.0)."""

    percent: Percent = "refuse"
    """A percent sign on one side only: refuse = wrong, ignore = 50% is 50, fraction = 50% is 0.5."""
    rel_tolerance: float = 0.0
    """Relative difference allowed where the gold is written with a decimal point; 0 = none."""


def compare(gold: Value, answer: Value, rules: Rules, same_expression: SameExpression) -> str:
    """ "" where the answer is the gold value, otherwise why not: wrong_value, wrong_form, wrong_unit or unevaluated."""
    if isinstance(gold, Named) and isinstance(answer, Named):
        inner = compare(gold.value, answer.value, rules, same_expression)
        return inner if gold.name == answer.name or _is_function_name(gold, answer) else "wrong_value"
    if isinstance(answer, Named):
        if isinstance(gold, Expression) and RELATION.search(gold.text):
            return _expressions(gold.text, answer.text, same_expression)
        return compare(gold, answer.value, rules, same_expression)
    if isinstance(gold, Named):
        if isinstance(answer, Expression) and RELATION.search(answer.text):
            return _expressions(gold.text, answer.text, same_expression)
        return compare(gold.value, answer, rules, same_expression)
    if isinstance(gold, Number):
        if isinstance(answer, Number):
            return _numbers(gold, answer, rules)
        return "unevaluated" if isinstance(answer, Expression) else "wrong_form"
    if isinstance(gold, Items):
        return _collections(gold, answer, rules, same_expression) if isinstance(answer, Items) else "wrong_form"
    if isinstance(gold, Word) and isinstance(answer, Word):
        return "" if gold.text == answer.text else "wrong_value"
    if isinstance(gold, Word) or isinstance(answer, Items):
        return "wrong_form"
    text = _text_of(answer)
    return _expressions(gold.text, text, same_expression) if text else "wrong_form"


def _is_function_name(gold: Named, answer: Named) -> bool:
    """y = x + 1 and f(x) = x + 1 give the same function."""
    return {"(" in gold.name, "(" in answer.name} == {True, False} and "y" in (gold.name, answer.name)


def _numbers(gold: Number, answer: Number, rules: Rules) -> str:
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return "wrong_unit"
    wanted, found = gold.value, answer.value
    if gold.percent != answer.percent:
        if rules.percent == "refuse":
            return "wrong_unit"
        if rules.percent == "fraction":
            wanted, found = (side.value / 100 if side.percent else side.value for side in (gold, answer))
    if wanted != found:
        allowed = abs(wanted) * Fraction(rules.rel_tolerance) if gold.form == "decimal" else Fraction(0)
        if not allowed or abs(wanted - found) > allowed:
            return "wrong_value"
    if answer.form == "power" and gold.form != "power":
        return "unevaluated"
    if answer.form == "fraction" and gold.form in ("integer", "decimal") and found.denominator == 1:
        return "unevaluated"
    return ""


def _collections(gold: Items, answer: Items, rules: Rules, same_expression: SameExpression) -> str:
    if gold.brackets != answer.brackets:
        return "wrong_form"
    if gold.brackets != "{}":
        if len(gold.items) != len(answer.items):
            return "wrong_value"
        problems = (
            _members(left, right, rules, same_expression) for left, right in zip(gold.items, answer.items, strict=True)
        )
        return next(filter(None, problems), "")
    wanted, spare = list(dict.fromkeys(gold.items)), list(dict.fromkeys(answer.items))
    if len(wanted) != len(spare):
        return "wrong_value"
    for item in wanted:
        partner = next((p for p, other in enumerate(spare) if not _members(item, other, rules, same_expression)), None)
        if partner is None:
            return "wrong_value"
        spare.pop(partner)
    return ""


def _members(gold: Value, answer: Value, rules: Rules, same_expression: SameExpression) -> str:
    if isinstance(gold, Named) != isinstance(answer, Named):
        return "wrong_form"
    return compare(gold, answer, rules, same_expression)


def _expressions(gold: str, answer: str, same_expression: SameExpression) -> str:
    if gold.replace(" ", "") == answer.replace(" ", ""):
        return ""
    if bool(RELATION.search(gold)) != bool(RELATION.search(answer)):
        return "wrong_form"
    return "" if same_expression(gold, answer) else "wrong_value"


def _text_of(answer: Value) -> str:
    """An answer as LaTeX that computer algebra reads exactly, "" if it has none."""
    if isinstance(answer, Expression):
        return answer.text
    if isinstance(answer, Number) and not answer.percent:
        sign, size = "-" if answer.value < 0 else "", abs(answer.value)
        top, bottom = str(size.numerator), str(size.denominator)
        if len(top) > 40 or len(bottom) > 40:
            return ""
        return f"{sign}{top}" if size.denominator == 1 else f"{sign}\\frac{{{top}}}{{{bottom}}}"
    if isinstance(answer, Word) and len(answer.text) == 1:
        return answer.text
    return ""
