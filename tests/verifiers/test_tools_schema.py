"""Arguments against JSON Schema: closed objects, no coercion, translated type names."""

import re
import time

import pytest

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_schema import ToolSet


def compiled(properties, **more):
    tool = {"name": "f", "parameters": {"type": "dict", "properties": properties, **more}}
    return ToolSet.compile([tool], lambda pattern, text: re.search(pattern, text) is not None)


PROPERTIES = {
    "n": {"type": "integer"},
    "x": {"type": "float"},
    "s": {"type": "string", "enum": ["a", "b"]},
    "t": {"type": "tuple", "items": {"type": "float"}},
    "o": {"type": "dict", "properties": {"k": {"type": "any"}}},
    "free": {"type": "dict"},
    "d": {"type": "string", "format": "date"},
    "p": {"type": "string", "pattern": "^[0-9]+$"},
    "u": {"type": "array", "uniqueItems": True},
    "e": {"anyOf": [{"type": "object", "properties": {"k": {"type": "string"}}}, {"type": "null"}]},
}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"n": 1, "x": 1, "s": "a", "t": [1, 2.5]},
        {"n": 1.0, "o": {"k": [None]}, "free": {"any": 1}, "d": "2024-04-03", "p": "12", "u": [1, "1", True]},
        {"e": None},
        {"e": {"k": "x"}},
    ],
)
def test_arguments_that_fit(arguments):
    assert compiled(PROPERTIES).problem("f", arguments) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": "1"},
        {"n": True},
        {"n": 1.5},
        {"x": "1.0"},
        {"x": True},
        {"x": None},
        {"s": "c"},
        {"t": ["1"]},
        {"o": {"k": 1, "z": 2}},
        {"z": 1},
        {"d": "03.04.2024"},
        {"d": "20240403"},
        {"p": "1a"},
        {"u": [1, 1.0]},
        {"e": {"k": "x", "z": 1}},
    ],
)
def test_arguments_that_are_refused(arguments):
    assert compiled(PROPERTIES).problem("f", arguments).startswith("bad_arguments: f")


def test_missing_and_unknown():
    tools = compiled({"n": {"type": "integer"}}, required=["n"])
    assert tools.problem("f", {}).startswith("bad_arguments")
    assert tools.problem("g", {"n": 1}).startswith("unknown_tool")


def test_objects_made_of_parts_are_closed_as_a_whole():
    parts = [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "integer"}}}]
    tools = compiled({"c": {"type": "integer"}}, allOf=parts)
    assert tools.problem("f", {"a": 1, "b": 2, "c": 3}) == ""
    assert tools.problem("f", {"a": 1, "z": 2}).startswith("bad_arguments")


def test_references_stay_inside_the_schema():
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "n": {"type": "int"}}}
    tools = compiled({"t": {"$ref": "#/$defs/tree"}}, **{"$defs": {"tree": tree}})
    assert tools.problem("f", {"t": {"next": {"n": 1}}}) == ""
    assert tools.problem("f", {"t": {"next": {"n": 1, "z": 1}}}).startswith("bad_arguments")
    for target in ("https://example.com/x.json", "#/$defs/none", "other.json"):
        with pytest.raises(VerifierError, match="tools_bad"):
            compiled({"t": {"$ref": target}})


def test_text_without_types_is_read_by_the_schema():
    arguments = {"n": "1", "s": "a", "t": "[1, 2]", "o": "{", "unknown": "1"}
    assert compiled(PROPERTIES).typed("f", arguments) == {"n": 1, "s": "a", "t": [1, 2], "o": "{", "unknown": "1"}


def test_defaults_are_filled_in():
    tools = compiled({"n": {"type": "integer", "default": 5}, "m": {"type": "integer"}})
    assert tools.with_defaults("f", {}) == {"n": 5}
    assert tools.with_defaults("f", {"n": 1, "m": 2}) == {"n": 1, "m": 2}


def test_many_unique_items_take_linear_time():
    started = time.process_time()
    compiled(PROPERTIES).problem("f", {"u": [{"k": i} for i in range(20_000)]})
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    "tools",
    [
        None,
        [],
        "f",
        [{"parameters": {}}],
        [{"name": "f"}, {"name": "f"}],
        [{"name": "f", "parameters": {"type": "string"}}],
        [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "quantity"}}}}],
        [{"name": "f", "parameters": {"patternProperties": {"(a+)+$": {}}}}],
        [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"pattern": "("}}}}],
    ],
)
def test_tools_that_cannot_be_used_are_refused(tools):
    with pytest.raises(VerifierError, match="tools_bad"):
        ToolSet.compile(tools, lambda pattern, text: True)
