"""What tools do to the tables of a task, declared as data: a small pure simulator.

A state is {table name: [record, ...]}. A tool's effect is a list of operations and what it returns; a failing
operation undoes the call and makes it a failed call:

    {"do": [{"find": "orders", "where": {"id": {"$arg": "order_id"}}, "as": "order"},       exactly one record
            {"list": "orders", "where": {...}, "as": "rows"},                               any number
            {"check": {"$equal": [{"$row": ["order", "open"]}, true]}, "else": "not open"},
            {"insert": "refunds", "values": {"id": {"$new": "R"}, "amount": {"$arg": "amount"}}, "as": "refund"},
            {"update": "orders", "where": {...}, "set": {"refunded": {"$sum": [a, b]}}},    one record or more
            {"delete": "orders", "where": {...}}],                                          one record or more
     "returns": {"id": {"$row": ["refund", "id"]}}}

    values       constants, {"$arg": name} (null if left out), {"$row": [as, key, ...]}, {"$new": prefix},
                 {"$sum": [...]}, {"$difference": [a, b]}
    conditions   {"$equal": [a, b]}, {"$less": [a, b]}, {"$at_most": [a, b]}, {"$all": [...]}, {"$some": [...]},
                 {"$not": c}, {"$exists": {"in": table, "where": {...}}}

A $new id is a hash of the task, the table and the rest of the record, so independent inserts give the same ids in any
order and nobody can guess the next one. Records are replaced, never changed, so one start state serves every rollout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_json import canonical
from groupwise.verifiers.tools_match import is_absent, matches_plain, rule_of, value_at

State = Mapping[str, Sequence[Mapping[str, Any]]]

_OPERATIONS = {
    "find": {"find", "where", "as"},
    "list": {"list", "where", "as"},
    "check": {"check", "else"},
    "insert": {"insert", "values", "as"},
    "update": {"update", "where", "set"},
    "delete": {"delete", "where"},
}
_VALUES = {"$arg", "$row", "$new", "$sum", "$difference"}
_CONDITIONS = {"$equal", "$less", "$at_most", "$exists", "$all", "$some", "$not"}
_MAX_NUMBER = 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one call did: StepResult(ok=True, result={"id": "R4"}, state={...})."""

    ok: bool
    result: Any
    """What the tool returns; {"error": ...} where it failed."""
    state: State
    """The tables after the call; those before it where it failed."""


class _Refused(Exception):
    """An operation did not go through: the call fails and changes nothing."""


def check_effects(effects: Mapping[str, Any], tools: Sequence[str], tables: Sequence[str]) -> None:
    """Refuses effects that name no tool, no table or no known operation.

    Raises:
        VerifierError: what is wrong, in which effect.
    """
    for name in tools:
        if name not in effects:
            raise VerifierError(f'effects_bad: tool {name!r} has no effect; a read has one too, with its "returns"')
    for name, effect in effects.items():
        if name not in tools:
            raise VerifierError(f"effects_bad: an effect for {name!r}, which is no tool of the task")
        if not isinstance(effect, Mapping) or not set(effect) <= {"do", "returns"}:
            raise VerifierError(f'effects_bad: the effect of {name!r} has keys other than "do" and "returns"')
        for operation in effect.get("do", ()):
            kind = next((key for key in _OPERATIONS if isinstance(operation, Mapping) and key in operation), None)
            if kind is None or not set(operation) <= _OPERATIONS[kind]:
                raise VerifierError(f"effects_bad: {name!r}: not an operation: {canonical(operation)[:120]}")
            if kind != "check" and operation[kind] not in tables:
                raise VerifierError(f"effects_bad: {name!r}: no table {operation[kind]!r} in the state")
            _check_rules(name, operation, tables)
        _check_rules(name, effect.get("returns"), tables)


def run_effect(effect: Mapping[str, Any], arguments: Mapping[str, Any], state: State, seed: str) -> StepResult:
    """Runs one call on a state. Pure: the same input gives the same result; the given state is not changed."""
    tables = dict(state)
    rows: dict[str, Any] = {}
    try:
        for operation in effect.get("do", ()):
            _run(operation, arguments, rows, tables, seed)
        result = _value(effect.get("returns"), arguments, rows)
    except _Refused as refusal:
        return StepResult(ok=False, result={"error": str(refusal)}, state=state)
    return StepResult(ok=True, result=result, state=tables)


