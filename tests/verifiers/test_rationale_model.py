import json
import math
import random
import threading

import pytest

from groupwise.errors import VerifierError
from groupwise.verifiers.rationale_model import LabelMask, feature_names, fit_model, load_model, read_examples
from groupwise.verifiers.rationale_text import words

LABELS = ("yes", "no")
EXAMPLES = [("yes", "dog runs"), ("yes", "dog runs"), ("no", "cat sleeps"), ("no", "cat runs")]


def test_probabilities_by_hand():
    # Features seen twice or more: cat (0 yes, 2 no), dog (2, 0), "dog runs" (2, 0), runs (2, 1).
    # With 1/2 added: sums over the four are 6 + 2 = 8 for yes and 3 + 2 = 5 for no. The prior is 1/2 each.
    # For "dog": P(dog | yes) = 2.5 / 8 = 0.3125 and P(dog | no) = 0.5 / 5 = 0.1, so 0.3125 / 0.4125 for yes.
    model = fit_model(EXAMPLES, LABELS)
    assert math.isclose(model.probabilities(["dog"])["yes"], 0.3125 / 0.4125, rel_tol=1e-12)
    assert model.probabilities(["unknown"]) == {"yes": 0.5, "no": 0.5}
    assert model.probabilities(["dog", "dog"]) == model.probabilities(["dog"])


def test_the_opinion_names_the_likeliest_other_label():
    opinion = fit_model(EXAMPLES, LABELS).opinion(["dog"], "no")
    assert opinion.other == "yes"
    assert opinion.contradicts(0.7)
    assert not opinion.contradicts(0.8)


def test_label_names_are_hidden():
    mask = LabelMask(["entailment", "card_arrival"])
    assert mask.hide(words("It entails card arrival of a card")) == ["it", "<label>", "<label>", "of", "a", "card"]
    assert feature_names(["<label>", "is"]) == {"is", "<label> is"}
    named = fit_model([("good", "it is good"), ("bad", "it is bad")] * 5, ("good", "bad"))
    assert named.probabilities(["good"]) == {"good": 0.5, "bad": 0.5}


def test_order_of_the_examples_and_saving_change_nothing(tmp_path):
    model = fit_model(EXAMPLES, LABELS)
    shuffled = EXAMPLES * 1
    random.Random(3).shuffle(shuffled)
    model.save(tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json", ("no", "yes"))
    for text in ("dog", "cat runs", "dog runs"):
        expected = model.probabilities(words(text))
        assert fit_model(shuffled, LABELS).probabilities(words(text)) == expected
        assert loaded.probabilities(words(text)) == pytest.approx(expected, rel=1e-12)


def test_threads_see_the_same(tmp_path):
    model = fit_model(EXAMPLES, LABELS)
    found = []
    threads = [threading.Thread(target=lambda: found.append(model.probabilities(["cat", "dog"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(one == found[0] for one in found)


def test_a_line_may_hold_several_rationales(tmp_path):
    path = tmp_path / "examples.jsonl"
    path.write_text('{"label": "yes", "explanations": ["a", "b"], "id": 3}\n\n{"label": "no", "rationale": "c"}\n')
    assert read_examples(path) == [("yes", "a"), ("yes", "b"), ("no", "c")]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"label": "yes"}', '{"label": 1, "rationale": "a"}', '{"label": "yes", "rationale": [1]}']
)
def test_an_unusable_line_is_named(tmp_path, line):
    path = tmp_path / "examples.jsonl"
    path.write_text('{"label": "yes", "rationale": "a"}\n' + line)
    with pytest.raises(VerifierError, match=r"examples\.jsonl, line 2"):
        read_examples(path)


def test_missing_labels_and_files_are_refused(tmp_path):
    with pytest.raises(VerifierError, match="no rationale is labelled 'no'"):
        fit_model([("yes", "a")], LABELS)
    with pytest.raises(VerifierError, match="'maybe', which is not one of: yes, no"):
        fit_model([("maybe", "a")], LABELS)
    with pytest.raises(VerifierError, match="no file"):
        load_model(tmp_path / "absent.jsonl", LABELS)
    fit_model(EXAMPLES, LABELS).save(tmp_path / "model.json")
    with pytest.raises(VerifierError, match=r"does not hold rationale counts for the labels yes, maybe"):
        load_model(tmp_path / "model.json", ("yes", "maybe"))
    (tmp_path / "broken.json").write_text(json.dumps([1]))
    with pytest.raises(VerifierError, match="does not hold"):
        load_model(tmp_path / "broken.json", LABELS)
