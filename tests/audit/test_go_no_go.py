"""The audit against verifiers with known weaknesses: each one is a no-go, a sound one is a go."""

from __future__ import annotations

import json

import pytest

from groupwise.audit import Attack, AuditLimits, audit
from groupwise.errors import VerifierError
from groupwise.types import Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold

TASKS = [Task(id=f"q{n}", prompt=f"What is {n} + {n}?", columns={"gold": str(2 * n)}) for n in range(1, 21)]


class Sums:
    """Pays for the right number; `weakness(task, text)` pays too, `findings` are what check says."""

    version = "v1"

    def __init__(self, weakness=lambda task, text: False, findings=(), gold=lambda task: task.columns["gold"]):
        self.weakness, self.findings, self._gold = weakness, list(findings), gold

    def judge(self, task, completion_text):
        right = completion_text == task.columns["gold"] or self.weakness(task, completion_text)
        return Verdict(status=Status.SCORED, reward=float(right), outcome=right, reason="same" if right else "other")

    def gold(self, task):
        return self._gold(task)

    def check(self, tasks):
        return self.findings

    def close(self):
        pass


def one_more(task, gold):
    return [Attack(name="one_more", text=str(int(gold) + 1), why="one more")]


def again(pairs, verifier=None):
    return [(verifier or Sums()).judge(task, text) for task, text in pairs]


def audited(verifier, **options):
    options = {"attack": one_more, "rejudge": again} | options
    return audit(verifier, TASKS, **options)


def test_a_sound_verifier_is_a_go():
    report = audited(Sums())
    assert report.go, report.no_gos
    assert (report.num_tasks, report.num_attacked, report.verifier_version) == (20, 20, "v1")
    assert json.loads(json.dumps(report.as_json()))["go"] is True
    assert report.headline().startswith("audit: GO (20 of 20 tasks attacked")


@pytest.mark.parametrize(
    ("weakness", "check"),
    [
        (lambda task, text: text == "", "null agent: empty"),
        (lambda task, text: "What" in text, "null agent: echo"),
        (lambda task, text: "sorry" in text, "null agent: refuse"),
        (lambda task, text: len(text.split("\n")) > 5, "null agent: all_golds_at_once"),
        (lambda task, text: text == str(int(task.columns["gold"]) + 1), "attack: one_more"),
    ],
)
def test_each_weakness_is_a_no_go_with_its_smallest_input(weakness, check):
    report = audited(Sums(weakness))
    assert not report.go
    (finding,) = [f for f in report.no_gos if f.check == check]
    assert finding.example.task_id == "q1"
    assert finding.example.prompt == "What is 1 + 1?"
    assert report.headline().startswith("audit: NO-GO")


def test_a_constant_may_earn_its_own_share_of_the_golds_and_no_more():
    same = [Task(id=f"q{n}", prompt=f"{n}?", columns={"gold": "yes" if n < 12 else f"no {n}"}) for n in range(20)]
    assert audit(Sums(), same).go
    greedy = audit(Sums(lambda task, text: text == "yes"), same)
    assert [f.check for f in greedy.no_gos] == ["null agent: most_frequent_gold"]


def test_golds_that_do_not_earn_1_are_a_no_go_unless_dropped():
    bad = UnusableGold(task_id="q3", reason="gold_empty: nothing")
    report = audited(Sums(findings=[bad]))
    assert [f.check for f in report.no_gos] == ["gold earns 1"]
    assert report.no_gos[0].example.reason == "gold_empty: nothing"
    assert audited(Sums(findings=[bad]), drop_unusable=True).go
    unseen = audited(Sums(gold=lambda task: "0" if task.id == "q4" else task.columns["gold"]))
    assert [f.check for f in unseen.no_gos] == ["gold earns 1"]


def test_a_text_that_may_be_right_is_told_and_no_reason_to_stop():
    def lucky(task, gold):
        return [Attack(name="twin", text=gold, why="the same", may_pass=True)]

    report = audited(Sums(), attack=lucky)
    assert report.go
    assert "near misses" in [f.check for f in report.findings]


def test_the_share_of_attacked_tasks_has_a_limit():
    def only_q1(task, text):
        return task.id == "q1" and text == "3"

    assert not audited(Sums(only_q1), rejudge=None).go
    assert audited(Sums(only_q1), rejudge=None, limits=AuditLimits(max_attack_share=0.05)).go
    assert not audited(Sums(only_q1), rejudge=None, limits=AuditLimits(max_attack_share=0.04)).go


def test_a_verifier_that_judges_otherwise_elsewhere_is_a_no_go():
    report = audited(Sums(), rejudge=lambda pairs: again(pairs, Sums(lambda task, text: text == "")))
    (finding,) = report.no_gos
    assert finding.check == "two processes agree"
    assert finding.example.completion == ""


def test_a_verifier_that_fails_too_often_is_a_no_go():
    class Broken(Sums):
        def judge(self, task, completion_text):
            if completion_text == "":
                raise RuntimeError("no")
            return super().judge(task, completion_text)

    report = audited(Broken(), rejudge=None)
    assert [f.check for f in report.no_gos] == ["verifier failures"]
    assert "verifier_raised: RuntimeError: no" in report.no_gos[0].example.reason


def test_only_a_sample_is_attacked_and_the_same_one_each_time():
    limits = AuditLimits(tasks=5)
    seen = []

    def attack(task, gold):
        seen.append(task.id)
        return one_more(task, gold)

    for seed in (1, 1, 2):
        assert audited(Sums(), attack=attack, limits=limits, seed=seed).num_attacked == 5
    assert seen[:5] == seen[5:10] != seen[10:]


def test_no_further_task_is_attacked_when_the_time_is_over():
    report = audited(Sums(), limits=AuditLimits(max_seconds=-1.0), check_golds=False)
    assert report.num_attacked == 0


def test_no_task_no_audit():
    with pytest.raises(VerifierError, match="no task"):
        audit(Sums(), [])
