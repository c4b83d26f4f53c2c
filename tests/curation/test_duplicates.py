from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.curation import Exclusion, Question, Reason, find_duplicates, screen
from groupwise.curation.duplicates import MAX_SHARING, Match, normalised, shared_golds


def asked(*texts: str, gold: str | None = "gold", context: str = "") -> list[Question]:
    return [Question(id=f"q{i}", text=text, gold=gold, context=context) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2+2?", "2 + 2 ?"),
        ("How many singers?", "  how MANY\nsingers ? "),
        ("Say \u201chi\u201d.", 'say "hi"'),
        ("\uff12+2", "2+2"),  # a full-width digit
    ],
)
def test_case_spaces_and_punctuation_do_not_matter(first, second):
    assert normalised(first) == normalised(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2+2", "2-2"),
        ("5!", "5"),
        ("n! / 2", "n / 2"),
        ("3.5", "35"),
        ("1:2", "1 2"),
        ("2*(3+4)", "2*3+4"),
        ("x1", "x 1"),
    ],
)
def test_what_changes_the_meaning_stays(first, second):
    assert normalised(first) != normalised(second)


def test_equal_texts_repeat_the_first_one():
    found = find_duplicates(asked("2+2?", "3+3?", "2 + 2 ?", "2+2"))
    assert found == {place: Match(earlier=0, similarity=1.0, same_gold=True) for place in (2, 3)}


def test_equal_texts_about_different_things_are_different_questions():
    questions = [*asked("How many?", context="shop"), *asked("How many?", context="school")]
    assert find_duplicates(questions) == {}


def test_equal_texts_with_different_golds_are_a_conflict_unless_the_golds_mean_the_same():
    questions = [Question(id="a", text="2+2?", gold="4"), Question(id="b", text="2 + 2", gold="4.0")]
    assert find_duplicates(questions)[1].same_gold is False
    assert find_duplicates(questions, same_answer=lambda i, j: (i, j) == (0, 1))[1].same_gold is True


LONG = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many in all?"


def test_nearly_equal_texts_need_the_same_gold_and_the_same_numbers():
    near = LONG.replace("in all", "altogether")
    (match,) = find_duplicates(asked(LONG, near, gold="72")).values()
    assert (match.earlier, match.same_gold) == (0, True)
    assert 0.8 <= match.similarity < 1
    assert find_duplicates([*asked(LONG, gold="72"), *asked(near, gold="73")]) == {}
    assert find_duplicates(asked(LONG, near, gold=None)) == {}
    assert find_duplicates(asked(LONG, LONG.replace("48", "49"), gold="72")) == {}
    assert find_duplicates(asked(LONG, near, gold="72"), near=0.99) == {}


def test_an_instruction_that_all_share_makes_no_two_questions_alike():
    frame = "Answer with one query on these tables: singer (id, name, age), concert (id, year, singer, stadium): {}"
    questions = asked(*(frame.format(text) for text in ("How many singers?", "How many stadiums?", "When?")))
    assert find_duplicates(questions) == {}


def shingles(text: str) -> set[str]:
    return {text[i : i + 5] for i in range(max(1, len(text) - 4))}


@given(seed=st.integers(0, 10_000), near=st.sampled_from([0.5, 0.6, 0.8, 0.9]))
def test_the_index_finds_what_comparing_all_pairs_finds(seed, near):
    """A naive twin: every earlier kept text is compared; the most similar one, the first of equals, is named."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(["red", "blue", "green", "car", "boat"], k=rng.randint(4, 7))) for _ in range(12)]
    texts = list(dict.fromkeys(texts))
    questions = [*asked(*texts), Question(id="x", text="zero", gold="gold"), Question(id="y", text="one", gold="gold")]
    expected: dict[int, tuple[int, float]] = {}
    sets = [shingles(normalised(q.text)) for q in questions]
    for i, own in enumerate(sets):
        best = (0.0, -1)
        for j in range(i):
            if j not in expected:
                similarity = len(own & sets[j]) / len(own | sets[j])
                best = max(best, (similarity, -j))
        if best[0] >= near:
            expected[i] = (-best[1], best[0])
    found = {i: (match.earlier, match.similarity) for i, match in find_duplicates(questions, near=near).items()}
    assert found == expected


def test_long_texts_are_compared_by_words():
    rng = random.Random(0)
    words = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(26) for j in range(26)]
    first, other = (" ".join(rng.choices(words, k=80)) for _ in range(2))
    changed = first.replace(first.split()[40], "another")
    assert list(find_duplicates(asked(first, other, changed))) == [2]


def test_golds_that_few_share_are_named_and_labels_are_not():
    few = [Question(id=f"q{i}", text=f"t{i}", gold="SELECT 1") for i in range(MAX_SHARING)]
    assert shared_golds(few) == dict.fromkeys(range(1, MAX_SHARING), 0)
    assert shared_golds([*few, Question(id="one more", text="t", gold="select  1")]) == {}


def test_a_screening_looks_at_golds_then_leaks_then_repetitions():
    train = [
        Question(id="broken", text="1+1", gold="2"),
        Question(id="first", text="1+1?", gold="2"),  # no repetition: what it repeats cannot be used
        Question(id="again", text="1 + 1", gold="2"),
        Question(id="conflict", text="1 + 1.", gold="3"),
        Question(id="leak", text="7+7?", gold="14"),
        Question(id="weak", text="8+8", gold="16"),
        Question(id="way", text="how much is 8 and 8", gold="16"),
    ]
    heldout = [Question(id="first", text="7 + 7", gold="14")]  # an id of another set, which is another task
    arguments = {"broken": {"broken": "gold_failed: no"}, "weak": {"weak": "same_on_all: yes"}}
    screening = screen(train, heldout, **arguments)
    assert screening.excluded == {
        "broken": Exclusion(reason=Reason.BROKEN_GOLD, detail="gold_failed: no"),
        "again": Exclusion(reason=Reason.DUPLICATE, detail="of first: the same text"),
        "conflict": Exclusion(reason=Reason.CONFLICTING_GOLD, detail="with first: the same text, another gold"),
        "leak": Exclusion(reason=Reason.LEAKS_INTO_HELDOUT, detail="as first: the same text"),
    }
    assert screening.notes == {"weak": ("weak gold: same_on_all: yes",), "way": ("same gold as weak",)}
    dropped = screen(train, heldout, **arguments, drop_weak=True).excluded
    assert dropped["weak"] == Exclusion(reason=Reason.UNDETERMINED_GOLD, detail="same_on_all: yes")
    assert "way" not in dropped
