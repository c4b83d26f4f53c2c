"""BFCL's files: every gold earns 1, and every broken variant does not."""

import copy
import json

import pytest

from groupwise.errors import DataError
from groupwise.verifiers.tools import ToolVerifier
from groupwise.verifiers.tools_bfcl import bfcl_task

UNUSABLE = {
    "parallel_multiple_21": "two arguments are Python expressions over a variable, the schema wants numbers",
    "parallel_multiple_94": "words in a list, the schema wants integers",
    "live_simple_71-35-0": "a list where the schema's enum holds words",
    "live_simple_106-63-0": "a parameter without any possible value",
    "live_simple_112-68-0": "a parameter without any possible value",
    "live_parallel_multiple_2-2-0": "a value that is not in the schema's enum",
}
"""Golds that break the schema of their own question."""

SIZES = {"simple_python": 400, "multiple": 200, "parallel": 200, "irrelevance": 240}
MORE_SIZES = {"parallel_multiple": 200, "live_simple": 258, "live_parallel": 16, "live_parallel_multiple": 24}


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def read_tasks(shared, name):
    folder = shared / "data" / "tools" / "bfcl"
    if not folder.is_dir():
        pytest.skip(f"no BFCL files at {folder}")
    questions = read_lines(folder / f"BFCL_v4_{name}.json")
    path = folder / "possible_answer" / f"BFCL_v4_{name}.json"
    answers = {row["id"]: row for row in read_lines(path)} if path.exists() else {}
    return [bfcl_task(question, answers.get(question["id"])) for question in questions]


@pytest.fixture(scope="module")
def verifier():
    verifier = ToolVerifier()
    yield verifier
    verifier.close()


def broken(calls, tools):
    """Completions that are wrong in one way each; calls are the right ones."""
    first, rest = calls[0], calls[1:]
    properties = {tool["name"]: tool["parameters"]["properties"] for tool in tools}[first["name"]]
    yield "dropped", rest
    yield "doubled", [*calls, copy.deepcopy(first)]
    yield "renamed", [{**first, "name": first["name"] + "_v2"}, *rest]
    yield "extra key", [{**first, "arguments": {**first["arguments"], "extra_key": 1}}, *rest]
    for key, value in first["arguments"].items():
        if properties[key].get("default", "no default") != value:  # else leaving it out is the same call
            yield (
                f"no {key}",
                [{**first, "arguments": {k: v for k, v in first["arguments"].items() if k != key}}, *rest],
            )
        changed = "@@"
        if isinstance(value, (int, float)):
            changed = (not value) if isinstance(value, bool) else value + 1012.5
        yield f"{key} changed", [{**first, "arguments": {**first["arguments"], key: changed}}, *rest]
        yield f"{key} as text", [{**first, "arguments": {**first["arguments"], key: json.dumps(value)}}, *rest]


@pytest.mark.parametrize("name", [*SIZES, *MORE_SIZES])
def test_every_gold_earns_one(shared, verifier, name):
    tasks = read_tasks(shared, name)
    assert len(tasks) == (SIZES | MORE_SIZES)[name]
    blocking = {problem.task_id for problem in verifier.check(tasks) if problem.blocking}
    assert blocking == {task.id for task in tasks} & set(UNUSABLE)


@pytest.mark.parametrize("name", ["simple_python", "multiple", "parallel"])
def test_broken_variants_earn_nothing(shared, verifier, name):
    num_variants, passed = 0, []
    for task in read_tasks(shared, name)[::4]:
        calls = [json.loads(part.partition("</tool_call>")[0]) for part in verifier.gold(task).split("<tool_call>")[1:]]
        reversed_calls = json.dumps(calls[::-1])
        assert verifier.judge(task, reversed_calls).reward == 1.0, "the order of independent calls does not matter"
        for kind, variant in broken(calls, task.columns["tools"]):
            num_variants += 1
            if verifier.judge(task, json.dumps(variant)).reward != 0.0:
                passed.append((task.id, kind))
    assert num_variants > 150
    assert passed == []


def test_a_call_in_an_irrelevance_task_earns_nothing(shared, verifier):
    for task in read_tasks(shared, "irrelevance"):
        tool = task.columns["tools"][0]["name"] if task.columns["tools"] else "f"
        call = {"name": tool, "arguments": {}}
        assert verifier.judge(task, json.dumps(call)).reward == 0.0
        assert verifier.judge(task, f"Let me see. <tool_call>{json.dumps(call)}</tool_call>").reward == 0.0
        assert verifier.judge(task, "").reward == 0.0
        assert verifier.judge(task, "I have no tool for that.").reward == 1.0


TOOL = {"name": "f", "parameters": {"type": "dict", "properties": {"a": {"type": "string"}, "b": {"type": "dict"}}}}
QUESTION = {"id": "q", "question": [[{"role": "user", "content": "?"}]], "function": [TOOL]}


def test_possible_values_become_patterns():
    truth = [{"f": {"a": ["x", ""], "b": [{"k": [1, 2], "m": ["", 3]}]}}]
    task = bfcl_task(QUESTION, {"id": "q", "ground_truth": truth})
    inner = {"k": {"$one_of": [1, 2]}, "m": {"$optional": {"$one_of": [3]}}}
    arguments = {"a": {"$optional": {"$one_of": ["x"]}}, "b": {"$one_of": [inner]}}
    assert task.columns["calls"] == [{"name": "f", "arguments": arguments}]


def test_lines_are_paired_by_id():
    with pytest.raises(DataError, match="match by id"):
        bfcl_task(QUESTION, {"id": "other", "ground_truth": []})
