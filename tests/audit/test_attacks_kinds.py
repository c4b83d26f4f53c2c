"""Attacks on the other kinds of truth: written in the gold's own form, none of them the gold."""

from __future__ import annotations

import json

import pytest

from groupwise.audit.attacks_classification import classification_attacks
from groupwise.audit.attacks_extraction import extraction_attacks
from groupwise.audit.attacks_math import math_attacks
from groupwise.audit.attacks_text import function_attacks, text_attacks
from groupwise.audit.attacks_tools import tool_attacks
from groupwise.types import Task

TASK = Task(id="t", prompt="?")
LABELS = ("entailment", "neutral", "contradiction")


def by_name(attacks):
    return {attack.name: attack.text for attack in attacks}


@pytest.mark.parametrize(
    ("gold", "one_more"),
    [
        ("#### 18", "#### 19"),
        (r"So \boxed{18}", r"So \boxed{19}"),
        ("<answer>18</answer>", "<answer>19</answer>"),
        ("Answer: 1,800", "Answer: 1801"),
        ("18", "19"),
    ],
)
def test_math_attacks_stand_where_the_answer_stands(gold, one_more):
    attacks = math_attacks(TASK, gold)
    assert by_name(attacks)["one_more"] == one_more
    assert gold not in [attack.text for attack in attacks]
    assert len(attacks) >= 15


def test_an_expression_has_no_neighbours():
    names = by_name(math_attacks(TASK, r"\boxed{\frac{x}{2}}"))
    assert "one_more" not in names
    assert names["two_in_one_place"] == r"\boxed{\frac{x}{2} or \frac{x}{2} + 1}"


def test_zero_has_no_other_sign():
    assert not {"other_sign", "ten_times"} & by_name(math_attacks(TASK, "#### 0")).keys()


@pytest.mark.parametrize(
    "gold",
    ['{"label": "neutral", "rationale": "It may be."}', "It may be.\nLabel: neutral"],
)
def test_classification_attacks_keep_the_form(gold):
    attacks = classification_attacks(TASK, gold, label="neutral", labels=LABELS, input_text="in", rationale=True)
    names = by_name(attacks)
    if gold.startswith("{"):
        assert json.loads(names["copied_input"]) == {"label": "neutral", "rationale": "in"}
        assert json.loads(names["all_labels"])["label"] == "entailment / neutral / contradiction"
    else:
        assert names["copied_input"] == "in\nLabel: neutral"
        assert names["no_rationale"] == "Label: neutral"
    assert {"says_another_label", "repeated_rationale", "part_of_a_label", "two_labels"} <= names.keys()


def test_without_rationales_only_labels_are_attacked():
    attacks = classification_attacks(
        TASK, "Label: neutral", label="neutral", labels=LABELS, input_text="", rationale=False
    )
    assert not {"no_rationale", "copied_input"} & by_name(attacks).keys()


def test_extraction_attacks_reach_every_leaf():
    gold = json.dumps(
        {"date": "2024-04-03", "due": None, "no": "0042", "total": 12.5, "paid": False, "lines": [{"n": 1}, {"n": 2}]}
    )
    texts = [attack.text for attack in extraction_attacks(TASK, gold)]
    names = by_name(extraction_attacks(TASK, gold))
    assert json.loads(names["day_and_month"])["date"] == "2024-03-04"
    assert json.loads(names["date_as_printed"])["date"] == "03.04.2024"
    assert json.loads(names["number_for_text"])["no"] == 42
    assert json.loads(names["invented_value"])["due"] == "2024-05-03"
    assert json.loads(names["item_missing"])["lines"] == [{"n": 1}]
    assert any('"total": NaN' in text for text in texts)
    assert '"lines": [{"n": 1}, {"n": 3}]' in " ".join(texts)
    assert names["duplicate_key"].startswith('{"date": "zz", "date": "2024-04-03"')
    assert gold not in texts


def test_a_fenced_gold_is_attacked_in_a_fence():
    names = by_name(extraction_attacks(TASK, '```json\n{"a": 1}\n```'))
    assert names["one_more"] == '```json\n{"a": 2}\n```'
    assert extraction_attacks(TASK, "no object") == []


def test_tool_attacks_skip_change_and_talk():
    calls = [{"name": "find", "arguments": {"id": "W7"}}, {"name": "pay", "arguments": {"sum": 140, "fast": True}}]
    tagged = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    for gold, simulated in ((tagged, True), (json.dumps(calls), False)):
        attacks = tool_attacks(TASK, gold, simulated=simulated)
        texts = {}
        for attack in attacks:
            texts.setdefault(attack.name, []).append(attack.text)
        assert len(texts["skipped_call"]) == 2
        assert "pay" not in texts["skipped_call"][1]
        assert any('"sum": "140"' in text for text in texts["number_as_text"])
        assert {"no_calls", "refused", "claimed", "extra_argument", "unknown_tool"} <= texts.keys()
        assert {a.may_pass for a in attacks if a.name == "skipped_call"} == {simulated}


def test_a_refusal_is_attacked_with_a_call():
    (attack,) = tool_attacks(TASK, "No tool fits.", simulated=False)
    assert attack.name == "called_a_tool"


def test_texts_for_every_kind_leave_out_a_gold_that_is_one_of_them():
    assert "{}" in [attack.text for attack in text_attacks(TASK, "18")]
    assert "{}" not in [attack.text for attack in text_attacks(TASK, "{}")]
    assert by_name(function_attacks(TASK, "abc"))["gold_reversed"] == "cba"
