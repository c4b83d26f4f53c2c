import math
import random
from collections import Counter

import pytest

from groupwise.errors import DataError
from groupwise.types import Check, Status, Verdict
from groupwise.verifiers.classification_monitor import (
    effective_number,
    judge_report,
    label_collapse,
    shared_rationale_frac,
)

GOLD = ["a"] * 40 + ["b"] * 40 + ["c"] * 20


def test_one_label_for_everything_is_a_collapse():
    found = label_collapse(["a"] * 100, GOLD)
    assert found.collapsed
    assert (found.label, found.given_frac, found.gold_frac) == ("a", 1.0, 0.4)
    assert (found.accuracy, found.majority_accuracy, found.given_effective_labels) == (0.4, 0.4, 1.0)


def test_right_answers_and_random_errors_are_no_collapse():
    assert not label_collapse(GOLD, GOLD).collapsed
    rng = random.Random(0)
    noisy = [label if rng.random() < 0.7 else rng.choice("abc") for label in GOLD]
    assert not label_collapse(noisy, GOLD).collapsed


def test_a_skewed_truth_answered_rightly_is_no_collapse():
    gold = ["a"] * 95 + ["b"] * 5
    assert not label_collapse(gold, gold).collapsed


def test_many_labels_that_shrink_to_a_few_are_a_collapse():
    gold = [f"l{i % 50}" for i in range(1000)]
    given = [f"l{i % 10}" for i in range(1000)]
    found = label_collapse(given, gold)
    assert found.given_frac < 0.15
    assert found.collapsed


def test_missing_labels_are_counted_and_left_out():
    found = label_collapse([None] * 90 + ["c"] * 10, GOLD)
    assert (found.num_answers, found.num_missing, found.collapsed) == (10, 90, False)
    assert label_collapse([], []).num_answers == 0
    with pytest.raises(DataError, match="1 labels for 2 gold"):
        label_collapse(["a"], ["a", "b"])


def test_effective_number_by_hand():
    # Shares 1/2, 1/4, 1/4: entropy = ln 2 / 2 + 2 ln 4 / 4 = 1.5 ln 2, and exp of it is 2 ** 1.5.
    assert math.isclose(effective_number(Counter(a=2, b=1, c=1)), 2**1.5)
    assert effective_number(Counter()) == 0.0


def test_one_rationale_under_several_tasks_is_counted():
    # The first two are the same words for tasks 1 and 2; the last two are one task's own repetition.
    assert shared_rationale_frac(["It fits.", "it fits", "Other", "other"], ["1", "2", "3", "3"]) == 0.5
    assert shared_rationale_frac([], []) == 0.0
    with pytest.raises(DataError, match="1 rationales for 0"):
        shared_rationale_frac(["a"], [])


def test_the_judges_disagreement_is_counted_from_verdicts():
    def scored(found):
        check = Check(name="judge", passed=not found.startswith("contradicts"), found=found)
        return Verdict(
            status=Status.SCORED, reward=float(check.passed), outcome=check.passed, reason="x", checks=(check,)
        )

    failed = Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="judge_failed: no reply")
    early = Verdict(status=Status.SCORED, reward=0.0, outcome=False, reason="wrong_label: a")
    verdicts = [scored("supports: a and a")] * 6 + [
        scored("contradicts: b and b"),
        scored("unclear: a and b"),
        failed,
        early,
    ]
    report = judge_report(verdicts)
    assert (report.num_asked, report.num_supports, report.num_contradicts, report.num_unclear) == (9, 6, 1, 1)
    assert (report.num_failed, report.disagreement_frac) == (1, 1 / 8)
    assert judge_report([]).disagreement_frac == 0.0
