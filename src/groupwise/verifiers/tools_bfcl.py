"""Rows of the Berkeley Function-Calling Leaderboard (BFCL v4) as tasks for ToolVerifier.

BFCL (Patil et al., https://gorilla.cs.berkeley.edu/leaderboard.html) gives for each parameter a list of possible
values, "" meaning that it may be left out. This turns the list into a $one_of or $optional pattern. BFCL compares text
after deleting blanks and the signs ,./-_*^ and folding case, so '1.5' equals '15' there; here text is compared as it
is, unless fold_text asks for case and white space to be ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import DataError
from groupwise.types import Task

_LEFT_OUT = ""


def bfcl_task(
    question: Mapping[str, Any], possible_answer: Mapping[str, Any] | None, *, fold_text: bool = False
) -> Task:
    """One line of a BFCL question file with its line of possible_answer/; None for the irrelevance files, where no
    call is right.

    Raises:
        DataError: the two lines have different ids, or the row is no single-turn row.
    """
    if possible_answer is not None and possible_answer["id"] != question["id"]:
        raise DataError(f"BFCL: question {question['id']!r} with the answer of {possible_answer['id']!r}; match by id")
    turns = question["question"]
    if len(turns) != 1:
        raise DataError(f"BFCL: {question['id']!r} has {len(turns)} turns; only single-turn rows can be read")
    columns: dict[str, Any] = {"tools": question["function"]}
    if possible_answer is None:
        columns["no_call"] = True
    else:
        schemas = {tool["name"]: tool.get("parameters", {}) for tool in question["function"]}
        columns["calls"] = [_call(entry, schemas, fold_text) for entry in possible_answer["ground_truth"]]
    prompt = tuple({"role": str(turn["role"]), "content": str(turn["content"])} for turn in turns[0])
    return Task(id=question["id"], prompt=prompt, columns=columns)


def _call(entry: Mapping[str, Any], schemas: Mapping[str, Any], fold_text: bool) -> dict[str, Any]:
    ((name, parameters),) = entry.items()
    properties = schemas.get(name, {}).get("properties", {})
    arguments = {key: _parameter(values, properties.get(key, {}), fold_text) for key, values in parameters.items()}
    return {"name": name, "arguments": arguments}


def _parameter(values: Sequence[Any], schema: Mapping[str, Any], fold_text: bool) -> dict[str, Any]:
    options = [_value(value, schema, fold_text) for value in values if value != _LEFT_OUT]
    if len(options) == len(values):
        return {"$one_of": options}
    # a parameter whose only possible value is "" may be left out, or be the empty text
    return {"$optional": {"$one_of": options or [_LEFT_OUT]}}


def _value(value: Any, schema: Mapping[str, Any], fold_text: bool) -> Any:
    """One possible value. An object lists possible values for each of its keys, also inside a list."""
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        return {
            key: _parameter(inner, properties.get(key, {}), fold_text) if isinstance(inner, list) else inner
            for key, inner in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_value(item, items if isinstance(items, Mapping) else {}, fold_text) for item in value]
    return {"$folded": value} if fold_text and isinstance(value, str) else value
