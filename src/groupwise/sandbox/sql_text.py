"""Reads just enough of an SQL text to judge its form: a scanner, linear in its length, and no parser.

A parser run on untrusted text inside the trainer would itself be something to attack (deep nesting, long chains); what
a statement may do is for SQLite's authorizer to decide. The text is never changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

QUERY_WORDS = frozenset({"select", "with", "values"})
CLOCK_WORDS = frozenset({"now", "subsec", "subsecond"})
DATE_FUNCTIONS = frozenset({"date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"})

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|(?P<text>'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z)|`(?:[^`]|``)*(?:`|\Z)|\[[^\]]*(?:\]|\Z))"""
    r"""|(?P<word>[^\W\d][\w$]*)"""
    r"""|(?P<sign>.)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlText:
    """The form of one SQL text.

    Example:
        scan_sql("SELECT name FROM singer ORDER BY age;")
        SqlText(first_words=("select",), has_order=True, names_clock=False, expression_names=frozenset())
    """

    first_words: tuple[str, ...]
    """The first word of each statement in lower case, "" where it starts with something else."""
    has_order: bool
    """ORDER BY outside all parentheses: the row order of the result is asked for."""
    names_clock: bool
    """A literal such as 'now', or a date function that is given no moment."""
    expression_names: frozenset[str]
    """Lower-case names that the text may give to its own table expressions (WITH name AS)."""


@lru_cache(maxsize=1024)  # the same text is scanned once for the verifier and once for each snapshot
def scan_sql(text: str) -> SqlText:
    """The form of `text`. Comments do not count; quotes of all four kinds that SQLite knows are respected."""
    tokens = [(match.lastgroup, match.group().lower()) for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    first_words: list[str] = []
    at_start, depth, has_order, names_clock = True, 0, False, False
    expression_names: set[str] = set()
    for index, (kind, token) in enumerate(tokens):
        following = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        if token == ";":
            at_start, depth = True, 0
            continue
        if at_start:
            first_words.append(token if kind == "word" else "")
            at_start = False
        if kind == "sign":
            depth += (token == "(") - (token == ")")
        elif kind == "text":
            names_clock = names_clock or token[1:-1].strip() in CLOCK_WORDS
        has_order = has_order or (depth == 0 and kind == "word" and token == "order" and following == "by")
        if token in DATE_FUNCTIONS and following == "(":
            names_clock = names_clock or _lacks_moment(token, tokens[index + 2 : index + 4])
        if kind in ("word", "text") and _defines_expression([t for _, t in tokens[index + 1 : index + 3]]):
            expression_names.add(token.strip("'\"`[]"))
    return SqlText(
        first_words=tuple(first_words),
        has_order=has_order,
        names_clock=names_clock,
        expression_names=frozenset(expression_names) if "with" in {token for _, token in tokens} else frozenset(),
    )


def _defines_expression(following: list[str]) -> bool:
    """After a name: AS ( or AS [NOT] MATERIALIZED ( or a list of column names."""
    if following[:1] == ["as"]:
        return following[1:] in (["("], ["not"], ["materialized"])
    return following[:1] == ["("]


def _lacks_moment(function: str, arguments: list[tuple[str | None, str]]) -> bool:
    """date() and strftime('%Y') mean the present moment."""
    signs = [token for _, token in arguments]
    return signs[:1] == [")"] or (function == "strftime" and signs[1:2] == [")"])
