"""From declared paths, or from a JSON Schema, to one rule for the whole object.

Paths name fields as they nest; an object or a list need not be declared itself where its parts are:

    vendor               a field of the object
    buyer.city           a field of the object buyer
    tags[]               the items of the list tags
    lines[].price        a field of every object in the list lines

A JSON Schema (2020-12) gives rules by this mapping; where it is too coarse, the keyword x-kind names the kind:

    string               text; id with x-kind = "id"       "enum" of texts, "const" text    enum
    string, format date  date                              boolean                          bool
    format date-time     datetime                          integer, number                  int, decimal
    array                list (any order; x-ordered = true)  object                         object
    object, x-kind       money or quantity                 minimum, maximum, maxLength      the same bound

    in required, no null: required      in required, null allowed: nullable      not in required: optional

Null is allowed by "type": [..., "null"] or by anyOf/oneOf of one schema and {"type": "null"}. A $ref must point into
the schema itself and may not lead back to itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from groupwise.errors import VerifierError
from groupwise.verifiers.extraction_fields import (
    KINDS,
    MAX_RULE_DEPTH,
    FieldRule,
    Kind,
    check_rule,
    is_leaf,
    rule_from_settings,
)


@dataclass(slots=True)
class _Node:
    settings: Mapping[str, Any] | None = None
    item: _Node | None = None
    fields: dict[str, _Node] = field(default_factory=dict)


def rules_from_paths(fields: Mapping[str, Mapping[str, Any]]) -> FieldRule:
    """The object that has exactly the declared fields.

    Raises:
        VerifierError: no field, a path that cannot be read, or declarations that contradict each other.
    """
    if not fields:
        raise VerifierError("ExtractionVerifier: no field is declared; an object without fields cannot be judged")
    root = _Node()
    for path, settings in fields.items():
        node = root
        for name, num_lists in _segments(path):
            node = node.fields.setdefault(name, _Node())
            for _ in range(num_lists):
                node.item = node.item or _Node()
                node = node.item
        node.settings = settings
    return _rule_of(root, "")


def _segments(path: str) -> list[tuple[str, int]]:
    """ "lines[].price" as [("lines", 1), ("price", 0)]."""
    segments = []
    for part in path.split("."):
        name = part
        while name.endswith("[]"):
            name = name[:-2]
        if not name or "[" in name or "]" in name:
            raise VerifierError(
                f"ExtractionVerifier: field path {path!r} cannot be read; write name, name.part, name[] or name[].part"
            )
        segments.append((name, (len(part) - len(name)) // 2))
    if len(segments) + sum(lists for _, lists in segments) > MAX_RULE_DEPTH:
        raise VerifierError(f"ExtractionVerifier: field path {path!r} is deeper than {MAX_RULE_DEPTH}")
    return segments


def _rule_of(node: _Node, path: str) -> FieldRule:
    shape: Kind | None = "list" if node.item is not None else "object" if node.fields else None
    settings = dict(node.settings) if node.settings is not None else {"kind": shape}
    rule = rule_from_settings(path or "(whole)", settings)
    if (node.item is not None and node.fields) or (shape is not None and rule.kind != shape):
        raise VerifierError(
            f"ExtractionVerifier: field {path!r} is declared as {rule.kind}, but other paths go through it as "
            f"{'list and object' if node.item is not None and node.fields else shape}"
        )
    if shape is None and not is_leaf(rule):
        example = f"{path}[]" if rule.kind == "list" else f"{path}.name"
        raise VerifierError(
            f"ExtractionVerifier: field {path!r} is a {rule.kind} of unknown content; declare {example!r} too"
        )
    item = None if node.item is None else _rule_of(node.item, f"{path}[]")
    return replace(
        rule,
        item=item,
        fields={name: _rule_of(inner, f"{path}.{name}".lstrip(".")) for name, inner in node.fields.items()},
    )


def rules_from_schema(schema: Mapping[str, Any]) -> FieldRule:
    """The rule of a JSON Schema's object; see the module for the mapping.

    Raises:
        VerifierError: the schema is not of a plain object with fields, or uses what the mapping does not know.
    """
    rule = _from_schema(schema, schema, "", ())
    if rule.kind != "object":
        raise VerifierError(f"ExtractionVerifier: the schema describes a {rule.kind}; an object is expected")
    return rule


def _from_schema(root: Mapping[str, Any], schema: Any, path: str, refs: tuple[str, ...]) -> FieldRule:
    where = path or "(whole)"
    if path.count(".") + path.count("[]") > MAX_RULE_DEPTH:
        raise VerifierError(f"ExtractionVerifier: the schema nests deeper than {MAX_RULE_DEPTH} at {where!r}")
    schema, refs, nullable = _resolved(root, schema, where, refs)
    kind = _kind_of(schema, where)
    fields: dict[str, FieldRule] = {}
    item = None
    if kind == "object":
        required = schema.get("required", ())
        for name, inner in schema.get("properties", {}).items():
            rule = _from_schema(root, inner, f"{path}.{name}".lstrip("."), refs)
            fields[name] = rule if name in required else replace(rule, presence="optional")
        if not fields:
            raise VerifierError(f"ExtractionVerifier: the schema has no properties at {where!r}")
    if kind == "list":
        if not isinstance(schema.get("items"), Mapping):
            raise VerifierError(f"ExtractionVerifier: the array {where!r} has no single schema under items")
        item = _from_schema(root, schema["items"], f"{path}[]", refs)
    values = [schema["const"]] if "const" in schema else list(schema.get("enum", ()))
    rule = FieldRule(
        kind=kind,
        presence="nullable" if nullable else "required",
        values=tuple(value for value in values if value is not None) if kind == "enum" else (),
        minimum=_number(schema.get("minimum")) if kind in ("int", "decimal") else None,
        maximum=_number(schema.get("maximum")) if kind in ("int", "decimal") else None,
        max_chars=schema.get("maxLength", 1000),
        ordered=kind == "list" and schema.get("x-ordered") is True,
        item=item,
        fields=fields,
    )
    check_rule(where, rule)
    return rule


def _resolved(
    root: Mapping[str, Any], schema: Any, where: str, refs: tuple[str, ...]
) -> tuple[Mapping[str, Any], tuple[str, ...], bool]:
    """The schema behind references and behind "this or null", and whether null is allowed."""
    nullable = False
    while True:
        if not isinstance(schema, Mapping):
            raise VerifierError(f"ExtractionVerifier: the schema of {where!r} is {schema!r}; give one with a type")
        if "$ref" in schema:
            target = schema["$ref"]
            if target in refs:
                raise VerifierError(f"ExtractionVerifier: $ref {target!r} leads back to itself at {where!r}")
            schema, refs = _target(root, target), (*refs, target)
            continue
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not choices:
            break
        others = [choice for choice in choices if not (isinstance(choice, Mapping) and choice.get("type") == "null")]
        if len(others) != 1:
            raise VerifierError(
                f"ExtractionVerifier: {where!r} may be one of {len(others)} schemas; only one schema or null is read: "
                "declare the fields in the recipe instead"
            )
        nullable = nullable or len(others) < len(choices)
        schema = others[0]
    types = schema.get("type")
    nullable = nullable or types == "null" or (isinstance(types, list) and "null" in types)
    return schema, refs, nullable


def _target(root: Mapping[str, Any], reference: Any) -> Any:
    found: Any = root
    parts = reference.split("/") if isinstance(reference, str) else []
    if parts[:1] == ["#"]:
        for part in parts[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    raise VerifierError(f"ExtractionVerifier: $ref {reference!r} does not point into the schema itself")


def _kind_of(schema: Mapping[str, Any], where: str) -> Kind:
    if "x-kind" in schema:
        if schema["x-kind"] not in KINDS:
            raise VerifierError(f"ExtractionVerifier: x-kind {schema['x-kind']!r} at {where!r}; known: {KINDS}")
        kind: Kind = schema["x-kind"]
        return kind
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        if all(isinstance(value, str) or value is None for value in values) and any(values):
            return "enum"
        raise VerifierError(f"ExtractionVerifier: the enum of {where!r} holds other things than texts; name an x-kind")
    types = schema.get("type")
    names = [name for name in (types if isinstance(types, list) else [types]) if name != "null"]
    formats: dict[Any, Kind] = {"date": "date", "date-time": "datetime"}
    known: dict[Any, Kind] = {
        "string": formats.get(schema.get("format"), "text"),
        "boolean": "bool",
        "integer": "int",
        "number": "decimal",
        "array": "list",
        "object": "object",
    }
    if len(names) != 1 or names[0] not in known:
        raise VerifierError(f"ExtractionVerifier: {where!r} has type {types!r}; one type, or one and null, is read")
    return known[names[0]]


def _number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))
