"""The tool calls in a finished transcript, and the text that is left for the user.

A completion is read in one of two forms; `auto` takes the second where the whole text is JSON:

    tags    <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>     any number of them, prose around them
            <tool_call><function=f><parameter=x>1</parameter></function></tool_call>
            also <function_call>, and <tool_response>...</tool_response> between calls
    json    one call, a list of calls, or calls divided by ";", as the whole text or its one fenced block
            {"name": ..., "arguments": {...}}   or "parameters"   or {"function": {"name": ..., "arguments": "{...}"}}

Text up to </think> is reasoning: nothing in it is executed. JSON in prose is prose. A call that cannot be read spoils
the transcript; nothing is repaired, dropped or taken for {}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.verifiers.tools_json import JsonProblem, read_value, read_whole, skip_space

CallForm = Literal["auto", "tags", "json"]

MAX_TRANSCRIPT_CHARS = 400_000
MAX_ARGUMENT_VALUES = 20_000

_TAG = re.compile(r"</?(?:tool_call|function_call|tool_response|think)>|```")
_FENCE = re.compile(r"```[a-zA-Z_]*[ \t]*\n")
_PREFIXES = ("<|python_tag|>", "[TOOL_CALLS]")
_NAME_KEYS = {"name", "arguments", "parameters", "id", "type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as written: Call(name="get_order", arguments={"order_id": "W7"})."""

    name: str
    arguments: Mapping[str, Any]
    untyped: bool = False
    """True where the form has no types: every argument is text until the schema says what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a completion says: Transcript(calls=(Call(...),), final_text="Done.")."""

    calls: tuple[Call, ...] = ()
    final_text: str = ""
    """Text after the last call, reasoning left out."""
    responses: tuple[tuple[int, str], ...] = ()
    """(number of calls before it, content) of every tool response that stands in the text."""
    problem: str = ""
    """Why the transcript cannot be read, starting with a stable word; empty where it can."""


class _Unreadable(ValueError):
    """A transcript that breaks the form; the message is the verdict's reason."""


def parse_transcript(text: str, form: CallForm = "auto", max_calls: int = 64) -> Transcript:
    """Reads the calls in order; see the module's table. One pass, whatever the text."""
    if len(text) > MAX_TRANSCRIPT_CHARS:
        return Transcript(
            problem=f"too_large: a text of {len(text)} characters, at most {MAX_TRANSCRIPT_CHARS} are read"
        )
    try:
        if form != "tags":
            body = _json_body(_after_reasoning(text))
            if body is not None:
                return Transcript(calls=_read_json_calls(body, max_calls))
            if form == "json":
                return Transcript(final_text=_after_reasoning(text).strip())
        return _read_tags(text, max_calls)
    except _Unreadable as error:
        return Transcript(problem=str(error))
    except JsonProblem as error:
        return Transcript(problem=f"bad_call: not strict JSON: {error}")


def _after_reasoning(text: str) -> str:
    """The text behind the first </think>, if there is one. An unclosed <think> is found by the tag reader."""
    before, closed, after = text.partition("</think>")
    return after if closed else before


def _json_body(text: str) -> str | None:
    """The text to be read as calls, or None where the completion is prose."""
    body = text.strip()
    for prefix in _PREFIXES:
        body = body.removeprefix(prefix).lstrip()
    fence = _FENCE.match(body)
    if fence and body.endswith("```") and body.count("```") == 2:
        body = body[fence.end() : -3].strip()
    starts_call = body.startswith("{") or body == "[]" or (body.startswith("[") and body[1:].lstrip().startswith("{"))
    return body if starts_call else None


def _read_json_calls(body: str, max_calls: int) -> tuple[Call, ...]:
    calls: list[Call] = []
    position = 0
    while position < len(body):
        value, position = read_value(body, position)
        items = value if isinstance(value, list) else [value]
        if len(calls) + len(items) > max_calls:
            raise _Unreadable(f"too_many_calls: more than {max_calls}")
        for item in items:
            calls.extend(_calls_of(item))
        position = skip_space(body, position)
        if body.startswith(";", position):
            position = skip_space(body, position + 1)
        elif position < len(body) and body[position] not in "[{":
            raise _Unreadable("bad_call: text after the JSON; a JSON answer is JSON alone")
    return tuple(calls)


