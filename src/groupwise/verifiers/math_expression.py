r"""Which LaTeX texts may reach computer algebra: symbols of a list, and nothing that could take long or grow.

A worker with limits stands behind this; the guard keeps honest texts from ever meeting those limits.
"""

from __future__ import annotations

import re

MAX_EXPRESSION_CHARS = 256
MAX_NESTING = 16
MAX_LITERAL_DIGITS = 40
MAX_EXPONENT_PRODUCT = 5000  # of all exponents of a text, so that (10^99)^99 is seen too
MAX_FACTORIAL = 3000

_COMMAND_NAMES = """
    frac sqrt pi cdot times div pm infty sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp
    alpha beta gamma delta epsilon theta lambda mu phi omega sigma rho tau
    le leq ge geq ne neq lt gt lfloor rfloor lceil rceil binom begin end mid cup cap in circ
"""
_COMMANDS = frozenset(_COMMAND_NAMES.split())
_ENVIRONMENTS = frozenset({"pmatrix", "bmatrix", "vmatrix", "matrix"})
_UNEVALUATED = frozenset({"int", "iint", "oint", "sum", "prod", "lim", "limsup", "liminf", "dots", "cdots", "ldots"})
_TOKEN = re.compile(
    r"\\(begin|end)\{([a-z]*)\}|\\([A-Za-z]+)|\\([\\{}|])|(\d+(?:\.\d+)?)|([A-Za-z]+)|([-+*/^_()\[\]{}|!=<>,&' .])"
)
_NOT_PRODUCTS = ("sqrt", "sin", "cos", "tan", "log", "exp", "frac", "pi", "inf", "and", "or")


def problem_of_expression(text: str) -> str:
    """Why the text must not reach computer algebra, "" if it may."""
    if len(text) > MAX_EXPRESSION_CHARS:
        return f"too_complex: an expression of {len(text)} characters, at most {MAX_EXPRESSION_CHARS} are read"
    place, depth, has_operand = 0, 0, False
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return f"unreadable: {text[place : place + 10]!a} is not mathematical notation that is read"
        environment, command, digits, letters, mark = match[2], match[3], match[5], match[6], match[7]
        if match[1] and environment not in _ENVIRONMENTS:
            return f"unreadable: environment {environment[:20]!a} is not read"
        if command in _UNEVALUATED:
            return f"too_complex: \\{command} is not evaluated"
        if command and command not in _COMMANDS:
            return f"unreadable: command \\{command[:20]} is not read"
        if digits and len(digits) > MAX_LITERAL_DIGITS:
            return f"too_complex: a number of {len(digits)} digits in an expression"
        if letters and (len(letters) > 3 or letters.lower() in _NOT_PRODUCTS):
            return f"unreadable: {letters[:20]!a} is neither a product of variables nor a LaTeX command"
        has_operand = has_operand or bool(digits or letters or command)
        depth += (mark in tuple("([{")) - (mark in tuple(")]}"))
        if depth > MAX_NESTING:
            return f"too_complex: brackets nested deeper than {MAX_NESTING}"
        place = match.end()
    if not has_operand:
        return f"unreadable: {text[:20]!a} holds no value"
    return _problem_of_size(text.replace(" ", ""))


def _problem_of_size(text: str) -> str:
    product = 1
    for match in re.finditer(r"\^", text):
        exponent = _group_after(text, match.end())
        if "^" in exponent or "!" in exponent:
            return "too_complex: an exponent that holds a power or a factorial"
        for digits in re.findall(r"\d+", exponent):
            product *= max(1, int(digits))
        if product > MAX_EXPONENT_PRODUCT:
            return f"too_complex: exponents whose product is over {MAX_EXPONENT_PRODUCT}"
    for match in re.finditer(r"!", text):
        digits_before = re.search(r"\d{1,40}$", text[: match.start()])
        variable_before = re.search(r"(?<![A-Za-z\\])[a-z]$", text[: match.start()])
        if digits_before is None and variable_before is None:
            return "too_complex: a factorial of something other than a number or a variable"
        if digits_before and int(digits_before[0]) > MAX_FACTORIAL:
            return f"too_complex: a factorial of a number over {MAX_FACTORIAL}"
    return ""


def _group_after(text: str, place: int) -> str:
    """What ^ raises to: a {...} group, a parenthesis, or one token and the exponent that may follow it."""
    opening = text[place : place + 1]
    if opening in ("{", "("):
        closing, depth = {"{": "}", "(": ")"}[opening], 0
        for end in range(place, len(text)):
            depth += (text[end] == opening) - (text[end] == closing)
            if depth == 0:
                return text[place : end + 1] + text[end + 1 : end + 2]
        return text[place:]
    token = re.compile(r"[+-]?(?:\\[A-Za-z]+|\d+|.)?").match(text, place)
    assert token is not None
    return token[0] + text[token.end() : token.end() + 1]
