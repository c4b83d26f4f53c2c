from __future__ import annotations

import json
import time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.verifiers.parsing import (
    MAX_DEPTH,
    MAX_JSON_CHARS,
    Problem,
    after_marker,
    answer_text,
    dump_json,
    fenced_blocks,
    json_answer,
    parse_json,
    tagged,
)


def word(value: object) -> str:
    assert isinstance(value, Problem), f"{value!r} is no problem"
    return value.reason.partition(":")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        (' {"a": [1, true, "x"]}\r\n', {"a": [1, True, "x"]}),
        ('{"a": {"a": 1}}', {"a": {"a": 1}}),
        ("1.50", Decimal("1.50")),
        ("0.1", Decimal("0.1")),
        ("1e2", Decimal(100)),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\u2028"', "\u2028"),
        ('"]]]]"', "]]]]"),
    ],
)
def test_strict_json_is_read(text, value):
    assert parse_json(text) == value


def test_the_digits_of_a_number_are_kept():
    assert str(parse_json("1.50")) == "1.50"
    assert isinstance(parse_json("1.50", exact_numbers=False), float)
    assert isinstance(parse_json("150"), int)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not_json"),
        ("{'a': 1}", "not_json"),
        ('{"a": 1,}', "not_json"),
        ('{"a": 1} // note', "not_json"),
        ('{"a": 1', "not_json"),
        ('{"a": "x\ny"}', "not_json"),
        ('\ufeff{"a": 1}', "not_json"),
        ('\u00a0{"a": 1}', "not_json"),
        ("01", "not_json"),
        ("+1", "not_json"),
        (".5", "not_json"),
        ("\u0661", "not_json"),
        ('"\\ud800"', "not_json"),
        ('{"\\udc00": 1}', "not_json"),
        ('"\ud800"', "not_json"),
        ('{"a": 1}{"a": 1}', "several_answers"),
        ('{"a": 1}\n{"a": 2}', "several_answers"),
        ('{"a": 1, "a": 1}', "duplicate_key"),
        ('{"b": [{"a": 1, "a": 2}]}', "duplicate_key"),
        ('{"a": 1, "\\u0061": 1}', "duplicate_key"),
        ("NaN", "not_finite"),
        ('{"a": -Infinity}', "not_finite"),
        ("1" * 65, "too_large"),
        ("1" * 5000, "too_large"),
        ("1e999999999999999999999", "too_large"),
        ("1E-401", "too_large"),
        ('"' + "x" * MAX_JSON_CHARS + '"', "too_large"),
        ("[" * 100_000, "too_large"),
        ("[" * 30_000 + "]" * 30_000, "too_deep"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "too_deep"),
    ],
)
def test_everything_else_is_named(text, reason):
    assert word(parse_json(text)) == reason


def test_depth_counts_nesting_only():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert not isinstance(parse_json("[" + "[]," * 200 + "[]]"), Problem)
    assert word(parse_json("[[1]]", max_depth=1)) == "too_deep"


def test_a_float_that_does_not_fit_is_refused():
    assert word(parse_json("1e400", exact_numbers=False)) == "too_large"


@pytest.mark.parametrize(
    ("completion", "answer_in", "value"),
    [
        ('{"a": 1}', "auto", {"a": 1}),
        ('```json\n{"a": 1}\n```', "auto", {"a": 1}),
        ('\n```JSON\r\n{"a": 1}\r\n```\r\n', "auto", {"a": 1}),
        ('```\n{"a": 1}\n```', "auto", {"a": 1}),
        ('````json\n{"a": "```"}\n````', "auto", {"a": "```"}),
        ('{"a": "```"}', "auto", {"a": "```"}),
        ('It is\n```json\n{"a": 1}\n```\nI think.', "fence", {"a": 1}),
        ('{"a": 2}\n```json\n{"a": 1}\n```', "fence", {"a": 1}),
        ('{"a": 1}', "text", {"a": 1}),
    ],
)
def test_the_declared_place_is_read(completion, answer_in, value):
    assert json_answer(completion, answer_in) == value


@pytest.mark.parametrize(
    ("completion", "answer_in", "reason"),
    [
        ("", "auto", "no_answer"),
        (" \n", "text", "no_answer"),
        ('Here: {"a": 1}', "auto", "not_json"),
        ('Here:\n```json\n{"a": 1}\n```', "auto", "no_answer"),
        ('{"a": 1}\n```json\n{"a": 1}\n```', "auto", "no_answer"),
        ('```json\n{"a": 1}\n```\n```json\n{"a": 1}\n```', "fence", "several_answers"),
        ('```json\n{"a": 1}', "fence", "no_answer"),
        ('```json\n{"a": 1}\n```\n```json\n{"a": 2}', "fence", "no_answer"),
        ('```json {"a": 1} ```', "fence", "no_answer"),
        ('```python\n{"a": 1}\n```', "auto", "no_answer"),
        ("```json\n```", "auto", "no_answer"),
        ('{"a": 1}', "fence", "no_answer"),
        ('```json\n{"a": 1}\n```', "text", "no_answer"),
        ('```json\n{"a": 1}\n{"a": 1}\n```', "auto", "several_answers"),
    ],
)
def test_no_other_place_is_read(completion, answer_in, reason):
    assert word(json_answer(completion, answer_in)) == reason


def test_labels_are_the_callers():
    assert answer_text("```sql\nSELECT 1\n```", "fence", ("sql",)) == "SELECT 1"
    assert word(answer_text("```\nSELECT 1\n```", "fence", ("sql",))) == "no_answer"


def test_blocks_and_what_stands_around():
    assert fenced_blocks("a\n```x\n1\n```\nb\n```\n2") == ([("x", "1")], "a\nb\n```\n2")


def test_declared_answers():
    assert tagged("<a>1</a> x <a> 2</a><a>3", "a") == ("1", " 2")
    assert tagged("<a><a>1</a></a>", "a") == ("<a>1",)
    assert after_marker("17 ####18\n#### 19 \n", "####") == ("18", "19")
    assert after_marker("none", "####") == ()


def test_numbers_are_written_with_their_digits():
    assert dump_json({"a": [Decimal("1.50"), 2, (True, None)]}) == '{"a": [1.50, 2, [true, null]]}'
    for value in (float("nan"), Decimal("Infinity"), {1: 2}, object()):
        with pytest.raises((TypeError, ValueError)):
            dump_json(value)


SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(value=VALUES, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans())
def test_what_was_written_is_read(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse_json(text) == value
    assert parse_json(dump_json(value)) == value
    assert json_answer(f"```json\n{text}\n```", "fence") == value


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(alphabet='{}[]",:\\`\nae0N1.-Inu\ud800 j', max_size=60))
def test_no_text_raises(text):
    for answer_in in ("auto", "text", "fence"):
        json_answer(text, answer_in)
        json_answer(text, answer_in, exact_numbers=False)


@pytest.mark.parametrize("piece", ['\\"', "```", "```json\n", "`", '"', "[", '{"a":', "\\", "\n", "1", '"\\u0061'])
def test_large_texts_end_quickly(piece):
    text = piece * (2_000_000 // len(piece))
    started = time.process_time()
    for answer_in in ("auto", "text", "fence"):
        json_answer(text, answer_in)
    parse_json('"' + piece * (60_000 // len(piece)))
    tagged(text, "`")
    after_marker(text, "`")
    assert time.process_time() - started < 5.0
