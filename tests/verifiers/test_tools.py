"""ToolVerifier as a whole: the labelled cases, whose fault a failure is, gold checks, simulation, threads."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import case_tasks_tools as shop
import pytest

from groupwise.config.verifier_tools import ToolsVerifierSection
from groupwise.errors import VerifierError
from groupwise.types import Status, Task
from groupwise.verifiers.contract import TaskVerifier
from groupwise.verifiers.tools import ToolVerifier

CASES = shop.tasks()


@pytest.fixture(scope="module")
def verifier():
    verifier = ToolVerifier()
    yield verifier
    verifier.close()


@pytest.mark.parametrize(("case", "section", "task", "completion", "expected"), CASES, ids=[case[0] for case in CASES])
def test_labelled_cases(verifier, case, section, task, completion, expected):
    ToolsVerifierSection.model_validate(section)
    verdict = verifier.judge(task, completion)
    assert (verdict.reward == 1.0) is (expected == "PASS")
    assert verdict.status is not Status.UNSCORED


def test_section_and_verifier_have_the_same_settings(verifier):
    checked: TaskVerifier = verifier
    section = ToolsVerifierSection(kind="tools")
    settings = section.model_dump(exclude={"kind", "unusable_gold"})
    same = ToolVerifier(**settings)
    assert same.version == checked.version
    assert ToolVerifier(**settings | {"max_calls": 5}).version != checked.version


ADD = {
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
}


def task(*calls, **columns):
    return Task(id="t1", prompt="?", columns={"tools": [ADD], "calls": list(calls), **columns})


def add(**arguments):
    return {"name": "add", "arguments": arguments}


@pytest.mark.parametrize(
    ("gold", "given", "word"),
    [
        ([add(a=1)], [add(a=1.0)], "right_calls"),
        ([add(a=1), add(a=2)], [add(a=2), add(a=1)], "right_calls"),
        ([add(a=1), add(a=1)], [add(a=1)], "missing_call"),
        ([add(a=1)], [add(a=1), add(a=1)], "extra_call"),
        ([add(a=1)], [add(a=2)], "wrong_arguments"),
        ([add(a=1)], [add(a=1, b="x")], "wrong_arguments"),
        ([add(a=1)], [], "missing_call"),
        ([add(a=1)], [add(a="1")], "bad_arguments"),
        ([add(a=1)], [add(a=1), {"name": "sub", "arguments": {}}], "unknown_tool"),
        ([add(a=1)], [add(a=1)] * 33, "too_many_calls"),
    ],
)
def test_reasons_of_compared_calls(verifier, gold, given, word):
    verdict = verifier.judge(task(*gold), shop.written(*given))
    assert verdict.reason.partition(":")[0] == word
    assert (verdict.reward == 1.0) is (word == "right_calls")
    assert verdict.outcome is (word == "right_calls")
    assert all(check.expected for check in verdict.checks)


def test_an_assignment_is_found_where_greed_fails(verifier):
    gold = [add(a={"$one_of": [1, 2]}), add(a=1)]
    assert verifier.judge(task(*gold), shop.written(add(a=1), add(a=2))).reward == 1.0
    assert verifier.judge(task(*gold), shop.written(add(a=2), add(a=2))).reward == 0.0


def test_no_call_wants_text_and_no_call(verifier):
    refusal = Task(id="n", prompt="?", columns={"tools": [ADD], "no_call": True, "answer": ["cannot"]})
    assert verifier.judge(refusal, verifier.gold(refusal)).reward == 1.0
    for text, word in [
        ("Of course!", "missing_answer"),
        ("", "no_answer"),
        ("  ...", "no_answer"),
        ("[]", "no_answer"),
        ("<think>I cannot</think>", "no_answer"),
        ('{"name": "add", "arguments": {', "bad_call"),
        ("I cannot <tool_call>", "bad_call"),
        (f"I cannot {shop.written(add(a=1))} cannot", "called_a_tool"),
    ]:
        verdict = verifier.judge(refusal, text)
        assert (verdict.reason.partition(":")[0], verdict.reward) == (word, 0.0), text


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"calls": None}, "gold_missing"),
        ({"calls": []}, "gold_missing"),
        ({"calls": [add(a=1)], "no_call": True}, "gold_bad"),
        ({"calls": [{"name": "sub", "arguments": {}}]}, "gold_bad"),
        ({"calls": [add(a="x")]}, "gold_bad"),
        ({"calls": [add(a={"$oneof": [1]})]}, "gold_bad"),
        ({"calls": [add(a={"$from": ["0", "x"]})]}, "gold_bad"),
        ({"calls": "not json"}, "gold_bad"),
        ({"tools": []}, "tools_bad"),
        ({"state": {"t": []}}, "effects_missing"),
        ({"effects": {}}, "state_missing"),
        ({"state": {"t": 1}, "effects": {"add": {}}}, "state_bad"),
        ({"state": {"t": []}, "effects": {"add": {}}}, "gold_empty"),
        ({"state": {"t": []}, "effects": {"add": {"do": [{"check": {"$equal": [1, 2]}}]}}}, "gold_failed"),
        ({"forbidden": ["add"]}, "gold_failed"),
        ({"required": [{"tool": "add", "arguments": {"a": 5}}]}, "gold_failed"),
        ({"answer": [""]}, "gold_bad"),
        ({"max_calls": 0}, "gold_failed"),
    ],
)
def test_a_criterion_that_is_empty_or_broken_is_refused(verifier, columns, word):
    broken = Task(id="t1", prompt="?", columns={"tools": [ADD], "calls": [add(a=1)], **columns})
    (problem,) = verifier.check([broken])
    assert problem.blocking
    assert problem.reason.partition(":")[0] == word
    if word != "gold_failed":
        verdict = verifier.judge(broken, shop.written(add(a=1)))
        assert (verdict.status, verdict.reward) == (Status.UNSCORED, None)


def test_check_lists_weaknesses(verifier):
    sure = shop.task_r()
    loose = Task(id="loose", prompt="?", columns={k: v for k, v in sure.columns.items() if k != "required"})
    problems = verifier.check([sure, shop.task_n(), loose])
    assert [(p.task_id, p.blocking, p.reason.partition(":")[0]) for p in problems] == [
        ("loose", False, "call_not_needed")
    ]


def test_each_required_step_and_order_of_the_gold_is_needed(verifier):
    gold = verifier.gold(shop.task_r())
    calls = [part + "</tool_call>" for part in gold.split("</tool_call>")[:-1]]
    for i in range(len(calls)):
        assert verifier.judge(shop.task_r(), "\n".join(calls[:i] + calls[i + 1 :])).reward == 0.0
    for i in range(1, len(calls) - 1):
        swapped = [*calls[:i], calls[i + 1], calls[i], *calls[i + 2 :]]
        assert verifier.judge(shop.task_r(), "\n".join(swapped)).reward == 0.0


def test_failed_calls_may_be_allowed_and_change_nothing(verifier):
    _, _, r, right, _ = CASES[0]
    tries = shop.written(shop.call("issue_refund", order_id="W7", amount=140, approval_id="A1"), shop.call("nothing"))
    assert verifier.judge(r, tries + right).reward == 0.0
    lenient = ToolVerifier(max_failed_calls=2)
    assert lenient.judge(r, tries + right).reward == 1.0
    assert lenient.judge(r, shop.written(shop.call("nothing")) + tries + right).reward == 0.0


def test_collateral_and_undone_writes_fail(verifier):
    _, _, r, right, _ = CASES[0]
    other = shop.written(shop.call("request_approval", order_id="W8", amount=1))
    assert verifier.judge(r, right + other).reason.startswith("wrong_writes")
    undone = shop.written(shop.call("void_refund", order_id="W7"))
    assert verifier.judge(r, right + undone).reason.startswith("wrong_writes")


def test_an_end_state_may_be_given(verifier):
    columns = {**shop.WORLD, "calls": [shop.call("issue_refund", order_id="W8", amount=15, approval_id=None)]}
    after = [{**row, "refunded": 15} if row["order_id"] == "W8" else row for row in shop.STATE["orders"]]
    right = Task(id="e", prompt="?", columns={**columns, "end_state": {"orders": after}})
    assert verifier.check([right]) == []
    wrong = Task(id="w", prompt="?", columns={**columns, "end_state": {"orders": shop.STATE["orders"]}})
    (problem,) = verifier.check([wrong])
    assert "wrong_end_state" in problem.reason


def test_responses_are_checked_never_believed():
    _, _, r, right, _ = CASES[0]
    user = '{"email": "ana@x.com", "user_id": "u1"}'
    with_response = right.replace("</tool_call>", f"</tool_call><tool_response>{user}</tool_response>", 1)
    assert ToolVerifier().judge(r, with_response).reason.startswith("wrote_response")
    checking = ToolVerifier(responses="check")
    assert checking.judge(r, with_response).reward == 1.0
    assert checking.judge(r, with_response.replace('"u1"}', '"u2"}')).reason.startswith("response_differs")


def test_partial_credit_is_capped_and_never_reaches_a_right_answer():
    generous = ToolVerifier(partial_cap=0.4)
    gold = task(add(a=1), add(a=2))
    assert generous.judge(gold, shop.written(add(a=1))).reward == pytest.approx(0.2)  # 0.4 * 1 of 2
    assert generous.judge(gold, shop.written(*[add(a=1)] * 20)).reward == pytest.approx(0.02)  # 0.4 * 1 of 20
    assert generous.judge(gold, shop.written(add(a=1), add(a=2))).reward == 1.0
    assert generous.judge(gold, "").reward == 0.0
    for _, _, case_task, completion, expected in CASES:
        verdict = generous.judge(case_task, completion)
        assert verdict.reward == 1.0 if expected == "PASS" else verdict.reward <= 0.4
        assert verdict.outcome is (expected == "PASS")


FUNCTIONS = """
def put(state, *, key, value):
    if value == "spin":
        while True:
            pass
    if value == "eat":
        return len("x" * 10**12)
    if any(row["key"] == key for row in state["rows"]):
        state["rows"].clear()
        raise ValueError("taken")
    state["rows"].append({"key": key, "value": value})
    return {"count": len(state["rows"])}
