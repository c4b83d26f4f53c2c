import pytest

from groupwise.verifiers.classification_answer import MAX_COMPLETION_CHARS, extract_answer, match_label

LABELS = ("entailment", "neutral", "card_arrival")


@pytest.mark.parametrize(
    "text",
    [
        '{"label": "neutral", "rationale": "because of it"}',
        '```json\n{"rationale": "because of it", "label": "neutral"}\n```',
        "because of it\nLabel: neutral",
        "Rationale: because of it\n\n**Label:** neutral\n",
    ],
)
def test_both_forms_are_read(text):
    answer = extract_answer(text, "auto")
    assert (answer.label, answer.rationale, answer.problem) == ("neutral", "because of it", "")


@pytest.mark.parametrize(
    ("text", "answer_in", "word"),
    [
        ("", "auto", "no_answer"),
        ("neutral", "auto", "no_answer"),
        ("Label: neutral\nbecause", "auto", "no_answer"),
        ("Label: neutral\nLabel: neutral", "auto", "several_answers"),
        ("because\nLabel: neutral", "json", "not_json"),
        ('{"label": "neutral", "label": "entailment"}', "auto", "duplicate_key"),
        ('{"label": "neutral"} {"label": "neutral"}', "auto", "several_answers"),
        ('{"label": ["neutral", "entailment"]}', "auto", "several_answers"),
        ('{"label": "neutral", "score": 1}', "auto", "wrong_keys"),
        ('{"label": null, "rationale": "a"}', "auto", "no_answer"),
        ('{"label": "neutral", "rationale": ["a"]}', "auto", "no_rationale"),
        ('["neutral"]', "json", "wrong_keys"),
        ('{"label": NaN}', "auto", "not_finite"),
        ('{"label": "neutral"}', "text", "no_answer"),
        ("x" * (MAX_COMPLETION_CHARS + 1), "auto", "too_large"),
        ("{" * 30_000, "auto", "too_deep"),
    ],
)
def test_no_single_answer(text, answer_in, word):
    answer = extract_answer(text, answer_in)
    assert answer.problem.split(":")[0] == word
    assert (answer.label, answer.rationale) == ("", "")


@pytest.mark.parametrize("given", ["neutral", " Neutral. ", "NEUTRAL"])
def test_case_white_space_and_one_stop_are_folded(given):
    assert match_label(given, LABELS) == ("neutral", "")


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("", "no_answer"),
        (".", "no_answer"),
        ("neutral or entailment", "several_answers"),
        ("entailment / card_arrival", "several_answers"),
        ("not neutral", "unknown_label"),
        ("neutral?", "unknown_label"),
        ("neutral..", "unknown_label"),
        ("neut", "unknown_label"),
        ("card", "unknown_label"),
    ],
)
def test_parts_and_hedges_are_no_label(given, word):
    label, problem = match_label(given, LABELS)
    assert label == ""
    assert problem.startswith(word)
