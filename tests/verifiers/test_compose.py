"""Compositions: gates multiply, weights sum, what cannot be judged stays unjudged, and wrong never beats right."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.errors import VerifierError
from groupwise.types import Status, Task, Verdict
from groupwise.verifiers.compose import ComposeVerifier, Part
from groupwise.verifiers.contract import UnusableGold

TASK = Task(id="q1", prompt="?", columns={})


class Fixed:
    """Gives one verdict for every text."""

    def __init__(self, reward=1.0, outcome=None, status=Status.SCORED, findings=()):
        outcome = (reward == 1.0) if outcome is None and reward is not None else outcome
        self.verdict = Verdict(status=status, reward=reward, outcome=outcome, reason="fixed: so")
        self.findings, self.asked, self.closed = list(findings), 0, 0
        self.version = f"v{reward}"

    def judge(self, task, completion_text):
        self.asked += 1
        return self.verdict

    def gold(self, task):
        return "gold"

    def check(self, tasks):
        return self.findings

    def close(self):
        self.closed += 1


INVALID = Fixed(0.0, False, Status.INVALID)
UNSCORED = Fixed(None, None, Status.UNSCORED)


def compose(*, cap=0.0, **parts):
    """compose(gate_form=Fixed(), outcome_answer=(Fixed(), 3.0)): role_name = verifier, or (verifier, weight)."""
    made = []
    for key, given_ in parts.items():
        role, _, name = key.partition("_")
        verifier, weight = given_ if isinstance(given_, tuple) else (given_, 1.0)
        made.append(Part(name=name, role=role, weight=weight, verifier=verifier))
    return ComposeVerifier(parts=made, partial_cap=cap)


def test_weights_by_hand():
    # weights 3 and 1 are 0.75 and 0.25: right with half the style = 0.75 + 0.25 * 0.5
    verdict = compose(outcome_answer=(Fixed(), 3.0), shaping_style=(Fixed(0.5), 1.0)).judge(TASK, "")
    assert (verdict.reward, verdict.outcome, verdict.status) == (0.875, True, Status.SCORED)
    assert verdict.parts == {"answer": 1.0, "style": 0.5}
    assert verdict.reason.startswith("solved")


def test_a_wrong_answer_earns_nothing_whatever_its_shape():
    verdict = compose(outcome_answer=Fixed(0.0), shaping_style=Fixed(1.0)).judge(TASK, "")
    assert (verdict.reward, verdict.outcome) == (0.0, False)
    assert verdict.reason.startswith("answer_wrong: fixed")
    assert verdict.parts == {"answer": 0.0, "style": 0.0}


def test_partial_credit_stays_under_its_cap_and_its_parts_sum_to_it():
    verdict = compose(cap=0.2, outcome_answer=Fixed(0.5, False), shaping_style=Fixed(1.0)).judge(TASK, "")
    assert verdict.reward == 0.2
    assert 0.5 * verdict.parts["answer"] + 0.5 * verdict.parts["style"] == pytest.approx(0.2)
    small = compose(cap=0.4, outcome_answer=Fixed(0.2, False), shaping_style=Fixed(0.0)).judge(TASK, "")
    assert small.reward == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("gate", "status", "reward", "word"),
    [
        (Fixed(1.0), Status.SCORED, 1.0, "solved"),
        (Fixed(0.0), Status.SCORED, 0.0, "form_failed:"),
        (Fixed(0.9, False), Status.SCORED, 0.0, "form_failed:"),
        (INVALID, Status.INVALID, 0.0, "form_invalid:"),
        (UNSCORED, Status.UNSCORED, None, "form_unscored:"),
    ],
)
def test_a_gate_multiplies(gate, status, reward, word):
    answer = Fixed()
    verdict = compose(outcome_answer=answer, gate_form=gate).judge(TASK, "")
    assert (verdict.status, verdict.reward) == (status, reward)
    assert verdict.reason.split()[0] == word
    assert answer.asked == (1 if reward == 1.0 else 0)


@pytest.mark.parametrize(
    ("answer", "style", "status"),
    [
        (UNSCORED, Fixed(), Status.UNSCORED),
        (Fixed(), UNSCORED, Status.UNSCORED),
        (INVALID, Fixed(), Status.INVALID),
        (Fixed(), INVALID, Status.SCORED),
        (Fixed(math.nan, True), Fixed(), Status.UNSCORED),
        (Fixed(1.5, True), Fixed(), Status.UNSCORED),
    ],
)
def test_the_status_of_a_part_that_is_not_scored(answer, style, status):
    verdict = compose(outcome_answer=answer, shaping_style=style).judge(TASK, "")
    assert verdict.status is status
    assert (verdict.reward is None) == (status is Status.UNSCORED)


def test_two_outcome_parts_must_both_hold():
    assert compose(outcome_a=Fixed(), outcome_b=Fixed()).judge(TASK, "").reward == 1.0
    verdict = compose(outcome_a=Fixed(), outcome_b=Fixed(0.0)).judge(TASK, "")
    assert (verdict.reward, verdict.outcome) == (0.0, False)
    assert verdict.reason.startswith("b_wrong")


rewards = st.floats(0, 1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    weights=st.lists(st.floats(0.1, 10), min_size=3, max_size=3),
    right=st.tuples(rewards, rewards),
    wrong=st.tuples(rewards, rewards, rewards),
    cap_share=st.floats(0, 0.99),
)
def test_no_wrong_answer_earns_as_much_as_a_right_one(weights, right, wrong, cap_share):
    cap = cap_share * weights[0] / sum(weights)
    names = ("outcome_a", "shaping_b", "shaping_c")

    def judged(outcome, values):
        verifiers = [Fixed(values[0], outcome), Fixed(values[1]), Fixed(values[2])]
        parts = {name: (v, w) for name, v, w in zip(names, verifiers, weights, strict=True)}
        verifier = compose(cap=cap, **parts)
        return verifier, verifier.judge(TASK, "")

    verifier, high = judged(True, (0.3, *right))
    _, low = judged(False, wrong)
    assert 0 <= low.reward <= cap < high.reward <= 1
    for verdict in (high, low):
        total = sum(verifier.weights[name] * value for name, value in verdict.parts.items())
        assert total == pytest.approx(verdict.reward)


def test_everything_right_is_exactly_one_for_any_weights():
    for weight in (0.1, 0.3, 1 / 3, 7.0):
        parts = {f"outcome_p{i}": (Fixed(), weight + i / 7) for i in range(7)}
        assert compose(**parts).judge(TASK, "").reward == 1.0


def test_checks_carry_the_names_of_their_parts():
    verdict = compose(gate_form=Fixed(), outcome_answer=Fixed(0.0)).judge(TASK, "")
    assert [(c.name, c.passed, c.expected) for c in verdict.checks] == [
        ("form", True, "gate"),
        ("answer", False, "outcome"),
    ]


def test_golds_are_proven_with_all_parts_together():
    assert compose(outcome_answer=Fixed(), shaping_style=Fixed()).check([TASK]) == []
    (finding,) = compose(outcome_answer=Fixed(), gate_form=Fixed(0.0)).check([TASK])
    assert finding.reason.startswith("gold_failed")
    empty = UnusableGold(task_id="q1", reason="gold_empty: x")
    (missing,) = compose(outcome_answer=Fixed(findings=[empty])).check([TASK])
    assert missing.reason == "answer_gold_empty: x"


@pytest.mark.parametrize(
    ("parts", "cap", "words"),
    [
        ([], 0.0, "no part has the role outcome"),
        ([Part(name="a", role="gate", verifier=Fixed())], 0.0, "no part has the role outcome"),
        ([Part(name="a", verifier=Fixed()), Part(name="a", verifier=Fixed())], 0.0, "a name of its own"),
        ([Part(name="A b", verifier=Fixed())], 0.0, "'A b'"),
        ([Part(name="a", weight=0.0, verifier=Fixed())], 0.0, "weight 0.0"),
        ([Part(name="a", verifier=Fixed())], 1.0, "partial_cap = 1.0"),
        ([Part(name="a", verifier=Fixed()), Part(name="b", role="shaping", verifier=Fixed())], 0.5, "less than 0.5"),
    ],
)
def test_what_decides_nothing_is_refused(parts, cap, words):
    with pytest.raises(VerifierError, match=words):
        ComposeVerifier(parts=parts, partial_cap=cap)


def test_the_version_follows_roles_weights_and_parts():
    versions = {
        compose(outcome_a=Fixed(), shaping_b=Fixed()).version,
        compose(outcome_a=Fixed(), outcome_b=Fixed()).version,
        compose(outcome_a=Fixed(), shaping_b=(Fixed(), 2.0)).version,
        compose(outcome_a=Fixed(), shaping_b=Fixed(0.5)).version,
        compose(cap=0.1, outcome_a=Fixed(), shaping_b=Fixed()).version,
    }
    assert len(versions) == 5
    assert compose(outcome_a=Fixed()).version == compose(outcome_a=Fixed()).version


def test_closing_closes_every_part():
    parts = {"outcome_a": Fixed(), "gate_b": Fixed()}
    compose(**parts).close()
    assert [verifier.closed for verifier in parts.values()] == [1, 1]
