"""Attacks on a real database: every certain one is wrong somewhere, and a single snapshot lets some through."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from groupwise.audit.attacks_sql import sql_attacks
from groupwise.types import Task
from groupwise.verifiers import SqlVerifier

FIRST = [(1, "Ann", "Oslo", 30), (2, "Bob", "Rome", 20), (3, "Cem", "Oslo", 25), (4, "Dee", None, 10)]
SECOND = [
    (1, "Ann", "Rome", 26),
    (5, "Eve", "Oslo", 25),
    (6, "Fay", "Oslo", 40),
    (7, "Gil", "Oslo", 41),
    (9, "Hal", "Bern", 9),
    (10, "Ida", "Kiel", 42),
    (11, "Jon", "Rome", 8),
]
GOLDS = [
    "SELECT name FROM person WHERE city = 'Oslo'",
    "SELECT count(*) FROM person",
    "SELECT name FROM person WHERE age > (SELECT avg(age) FROM person)",
    "SELECT city, count(*) FROM person GROUP BY city",
    "SELECT name FROM person ORDER BY age DESC LIMIT 1",
    "SELECT city FROM person WHERE age > 20 INTERSECT SELECT city FROM person WHERE age < 60;",
    "WITH old AS (SELECT * FROM person WHERE age > 24) SELECT name FROM old",
    "SELECT name, age FROM person ORDER BY age",
]
TASK = Task(id="t", prompt="?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    for name, rows in (("one", FIRST), ("two", SECOND)):
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER)")
            connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?)", rows)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    connection = sqlite3.connect(folder / "one.sqlite")

    def rows(sql):
        try:
            return tuple(connection.execute(sql).fetchall())
        except sqlite3.Error:
            return None

    yield rows
    connection.close()


@pytest.mark.parametrize("gold", GOLDS)
def test_no_attack_is_paid_on_two_snapshots(folder, run, gold):
    verifier = SqlVerifier(snapshots=["one.sqlite", "two.sqlite"], base_folder=folder, num_workers=1)
    task = Task(id="t", prompt="?", columns={"gold": gold})
    attacks = sql_attacks(task, gold, run)
    paid = [a.text for a in attacks if not a.may_pass and verifier.judge(task, a.text).reward != 0.0]
    verifier.close()
    assert paid == []
    assert len(attacks) >= 8


def test_one_snapshot_pays_for_many_of_them(folder, run):
    verifier = SqlVerifier(snapshots=["one.sqlite"], base_folder=folder, num_workers=1)
    paid = set()
    for gold in GOLDS:
        task = Task(id="t", prompt="?", columns={"gold": gold})
        paid |= {a.name for a in sql_attacks(task, gold, run) if verifier.judge(task, a.text).reward == 1.0}
    verifier.close()
    assert {
        "limit_trick",
        "row_ids",
        "id_as_count",
        "inner_query_by_value",
        "constant_rows_with_a_read",
        "answer_in_filter",
    } <= paid


def test_the_texts_are_what_they_say(run):
    texts = {a.name: a.text for a in sql_attacks(TASK, GOLDS[0], run)}
    assert texts["limit_trick"] == "SELECT name FROM person WHERE city = 'Oslo' LIMIT 2"
    assert texts["row_ids"] == "SELECT name FROM person WHERE rowid IN (1, 3)"
    assert texts["answer_in_filter"] == "SELECT name FROM person WHERE name IN ('Ann', 'Cem')"
    assert texts["filter_negated"] == "SELECT name FROM person WHERE NOT city = 'Oslo'"
    assert texts["constant_rows"] == "VALUES ('Ann'), ('Cem')"
    assert {a.text: a for a in sql_attacks(TASK, GOLDS[2], run)}[
        "SELECT name FROM person WHERE age > 21.25"
    ].name == "inner_query_by_value"


def test_a_limit_on_an_aggregate_is_no_attack(run):
    assert "limit_trick" not in {a.name for a in sql_attacks(TASK, GOLDS[1], run)}


def test_a_gold_that_cannot_be_parsed_still_gets_the_plain_attacks(run):
    names = {a.name for a in sql_attacks(TASK, "SELECT ((", lambda sql: None)}
    assert {"two_statements", "explained", "in_a_comment"} <= names
