"""Required steps: a partial order over successful calls whose arguments are bound to each other.

    [{"id": "check", "tool": "check_policy", "arguments": {"order_id": "W7"}, "result": {"eligible": true}},
     {"id": "approve", "tool": "request_approval", "arguments": {"amount": 140}, "after": ["check"]},
     {"tool": "issue_refund", "arguments": {"approval_id": {"$from": ["approve", "approval_id"]}}}]

A step names only the arguments that matter. It is taken by one successful call, and no call serves two steps. A $from
step comes after its source. Patterns are those of tools_match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_match import MAX_SEARCH_NODES, SearchTooLarge, matches, matches_object, rule_of
from groupwise.verifiers.tools_rules import check_pattern
from groupwise.verifiers.tools_schema import ToolSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneCall:
    """A call that was made: DoneCall(name="get_order", arguments={"order_id": "W7"}, result={"open": True})."""

    name: str
    arguments: Mapping[str, Any]
    """Declared defaults filled in."""
    ok: bool = True
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredStep:
    """One step; see the module's example."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    result: Any
    """A pattern; an object names only the keys that matter. None asks nothing."""
    after: frozenset[str]
    """Ids of steps that must come before."""
    needs: frozenset[str]
    """Ids whose calls must be known before this step can be matched."""


def read_steps(column: Sequence[Any], tools: ToolSet) -> tuple[RequiredStep, ...]:
    """The steps of a task, sources before those that refer to them.

    Raises:
        VerifierError: an unknown key, tool, rule or id, or steps that wait for each other.
    """
    steps: dict[str, RequiredStep] = {}
    for item in column:
        if not isinstance(item, Mapping) or not set(item) <= {"id", "tool", "arguments", "result", "after"}:
            raise VerifierError("required_bad: a step has the keys tool, arguments, result, after, id and no others")
        tool = item.get("tool")
        if tool not in tools.schemas:
            raise VerifierError(f"required_bad: step for {tool!r}, which is no tool of the task")
        step_id, arguments = str(item.get("id", tool)), item.get("arguments", {})
        if step_id in steps:
            raise VerifierError(f"required_bad: two steps have the id {step_id!r}; give each an id of its own")
        check_pattern(arguments, "required_bad", step_id)
        check_pattern(item.get("result"), "required_bad", step_id)
        results = _references(arguments, "$from") | _references(item.get("result"), "$from")
        after = frozenset(item.get("after", ())) | results
        steps[step_id] = RequiredStep(
            id=step_id,
            tool=str(tool),
            arguments=arguments,
            result=item.get("result"),
            after=after,
            needs=after | _references(arguments, "$argument_of"),
        )
    return _sorted(steps)


def find_steps(
    steps: Sequence[RequiredStep], calls: Sequence[DoneCall], tools: ToolSet, *, ordered: bool = True
) -> dict[str, int]:
    """Step id to the index of its call; {} where the steps cannot all be taken. ordered=False ignores `after`.

    Raises:
        SearchTooLarge: more than MAX_SEARCH_NODES ways were tried.
    """
    chosen: dict[str, int] = {}
    num_nodes = 0

    def place(position: int) -> bool:
        nonlocal num_nodes
        if position == len(steps):
            return True
        step = steps[position]
        earliest = max((chosen[name] for name in step.after), default=-1) if ordered else -1
        bound = {name: (calls[i].arguments, calls[i].result) for name, i in chosen.items() if name in step.needs}
        for index in range(earliest + 1, len(calls)):
            num_nodes += 1
            if num_nodes > MAX_SEARCH_NODES:
                raise SearchTooLarge(f"more than {MAX_SEARCH_NODES} ways to take calls for the required steps")
            if index in chosen.values() or not _fits(step, calls[index], tools, bound):
                continue
            chosen[step.id] = index
            if place(position + 1):
                return True
            del chosen[step.id]
        return False

    return chosen if place(0) else {}


def count_steps(steps: Sequence[RequiredStep], calls: Sequence[DoneCall], tools: ToolSet) -> int:
    """How many steps have a fitting call when each is looked at by itself, bindings and order left out."""
    alone = [step for step in steps if not step.needs]
    return sum(any(_fits(step, call, tools, {}) for call in calls) for step in alone)


def _fits(step: RequiredStep, call: DoneCall, tools: ToolSet, bound: Mapping[str, Any]) -> bool:
    if not call.ok or call.name != step.tool:
        return False
    if not matches_object(step.arguments, call.arguments, tools.schemas[step.tool], bound, exact=False):
        return False
    if isinstance(step.result, Mapping) and not rule_of(step.result):
        return isinstance(call.result, Mapping) and matches_object(step.result, call.result, {}, bound, exact=False)
    return step.result is None or matches(step.result, call.result, {}, bound)


def _references(pattern: Any, rule: str) -> frozenset[str]:
    """Ids of the steps that a pattern refers to with this rule."""
    if rule_of(pattern) == rule:
        return frozenset({str(pattern[rule][0])})
    inner: Sequence[Any] = ()
    if isinstance(pattern, Mapping):
        inner = list(pattern.values())
    elif isinstance(pattern, Sequence) and not isinstance(pattern, str):
        inner = pattern
    return frozenset().union(*(_references(item, rule) for item in inner))


def _sorted(steps: Mapping[str, RequiredStep]) -> tuple[RequiredStep, ...]:
    for step in steps.values():
        unknown = step.needs - set(steps)
        if unknown:
            raise VerifierError(f"required_bad: step {step.id!r} refers to {min(unknown)!r}, which is no step's id")
    placed: dict[str, RequiredStep] = {}
    while len(placed) < len(steps):
        ready = [step for step in steps.values() if step.id not in placed and step.needs <= set(placed)]
        if not ready:
            raise VerifierError("required_bad: steps wait for each other; remove one `after` or $from")
        placed.update((step.id, step) for step in ready)
    return tuple(placed.values())
