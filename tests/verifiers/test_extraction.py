from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest
from case_tasks_extraction import FIELDS, GOLD, LINE_FIELDS, LINES, tasks
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.errors import VerifierError
from groupwise.types import Status, Task
from groupwise.verifiers.extraction import ExtractionVerifier

CASES = tasks()


def verifier(fields=FIELDS, **settings: Any) -> ExtractionVerifier:
    return ExtractionVerifier(fields=fields, **settings)


def task(gold: object, **columns: object) -> Task:
    return Task(id="d1", prompt="p", columns={"gold": gold, **columns})


def judge(answer: object, *, gold: object = GOLD, fields=FIELDS, **settings: Any):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return verifier(fields, **settings).judge(task(gold), text)


def word(verdict) -> str:
    return verdict.reason.partition(":")[0]


def found(verdict, name: str) -> str:
    return next(check.found for check in verdict.checks if check.name == name)


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{index}" for index, case in enumerate(CASES)])
def test_published_cases(case):
    _, section, one, completion, expected = case
    fields = {name: value for name, value in section.items() if name != "kind"}
    judging = ExtractionVerifier(**fields)
    verdict = judging.judge(one, completion)
    assert (verdict.reward == 1.0) == (expected == "PASS"), verdict
    assert verdict.status is not Status.UNSCORED
    assert judging.check([one]) == []


def test_every_published_case_is_there(shared):
    lines = (shared / "handbook" / "cases.jsonl").read_text().splitlines()
    listed = {row["id"]: row["verdict"] for row in map(json.loads, lines) if row["domain"] == "extraction"}
    assert {case[0]: case[4] for case in CASES} == listed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iban": None}, "unknown_field"),
        ({"iban": "DE02"}, "unknown_field"),
        ({"term": {"n": 30, "unit": "day", "note": 1}}, "wrong_form"),
        ({"vendor": None}, "wrong_form"),
        ({"due_date": "2024-05-03"}, "invented_value"),
        ({"due_date": ""}, "invented_value"),
        ({"total": 1234.51}, "wrong_value"),
        ({"total": 1234.505}, "wrong_form"),
        ({"total": "1234.50"}, "wrong_form"),
        ({"invoice_no": ["0042-A"]}, "wrong_form"),
        ({"invoice_no": "0042-A or 0043"}, "wrong_value"),
    ],
)
def test_what_is_wrong_is_named(change, reason):
    verdict = judge(GOLD | change)
    assert word(verdict) == reason
    assert verdict.status is Status.SCORED
    assert verdict.reward == 0.0


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("", "no_answer"),
        ("I cannot.", "not_json"),
        ("[]", "not_an_object"),
        ("null", "not_an_object"),
        (json.dumps(json.dumps(GOLD)), "not_an_object"),
        (json.dumps([GOLD]), "not_an_object"),
        (json.dumps(GOLD)[:-1] + ', "total": 1234.5}', "duplicate_key"),
        (json.dumps(GOLD | {"total": float("inf")}), "not_finite"),
        ("Sure: " + json.dumps(GOLD), "not_json"),
        (json.dumps(GOLD | {"vendor": "x" * 100_000}), "too_large"),
    ],
)
def test_an_answer_that_is_no_object_is_invalid(completion, reason):
    verdict = judge(completion)
    assert (word(verdict), verdict.status, verdict.reward) == (reason, Status.INVALID, 0.0)


def test_missing_and_null_are_told_apart():
    fields = {
        "a": {"kind": "id"},
        "b": {"kind": "id", "presence": "nullable"},
        "c": {"kind": "id", "presence": "optional"},
    }
    gold = {"a": "1", "b": None}
    assert judge({"a": "1", "b": None}, gold=gold, fields=fields).reward == 1.0
    assert judge({"a": "1", "b": None, "c": None}, gold=gold, fields=fields).reward == 1.0
    assert word(judge({"a": "1"}, gold=gold, fields=fields)) == "missing_field"
    assert word(judge({"b": None}, gold=gold, fields=fields)) == "missing_field"
    assert word(judge({"a": None, "b": None}, gold=gold, fields=fields)) == "wrong_form"
    full = {"a": "1", "b": "2", "c": "3"}
    assert word(judge({"a": "1", "b": None, "c": "3"}, gold=full, fields=fields)) == "missing_value"
    assert word(judge({"a": "1", "b": "2"}, gold=full, fields=fields)) == "missing_value"


def test_precision_recall_and_f1_by_hand():
    # 8 fields, 7 with a value: 6 right, the total wrong (1 too many, 1 missed), one invented (1 too many)
    verdict = judge(GOLD | {"total": 9, "due_date": "2024-05-03"}, partial_cap=0.5)
    assert found(verdict, "field_precision") == "0.750 (6 right, 2 too many, 1 missed)"  # 6 / 8
    assert found(verdict, "field_recall").startswith("0.857")  # 6 / 7
    assert found(verdict, "field_f1").startswith("0.800")  # 12 / (12 + 2 + 1)
    assert verdict.reward == pytest.approx(0.5 * 0.8)
    assert verdict.outcome is False


