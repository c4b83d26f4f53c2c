"""The shape of the answer by JSON Schema (2020-12), where the recipe names a schema file.

Differs from the plain library: a number keeps its digits, so that multipleOf and bounds are exact; 1.0 is no integer;
uniqueItems takes linear time; nothing is fetched from anywhere. Two keywords are not evaluated: `pattern` and
`patternProperties`, because a hostile text can stall a regular expression for hours. Nothing is lost: an answer that
equals the gold has the gold's pattern, and any other earns nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

from groupwise.errors import VerifierError
from groupwise.verifiers.parsing import Problem, parse_json

FORMATS = ("date", "email", "ipv4", "ipv6", "uuid")
MAX_SCHEMA_CHARS = 1_000_000

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# As many digits as the longest quotient of two numbers that are read; the default context refuses long ones.
_EXACT = Context(prec=1200)


@dataclass(frozen=True, slots=True)
class Shape:
    """A compiled schema: Shape.read(Path("invoice.schema.json")).problem({"total": 9})."""

    schema: dict[str, Any]
    _validator: Any

    @classmethod
    def read(cls, path: Path) -> Shape:
        """The schema of a file.

        Raises:
            VerifierError: no such file, no strict JSON, no valid schema, or one that points outside of itself or back
                to itself.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise VerifierError(
                f"ExtractionVerifier: schema_file {path} cannot be read: {error}; name a JSON file"
            ) from error
        return cls.compile(parse_json(text, max_chars=MAX_SCHEMA_CHARS, max_depth=64), str(path))

    @classmethod
    def compile(cls, schema: object, name: str) -> Shape:
        """A parsed schema; `name` stands in messages.

        Raises:
            VerifierError: as read.
        """
        if isinstance(schema, Problem):
            raise VerifierError(f"ExtractionVerifier: schema {name}: {schema.reason}; give strict JSON")
        if not isinstance(schema, dict):
            raise VerifierError(f"ExtractionVerifier: schema {name} is no JSON object")
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise VerifierError(
                f"ExtractionVerifier: schema {name} is no JSON Schema 2020-12: {error.json_path}: {error.message}"
            ) from error
        schema = _without_identity(schema, name)
        _refuse_endless(schema, name)
        validator = _CHECKER(schema, format_checker=FormatChecker(FORMATS))
        return cls(schema, validator)

    def problem(self, value: object) -> str:
        """What the schema says against the value, "" if nothing. The first problem, in the schema's order."""
        with localcontext(_EXACT):
            error = next(self._validator.iter_errors(value), None)
        if error is None:
            return ""
        return f"{error.json_path}: {error.validator} does not hold"


def _without_identity(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema without its own $schema and $id: with them the library would go on with its own checker."""

    def walk(node: Any) -> None:
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            if isinstance(inner, dict) and any(isinstance(inner.get(key), str) for key in ("$schema", "$id")):
                raise VerifierError(
                    f"ExtractionVerifier: schema {name}: a $schema or $id inside; only the outermost may"
                )
            walk(inner)

    walk(schema)
    return {key: value for key, value in schema.items() if key not in ("$schema", "$id")}


def _refuse_endless(schema: dict[str, Any], name: str) -> None:
    """Every reference must be "#" or "#/..." and may not stand inside what it points to."""
    finished: set[str] = set()

    def walk(node: Any, inside: tuple[str, ...]) -> None:
        if isinstance(node, list):
            for inner in node:
                walk(inner, inside)
        if not isinstance(node, dict):
            return
        for key, inner in node.items():
            if key not in _REFERENCES or not isinstance(inner, str):
                walk(inner, inside)
                continue
            if key != "$ref" or not (inner == "#" or inner.startswith("#/")):
                raise VerifierError(
                    f"ExtractionVerifier: schema {name}: {key} {inner!r} is not read; point into the schema with #/..."
                )
            if inner in inside or inner == "#":
                raise VerifierError(f"ExtractionVerifier: schema {name}: $ref {inner!r} leads back to itself")
            if inner not in finished:
                walk(_pointed(schema, inner, name), (*inside, inner))
                finished.add(inner)

    walk(schema, ())


def _pointed(schema: dict[str, Any], reference: str, name: str) -> Any:
    node: Any = schema
    for part in reference.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        node = node.get(part) if isinstance(node, dict) else None
    if node is None:
        raise VerifierError(f"ExtractionVerifier: schema {name}: $ref {reference!r} points to nothing")
    return node


def _nothing(validator: Any, keyword: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from ()


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted is True and isinstance(instance, list) and len({_token(item) for item in instance}) < len(instance):
        yield ValidationError("an item stands twice")


def _token(value: Any) -> Hashable:
    """Equal for equal JSON values; True is not 1, 1.0 is."""
    if isinstance(value, dict):
        return ("object", frozenset((key, _token(inner)) for key, inner in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_token(inner) for inner in value))
    if isinstance(value, bool | str) or value is None:
        return (type(value).__name__, value)
    return ("number", Decimal(value))


_CHECKER = extend(
    Draft202012Validator, {"pattern": _nothing, "patternProperties": _nothing, "uniqueItems": _unique_items}
)
