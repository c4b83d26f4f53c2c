"""How calls are read out of a completion."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.verifiers.tools_json import JsonProblem, canonical, read_whole
from groupwise.verifiers.tools_parse import Call, parse_transcript

F1 = Call(name="f", arguments={"x": 1})
TAGGED = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        TAGGED,
        f"I will look. {TAGGED}",
        f"<think>maybe f(2)</think>\n{TAGGED}",
        f"thoughts of a prompt that opened the tag</think>{TAGGED}",
        f"<think>{TAGGED}</think>{TAGGED}",
        TAGGED.replace("arguments", "parameters"),
        TAGGED.replace("tool_call", "function_call"),
        '{"name": "f", "arguments": {"x": 1}}',
        '```json\n[{"name": "f", "arguments": {"x": 1}}]\n```',
        '[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}, "id": "abc"}]',
        '<|python_tag|>{"name": "f", "parameters": {"x": 1}}',
        '{"type": "function", "id": "c1", "function": {"name": "f", "arguments": "{\\"x\\": 1}"}}',
        '{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}',
    ],
)
def test_one_call_in_every_form(text):
    transcript = parse_transcript(text)
    assert (transcript.problem, transcript.calls) == ("", (F1,))


@pytest.mark.parametrize(
    "text",
    [
        TAGGED + TAGGED,
        f"{TAGGED}\nand\n{TAGGED} done",
        f"<tool_call>[{', '.join(['{0}'] * 2)}]</tool_call>".replace("{0}", '{"name": "f", "arguments": {"x": 1}}'),
        '{"name": "f", "arguments": {"x": 1}}; {"name": "f", "arguments": {"x": 1}}',
        '{"name": "f", "arguments": {"x": 1}}\n{"name": "f", "arguments": {"x": 1}}',
    ],
)
def test_two_calls_are_two(text):
    assert parse_transcript(text).calls == (F1, F1)


def test_calls_without_types_stay_text():
    text = "<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=y>a\nb</parameter></function>"
    text = f"<tool_call>\n{text}</tool_call>"
    assert parse_transcript(text).calls == (Call(name="f", arguments={"x": "1", "y": "a\nb"}, untyped=True),)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('<tool_call>{"name": "f", "arguments": {"x": "Par', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call>', "bad_call"),  # one brace missing
        ('<tool_call>{"name": "f", "arguments": {"x": 1}}', "unclosed"),
        ('<tool_call>{"name": "f", "arguments": [1, 2]}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": 7}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f"}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": {}, "parameters": {}}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": {"x": 1, "x": 2}}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>', "bad_call"),
        ('<tool_call>{"name": "f", "arguments": {"x": 1e999}}</tool_call>', "bad_call"),
        ("<tool_call>f(x=1)</tool_call>", "bad_call"),
        ("</tool_call>", "bad_call"),
        (f"```\n{TAGGED}\n```", "call_in_fence"),
        (f"<think>{TAGGED}", "unclosed"),
        ('{"name": "f", "arguments": {"x": 1}} Done!', "bad_call"),
        ('{"answer": 5}', "bad_call"),
        (TAGGED * 65, "too_many_calls"),
        ("x" * 400_001, "too_large"),
        ("<tool_call>" + "[" * 100_000, "bad_call"),
        ('<tool_call>{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}</tool_call>", "bad_call"),
        (
            "<tool_call><function=f><parameter=x>1</parameter><parameter=x>2</parameter></function></tool_call>",
            "bad_call",
        ),
        ("<tool_call><function=f><parameter=x>1", "unclosed"),
        ("<tool_response>{}", "unclosed"),
    ],
)
def test_a_call_that_cannot_be_read_spoils_the_transcript(text, word):
    transcript = parse_transcript(text)
    assert transcript.problem.partition(":")[0] == word
    assert transcript.calls == ()


@pytest.mark.parametrize(
    "text", ["", "No tool fits.", 'So: {"name": "f", "arguments": {"x": 1}}', "[Note] none", "f(x=1)", "```\nf()\n```"]
)
def test_prose_is_no_call(text):
    transcript = parse_transcript(text)
    assert (transcript.problem, transcript.calls, transcript.final_text) == ("", (), text)


def test_tags_inside_an_argument_are_text():
    text = '<tool_call>{"name": "f", "arguments": {"x": "</tool_call><think> ``` {"}}</tool_call>end'
    transcript = parse_transcript(text)
    assert transcript.calls == (Call(name="f", arguments={"x": "</tool_call><think> ``` {"}),)
    assert transcript.final_text == "end"


def test_the_final_text_is_what_follows_the_last_call_and_response():
    text = f"before {TAGGED}<tool_response>\n[1]\n</tool_response> middle {TAGGED} after <think>hm</think> all"
    transcript = parse_transcript(text)
    assert transcript.final_text == "after  all"
    assert transcript.responses == ((1, "[1]"),)


def test_only_the_declared_form_is_read():
    assert parse_transcript('{"name": "f", "arguments": {"x": 1}}', "tags").calls == ()
    assert parse_transcript(TAGGED, "json").calls == ()


PIECES = ["<tool_response>", "</tool_response>", "<function=f>", "\ud800", "\\", '"', ";", "[]", "x", "}"]
PIECES += ["<tool_call>", "</tool_call>", '{"name": "f",', '"arguments": {}}', "<think>", "</think>", "```", "["]


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_text_is_read_or_refused(parts):
    transcript = parse_transcript("".join(parts))
    assert not (transcript.problem and transcript.calls)


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "<think>", "```", '"', "{", "</think>", '{"a":', "<tool_call>{}", "\\"]
)
def test_hostile_text_takes_linear_time(piece):
    started = time.process_time()
    parse_transcript(piece * (399_000 // len(piece)))
    assert time.process_time() - started < 2.0


def test_equal_values_have_one_canonical_text():
    assert canonical({"b": 1.0, "a": [True]}) == canonical({"a": [True], "b": 1}) != canonical({"a": [1], "b": 1})


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3), max_leaves=8)
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_strict_json_reads_what_json_writes(value):
    assert read_whole(json.dumps(value)) == value
    with pytest.raises(JsonProblem):
        read_whole(json.dumps(value) + " x")
