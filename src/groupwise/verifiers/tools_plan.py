"""A task's columns, read and compiled: what ToolVerifier needs to judge any number of completions of it.

    column      content (JSON data, or the same as JSON text)                                        needed
    ----------  ---------------------------------------------------------------------------------  ------------------
    tools       functions with name and parameters (JSON Schema), OpenAI's form or the bare object    always
    calls       the right calls: [{"name", "arguments", "id"}], patterns allowed in arguments          unless no_call
    no_call     true where the right answer is text and no call                                       instead of calls
    answer      phrases that the text after the last call must say                                    optional
    state       {table: [record, ...]} at the start                                                   for simulation
    effects     {tool: effect}, see tools_effects                                                     with state
    required    steps in a partial order, see tools_steps                                             optional
    forbidden   [{"tool", "arguments"}] or tool names that must not even be tried                     optional
    end_state   {table: [record, ...]}; tables not named must be as at the start                      optional
    volatile    {table: [field, ...]} left out of comparisons                                         optional
    max_calls   an upper bound on the number of calls                                                 optional

What a whole data set shares (tools, state, effects, volatile, forbidden) may stand in one world file instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import VerifierError
from groupwise.types import Task
from groupwise.verifiers.tools_effects import State, check_effects
from groupwise.verifiers.tools_json import JsonProblem, canonical, read_whole
from groupwise.verifiers.tools_rules import check_pattern
from groupwise.verifiers.tools_schema import PatternSearch, ToolSet
from groupwise.verifiers.tools_steps import RequiredStep, read_steps

COLUMNS = (
    "tools",
    "calls",
    "no_call",
    "answer",
    "state",
    "effects",
    "required",
    "forbidden",
    "end_state",
    "volatile",
    "max_calls",
)
SHARED = ("tools", "state", "effects", "volatile", "forbidden")
"""Columns that a world file may give for every task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldCall:
    """One right call: GoldCall(id="0", name="pay", written={"sum": 140}, arguments={"sum": 140, "unit": "EUR"})."""

    id: str
    name: str
    written: Mapping[str, Any]
    """Patterns as the task gives them."""
    arguments: Mapping[str, Any]
    """The same, the schema's defaults filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """A call that must not be tried: Forbidden(tool="delete_all", arguments={})."""

    tool: str
    arguments: Mapping[str, Any]
    """Patterns of the arguments that matter; {} forbids every call of the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPlan:
    """One task, compiled; see the module's table."""

    tools: ToolSet
    calls: tuple[GoldCall, ...]
    no_call: bool
    answer: tuple[str, ...]
    state: State | None
    effects: Mapping[str, Any] | None
    """None where a functions file runs the calls, or nothing does."""
    required: tuple[RequiredStep, ...]
    forbidden: tuple[Forbidden, ...]
    end_state: State | None
    volatile: Mapping[str, Sequence[str]]
    max_calls: int | None


def read_plan(
    task: Task,
    *,
    columns: Mapping[str, str],
    world: Mapping[str, Any],
    search: PatternSearch,
    has_functions: bool,
) -> ToolPlan:
    """The task's columns as a plan. `columns` renames: {"calls": "ground_truth"}.

    Raises:
        VerifierError: a column that is missing or cannot be used; the message starts with a stable word.
    """
    given = {name: value for name, value in world.items() if name in SHARED}
    for name in COLUMNS:
        value = task.columns.get(columns.get(name, name))
        if value is not None:
            given[name] = _decoded(value, name) if isinstance(value, str) else value
    tools = ToolSet.compile(given.get("tools"), search)
    no_call = given.get("no_call", False)
    if not isinstance(no_call, bool):
        raise VerifierError(f"gold_bad: no_call is {no_call!r}; give true or false")
    calls = _read_calls(task, given.get("calls"), columns.get("calls", "calls"), tools, no_call)
    answer = _listed(given, "answer")
    if not all(isinstance(phrase, str) and phrase.strip() for phrase in answer):
        raise VerifierError("gold_bad: answer is a list of phrases, none of them empty")
    state = _state(given, "state")
    effects = given.get("effects")
    if (effects is not None or has_functions) and state is None:
        raise VerifierError("state_missing: effects need a state: {table: [record, ...]}")
    if state is not None and effects is None and not has_functions:
        raise VerifierError("effects_missing: a state needs effects (or a functions file) that say what the tools do")
    if effects is not None:
        if not isinstance(effects, Mapping):
            raise VerifierError("effects_bad: effects is not an object of tool names")
        check_effects(effects, list(tools.schemas), list(state or ()))
    end_state = _state(given, "end_state")
    if end_state is not None and (state is None or not set(end_state) <= set(state)):
        raise VerifierError("end_state_bad: end_state names a table that the start state does not have")
    max_calls = given.get("max_calls")
    if max_calls is not None and (isinstance(max_calls, bool) or not isinstance(max_calls, int) or max_calls < 0):
        raise VerifierError(f"gold_bad: max_calls is {max_calls!r}; give a whole number")
    return ToolPlan(
        tools=tools,
        calls=calls,
        no_call=no_call,
        answer=tuple(answer),
        state=state,
        effects=effects,
        required=read_steps(_listed(given, "required"), tools),
        forbidden=tuple(_read_forbidden(item, tools) for item in _listed(given, "forbidden")),
        end_state=end_state,
        volatile=_volatile(given),
        max_calls=max_calls,
    )


