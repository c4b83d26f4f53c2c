"""Takes the one SQL answer out of a completion: from one declared place, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groupwise.sandbox.sql_text import QUERY_WORDS, SqlText

MAX_ANSWER_CHARS = 8192
OTHER_STATEMENTS = """
alter analyze attach begin commit create delete detach drop end explain insert pragma reindex release replace rollback
savepoint update vacuum
"""
STATEMENT_WORDS = frozenset(OTHER_STATEMENTS.split())
AnswerIn = Literal["auto", "text", "fence"]

_SQL_LABELS = frozenset({"", "sql", "sqlite", "sqlite3", "duckdb"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAnswer:
    """The SQL text or why there is none: SqlAnswer(sql="SELECT 1"), SqlAnswer(problem="several_answers: ...")."""

    sql: str = ""
    problem: str = ""


def extract_sql(completion_text: str, answer_in: AnswerIn) -> SqlAnswer:
    """The SQL of a completion.

    answer_in   where the answer is
    ----------  ----------------------------------------------------------------------------------
    fence       in exactly one ```sql block (an unlabelled block counts), whatever stands around it
    text        the whole completion is SQL; a fence is an error
    auto        in the fence if there is one, otherwise the whole completion
    """
    if "```" not in completion_text:
        if answer_in == "fence":
            return SqlAnswer(problem="no_answer: no ```sql block")
        sql = completion_text.strip()
        return SqlAnswer(sql=sql) if sql else SqlAnswer(problem="no_answer: the completion is empty")
    if answer_in == "text":
        return SqlAnswer(problem="not_sql: a ``` block where only SQL is expected")
    blocks = _fenced_blocks(completion_text)
    if len(blocks) > 1:
        return SqlAnswer(problem=f"several_answers: {len(blocks)} ``` blocks, 1 expected")
    if not blocks:
        return SqlAnswer(problem="no_answer: the ``` block is not closed or not on lines of its own")
    label, body = blocks[0]
    if label.lower() not in _SQL_LABELS:
        return SqlAnswer(problem=f"no_answer: a block labelled {label[:20]!r}, expected sql")
    sql = body.strip()
    return SqlAnswer(sql=sql) if sql else SqlAnswer(problem="no_answer: the ```sql block is empty")


def _fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(label, content) of every closed ``` block whose marks stand on lines of their own; linear in the text."""
    blocks: list[tuple[str, str]] = []
    label: str | None = None
    content: list[str] = []
    for line in text.splitlines():
        mark = line.strip()
        if label is None:
            if mark.startswith("```") and "`" not in mark[3:]:
                label, content = mark[3:].strip(), []
        elif mark == "```":
            blocks.append((label, "\n".join(content)))
            label = None
        else:
            content.append(line)
    return blocks


def problem_of_form(sql: str, form: SqlText) -> str:
    """What is wrong with an SQL text before it is run, "" if nothing. A trailing semicolon is fine."""
    if "\0" in sql:
        return "not_sql: a null character"
    if not form.first_words:
        return "not_sql: no statement"
    if len(form.first_words) > 1:
        return f"several_statements: {len(form.first_words)}, 1 expected"
    word = form.first_words[0]
    if word in QUERY_WORDS:
        return ""
    if word in STATEMENT_WORDS:
        return f"forbidden: {word.upper()} is not a query"
    return f"not_sql: starts with {sql[:20]!r}, expected SELECT, WITH or VALUES"