def _calls_of(value: object) -> list[Call]:
    """The calls of one JSON value: a call, or a message with "tool_calls"."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        if not set(value) <= {"tool_calls", "role", "content"}:
            raise _Unreadable("bad_call: a message with tool_calls has other keys than role and content")
        return [_one_call(item) for item in value["tool_calls"]]
    return [_one_call(value)]


def _one_call(value: object) -> Call:
    if not isinstance(value, dict):
        raise _Unreadable("bad_call: a call is a JSON object with name and arguments")
    if isinstance(value.get("function"), dict) and set(value) <= {"function", "type", "id", "index"}:
        inner = dict(value["function"])
        if isinstance(inner.get("arguments"), str):  # OpenAI's form carries the arguments as JSON text
            inner["arguments"] = read_whole(inner["arguments"]) if inner["arguments"].strip() else {}
        return _one_call(inner)
    given = [key for key in ("arguments", "parameters") if key in value]
    if not isinstance(value.get("name"), str) or len(given) != 1 or not set(value) <= _NAME_KEYS:
        raise _Unreadable("bad_call: a call has the keys name and arguments, and no others")
    arguments = value[given[0]]
    if not isinstance(arguments, dict):
        raise _Unreadable("bad_call: arguments is not a JSON object")
    if _num_values(arguments) > MAX_ARGUMENT_VALUES:
        raise _Unreadable(f"too_large: a call with more than {MAX_ARGUMENT_VALUES} values")
    return Call(name=value["name"], arguments=arguments)


def _num_values(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_num_values, value.values()))
    return 1 + sum(map(_num_values, value)) if isinstance(value, list) else 1


def _read_tags(text: str, max_calls: int) -> Transcript:
    calls: list[Call] = []
    responses: list[tuple[int, str]] = []
    final: list[str] = []
    position, in_fence = 0, False
    if "<think>" not in text.partition("</think>")[0]:
        position = text.find("</think>") + len("</think>") if "</think>" in text else 0
    while found := _TAG.search(text, position):
        final.append(text[position : found.start()])
        tag, position = found.group(), found.end()
        if tag == "```":
            in_fence = not in_fence
            final.append(tag)
        elif tag == "<think>":
            position = _find_close(text, position, "</think>")
        elif tag == "<tool_response>":
            end = _find_close(text, position, "</tool_response>")
            responses.append((len(calls), text[position : end - len("</tool_response>")].strip()))
            position, final = end, []
        elif tag.startswith("</"):
            raise _Unreadable(f"bad_call: {tag} closes nothing")
        elif in_fence:
            raise _Unreadable("call_in_fence: a tool call stands inside a code fence")
        else:
            call, position = _read_tagged(text, position, f"</{tag[1:]}")
            calls.extend(call)
            final = []
            if len(calls) > max_calls:
                raise _Unreadable(f"too_many_calls: more than {max_calls}")
    final.append(text[position:])
    return Transcript(calls=tuple(calls), final_text="".join(final).strip(), responses=tuple(responses))


def _find_close(text: str, position: int, close: str) -> int:
    end = text.find(close, position)
    if end < 0:
        raise _Unreadable(f"unclosed: no {close}")
    return end + len(close)


def _read_tagged(text: str, position: int, close: str) -> tuple[list[Call], int]:
    """The calls between the tags and the position behind the closing tag."""
    position = skip_space(text, position)
    if text.startswith("<function=", position):
        call, position = _read_xml(text, position)
        calls = [call]
    else:
        value, position = read_value(text, position)
        calls = [_one_call(item) for item in (value if isinstance(value, list) and value else [value])]
    position = skip_space(text, position)
    if not text.startswith(close, position):
        raise _Unreadable(f"unclosed: no {close} behind the call")
    return calls, position + len(close)


def _read_xml(text: str, position: int) -> tuple[Call, int]:
    """<function=NAME><parameter=KEY>TEXT</parameter>...</function>; one line break beside each TEXT is layout."""
    name, position = _until(text, position + len("<function="), ">")
    arguments: dict[str, str] = {}
    while True:
        position = skip_space(text, position)
        if text.startswith("</function>", position):
            return Call(name=name.strip(), arguments=arguments, untyped=True), position + len("</function>")
        if not text.startswith("<parameter=", position):
            raise _Unreadable("bad_call: a <function=...> holds <parameter=...> and nothing else")
        key, position = _until(text, position + len("<parameter="), ">")
        value, position = _until(text, position, "</parameter>")
        if key.strip() in arguments:
            raise _Unreadable(f"bad_call: parameter {key.strip()[:60]!r} is given twice")
        arguments[key.strip()] = value.removeprefix("\n").removesuffix("\n")


def _until(text: str, position: int, mark: str) -> tuple[str, int]:
    end = text.find(mark, position)
    if end < 0:
        raise _Unreadable(f"unclosed: no {mark} in a <function=...> call")
    return text[position:end], end + len(mark)
