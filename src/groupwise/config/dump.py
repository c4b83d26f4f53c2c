"""Recipe to TOML text, with every default written out: what a run directory keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .recipe import Recipe

_BARE_KEY = re.compile(r"^[A-Za-z0-9_-]+$")


def dump_toml(recipe: Recipe) -> str:
    """TOML that loads to an equal recipe. A setting that is None is left out: TOML has no word for it."""
    return "\n".join(_table(recipe.model_dump(exclude_none=True), ())).lstrip("\n") + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Plain values first: in TOML whatever follows a header belongs to it."""
    for key, value in values.items():
        if not isinstance(value, Mapping) and not _is_tables(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in values.items():
        inner = (*path, _key(key))
        if isinstance(value, Mapping) and value:
            yield from ("", f"[{'.'.join(inner)}]")
            yield from _table(value, inner)
        elif _is_tables(value):
            for element in value:
                yield from ("", f"[[{'.'.join(inner)}]]")
                yield from _table(element, inner)


def _is_tables(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Mapping)


def _key(key: str) -> str:
    return key if _BARE_KEY.match(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON and TOML escape alike, but for DEL, which JSON leaves as it is
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(element) for element in value) + "]"
    return repr(value)
