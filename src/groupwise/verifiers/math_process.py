r"""Runs inside a worker: are two LaTeX expressions equal? math-verify reads them, and must find them equal; then the
difference is checked with 100 digits, because math-verify rounds: to it, 1/2^99 and 1/2^98 are the same.

    request   {"gold", "answer", "cpu_limit_s"}
    reply     {"status": "ok", "equal": bool}
              {"status": "gold_unreadable" | "answer_unreadable", "message"}

Both texts have passed problem_of_expression. Only math-verify's LaTeX grammar is used; its other reader calls eval.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

DIGITS = 100
TOLERANCE = "1e-80"
POINTS = ((3, 7), (11, 5), (-13, 9), (29, 17), (2, 19))  # rational, so that no root or pole is likely


def start(settings: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Called once in a fresh worker. settings: {"packages": folders that math-verify is imported from}."""
    sys.path.extend(settings["packages"])
    logging.disable(logging.CRITICAL)
    import math_verify  # not before the path is set
    from math_verify.grader import verify
    from math_verify.parser import LatexExtractionConfig

    def read(text: str) -> Any:
        found = math_verify.parse(
            f"\\boxed{{{text}}}",
            [LatexExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        return found[0] if len(found) == 1 else None

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        gold = read(str(request["gold"]))
        if gold is None:
            return {"status": "gold_unreadable", "message": "math-verify does not read it"}
        answer = read(str(request["answer"]))
        if answer is None:
            return {"status": "answer_unreadable", "message": "math-verify does not read it"}
        equal = bool(verify(gold, answer, timeout_seconds=None)) and agree(gold, answer)
        return {"status": "ok", "equal": equal}

    read("\\sqrt{2}+x")  # the grammar's tables are built at first use
    return handle


def agree(gold: Any, answer: Any) -> bool:
    """Equal with 100 digits at every point where both can be computed, and at one at least.

    Equations agree if one is a constant multiple of the other. What is neither a number, an equation nor a matrix of
    numbers is left to math-verify.
    """
    import sympy

    gold, answer = exact(gold), exact(answer)
    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return gold.shape == answer.shape and all(map(agree, list(gold), list(answer)))
    if isinstance(gold, sympy.Equality) and isinstance(answer, sympy.Equality):
        return multiples(gold.lhs - gold.rhs, answer.lhs - answer.rhs)
    if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return True
    if gold == answer:
        return True
    values = [pair for pair in (at(point, gold, answer) for point in POINTS) if pair is not None]
    return bool(values) and all(close(left, right) for left, right in values)


def exact(expression: Any) -> Any:
    """The expression with its decimals as fractions."""
    import sympy

    if not isinstance(expression, sympy.Basic):
        return expression
    return expression.xreplace({number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)})


def at(point: tuple[int, int], gold: Any, answer: Any) -> tuple[Any, Any] | None:
    """Both values where the variables, in the order of their names, are multiples of the point's fraction."""
    import sympy

    names = sorted({symbol.name for side in (gold, answer) for symbol in side.free_symbols})
    place = {name: sympy.Rational(*point) * (index + 1) + index for index, name in enumerate(names)}
    values = []
    for side in (gold, answer):
        value = side.subs({symbol: place[symbol.name] for symbol in side.free_symbols}).doit()
        value = value if value.is_Rational else value.evalf(DIGITS)
        if not value.is_number or not value.is_finite:
            return None
        values.append(value)
    return values[0], values[1]


def close(left: Any, right: Any) -> bool:
    """Equal where both are fractions, otherwise within 1e-80, relative to the larger one."""
    import sympy

    if left.is_Rational and right.is_Rational:
        return bool(left == right)
    return bool(abs(left - right) <= sympy.Float(TOLERANCE) * max(abs(left), abs(right)))


def multiples(left: Any, right: Any) -> bool:
    """True if left / right is one and the same number, not 0, at every point."""
    pairs = [pair for pair in (at(point, left, right) for point in POINTS) if pair is not None]
    ratios = [first / second for first, second in pairs if second != 0]
    return bool(ratios) and len(ratios) == len(pairs) and ratios[0] != 0 and all(close(ratios[0], r) for r in ratios)
