"""Turns what pydantic found into lines that say what was given, what is allowed and where it stands."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .lines import KeyPath, line_of

_TYPES = {
    "string_type": 'text in quotes ("...")',
    "int_type": "a whole number without quotes",
    "int_from_float": "a whole number",
    "float_type": "a number without quotes",
    "bool_type": "true or false",
    "tuple_type": "a list ([...])",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}
_BOUNDS = ("ge", "gt", "le", "lt")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an error stands: Place(path=("rollout", "top_k"), owner=RolloutSection, field=...)."""

    path: KeyPath
    owner: type[BaseModel]
    field: FieldInfo | None


def describe(errors: Iterable[ErrorDetails], root: type[BaseModel], lines: Mapping[KeyPath, int], file: str) -> str:
    """One message with every problem of the file, in the order in which they stand in it."""
    found = [(error, _locate(error["loc"], root)) for error in errors]
    paths = [place.path for _, place in found]
    texts: list[tuple[int, str]] = []
    for error, place in found:
        if error["type"] == "too_short" and any(
            len(p) > len(place.path) and p[: len(place.path)] == place.path for p in paths
        ):
            continue  # a list counts as empty where none of its elements could be read: those are reported
        key, text = _explain(error, place, root)
        line = line_of(key, lines)
        texts.append((line or 0, f"{text}   ({file}:{line})" if line else f"{text}   ({file})"))
    ordered = [text for _, text in sorted(texts, key=lambda pair: pair[0])]
    return ordered[0] if len(ordered) == 1 else "\n".join([f"{len(ordered)} problems in {file}:", *ordered])


def _locate(loc: tuple[int | str, ...], root: type[BaseModel]) -> _Place:
    """Follow a pydantic location through the sections, leaving out the union tags that pydantic writes into it."""
    path: KeyPath = ()
    candidates: list[type[BaseModel]] = [root]
    owner, field = root, None
    for part in loc:
        if isinstance(part, str) and len(candidates) > 1:
            candidates = [section for section in candidates if part in _tags(section)]
            continue
        path = (*path, part)
        if isinstance(part, str):
            if candidates:
                owner = candidates[0]
                field = owner.model_fields.get(part)
            candidates = list(sections_in(field.annotation)) if field and candidates else []
    return _Place(path=path, owner=owner, field=field)


def _explain(error: ErrorDetails, place: _Place, root: type[BaseModel]) -> tuple[KeyPath, str]:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    key = place.path
    if kind == "recipe_rule":
        return _explain_rule(error, key)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag_name = str(context["discriminator"]).strip("'")
        sections = sections_in(place.field.annotation if place.field else None)
        known = sorted(tag for section in sections for tag in _tags(section))
        key = (*key, tag_name)
        if kind == "union_tag_not_found":
            return place.path, f"{show_key(key)} is missing.\n  known: {', '.join(known)}."
        return key, _unknown(f"{show_key(key)} = {show(given[tag_name])} is not known.", context["tag"], known)
    if kind == "literal_error":
        known = [str(value) for value in get_args(place.field.annotation)] if place.field else []
        return key, _unknown(f"{show_key(key)} = {show(given)} is not known.", given, known)
    if kind == "extra_forbidden":
        return key, _unknown_key(key, place.owner, root)
    if kind == "missing":
        text = f"{show_key(key)} is missing."
        return key, text + (f"\n  {_flat(place.field.description)}" if place.field and place.field.description else "")
    return key, _explain_value(kind, given, key, place.field, error["msg"])


def _explain_rule(error: ErrorDetails, key: KeyPath) -> tuple[KeyPath, str]:
    suffix = tuple(part for part in error.get("ctx", {}).get("key", ()) if part)
    key = key + tuple(int(part) if part.isdigit() else part for part in suffix)
    value = error["input"]
    for part in suffix:
        try:
            value = value[int(part) if isinstance(value, list) else part]
        except (KeyError, IndexError, TypeError):
            value = None  # a default, or an object built in Python: there is nothing that the file says
    is_plain = isinstance(value, str | int | float | list)
    return key, f"{show_key(key)}{f' = {show(value)}' if is_plain else ''} {error['msg']}."


def _explain_value(kind: str, given: Any, key: KeyPath, field: FieldInfo | None, message: str) -> str:
    start = f"{show_key(key)} = {show(given)}"
    allowed = _range(field)
    if kind in _TYPES:
        text = f"{start} has the wrong type; write {_TYPES[kind]}."
    elif kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        text = f"{start} is out of range."
    elif kind == "too_short":
        text = f"{show_key(key)} is empty."
    elif kind in ("string_too_short", "string_pattern_mismatch"):
        text = f"{start} is not allowed."
    else:
        text = f"{start}: {message}."
    described = _flat(field.description) if field and field.description else ""
    hints = [hint for hint in (f"allowed: {allowed}." if allowed else "", described) if hint]
    return "\n".join([text, *(f"  {hint}" for hint in hints)])


def _unknown(text: str, given: Any, known: list[str]) -> str:
    return f"{text}\n  known: {', '.join(known)}.{nearest(str(given), known)}"


def _unknown_key(key: KeyPath, owner: type[BaseModel], root: type[BaseModel]) -> str:
    name, known = str(key[-1]), sorted(owner.model_fields)
    hint = nearest(name, known)
    if not hint:
        homes = [f"[{home}]" for home, section in _every_section(root) if name in section.model_fields]
        hint = f"  It belongs in {' or '.join(homes)}." if homes else ""
    return f"{show_key(key)} is not a known key.\n  known: {', '.join(known)}.{hint}"


def nearest(name: str, known: Iterable[str]) -> str:
    """ "  Did you mean ...?" with the closest of the known names, or nothing where none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'  Did you mean "{close[0]}"?' if close else ""


def show(value: Any) -> str:
    """A value as TOML would write it, shortened to 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def show_key(path: KeyPath) -> str:
    """stages[0].optim.lr; the recipe itself is "the recipe"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the recipe"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _range(field: FieldInfo | None) -> str:
    bounds = {
        name: getattr(item, name)
        for item in (field.metadata if field else ())
        for name in _BOUNDS
        if hasattr(item, name)
    }
    low = f"{bounds['ge']} or more" if "ge" in bounds else f"above {bounds['gt']}" if "gt" in bounds else ""
    high = f"at most {bounds['le']}" if "le" in bounds else f"under {bounds['lt']}" if "lt" in bounds else ""
    if "ge" in bounds and "le" in bounds:
        return f"{bounds['ge']} to {bounds['le']}"
    return " and ".join(part for part in (low, high) if part)


def _tags(section: type[BaseModel]) -> list[str]:
    """The values of a section's Literal fields with one value: the tag of a discriminated union."""
    literals = [field.annotation for field in section.model_fields.values() if get_origin(field.annotation) is Literal]
    return [get_args(literal)[0] for literal in literals if len(get_args(literal)) == 1]


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every section class inside a type annotation: optional, in a tuple, or one of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)


def _every_section(section: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in section.model_fields.items():
        for inner in sections_in(field.annotation):
            home = f"{path}.{name}".removeprefix(".")
            yield home, inner
            yield from _every_section(inner, home)
