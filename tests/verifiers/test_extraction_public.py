"""Gold against itself and against broken copies, on public slot and invoice data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from groupwise.types import Task
from groupwise.verifiers.extraction import ExtractionVerifier

MAX_ROWS = 120
Fields = dict[str, dict[str, Any]]
Rows = list[tuple[str, dict[str, Any]]]


def spans(path) -> tuple[Fields, Rows]:
    """PolyAI's span files: one text field a slot; several spans of one slot are a list."""
    rows: Rows = []
    for row in json.loads(path.read_text()):
        text, gold = row["userInput"]["text"], {}
        for label in row.get("labels", []):
            span = label["valueSpan"]
            gold.setdefault(label["slot"], []).append(text[span.get("startIndex", 0) : span["endIndex"]])
        if gold:
            rows.append((text, gold))
    slots = sorted({slot for _, gold in rows for slot in gold})
    fields: Fields = {slot: {"kind": "list", "presence": "optional"} for slot in slots}
    return fields | {f"{slot}[]": {"kind": "text"} for slot in slots}, rows[:MAX_ROWS]


def snips(path) -> tuple[Fields, Rows]:
    rows: Rows = []
    (queries,) = json.loads(path.read_bytes().decode("utf-8", "replace")).values()
    for query in queries:
        gold: dict[str, Any] = {}
        for piece in query["data"]:
            if piece.get("entity") and piece["text"].strip():
                gold.setdefault(piece["entity"], []).append(piece["text"])
        if gold:
            rows.append(("".join(piece["text"] for piece in query["data"]), gold))
    slots = sorted({slot for _, gold in rows for slot in gold})
    fields: Fields = {slot: {"kind": "list", "presence": "optional"} for slot in slots}
    return fields | {f"{slot}[]": {"kind": "text"} for slot in slots}, rows[:MAX_ROWS]


def invoice(path) -> tuple[Fields, Rows]:
    """invoice2data's expected fields; the kind of a field is read off its value."""
    (gold,) = json.loads(path.read_text())[:1]
    fields: Fields = {}
    # One of the files has blank texts, which are no value: check refuses them.
    gold = json.loads(
        json.dumps(gold), object_hook=lambda item: {key: inner for key, inner in item.items() if inner != ""}
    )
    for name, value in gold.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            for item in value:
                fields |= {
                    f"{name}[].{key}": {"kind": kind(inner), "presence": "optional"} for key, inner in item.items()
                }
        elif isinstance(value, list):
            fields[f"{name}[]"] = {"kind": "text"}
        else:
            fields[name] = {"kind": kind(value)}
    return fields, [(path.stem, gold)]


def kind(value: object) -> str:
    if isinstance(value, str):
        return "date" if re.fullmatch(r"\d{4}-\d\d-\d\d", value) else "text"
    return "decimal"


def broken(gold: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what was done, the object after it), each a wrong answer."""
    yield "hallucinated", gold | {"confidence": 1}
    yield "empty", {}
    for name, value in gold.items():
        yield "missing", {other: inner for other, inner in gold.items() if other != name}
        yield "null", gold | {name: None}
        yield "wrapped", gold | {name: [value]}
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            year, month, day = value.split("-")
            yield "copied span", gold | {name: f"{day}.{month}.{year}"}
        if isinstance(value, float):
            yield "copied span", gold | {name: f"{value:.2f}"}
            yield "changed", gold | {name: value + 0.01}
        if isinstance(value, list):
            yield "item twice", gold | {name: [*value, value[0]]}
            yield "item lost", gold | {name: value[1:]}
        if isinstance(value, list) and isinstance(value[0], str):
            yield "longer", gold | {name: [value[0] + " x", *value[1:]]}


SETS: list[tuple[str, str, Callable[[Any], tuple[Fields, Rows]]]] = [
    ("restaurant8k", "test.json", spans),
    ("dstc8", "*.json", spans),
    ("snips", "validate_*.json", snips),
    ("invoice2data", "*.json", invoice),
]


@pytest.mark.parametrize(("name", "pattern", "read"), SETS, ids=[name for name, _, _ in SETS])
def test_golds_pass_and_broken_copies_fail(shared, name, pattern, read):
    num_golds = num_broken = 0
    for path in sorted((shared / "data" / "extraction" / name).glob(pattern)):
        fields, rows = read(path)
        judging = ExtractionVerifier(fields=fields, partial_cap=0.5)
        tasks = [
            Task(id=f"{path.stem}-{index}", prompt=text, columns={"gold": gold})
            for index, (text, gold) in enumerate(rows)
        ]
        assert judging.check(tasks) == []
        for task in tasks:
            num_golds += 1
            for done, answer in broken(task.columns["gold"]):
                verdict = judging.judge(task, json.dumps(answer))
                num_broken += 1
                assert verdict.outcome is False, (task.id, done, answer)
                assert verdict.reward <= 0.5
    assert num_golds >= 12
    print(f"{name}: {num_golds} golds earn 1, {num_broken} broken copies fail")
