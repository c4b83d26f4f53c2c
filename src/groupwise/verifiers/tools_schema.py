"""The tools of a task: JSON Schema (2020-12) on arguments, without coercion and without extra keys.

Differs from the plain library: an object with named properties takes no others unless its schema says so; True is no
number; `format` is checked; `pattern` is searched in a killable worker, because a hostile text can stall a pattern for
hours; nothing is fetched from a network. BFCL's type names (dict, float, tuple, any) and Python's are translated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_json import JsonProblem, canonical, read_whole

TYPE_NAMES = {"dict": "object", "float": "number", "double": "number", "tuple": "array", "list": "array"} | {
    "int": "integer",
    "str": "string",
    "bool": "boolean",
}
"""Names that are not JSON Schema's, and what they mean. "any" drops the type."""

_WHOLE = ("allOf", "if", "then", "else", "dependentSchemas", "not")
_EITHER = ("anyOf", "oneOf")
_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
_ONE = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "not",
)
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_REFUSED = ("$dynamicRef", "$id", "patternProperties", "unevaluatedItems")

PatternSearch = Callable[[str, str], bool]
"""(pattern, text) -> whether the pattern is found in the text."""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Every tool of a task, compiled: ToolSet.compile(tools, search).problem("get_order", {"order_id": "W7"})."""

    schemas: Mapping[str, Mapping[str, Any]]
    """Tool name to the schema of its arguments, translated and closed."""
    _validators: Mapping[str, Any]

    @classmethod
    def compile(cls, tools: object, search: PatternSearch) -> ToolSet:
        """Tools in OpenAI's form, {"type": "function", "function": {...}}, or the inner object alone.

        Raises:
            VerifierError: no tools, two of one name, or a schema that cannot be used.
        """
        if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
            raise VerifierError("tools_bad: no tools; give a list of functions with name and parameters")
        schemas: dict[str, Mapping[str, Any]] = {}
        validators: dict[str, Any] = {}
        kind = _validator_kind(search)
        for tool in tools:
            name, schema = _read_tool(tool)
            if name in schemas:
                raise VerifierError(f"tools_bad: two tools are named {name!r}; rename one")
            try:
                Draft202012Validator.check_schema(schema)
            except SchemaError as error:
                raise VerifierError(f"tools_bad: tool {name!r}: {error.message[:200]}") from error
            schemas[name] = schema
            validators[name] = kind(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        return cls(schemas, validators)

    def problem(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Why these arguments are refused, starting with unknown_tool or bad_arguments; empty where they are fine."""
        if name not in self.schemas:
            known = ", ".join(list(self.schemas)[:20])
            return f"unknown_tool: {name[:60]!r}; the tools are {known}"
        error: ValidationError | None = next(self._validators[name].iter_errors(arguments), None)
        if error is None:
            return ""
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        rule = str(error.validator)
        return f"bad_arguments: {name}{_printable(place)}: rule {rule}: got {_printable(repr(error.instance))}"

    def typed(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments that were written without types: text where the schema takes text, else what it says as JSON."""
        properties = self.schemas.get(name, {}).get("properties", {})
        return {key: _typed(value, properties.get(key, {})) for key, value in arguments.items()}

    def with_defaults(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments and, for those left out, the defaults that the schema declares."""
        properties = self.schemas.get(name, {}).get("properties", {})
        declared = {key: part["default"] for key, part in properties.items() if "default" in part}
        return declared | dict(arguments)


def part_schema(schema: Mapping[str, Any], key: str | int) -> Mapping[str, Any]:
    """The schema of one property or item, {} where none is declared."""
    if isinstance(key, str):
        found = schema.get("properties", {}).get(key, {})
    else:
        prefix = schema.get("prefixItems", ())
        found = prefix[key] if key < len(prefix) else schema.get("items", {})
    return found if isinstance(found, Mapping) else {}


def _printable(text: str) -> str:
    return text[:80].encode("ascii", "backslashreplace").decode()


def _typed(value: Any, schema: Any) -> Any:
    kinds = schema.get("type", "string") if isinstance(schema, Mapping) else "string"
    if kinds == "string" or not isinstance(value, str) or "string" in kinds:
        return value
    try:
        return read_whole(value)
    except JsonProblem:
        return value


def _read_tool(tool: object) -> tuple[str, dict[str, Any]]:
    inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise VerifierError('tools_bad: a tool needs a name; write {"name": ..., "parameters": {JSON Schema}}')
    name, schema = inner["name"], inner.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise VerifierError(f"tools_bad: tool {name!r}: parameters is not a JSON Schema object")
    translated = _translate(schema, name, root=schema, composed=False)
    if translated.get("type", "object") != "object":
        raise VerifierError(f'tools_bad: tool {name!r}: parameters describe {translated["type"]!r}, not "object"')
    return name, {"type": "object", **translated}


def _translate(schema: Mapping[str, Any], tool: str, *, root: Mapping[str, Any], composed: bool) -> dict[str, Any]:
    """A copy with known type names and closed objects. `composed`: another schema adds keys to the same object."""
    for word in _REFUSED:
        if word in schema:
            raise VerifierError(f"tools_bad: tool {tool!r}: {word} is not supported; write the schema without it")
    _check_reference(schema, tool, root)
    copy = {key: value for key, value in schema.items() if key not in ("$schema", "optional")}
    _translate_type(copy)
    if isinstance(copy.get("required"), bool):  # a draft-3 habit that 2020-12 does not know
        del copy["required"]
    has_names = isinstance(schema.get("properties"), Mapping) and bool(schema["properties"])
    recurse = functools.partial(_translate, tool=tool, root=root)
    for key in (*_NAMED, *_ONE, *_LISTED):
        part = copy.get(key)
        inner = key in _WHOLE or (key in _EITHER and (has_names or composed))
        if key in _NAMED and isinstance(part, Mapping):
            copy[key] = {name: recurse(s, composed=inner) if isinstance(s, Mapping) else s for name, s in part.items()}
        elif key in _LISTED and isinstance(part, Sequence):
            copy[key] = [recurse(s, composed=inner) if isinstance(s, Mapping) else s for s in part]
        elif isinstance(part, Mapping):
            copy[key] = recurse(part, composed=inner)
    is_open = not {"additionalProperties", "unevaluatedProperties"} & set(copy)
    if is_open and not composed and has_names:
        joined = {"allOf", "anyOf", "oneOf", "if", "$ref", "dependentSchemas"} & set(copy)
        copy["unevaluatedProperties" if joined else "additionalProperties"] = False
    return copy


def _translate_type(copy: dict[str, Any]) -> None:
    kind = copy.get("type")
    if kind == "any":
        del copy["type"]
    elif isinstance(kind, str):
        copy["type"] = TYPE_NAMES.get(kind, kind)
    elif isinstance(kind, Sequence):
        copy["type"] = [TYPE_NAMES.get(name, name) for name in kind]


def _check_reference(schema: Mapping[str, Any], tool: str, root: Mapping[str, Any]) -> None:
    target = schema.get("$ref")
    if target is None:
        return
    place: Any = root
    for part in str(target).removeprefix("#").split("/")[1:]:
        place = place.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    if not str(target).startswith("#") or not isinstance(place, Mapping) or place is schema:
        raise VerifierError(f"tools_bad: tool {tool!r}: $ref {target!r} names no part of the same schema")


def _validator_kind(search: PatternSearch) -> Any:
    def pattern(_: Any, expected: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not search(expected, instance):
            yield ValidationError("pattern")

    return extend(Draft202012Validator, {"pattern": pattern, "uniqueItems": _unique_items})


def _unique_items(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
    """Linear in the number of items; the library compares every pair."""
    if wanted and isinstance(instance, list) and len(set(map(canonical, instance))) != len(instance):
        yield ValidationError("uniqueItems")
