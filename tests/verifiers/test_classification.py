import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from case_tasks_rationale import GUITAR, NLI, TASK_E, completion
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.config.verifier_classification import ClassificationVerifierSection
from groupwise.errors import VerifierError
from groupwise.types import Status, Task
from groupwise.verifiers.classification import ClassificationVerifier
from groupwise.verifiers.classification_answer import MAX_COMPLETION_CHARS

SETTINGS = {key: value for key, value in NLI.items() if key != "kind"}
VERIFIER = ClassificationVerifier(**SETTINGS)
RIGHT = completion("contradiction", GUITAR)


def task(**columns):
    return Task(id="t", prompt="A man plays a guitar", columns={**TASK_E.columns, **columns})


def test_a_right_label_with_a_fitting_rationale_is_all_it_takes():
    verdict = VERIFIER.judge(TASK_E, RIGHT)
    assert (verdict.status, verdict.reward, verdict.outcome) == (Status.SCORED, 1.0, True)
    assert verdict.reason == "supported: contradiction"
    assert [check.name for check in verdict.checks][:2] == ["wrong_label", "rationale_long"]
    assert verdict.checks[-1].name == "model"
    assert all(check.passed for check in verdict.checks)


def test_the_text_form_is_judged_the_same():
    assert VERIFIER.judge(TASK_E, f"{GUITAR}\nLabel: contradiction").reward == 1.0
    assert (
        ClassificationVerifier(**SETTINGS, answer_in="json").judge(TASK_E, f"{GUITAR}\nLabel: contradiction").reward
        == 0
    )


def test_without_a_model_only_the_gates_judge():
    bare = ClassificationVerifier(**{**SETTINGS, "rationale_examples": ""})
    other = completion("contradiction", "The man is asleep, as the premise says, so it follows.")
    assert bare.judge(TASK_E, other).reward == 1.0
    assert VERIFIER.judge(TASK_E, other).reward == 0.0


def test_the_rationale_may_be_off():
    label_only = ClassificationVerifier(**SETTINGS, rationale="off")
    assert label_only.judge(TASK_E, '{"label": "contradiction"}').reward == 1.0
    assert label_only.judge(TASK_E, "Label: neutral").reward == 0.0
    assert label_only.judge(TASK_E, label_only.gold(TASK_E)).reward == 1.0


def test_labels_may_come_with_the_task():
    verifier = ClassificationVerifier(labels_column="choices")
    question = Task(
        id="q",
        prompt="Where does a beaver live?",
        columns={
            "label": "wooded area",
            "choices": ["wooded area", "city"],
            "rationale": "A beaver builds with trees.",
        },
    )
    assert verifier.check([question]) == []
    assert verifier.judge(question, completion("city", "A beaver builds with trees.")).reason.startswith("wrong_label")
    assert verifier.judge(TASK_E, RIGHT).reason.startswith("labels_missing")


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"label": None}, "label_missing"),
        ({"label": " "}, "label_missing"),
        ({"label": "maybe"}, "label_unknown"),
        ({"premise": 3}, "input_missing"),
    ],
)
def test_a_task_that_cannot_be_judged_is_unscored_and_listed(columns, word):
    broken = task(**columns)
    verdict = VERIFIER.judge(broken, RIGHT)
    assert (verdict.status, verdict.reward) == (Status.UNSCORED, None)
    assert verdict.reason.startswith(word)
    (found,) = VERIFIER.check([TASK_E, broken])
    assert (found.blocking, found.reason.split(":")[0]) == (True, word)


def test_golds_that_prove_nothing_are_listed():
    (missing,) = VERIFIER.check([task(rationale=None)])
    assert (missing.blocking, missing.reason.split(":")[0]) == (False, "rationale_missing")
    with pytest.raises(VerifierError, match="rationale_missing"):
        VERIFIER.gold(task(rationale=[]))
    (failing,) = VERIFIER.check([task(rationale=["It contradicts, a contradiction."])])
    assert failing.blocking
    assert failing.reason.startswith("gold_failed: judged against itself: restates_label")


def test_the_gold_is_the_first_human_rationale_that_passes():
    assert json.loads(VERIFIER.gold(task(rationale=["It contradicts.", GUITAR])))["rationale"] == GUITAR
    assert ClassificationVerifier(**SETTINGS, answer_in="text").gold(TASK_E) == f"{GUITAR}\nLabel: contradiction"


