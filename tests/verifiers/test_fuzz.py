"""No mutated text makes any kind of verifier raise, hang or give up; and what the fuzz run itself must notice."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mutations import OPERATIONS, mutate

from groupwise.types import Check, Status, Verdict

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import verifier_fuzz as fuzz
from verifier_fuzz_cases import fits

NUM_TEXTS = 420
DOMAINS = tuple(fuzz.VARIANTS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    corpus = fuzz.Corpus(tmp_path_factory.mktemp("fuzz"))
    yield corpus
    corpus.close()


def test_no_text_makes_a_verifier_fail(corpus):
    entries = [fuzz.judge(corpus, corpus.text(7, number, DOMAINS)) for number in range(NUM_TEXTS)]
    assert [entry for entry in entries if entry["problem"]] == []
    assert [entry for entry in entries if entry["seconds"] > fuzz.SLOW_S] == []
    assert Counter(entry["domain"] for entry in entries) == dict.fromkeys(DOMAINS, NUM_TEXTS // len(DOMAINS))
    assert {entry["length"] > 900_000 for entry in entries} == {True, False}


def test_the_cases_give_their_verdicts_before_they_are_mutated(corpus):
    """Otherwise the run would fuzz tasks that no text can solve."""
    for domain, cases in corpus.cases.items():
        for name, section, task, completion, expected in cases:
            verdict = corpus.verifier(section).judge(task, completion)
            assert (verdict.outcome is True) == (expected == "PASS"), (domain, name, verdict)


def test_every_setting_leaves_the_golds_right(corpus):
    for domain, variants in fuzz.VARIANTS.items():
        for _, section, task, _, _ in corpus.cases[domain][:: len(corpus.cases[domain]) - 1]:
            for variant in variants:
                if fits(variant, task) and "path" not in variant:  # the other function pays no gold in full
                    verifier = corpus.verifier(section | variant)
                    assert verifier.judge(task, verifier.gold(task)).outcome, (domain, task.id, variant)


def test_equal_seeds_give_equal_texts_and_others_do_not(corpus):
    assert corpus.text(1, 5, DOMAINS) == corpus.text(1, 5, DOMAINS)
    assert len({corpus.text(seed, 5, DOMAINS)["text"] for seed in range(20)}) > 15


@pytest.mark.parametrize("text", ["", "a", '{"a": 1}'])
def test_every_operation_takes_any_text(text):
    rng = random.Random(3)
    for operation in OPERATIONS.values():
        for donor in ("", "x", "some other text"):
            assert all(isinstance(operation(text, donor, rng), str) for _ in range(30))
    assert len(mutate(text, "donor", rng, 50_000)[0]) > 15_000


CHECKS = (Check(name="rows", passed=False),)


def verdict(status=Status.SCORED, reward=0.0, outcome=False, reason="wrong: so", checks=CHECKS):
    return Verdict(status=status, reward=reward, outcome=outcome, reason=reason, checks=checks)


@pytest.mark.parametrize(
    "broken",
    [
        verdict(Status.UNSCORED, None, None),
        verdict(reward=1.5),
        verdict(reward=float("nan")),
        verdict(reward=0.3),
        verdict(Status.INVALID, 0.1),
        verdict(Status.INVALID, 0.0, True),
        verdict(reason="Wrong"),
        verdict(checks=()),
    ],
)
def test_a_verdict_that_breaks_the_contract_is_found(broken):
    assert fuzz.problem_of(broken, 0.2)
    assert fuzz.problem_of(verdict(reward=0.2), 0.2) == ""
    assert fuzz.problem_of(verdict(reward=1.0, outcome=True), 0.0) == ""


class Broken:
    """Raises on every text, or is late."""

    def __init__(self, seconds=None):
        self.seconds = seconds

    def judge(self, task, completion_text):
        if self.seconds is None:
            raise RecursionError("too deep")
        time.sleep(self.seconds)
        return verdict()

    def close(self):
        """Nothing is held."""


def entry_of(corpus, monkeypatch, verifier):
    monkeypatch.setattr(corpus, "verifier", lambda section: verifier)
    monkeypatch.setattr(corpus, "build", lambda section: verifier)
    return fuzz.judge(corpus, corpus.text(0, 0, DOMAINS))


def test_an_exception_is_counted_with_its_place(corpus, monkeypatch):
    entry = entry_of(corpus, monkeypatch, Broken())
    assert entry["status"] == "exception"
    assert "RecursionError: too deep" in entry["problem"]
    report = fuzz.Report()
    report.add(entry)
    assert (report.texts, len(report.failures), report.suspicious) == (1, 1, [])


def test_a_late_verdict_is_counted_as_slow(corpus, monkeypatch):
    monkeypatch.setattr(fuzz, "SLOW_S", 0.01)
    report = fuzz.Report()
    report.add(entry_of(corpus, monkeypatch, Broken(0.02)))
    assert len(report.slow) == 1


def test_a_wrong_case_held_right_is_listed():
    report = fuzz.Report()
    entry = {"seconds": 0.1, "status": "scored", "reason": "same", "problem": "", "solved": True}
    report.add(entry | {"expected": "PASS"})
    report.add(entry | {"expected": "FAIL"})
    assert [found["expected"] for found in report.suspicious] == ["FAIL"]
    assert [len(report.passed), report.as_document()["reasons"]] == [2, {"same": 2}]


def dies_at_two(connection, folder, seed, numbers, domains):
    judges_until_two(connection, numbers, lambda: os._exit(3))


def hangs_at_two(connection, folder, seed, numbers, domains):
    judges_until_two(connection, numbers, lambda: time.sleep(600))


def judges_until_two(connection, numbers, end):
    for number in numbers:
        connection.send(number)
        if number == 2:
            end()
        connection.send({"problem": "", "number": number})
    connection.send(1)


@pytest.mark.parametrize(
    ("work", "expected"), [(dies_at_two, "dead process: exit code 3"), (hangs_at_two, "hang: no verdict within 2 s")]
)
def test_a_process_that_dies_or_hangs_is_replaced_and_the_text_named(tmp_path, monkeypatch, work, expected):
    monkeypatch.setattr(fuzz, "HANG_S", 2)
    monkeypatch.setattr(fuzz, "work", work)
    *entries, peak = fuzz.entries(tmp_path / "corpus", 0, range(4), DOMAINS)
    assert [(entry["number"], entry["problem"]) for entry in entries] == [(0, ""), (1, ""), (2, expected), (3, "")]
    assert peak == 1
