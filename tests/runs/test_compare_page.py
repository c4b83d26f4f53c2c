"""The page of a comparison: what stands on it, what is cut, and that texts are only text."""

from __future__ import annotations

from dataclasses import replace

from groupwise.runs.comparison.compare import compare_evaluations, compare_many
from groupwise.runs.comparison.page import (
    MAX_CHARACTERS,
    changes_table,
    comparison_page,
    left_out_sentences,
    lengths_table,
    p_value_sentence,
    rates_table,
)
from groupwise.runs.evaluation_record import Answer, Attempts, EvaluationRecord


def answers(*texts: tuple[str, bool]) -> Attempts:
    kept = tuple(Answer(text=text, outcome=right, num_tokens=len(text), reason="rows") for text, right in texts)
    return Attempts(solved=sum(right for _, right in texts), scored=len(texts), answers=kept)


def record(label: str, **sampled: Attempts) -> EvaluationRecord:
    return EvaluationRecord(label=label, sampled=sampled, greedy={}, settings={}, prompts={"q1": "How <many>?"})


FIRST = record("before", q1=answers(("SELECT a", True), ("SELECT a", True)), q2=answers(("SELECT b", False)))
SECOND = record("after", q1=answers(("DROP <table>", False), ("x" * 9000, False)), q2=answers(("SELECT b", True)))


def test_both_texts_of_a_regression_are_on_the_page() -> None:
    page = comparison_page([compare_evaluations(FIRST, SECOND)], ["About 900 prompts."])
    assert "Not distinguishable: the difference is" in page
    assert "About 900 prompts." in page
    assert "q1: 2 of 2 to 0 of 2" in page
    assert "DROP &lt;table&gt;" in page
    assert "How &lt;many&gt;?" in page
    assert "<table>DROP" not in page
    assert page.count("SELECT a") == 1  # the same answer twice is shown once
    assert "x" * MAX_CHARACTERS in page
    assert "x" * (MAX_CHARACTERS + 1) not in page
    assert "Regressions" in page
    assert "Improvements" in page


def test_what_makes_them_different_stands_out() -> None:
    cold = replace(SECOND, settings={"temperature": 0.2}, num_unscored=2)
    page = comparison_page([compare_evaluations(replace(FIRST, settings={"temperature": 1.0}), cold)])
    assert "Before you trust the difference" in page
    assert "Different temperatures: 1.0 for before, 0.2 for after." in page
    assert "Before you trust the difference" not in comparison_page([compare_evaluations(FIRST, SECOND)])


def test_several_have_sections_of_their_own_and_say_that_p_is_corrected() -> None:
    third = record("third", q1=answers(("SELECT a", True)), q2=answers(("SELECT b", False)), q3=answers(("c", True)))
    found = compare_many([FIRST, SECOND, third])
    assert "p Holm" in rates_table(found)[0]
    page = comparison_page(found)
    assert "after: Regressions" in page
    assert "third: not distinguishable: the difference is" in page
    assert "third: Improvements" in page
    assert "Holm" in page
    assert "Left out, in third only: q3 (1 prompt)." in page


def test_tables_and_sentences() -> None:
    comparison = compare_evaluations(FIRST, SECOND)
    columns, rows = rates_table([comparison])
    assert dict(zip(columns, rows[0], strict=True)) == {
        "compared": "after",
        "answers": "sampled",
        "first": "50.0%",
        "second": "50.0%",
        "points": "+0.0",
        "interval": "-100.0 to +100.0",
        "bootstrap": "-100.0 to +100.0",
        "p": "1",
        "prompts": 2,
    }
    assert changes_table(comparison.main.regressions)[1] == [("q1", "2 of 2", "0 of 2", "-100")]
    assert lengths_table([comparison])[1][0][:4] == ("after", "all answers", 8.0, 2257.0)
    assert p_value_sentence([comparison]) == "p is of the sign-flip test, for sampled answers."
    many = record("many", **{f"q{i}": answers(("a", True)) for i in range(9)})
    assert left_out_sentences(compare_evaluations(FIRST, many)) == [
        "Left out, in many only: q0, q3, q4, q5, q6 and 2 more (7 prompts)."
    ]