"""


def test_functions_run_in_a_worker(tmp_path):
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    tool = shop.function("put", key=shop.TEXT, value=shop.TEXT)
    (tmp_path / "world.json").write_text(json.dumps({"tools": [tool], "state": {"rows": []}}))
    verifier = ToolVerifier(functions="shop.py", world="world.json", base_folder=tmp_path, time_limit_s=0.3)
    gold = [shop.call("put", key=key, value="v") for key in "ab"]
    stored = Task(id="f", prompt="?", columns={"calls": gold})
    try:
        assert verifier.check([stored]) == []
        assert verifier.judge(stored, shop.written(*gold[::-1])).reward == 1.0
        for value, word in [("spin", "timeout"), ("eat", "timeout"), ("w", "wrong_writes")]:
            text = shop.written(gold[0], shop.call("put", key="b", value=value))
            assert verifier.judge(stored, text).reason.partition(":")[0] == word
        assert verifier.judge(stored, shop.written(gold[0], gold[0], gold[1])).reason.startswith("call_failed")
        assert verifier.judge(stored, shop.written(*gold)).reward == 1.0
    finally:
        verifier.close()
    after = verifier.judge(replace(stored, id="g"), shop.written(*gold))
    assert (after.status, after.reason.partition(":")[0]) == (Status.UNSCORED, "worker_failed")


def test_a_schema_pattern_cannot_stall(verifier):
    tool = shop.function("f", a={"type": "string", "pattern": "^(a+)+$"})
    slow = Task(id="p", prompt="?", columns={"tools": [tool], "calls": [shop.call("f", a="aaa")]})
    quick = ToolVerifier(time_limit_s=0.2)
    assert quick.judge(slow, quick.gold(slow)).reward == 1.0
    assert quick.judge(slow, shop.written(shop.call("f", a="a" * 50 + "!"))).reason.startswith("timeout")
    quick.close()


def test_columns_may_be_json_text_and_have_other_names():
    renamed = ToolVerifier(columns={"calls": "ground_truth"})
    columns = {"tools": json.dumps([ADD]), "ground_truth": json.dumps([add(a=1)])}
    assert renamed.check([Task(id="j", prompt="?", columns=columns)]) == []


def test_a_text_without_types_is_read_by_the_schema(verifier):
    text = "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>"
    text = f"<tool_call>\n{text}\n</tool_call>"
    assert verifier.judge(task(add(a=1, b="2")), text).reward == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"call_form": "xml"},
        {"responses": "trust"},
        {"match": "none"},
        {"max_calls": 0},
        {"partial_cap": 1.0},
        {"columns": {"call": "x"}},
        {"world": "missing.json"},
        {"functions": "missing.py"},
        {"time_limit_s": 0},
    ],
)
def test_settings_that_cannot_be_used(settings):
    with pytest.raises(VerifierError, match=next(iter(settings))):
        ToolVerifier(**settings)


def test_no_text_raises_hangs_or_is_unscored(verifier):
    rng = random.Random(0)
    texts = [completion for _, _, _, completion, _ in CASES]
    pieces = [
        "<tool_call>",
        "</tool_call>",
        "null",
        "\ud800",
        "1e400",
        "{",
        "]",
        "\x00",
        "9" * 400,
        "\\u0000",
        '"$any"',
    ]
    for _ in range(300):
        text = rng.choice(texts)
        start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = text[:start] + rng.choice([*pieces, text[start:end] * 2, ""]) + text[end:]
        for case_task in (CASES[0][2], CASES[15][2], task(add(a=1))):
            verdict = verifier.judge(case_task, text)
            assert verdict.status is not Status.UNSCORED
            json.dumps(verdict.reason).encode()


def test_threads_agree(verifier):
    fresh = [(replace(case_task, id=case_task.id), completion) for _, _, case_task, completion, _ in CASES]
    alone = [verifier.judge(*pair) for pair in fresh]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda pair: verifier.judge(*pair), fresh * 5)) == alone * 5