def test_threads_give_the_same_verdicts():
    texts = [RIGHT, completion("neutral", GUITAR), completion("contradiction", ":"), ""] * 25
    expected = [ClassificationVerifier(**SETTINGS).judge(TASK_E, text) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: VERIFIER.judge(TASK_E, text), texts)) == expected


def test_the_version_follows_settings_and_examples(tmp_path):
    path = tmp_path / "examples.jsonl"
    rows = [{"label": label, "rationale": "a b c"} for label in NLI["labels"]] * 2
    path.write_text("\n".join(map(json.dumps, rows)))
    first = ClassificationVerifier(**{**SETTINGS, "rationale_examples": path.name}, base_folder=tmp_path)
    again = ClassificationVerifier(**{**SETTINGS, "rationale_examples": str(path)})
    assert first.version == again.version
    path.write_text("\n".join(map(json.dumps, [*rows, rows[0]])))
    changed = ClassificationVerifier(**{**SETTINGS, "rationale_examples": str(path)})
    stricter = ClassificationVerifier(**SETTINGS, contradicts_at=0.8)
    judged = ClassificationVerifier(**SETTINGS, judge={"url": "http://localhost/v1", "model": "m"})
    versions = {first.version, changed.version, stricter.version, VERIFIER.version, judged.version}
    assert len(versions) == 5
    assert first.version == again.version
    first.close()
    first.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": ["one"]},
        {"labels": ["a", "A."]},
        {"labels": "neutral"},
        {"labels": [], "rationale_examples": "x.jsonl"},
        {"answer_in": "xml"},
        {"rationale": "maybe"},
        {"contradicts_at": 0.1},
        {"max_rationale_words": 0},
        {"rationale_examples": "absent.jsonl"},
        {"judge": {"url": "http://localhost/v1"}},
        {"judge": {"url": "localhost", "model": "m"}},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(VerifierError):
        ClassificationVerifier(**{**SETTINGS, **wrong})


def test_the_section_says_what_does_not_fit():
    section = ClassificationVerifierSection(**NLI, judge={"url": "http://localhost/v1", "model": "m"})
    ClassificationVerifier(**section.model_dump(exclude={"kind", "unusable_gold"}))
    for wrong in ({"labels": ["one"]}, {"labels": []}, {"judge": {"url": "ftp://x", "model": "m"}}):
        with pytest.raises(ValidationError):
            ClassificationVerifierSection(**{**NLI, **wrong})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=200), st.sampled_from(["auto", "json", "text"]))
def test_no_text_raises_or_is_unscored(text, answer_in):
    verifier = ClassificationVerifier(labels=NLI["labels"], input_columns=NLI["input_columns"], answer_in=answer_in)
    for completion_text in (
        text,
        completion("contradiction", text),
        completion(text, GUITAR),
        f"{text}\nLabel: {text}",
    ):
        verdict = verifier.judge(TASK_E, completion_text)
        assert verdict.status is not Status.UNSCORED


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(["contradiction", "Contradiction", "CONTRADICTION.", " contradiction "]),
    st.sampled_from([GUITAR, GUITAR.upper(), f"  {GUITAR}\n", GUITAR.replace(" ", "  "), f"**{GUITAR}**"]),
    st.sampled_from(["{}", "```json\n{}\n```", "\n{}\n"]),
    st.sampled_from(["neutral", "entailment", "neutral.", "contradiction or neutral", "not contradiction", ""]),
)
def test_what_is_irrelevant_changes_no_verdict(label, rationale, wrapper, wrong):
    def judge(given):
        return VERIFIER.judge(TASK_E, wrapper.replace("{}", completion(given, rationale))).reward

    assert (judge(label), judge(wrong)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "piece", ['"', "'a", "a' ", "no ", "the answer is ", "``", "contradiction ", "1,", "\ufdfa", "\ud800"]
)
def test_the_longest_texts_are_judged_in_bounded_time(piece):
    longest = (piece * MAX_COMPLETION_CHARS)[: MAX_COMPLETION_CHARS - 40]
    verifier = ClassificationVerifier(**SETTINGS, max_rationale_words=10**6)
    for text in (f"{longest}\nLabel: contradiction", longest, longest * 100):
        assert verifier.judge(TASK_E, text).reward == 0.0


def test_a_random_policy_earns_its_chance_and_no_more():
    rng = random.Random(5)
    rewards = [VERIFIER.judge(TASK_E, completion(rng.choice(NLI["labels"]), GUITAR)).reward for _ in range(300)]
    assert 0.2 < sum(rewards) / 300 < 0.47
