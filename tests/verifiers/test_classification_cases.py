import json

import pytest
from case_tasks_rationale import BANK, NLI, TASK_B, TASK_E, tasks

from groupwise.config.verifier_classification import ClassificationVerifierSection
from groupwise.types import Status
from groupwise.verifiers.classification import ClassificationVerifier

CASES = tasks()
REASONS = {
    "RAT-02": "argues_other_label",
    "RAT-03": "argues_other_label",
    "RAT-04": "wrong_label",
    "RAT-05": "no_rationale",
    "RAT-06": "restates_label",
    "RAT-07": "copies_input",
    "RAT-08a": "rationale_short",
    "RAT-08b": "ungrounded",
    "RAT-09": "speaks_to_judge",
    "RAT-12": "several_answers",
    "RAT-15": "says_other_label",
    "RAT-17": "argues_other_label",
    "RAT-19": "rationale_long",
}


def build(section):
    settings = ClassificationVerifierSection(**section).model_dump(exclude={"kind", "unusable_gold"})
    return ClassificationVerifier(**settings)


@pytest.mark.parametrize(("section", "task", "text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_listed_verdict_is_given(section, task, text, expected):
    verdict = build(section).judge(task, text)
    assert verdict.status is not Status.UNSCORED
    assert (verdict.reward == 1.0) == (expected == "PASS"), verdict


@pytest.mark.parametrize("case", [c for c in CASES if c[0] in REASONS], ids=lambda case: case[0])
def test_each_case_is_caught_by_its_own_gate(case):
    name, section, task, text, _ = case
    verdict = build(section).judge(task, text)
    assert verdict.reason.split(":")[0] == REASONS[name], verdict


def test_the_golds_of_the_cases_earn_the_reward():
    for section, task in ((NLI, TASK_E), (BANK, TASK_B)):
        verifier = build(section)
        assert verifier.check([task]) == []
        assert verifier.judge(task, verifier.gold(task)).reward == 1.0


def test_every_case_of_the_list_is_here(shared):
    path = shared / "handbook" / "cases.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the reference data")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    listed = {row["id"]: row["verdict"] for row in rows if row["domain"] == "rationale"}
    assert {case[0][:6]: case[4] for case in CASES} == listed
