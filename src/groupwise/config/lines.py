"""Where each key of a TOML text stands, so that an error can name the line.

The standard TOML reader gives values without positions. This reads headers, keys and multi-line values only, and never
decides what a value means; where it cannot place a key (inline tables) the caller gets the line of what encloses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

KeyPath = tuple[str | int, ...]

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"^\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(rf"^\s*({_DOTTED})\s*=(.*)$")
_STRINGS_AND_COMMENTS = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|#.*$""")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line number (from 1) of every table header and key; elements of [[tables]] have their index in the path."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    closing = ""  # what ends the multi-line text that the scan is inside of
    depth = 0  # open brackets of the multi-line array that the scan is inside of
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            closing = "" if closing in line else closing
        elif depth:
            depth += _bracket_balance(line)
        elif header := _HEADER.match(line):
            table = _enter(_split(header[2]), header[1] == "[[", counts)
            lines[table] = number
        elif assignment := _ASSIGNMENT.match(line):
            key = _split(assignment[1])
            for length in range(1, len(key) + 1):
                lines.setdefault(table + key[:length], number)
            value = assignment[2]
            closing = _opened_text(value)
            depth = 0 if closing else _bracket_balance(value)
    return lines


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int | None:
    """Line of the key, or of the nearest table around it that has one; None where the file has neither."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _split(dotted: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_KEY, dotted))


def _enter(key: KeyPath, is_array: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """The path that a header opens: each name that is an array of tables is followed by its latest index."""
    path: KeyPath = ()
    for position, part in enumerate(key):
        path = (*path, part)
        if is_array and position == len(key) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _opened_text(value: str) -> str:
    for quotes in ('"""', "'''"):
        if value.count(quotes) % 2:
            return quotes
    return ""


def _bracket_balance(value: str) -> int:
    bare = _STRINGS_AND_COMMENTS.sub("", value)
    return bare.count("[") - bare.count("]")