def test_a_hallucinated_field_costs():
    one, two = judge(GOLD | {"x": 1}, partial_cap=0.5), judge(GOLD | {"x": {"y": [1, 2], "z": None}}, partial_cap=0.5)
    assert 0.5 > one.reward > two.reward > 0
    assert judge(GOLD | {"x": None}, partial_cap=0.5).reward < 0.5


@pytest.mark.parametrize("answer", [{}, dict.fromkeys(FIELDS), dict.fromkeys(FIELDS, ""), dict.fromkeys(FIELDS, 0)])
def test_empty_and_constant_answers_earn_nothing(answer):
    assert judge(answer, partial_cap=0.9).reward == 0.0


LISTS = {"tags[]": {"kind": "id"}, "route": {"kind": "list", "ordered": True}, "route[]": {"kind": "id"}, **LINE_FIELDS}
LIST_GOLD = {"tags": ["a", "b", "b"], "route": ["x", "y"], "line_items": LINES}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tags": ["b", "a", "b"]}, "same_fields"),
        ({"line_items": LINES[::-1]}, "same_fields"),
        ({"tags": ["a", "b"]}, "missing_item"),
        ({"tags": ["a", "a", "b"]}, "wrong_value"),
        ({"tags": ["a", "b", "b", "b"]}, "extra_item"),
        ({"tags": ["a", "b", ["b"]]}, "wrong_form"),
        ({"tags": "a"}, "wrong_form"),
        ({"tags": []}, "missing_item"),
        ({"tags": ["a", "b", None]}, "wrong_form"),
        ({"route": ["y", "x"]}, "wrong_value"),
        ({"line_items": [*LINES, LINES[0]]}, "extra_item"),
        ({"line_items": [LINES[0] | {"qty": 1}, LINES[1], LINES[2]]}, "wrong_value"),
        ({"line_items": [LINES[0] | {"sku": 1}, LINES[1], LINES[2]]}, "unknown_field"),
        ({"line_items": [7, LINES[1], LINES[2]]}, "wrong_form"),
    ],
)
def test_lists_are_bags_unless_ordered(change, reason):
    assert word(judge(LIST_GOLD | change, gold=LIST_GOLD, fields=LISTS)) == reason


def test_items_are_assigned_so_that_most_is_right():
    # two wrong quantities in another order: 7 of 9 fields right only if each item finds its own
    changed = [LINES[2] | {"qty": 9}, LINES[0] | {"qty": 9}, LINES[1]]
    verdict = judge({"line_items": changed}, gold={"line_items": LINES}, fields=LINE_FIELDS)
    assert found(verdict, "field_f1") == "0.778 (7 right, 2 too many, 2 missed)"


def test_a_schema_alone_is_enough(tmp_path):
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "no": {"type": "string", "x-kind": "id", "pattern": "^(a+)+$"},
            "issued": {"type": "string", "format": "date"},
            "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            "share": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.01},
            "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "uniqueItems": True},
        },
        "required": ["no", "issued", "due"],
        "additionalProperties": False,
    }
    (tmp_path / "s.json").write_text(json.dumps(schema))
    gold = {"no": "aaa", "issued": "2024-04-03", "due": None, "share": 0.07, "tags": ["x", "y"]}
    judging = ExtractionVerifier(schema_file="s.json", base_folder=tmp_path, partial_cap=0.5)
    one = task(gold)
    assert judging.check([one]) == []

    def outcome(**change: object) -> str:
        return word(judging.judge(one, json.dumps(gold | change)))

    assert outcome() == outcome(tags=["y", "x"]) == "same_fields"
    assert outcome(issued="03.04.2024") == "wrong_form"
    assert outcome(no="a" * 40 + "!") == "wrong_value"
    assert outcome(due="2024-05-03") == "invented_value"
    assert outcome(extra=1) == "unknown_field"
    # 0.07 is a multiple of 0.01 exactly, which it is not in floating point
    twice = judging.judge(one, json.dumps(gold | {"tags": ["x", "x"]}))
    assert (twice.reward, found(twice, "shape")) == (0.0, "$.tags: uniqueItems does not hold")


def test_the_gold_is_proved_before_training():
    bad: dict[str, object] = {
        "gold_missing": None,
        "gold_empty": {"due_date": None},
        "gold_bad": GOLD | {"issue_date": "03.04.2024"},
    }
    judging = verifier({"issue_date": FIELDS["issue_date"] | {"presence": "optional"}, "due_date": FIELDS["due_date"]})
    for reason, gold in bad.items():
        one = task(gold)
        (problem,) = judging.check([one])
        assert problem.blocking
        assert problem.reason.startswith(reason)
        assert judging.judge(one, "{}").status is Status.UNSCORED