def _run(
    operation: Mapping[str, Any],
    arguments: Mapping[str, Any],
    rows: dict[str, Any],
    tables: dict[str, Sequence[Mapping[str, Any]]],
    seed: str,
) -> None:
    if "check" in operation:
        if not _holds(operation["check"], arguments, rows, tables):
            raise _Refused(str(operation.get("else", "not allowed")))
        return
    if "insert" in operation:
        table = operation["insert"]
        record = _new_record(table, operation["values"], arguments, rows, tables[table], seed)
        tables[table] = (*tables[table], record)
        rows[operation.get("as", "")] = record
        return
    kind = next(key for key in ("find", "list", "update", "delete") if key in operation)
    table = operation[kind]
    found = _select(tables[table], operation.get("where", {}), arguments, rows)
    if kind == "list":
        rows[operation["as"]] = [tables[table][i] for i in found]
        return
    if not found or (kind == "find" and len(found) != 1):
        raise _Refused(f"{len(found)} records in {table}")
    if kind == "find":
        rows[operation.get("as", "")] = tables[table][found[0]]
        return
    chosen = set(found)
    if kind == "delete":
        tables[table] = [record for i, record in enumerate(tables[table]) if i not in chosen]
        return
    changes = {key: _value(value, arguments, rows) for key, value in operation["set"].items()}
    tables[table] = [{**record, **changes} if i in chosen else record for i, record in enumerate(tables[table])]


def _select(
    records: Sequence[Mapping[str, Any]],
    where: Mapping[str, Any],
    arguments: Mapping[str, Any],
    rows: Mapping[str, Any],
) -> list[int]:
    wanted = {key: _value(value, arguments, rows) for key, value in where.items()}
    return [
        i
        for i, record in enumerate(records)
        if all(key in record and matches_plain(record[key], value) for key, value in wanted.items())
    ]


def _new_record(
    table: str,
    values: Mapping[str, Any],
    arguments: Mapping[str, Any],
    rows: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    seed: str,
) -> dict[str, Any]:
    new = {key: value["$new"] for key, value in values.items() if rule_of(value) == "$new"}
    rest = {key: _value(value, arguments, rows) for key, value in values.items() if key not in new}
    alike = (
        sum(matches_plain({k: v for k, v in record.items() if k not in new}, rest) for record in records) if new else 0
    )
    digest = hashlib.sha256("\0".join((seed, table, canonical(rest), str(alike))).encode("utf-8", "surrogatepass"))
    number = f"{int.from_bytes(digest.digest()[:6]) % 10**8:08d}"
    return {**rest, **{key: f"{prefix}{number}" for key, prefix in new.items()}}


def _value(template: Any, arguments: Mapping[str, Any], rows: Mapping[str, Any]) -> Any:
    rule = rule_of(template)
    if rule == "$arg":
        return arguments.get(template[rule])
    if rule == "$row":
        found = value_at(rows, template[rule])
        if is_absent(found):
            raise _Refused("no such value: " + ".".join(map(str, template[rule])))
        return found
    if rule in ("$sum", "$difference"):
        numbers = [_value(part, arguments, rows) for part in template[rule]]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) < _MAX_NUMBER for n in numbers):
            raise _Refused("not a number")
        total = sum(numbers) if rule == "$sum" else numbers[0] - sum(numbers[1:])
        return round(total, 9)  # money in floats: 0.1 + 0.2 is 0.3
    if isinstance(template, Mapping):
        return {key: _value(value, arguments, rows) for key, value in template.items()}
    if isinstance(template, Sequence) and not isinstance(template, str):
        return [_value(value, arguments, rows) for value in template]
    return template


def _holds(condition: Mapping[str, Any], arguments: Mapping[str, Any], rows: Mapping[str, Any], state: State) -> bool:
    rule = rule_of(condition)
    body = condition[rule]
    if rule == "$all":
        return all(_holds(part, arguments, rows, state) for part in body)
    if rule == "$some":
        return any(_holds(part, arguments, rows, state) for part in body)
    if rule == "$not":
        return not _holds(body, arguments, rows, state)
    if rule == "$exists":
        return bool(_select(state[body["in"]], body.get("where", {}), arguments, rows))
    left, right = (_value(part, arguments, rows) for part in body)
    if rule == "$equal":
        return matches_plain(left, right)
    comparable = (isinstance(left, str) and isinstance(right, str)) or not (
        isinstance(left, str) or isinstance(right, str)
    )
    try:
        return comparable and bool(left < right if rule == "$less" else left <= right)
    except TypeError:  # null, or a record: nothing is less than it
        return False


def _check_rules(name: str, part: Any, tables: Sequence[str]) -> None:
    """Every rule inside an operation is known, and what it needs is there."""
    rule = rule_of(part)
    if rule and rule not in _VALUES | _CONDITIONS:
        raise VerifierError(
            f"effects_bad: {name!r}: unknown rule {rule}; known: {', '.join(sorted(_VALUES | _CONDITIONS))}"
        )
    if rule in ("$equal", "$less", "$at_most") and (not isinstance(part[rule], Sequence) or len(part[rule]) != 2):
        raise VerifierError(f"effects_bad: {name!r}: {rule} takes a list of two values")
    if rule == "$exists" and part[rule].get("in") not in tables:
        raise VerifierError(f"effects_bad: {name!r}: $exists in no table of the state")
    inner: Sequence[Any] = ()
    if isinstance(part, Mapping):
        inner = list(part.values())
    elif isinstance(part, Sequence) and not isinstance(part, str):
        inner = part
    for item in inner:
        _check_rules(name, item, tables)
