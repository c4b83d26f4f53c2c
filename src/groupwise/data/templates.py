"""Text with {column} in it, filled from a row."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from groupwise.errors import DataError

from .sources import listing


def fill(template: str, columns: Mapping[str, Any], *, place: str, setting: str) -> str:
    """Replace every {column} by the row's value; {{ and }} are braces; a value of None becomes nothing.

    Formats work as in str.format ("{price:.2f}"). Only whole columns can be named: no attributes, no indices.

    Raises:
        DataError: a placeholder that is no column (the message lists the columns), or braces that do not match.
    """
    parts: list[str] = []
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise DataError(
            f"{setting} = {template!r} is not a template ({error}); write {{{{ and }}}} for braces."
        ) from error
    for literal, name, format_spec, _ in pieces:
        parts.append(literal)
        if name is None:
            continue
        if name not in columns:
            raise DataError(f"{place}: {setting} names {{{name}}}, which is no column. {listing(name, columns)}")
        value = "" if columns[name] is None else columns[name]
        try:
            parts.append(format(value, format_spec or ""))
        except (ValueError, TypeError) as error:
            raise DataError(f"{place}: {setting} cannot write {{{name}}} as {format_spec!r}: {error}.") from error
    return "".join(parts)
