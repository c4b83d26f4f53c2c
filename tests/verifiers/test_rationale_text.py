import pytest

from groupwise.verifiers.rationale_text import (
    content_words,
    is_form_of,
    numbers,
    quotes,
    sentences,
    stem,
    words,
)


def test_words_ignore_case_form_and_invisible_characters():
    assert words("It's 3 DOGS.") == ["it's", "3", "dogs"]
    assert words("gra\u200bder \uff21") == ["grader", "a"]
    assert words("\u732b\u72d7 ok") == ["\u732b", "\u72d7", "ok"]


def test_sentences_end_at_stops_that_stand_in_no_number():
    assert sentences("It costs 3.50 now. Yes; no\nMaybe") == [
        ["it", "costs", "3", "50", "now"],
        ["yes"],
        ["no"],
        ["maybe"],
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('He says "a dog runs" here', [["a", "dog", "runs"]]),
        ("He says \u201ca dog\u201d", [["a", "dog"]]),
        ("`` a dog '' is the same as '' a cat ''", [["a", "dog"], ["a", "cat"]]),
        ("the word 'asleep' and the dogs' toys", [["asleep"]]),
        ("it doesn't say 'he doesn't run'", [["he", "doesn't", "run"]]),
        ("the man 's hat is the man 's", []),
        ('an unclosed "quote runs on', [["quote", "runs", "on"]]),
        ('cut "a dog ... a cat"', [["a", "dog"], ["a", "cat"]]),
        ('a 5" pipe and a 6" pipe', []),
    ],
)
def test_quotes(text, found):
    assert quotes(text) == found


def test_numbers_lose_their_commas():
    assert numbers("1,200 or 3.5 of 7.") == ["1200", "3.5", "7"]


def test_forms_of_a_label_meet():
    stems = {stem("contradiction"), stem("entailment")}
    assert all(is_form_of(word, stems) for word in ("contradicts", "contradictory", "entails", "entailment"))
    assert not any(is_form_of(word, stems) for word in ("contra", "entry", "neutral"))
    assert stem("bed") == "bed"


def test_content_words_leave_out_what_says_nothing():
    assert content_words(words("He is on a stage with 3 guitars")) == ["stage", "guitars"]


@pytest.mark.parametrize(
    "text", ['"' * 30_000, "'a" * 15_000, "a' " * 10_000, "." * 30_000, "1," * 15_000, "``" * 15_000]
)
def test_long_texts_are_read_in_linear_time(text):
    words(text), sentences(text), quotes(text), numbers(text)


def test_a_word_without_end_is_read_in_linear_time():
    assert not is_form_of("viii" * 75_000, {"neutral"})
    assert is_form_of("contradict" + "s" * 75_000, {stem("contradiction")})