def _decoded(text: str, name: str) -> Any:
    """JSON text as data. A plain word is a list of one phrase in `answer`, and an error elsewhere."""
    try:
        return read_whole(text)
    except JsonProblem as error:
        if name == "answer":
            return [text]
        raise VerifierError(f"gold_bad: column {name!r} is text but not JSON: {error}") from error


def _read_calls(task: Task, column: Any, name: str, tools: ToolSet, no_call: bool) -> tuple[GoldCall, ...]:
    if not column:
        if no_call:
            return ()
        known = ", ".join(sorted(task.columns)) or "none"
        raise VerifierError(
            f"gold_missing: task {task.id!r} has no calls in column {name!r} (columns: {known}); "
            "give the right calls, or no_call = true where no call is right"
        )
    if no_call:
        raise VerifierError("gold_bad: no_call is true and there are calls; give one of them")
    if not isinstance(column, Sequence):
        raise VerifierError('gold_bad: calls is a list of {"name": ..., "arguments": {...}}')
    calls: list[GoldCall] = []
    for number, item in enumerate(column):
        inner = item.get("function", item) if isinstance(item, Mapping) else None
        arguments = inner.get("arguments", {}) if isinstance(inner, Mapping) else None
        arguments = _decoded(arguments, "arguments") if isinstance(arguments, str) else arguments
        if not isinstance(inner, Mapping) or not isinstance(arguments, Mapping):
            raise VerifierError('gold_bad: a call is {"name": ..., "arguments": {...}}')
        if inner.get("name") not in tools.schemas:
            raise VerifierError(f"gold_bad: a call of {inner.get('name')!r}, which is no tool of the task")
        call_id = str(item.get("id", number))
        check_pattern(arguments, "gold_bad", call_id)
        filled = tools.with_defaults(inner["name"], arguments)
        calls.append(GoldCall(id=call_id, name=inner["name"], written=arguments, arguments=filled))
    if len({call.id for call in calls}) != len(calls):
        raise VerifierError("gold_bad: two calls have the same id")
    return tuple(calls)


def _read_forbidden(item: Any, tools: ToolSet) -> Forbidden:
    entry: Any = {"tool": item} if isinstance(item, str) else item
    if not isinstance(entry, Mapping) or not set(entry) <= {"tool", "arguments"}:
        raise VerifierError("forbidden_bad: give tool names, or objects with tool and arguments")
    if entry.get("tool") not in tools.schemas:
        raise VerifierError(f"forbidden_bad: {entry.get('tool')!r} is no tool of the task")
    check_pattern(entry.get("arguments", {}), "forbidden_bad", str(entry["tool"]))
    return Forbidden(tool=entry["tool"], arguments=entry.get("arguments", {}))


def _listed(given: Mapping[str, Any], name: str) -> Sequence[Any]:
    column = given.get(name, ())
    if not isinstance(column, Sequence) or isinstance(column, str):
        raise VerifierError(f"gold_bad: {name} is not a list")
    return column


def _state(given: Mapping[str, Any], name: str) -> State | None:
    state = given.get(name)
    if state is None:
        return None
    is_state = isinstance(state, Mapping) and all(
        isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows) for rows in state.values()
    )
    if not is_state:
        raise VerifierError(f"{name}_bad: {name} is not {{table: [record, ...]}}")
    try:
        canonical(state)
    except (TypeError, ValueError) as error:
        raise VerifierError(f"{name}_bad: {name} is not JSON data: {error}") from error
    return state


def _volatile(given: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    volatile = given.get("volatile", {})
    if not isinstance(volatile, Mapping) or any(isinstance(fields, str) for fields in volatile.values()):
        raise VerifierError("volatile_bad: volatile is {table: [field, ...]}")
    return volatile
