"""Wrong transcripts made from a right one: skipped steps, wrong objects, words in place of calls, broken calls.

Where a task is simulated, reads may be free and two orders may lead to the same end: what is only sometimes wrong there
is marked `may_pass`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from groupwise.audit.attack import Attack, distinct_attacks
from groupwise.audit.null_agents import REFUSAL
from groupwise.types import Task

MAX_CALLS = 8
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)

Call = dict[str, Any]


def tool_attacks(task: Task, gold: str, *, simulated: bool) -> list[Attack]:
    """The attacks of one task; of a task without calls only that it is answered with a call."""
    calls, rest, written = _read(gold)
    if not calls:
        invented = Attack(
            name="called_a_tool", text='<tool_call>\n{"name": "zz", "arguments": {}}\n</tool_call>', why="no such tool"
        )
        return distinct_attacks([invented], gold)
    body = json.dumps(calls)
    attacks = [
        Attack(name="no_calls", text=rest, why="no call"),
        Attack(name="refused", text=REFUSAL, why="refuses what can be done"),
        Attack(name="claimed", text=f"I have done all of it. {rest}".strip(), why="says so and calls nothing"),
        Attack(name="calls_in_prose", text=f"I would do this: {body} and that is all.", why="calls inside prose"),
        Attack(name="calls_in_fence", text=f"```json\n{body}\n```", why="calls inside a fence", may_pass=True),
        Attack(name="unclosed", text=gold.rstrip()[:-1], why="not closed", may_pass=bool(rest)),
        Attack(name="unknown_tool", text=written([*calls, {"name": "zz", "arguments": {}}]), why="no such tool"),
        Attack(name="last_call_twice", text=written([*calls, calls[-1]]), why="one call twice", may_pass=simulated),
        Attack(name="reversed", text=written(calls[::-1]), why="the other way round", may_pass=True),
    ]
    attacks += [
        Attack(name=name, text=written(changed), why=why, may_pass=may_pass)
        for name, changed, why, may_pass in _changed(calls, simulated)
    ]
    return distinct_attacks(attacks, gold)


def _changed(calls: list[Call], simulated: bool) -> Iterator[tuple[str, list[Call], str, bool]]:
    """(name, calls, why, may pass) for every call: left out, without arguments, with wrong ones."""
    for index, call in enumerate(calls[:MAX_CALLS]):
        name, arguments = call["name"], call.get("arguments", {})

        def one(changed: Call, place: int = index) -> list[Call]:
            return [*calls[:place], changed, *calls[place + 1 :]]

        yield "skipped_call", [*calls[:index], *calls[index + 1 :]], f"{name} left out", simulated
        if not isinstance(arguments, dict):
            continue
        yield (
            "extra_argument",
            one({**call, "arguments": {**arguments, "zz_force": True}}),
            f"{name}: no such key",
            False,
        )
        for key, value in list(arguments.items())[:3]:
            for kind, other, may_pass in _other_values(value):
                changed = one({**call, "arguments": {**arguments, key: other}})
                yield kind, changed, f"{name}: {key}", may_pass or simulated


def _other_values(value: Any) -> Iterator[tuple[str, Any, bool]]:
    if isinstance(value, bool):
        yield "other_truth", not value, False
        yield "truth_as_text", str(value).lower(), False
    elif isinstance(value, int | float):
        yield "number_as_text", str(value), False
        yield "one_more", value + 1, False
        if value != 1:
            yield "truth_for_number", True, False
    elif isinstance(value, str):
        yield "other_text", f"{value} zz", True  # a free text need not be compared
        yield "listed_text", [value], False


def _read(gold: str) -> tuple[list[Call], str, Callable[[list[Call]], str]]:
    """The calls of a gold, the text around them, and how to write calls in the same form."""
    blocks = _TAGGED.findall(gold)
    rest = _TAGGED.sub("", gold).strip()

    def tagged(calls: list[Call]) -> str:
        return "\n".join([*(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls), rest]).strip()

    def listed(calls: list[Call]) -> str:
        return json.dumps(calls)

    try:
        if blocks:
            return _calls([json.loads(block) for block in blocks]), rest, tagged
        value = json.loads(gold)
        return _calls(value if isinstance(value, list) else [value]), "", listed
    except ValueError:
        return [], rest, tagged


def _calls(values: list[Any]) -> list[Call]:
    good = all(isinstance(value, dict) and isinstance(value.get("name"), str) for value in values)
    return values if good else []
