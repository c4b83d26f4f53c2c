import pytest

from groupwise.verifiers.sql_answer import extract_sql


@pytest.mark.parametrize(
    ("completion", "sql"),
    [
        ("SELECT 1", "SELECT 1"),
        ("  SELECT 1;\n", "SELECT 1;"),
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("I count.\n\n```SQL\nSELECT\n1\n```\nThat is all.", "SELECT\n1"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```sqlite\r\nSELECT 1\r\n```\r\n", "SELECT 1"),
    ],
)
def test_one_answer(completion, sql):
    assert extract_sql(completion, "auto").sql == sql


@pytest.mark.parametrize(
    ("completion", "word"),
    [
        ("", "no_answer"),
        ("  \n ", "no_answer"),
        ("```sql\n```", "no_answer"),
        ("```sql\nSELECT 1", "no_answer"),
        ("```python\nprint(1)\n```", "no_answer"),
        ("```sql\nSELECT 1\n```\n```sql\nSELECT 1\n```", "several_answers"),
        ("```sql\nSELECT 1\n```\n```python\n1\n```", "several_answers"),
        ("Use ```SELECT 1``` here", "no_answer"),
        ("```SELECT 1```", "no_answer"),
        ("```x y\n" * 50_000, "no_answer"),
    ],
)
def test_no_single_answer(completion, word):
    answer = extract_sql(completion, "auto")
    assert answer.sql == ""
    assert answer.problem.startswith(word)


def test_only_the_declared_place_is_read():
    assert extract_sql("SELECT 1", "fence").problem.startswith("no_answer")
    assert extract_sql("```sql\nSELECT 1\n```", "text").problem.startswith("not_sql")
    assert extract_sql("SELECT 2\n```sql\nSELECT 1\n```", "auto").sql == "SELECT 1"