@pytest.mark.parametrize(
    "gold",
    ["[1]", '{"tags": "abc"}', '{"tags": ["a", 7]}', '{"line_items": [{"name": "a"}, 7, "x"]}', '{"a": NaN}', "{"],
)
def test_a_gold_of_any_form_is_refused_in_words(gold):
    optional = {path: settings | {"presence": "optional"} for path, settings in LISTS.items() if path != "route[]"}
    judging = verifier(optional | {"route[]": {"kind": "id"}})
    (problem,) = judging.check([task(gold)])
    assert problem.reason.startswith("gold_bad")


def test_an_empty_gold_can_be_allowed():
    fields = {"due_date": FIELDS["due_date"]}
    assert judge("{}", gold={}, fields=fields, empty_gold="allow").reward == 1.0
    assert judge({"due_date": "2024-01-01"}, gold={}, fields=fields, empty_gold="allow", partial_cap=0.9).reward == 0.0


def test_baits_must_fail():
    judging = verifier(bait_column="baits")
    printed = GOLD | {"issue_date": "03.04.2024"}
    assert judging.check([task(GOLD, baits=[printed, json.dumps(printed)])]) == []
    (problem,) = judging.check([task(GOLD, baits=[GOLD | {"vendor": "acme gmbh"}])])
    assert problem.reason.startswith("bait_passes")
    (problem,) = judging.check([task(GOLD, baits=[])])
    assert problem.reason.startswith("bait_missing")


def test_gold_is_an_answer_in_the_declared_place():
    for answer_in in ("auto", "text", "fence"):
        judging = verifier(answer_in=answer_in)
        for gold in (GOLD, json.dumps(GOLD), GOLD | {"total": Decimal("1234.50")}):
            assert judging.judge(task(gold), judging.gold(task(gold))).reward == 1.0


def test_version_depends_on_settings():
    assert verifier().version == verifier().version == verifier(dict(reversed(FIELDS.items()))).version
    assert verifier().version != verifier(partial_cap=0.1).version
    assert verifier().version != verifier(FIELDS | {"vendor": {"kind": "id"}}).version


@pytest.mark.parametrize(
    "settings",
    [{"fields": {}}, {"fields": None}, {"partial_cap": 1.0}, {"answer_in": "tag"}, {"empty_gold": "drop"}],
)
def test_settings_that_cannot_be(settings):
    with pytest.raises(VerifierError, match="give"):
        ExtractionVerifier(**({"fields": FIELDS} | settings))


ATOMS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "0042-A", "2024-04-03", "EUR", ""])
ANY = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "n"]), inner)
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    change=st.dictionaries(st.sampled_from([*GOLD, "line_items", "extra"]), ANY, max_size=3),
    drop=st.sets(st.sampled_from([*GOLD])),
)
def test_a_wrong_answer_never_reaches_a_right_one(change, drop):
    gold = GOLD | {"line_items": LINES}
    answer = {name: value for name, value in (gold | change).items() if name not in drop}
    verdict = judge(answer, gold=gold, fields=FIELDS | LINE_FIELDS, partial_cap=0.5)
    assert verdict.status is Status.SCORED
    judged = {name: value for name, value in answer.items() if (name, value) != ("due_date", None)}
    right = judged == {name: value for name, value in gold.items() if name != "due_date"}
    assert (verdict.reward == 1.0, verdict.outcome) == (right, right)
    assert right or verdict.reward <= 0.5


def test_white_space_and_key_order_are_irrelevant():
    for text in (
        json.dumps(GOLD, indent=3),
        json.dumps(dict(reversed(GOLD.items())), separators=(",", ":")),
        f"\n\t{json.dumps(GOLD)}\r\n",
    ):
        assert judge(text).reward == 1.0


@pytest.mark.parametrize(
    "lines",
    [
        [{"name": f"n{i}", "qty": i + 1, "price": i} for i in range(1200)],
        [{"name": "n", "qty": 1, "price": i} for i in range(1500)],
        [{} for _ in range(12_000)],
        [[[]]] * 9000,
        list(range(9000)),
    ],
    ids=["other", "alike", "empty", "nested", "numbers"],
)
def test_long_lists_end_quickly(lines):
    gold = {"line_items": [{"name": "n", "qty": 2, "price": i} for i in range(200)]}
    judging = verifier(LINE_FIELDS)
    started = time.process_time()
    verdict = judging.judge(task(gold), json.dumps({"line_items": lines}))
    assert time.process_time() - started < 3.0
    assert (verdict.status, verdict.reward) == (Status.SCORED, 0.0)


def test_a_list_inside_an_item_is_a_bag_too():
    fields = {"rows[].tags[]": {"kind": "id"}}
    gold = {"rows": [{"tags": ["a", "b", "b"]}, {"tags": []}]}
    assert judge({"rows": [{"tags": []}, {"tags": ["b", "a", "b"]}]}, gold=gold, fields=fields).reward == 1.0
    assert judge({"rows": [{"tags": ["a", "a", "b"]}, {"tags": []}]}, gold=gold, fields=fields).reward == 0.0
    near = {"rows": [{"tags": ["a", "b", "b"]}, {"tags": ["a", "a", "b"]}]}
    assert judge({"rows": near["rows"][::-1]}, gold=near, fields=fields).reward == 1.0
