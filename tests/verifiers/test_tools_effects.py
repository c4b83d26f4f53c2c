"""Declared effects: what a call does to the tables, and what it refuses."""

import copy

import pytest

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_effects import check_effects, run_effect
from groupwise.verifiers.tools_world import changes, run_effects, writes_of

STATE = {"items": [{"id": 1, "n": 0.1, "tag": "x"}, {"id": 2, "n": 5, "tag": "x"}], "log": []}
WHERE = {"id": {"$arg": "id"}}


def run(do, returns=None, **arguments):
    before = copy.deepcopy(STATE)
    step = run_effect({"do": do, "returns": returns}, arguments, STATE, "t1")
    assert before == STATE, "a start state is never changed"
    return step


def test_find_and_return():
    step = run([{"find": "items", "where": WHERE, "as": "item"}], {"n": {"$row": ["item", "n"]}, "one": [1]}, id=2.0)
    assert (step.ok, step.result, step.state) == (True, {"n": 5, "one": [1]}, STATE)


def test_update_insert_delete():
    add = {"$sum": [{"$row": ["item", "n"]}, 0.2]}
    update = [{"find": "items", "where": WHERE, "as": "item"}, {"update": "items", "where": WHERE, "set": {"n": add}}]
    assert run(update, id=1).state["items"][0] == {"id": 1, "n": 0.3, "tag": "x"}
    inserted = run([{"insert": "log", "values": {"key": {"$new": "L"}, "id": {"$arg": "id"}}, "as": "row"}], id=1)
    assert inserted.state["log"][0]["id"] == 1
    assert run([{"delete": "items", "where": {"tag": "x"}}]).state["items"] == []
    listed = run([{"list": "items", "where": {"tag": "y"}, "as": "rows"}], {"$row": ["rows"]})
    assert (listed.ok, listed.result) == (True, [])


@pytest.mark.parametrize(
    "do",
    [
        [{"find": "items", "where": WHERE, "as": "item"}],  # none
        [{"find": "items", "where": {"tag": "x"}, "as": "item"}],  # two
        [{"update": "items", "where": WHERE, "set": {"n": 0}}],
        [{"delete": "items", "where": WHERE}],
        [{"check": {"$equal": [1, True]}, "else": "no"}],
        [{"check": {"$less": ["a", 1]}}],
        [{"check": {"$at_most": [None, 1]}}],
        [{"check": {"$exists": {"in": "log"}}}],
        [{"check": {"$not": {"$exists": {"in": "items", "where": {"tag": "x"}}}}}],
        [{"check": {"$all": [{"$equal": [1, 1]}, {"$some": [{"$less": [2, 1]}]}]}}],
        [{"update": "items", "where": {"id": 1}, "set": {"n": {"$sum": ["1", 2]}}}],
        [{"insert": "log", "values": {"a": 1}}, {"check": {"$equal": [1, 2]}}],  # undone as a whole
    ],
)
def test_a_failing_operation_undoes_the_call(do):
    step = run(do, id=9)
    assert (step.ok, step.state) == (False, STATE)
    assert set(step.result) == {"error"}


EFFECTS = {
    "add": {"do": [{"insert": "log", "values": {"key": {"$new": "L"}, "v": {"$arg": "v"}}, "as": "row"}]},
    "set": {"do": [{"update": "items", "where": WHERE, "set": {"tag": {"$arg": "tag"}}}]},
}


def end(*calls):
    return run_effects(EFFECTS, STATE, calls, "t1")


def test_new_ids_depend_on_what_is_inserted_not_on_the_order():
    a, b = ("add", {"v": 1}), ("add", {"v": 2})
    assert not changes(end(a, b)[-1].state, end(b, a)[-1].state, {})
    keys = [row["key"] for row in end(a, a, b)[-1].state["log"]]
    assert len(set(keys)) == 3
    assert all(key.startswith("L") for key in keys)
    assert run_effects(EFFECTS, STATE, [a], "t2")[0].state != end(a)[0].state


def test_a_write_and_its_undoing_are_two_writes():
    steps = end(("set", {"id": 1, "tag": "y"}), ("set", {"id": 1, "tag": "x"}))
    assert not changes(STATE, steps[-1].state, {})
    assert writes_of(STATE, steps, {}).total() == 4  # y in, x out, x in, y out
    assert writes_of(STATE, steps, {"items": ["tag"]}).total() == 0
    assert writes_of(STATE, end(("set", {"id": 1, "tag": "x"})), {}).total() == 0


def test_rows_are_a_bag():
    twice = {"t": [{"a": 1}, {"a": 1}, {"a": 2}]}
    assert not changes(twice, {"t": [{"a": 2}, {"a": 1.0}, {"a": 1}]}, {})
    assert changes(twice, {"t": [{"a": 2}, {"a": 1}, {"a": 2}]}, {}).total() == 2
    assert changes({"t": []}, {"t": [{"a": True}]}, {}).total() == 1


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        ({}, "no effect"),
        ({"f": {}, "g": {}}, "no tool"),
        ({"f": {"then": []}}, "other than"),
        ({"f": {"do": [{"drop": "items"}]}}, "not an operation"),
        ({"f": {"do": [{"find": "items", "were": {}}]}}, "not an operation"),
        ({"f": {"do": [{"find": "nothing", "as": "x"}]}}, "no table"),
        ({"f": {"returns": {"$args": "x"}}}, "unknown rule"),
        ({"f": {"do": [{"check": {"$equal": [1]}}]}}, "two values"),
        ({"f": {"do": [{"check": {"$exists": {"in": "z"}}}]}}, "no table"),
    ],
)
def test_effects_that_cannot_be_used_are_refused(effects, message):
    with pytest.raises(VerifierError, match=message):
        check_effects(effects, ["f"], ["items"])
