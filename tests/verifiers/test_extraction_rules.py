from __future__ import annotations

import json
from decimal import Decimal

import pytest

from groupwise.errors import VerifierError
from groupwise.verifiers.extraction_rules import rules_from_paths, rules_from_schema
from groupwise.verifiers.extraction_schema import Shape


def test_paths_give_nested_rules():
    rule = rules_from_paths(
        {
            "vendor": {"kind": "text"},
            "buyer": {"kind": "object", "presence": "optional"},
            "buyer.city": {"kind": "text"},
            "grid[][]": {"kind": "int"},
            "lines": {"kind": "list", "ordered": True},
            "lines[].price": {"kind": "decimal", "maximum": 0.1},
        }
    )
    assert list(rule.fields) == ["vendor", "buyer", "grid", "lines"]
    assert rule.fields["buyer"].presence == "optional"
    assert rule.fields["buyer"].fields["city"].kind == "text"
    assert rule.fields["grid"].item.item.kind == "int"
    assert rule.fields["lines"].ordered
    assert rule.fields["lines"].item.fields["price"].maximum == Decimal("0.1")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no field"),
        ({"a": {"kind": "list"}}, r"a\[\]"),
        ({"a": {"kind": "object"}}, r"a\.name"),
        ({"a": {"kind": "id"}, "a.b": {"kind": "id"}}, "declared as id"),
        ({"a[]": {"kind": "id"}, "a.b": {"kind": "id"}}, "list and object"),
        ({"a..b": {"kind": "id"}}, "cannot be read"),
        ({"[]": {"kind": "id"}}, "cannot be read"),
        ({"a[0]": {"kind": "id"}}, "cannot be read"),
        ({"a" + "[]" * 20: {"kind": "id"}}, "deeper"),
    ],
)
def test_paths_that_cannot_be(fields, words):
    with pytest.raises(VerifierError, match=words):
        rules_from_paths(fields)


def test_a_schema_gives_rules_by_the_mapping():
    schema = {
        "type": "object",
        "$defs": {"money": {"type": "object", "x-kind": "money"}},
        "required": ["a", "b", "m"],
        "properties": {
            "a": {"type": "string", "maxLength": 9},
            "b": {"type": ["integer", "null"], "minimum": 2},
            "c": {"type": "string", "enum": ["x", "y"]},
            "d": {"const": "z"},
            "e": {"type": "string", "format": "date-time"},
            "m": {"$ref": "#/$defs/money"},
            "l": {"type": "array", "x-ordered": True, "items": {"$ref": "#/$defs/money"}},
            "n": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "o": {"type": "object", "properties": {"p": {"type": "boolean"}}},
        },
    }
    fields = rules_from_schema(schema).fields
    kinds = {name: (rule.kind, rule.presence) for name, rule in fields.items()}
    assert kinds == {
        "a": ("text", "required"),
        "b": ("int", "nullable"),
        "c": ("enum", "optional"),
        "d": ("enum", "optional"),
        "e": ("datetime", "optional"),
        "m": ("money", "required"),
        "l": ("list", "optional"),
        "n": ("decimal", "optional"),
        "o": ("object", "optional"),
    }
    assert (fields["a"].max_chars, fields["b"].minimum, fields["c"].values) == (9, 2, ("x", "y"))
    assert fields["l"].ordered
    assert fields["l"].item.kind == "money"


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ({"type": ["string", "integer"]}, "one type"),
        ({}, "type None"),
        (True, "type"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "one of 2"),
        ({"enum": [1, 2]}, "other things"),
        ({"type": "array"}, "items"),
        ({"type": "object"}, "no properties"),
        ({"type": "string", "x-kind": "name"}, "x-kind"),
        ({"$ref": "#/nowhere"}, "does not point"),
        ({"$ref": "https://example.com/s.json"}, "does not point"),
        ({"$ref": "#/properties/a"}, "leads back"),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, "leads back|deeper"),
    ],
)
def test_schemas_that_cannot_be_mapped(inner, words):
    with pytest.raises(VerifierError, match=words):
        rules_from_schema({"type": "object", "properties": {"a": inner}})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": "dict"}', "no JSON Schema"),
        ('{"type": "object", "type": "object"}', "duplicate_key"),
        ("[]", "no JSON object"),
        ('{"$ref": "#"}', "leads back"),
        ('{"$ref": "#/a", "a": {"$ref": "#/a"}}', "leads back"),
        ('{"$ref": "https://example.com/s"}', "not read"),
        ('{"$ref": "#/nothing"}', "points to nothing"),
        ('{"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}', "outermost"),
    ],
)
def test_schemas_that_cannot_be_compiled(tmp_path, schema, words):
    (tmp_path / "s.json").write_text(schema)
    with pytest.raises(VerifierError, match=words):
        Shape.read(tmp_path / "s.json")


def test_a_missing_schema_file(tmp_path):
    with pytest.raises(VerifierError, match="cannot be read"):
        Shape.read(tmp_path / "s.json")


def test_the_shape_is_exact_and_patterns_are_not_run():
    shape = Shape.compile(
        {"properties": {"a": {"multipleOf": Decimal("0.01")}, "b": {"pattern": "^(x+)+$"}, "c": {"type": "integer"}}},
        "s",
    )
    assert shape.problem({"a": Decimal("0.07")}) == ""
    assert shape.problem({"a": Decimal("1E400")}) == ""
    assert shape.problem({"a": Decimal("0.071")}) == "$.a: multipleOf does not hold"
    assert shape.problem({"b": "x" * 60 + "!"}) == ""
    assert shape.problem({"c": Decimal("1.0")}) != ""


def test_unique_items_as_json_compares():
    shape = Shape.compile({"uniqueItems": True}, "s")
    assert shape.problem([1, True, "1", [1], None]) == ""
    assert shape.problem([1, Decimal("1.0")]) != ""
    assert shape.problem([{"a": 1, "b": 2}, json.loads('{"b": 2, "a": 1}')]) != ""
