"""Copies of a database: keys hold, contents differ, and wrong answers that one database accepts are told."""

import json
import sqlite3

import pytest

from groupwise.errors import VerifierError
from groupwise.types import Task
from groupwise.verifiers import SqlVerifier
from groupwise.verifiers.variants import make_variants, survival_by_kind
from groupwise.verifiers.variants_copy import CopyStyle, copy_rows, write_copy
from groupwise.verifiers.variants_golds import Condition, conditions_of
from groupwise.verifiers.variants_mutants import KINDS, MAX_PER_KIND, mutants_of
from groupwise.verifiers.variants_schema import read_database
from groupwise.verifiers.variants_trial import CONSTANT, Attempt, Trial, distil, survivors

SCHEMA = """
CREATE TABLE city(code TEXT PRIMARY KEY, name TEXT NOT NULL, size INTEGER CHECK (size > 0));
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, age INTEGER, city TEXT REFERENCES city(code), mail TEXT UNIQUE);
CREATE TABLE visit(person_id INTEGER, city TEXT, year TEXT, PRIMARY KEY (person_id, city));
CREATE TRIGGER t AFTER INSERT ON person BEGIN DELETE FROM visit; END;
"""
CITIES = [("A1", "Oslo", 700), ("B2", "Rome", 2800), ("C3", "Bonn", 330)]
PEOPLE = [
    (n, name, age, code, f"{name}{n}@x.org")
    for n, (name, age, code) in enumerate(
        [("Ann", 30, "A1"), ("Bob", 25, "B2"), ("Cem", 41, "A1"), ("Dee", 19, "B2"), ("Eve", None, "C3")], start=1
    )
]
VISITS = [(1, "B2", "2014"), (2, "A1", "2015"), (3, "C3", "2014"), (5, "A1", "2016")]
GOLDS = [
    "SELECT name FROM person WHERE age BETWEEN 20 AND 30",
    "SELECT name FROM person WHERE name LIKE '%n%' AND age > 18",
    "SELECT count(*) FROM visit WHERE year = 2014",
    "SELECT p.name FROM person AS p JOIN visit AS v ON p.id = v.person_id WHERE v.year >= '2015'",
    "SELECT city, count(*) FROM person GROUP BY city ORDER BY count(*) DESC LIMIT 1",
    "SELECT name FROM person ORDER BY age DESC LIMIT 1",
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("variants") / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.executemany("INSERT INTO city VALUES (?, ?, ?)", CITIES)
    connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?, ?)", PEOPLE)
    connection.executemany("INSERT INTO visit VALUES (?, ?, ?)", VISITS)
    connection.commit()
    connection.close()
    return path


@pytest.fixture(scope="module")
def made(shop, tmp_path_factory):
    return make_variants(shop, GOLDS, tmp_path_factory.mktemp("out"), num_copies=3, seed=1)


def read(path, sql):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_rules_are_read_from_the_file_and_from_the_golds(shop):
    database = read_database(shop, GOLDS)
    keys = {(key.child, key.columns, key.parent, key.parent_columns) for key in database.foreign_keys}
    assert keys == {("person", (3,), "city", (0,)), ("visit", (0,), "person", (0,))}
    person = database.tables["person"]
    assert set(person.unique) == {(0,), (4,)}
    assert database.tables["visit"].unique == ((0, 1),)
    given = read_database(shop, [], [("visit", "city", "city", "code")])
    assert ("visit", (1,)) in {(key.child, key.columns) for key in given.foreign_keys}


def test_copies_obey_the_rules_and_differ(shop, made):
    assert [path.name for path in made.copies] == ["shop_v1.sqlite", "shop_v2.sqlite", "shop_v3.sqlite"]
    schema = read(shop, "SELECT type, name, sql FROM sqlite_master ORDER BY name")
    for path in made.copies:
        assert read(path, "PRAGMA integrity_check") == [("ok",)]
        assert read(path, "PRAGMA foreign_key_check") == []
        assert read(path, "SELECT count(*) FROM visit WHERE person_id NOT IN (SELECT id FROM person)") == [(0,)]
        assert read(path, "SELECT count(*) FROM person WHERE city IS NULL OR name IS NULL") == [(0,)]
        assert read(path, "SELECT type, name, sql FROM sqlite_master ORDER BY name") == schema
        assert read(path, "SELECT count(*) FROM person") != [(len(PEOPLE),)]
        assert read(path, "SELECT count(*) FROM visit")[0][0] > 0
    assert len({path.read_bytes() for path in made.copies}) == 3
    assert max(read(path, "SELECT count(*) FROM person")[0][0] for path in made.copies) > 100


def test_the_same_seed_gives_the_same_rows(shop):
    database = read_database(shop, GOLDS)
    schema = {name: table.columns for name, table in database.tables.items()}
    planted = [conditions_of(gold, schema) for gold in GOLDS]
    rows = [copy_rows(database, CopyStyle(), planted, seed) for seed in (3, 3, 4)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_literals_and_near_misses_are_planted(shop, tmp_path):
    database = read_database(shop, GOLDS)
    schema = {name: table.columns for name, table in database.tables.items()}
    rows = copy_rows(database, CopyStyle(min_rows=60, move=0.0), [conditions_of(gold, schema) for gold in GOLDS], 5)
    ages = {row[2] for row in rows["person"]}
    assert {19, 20, 21, 29, 30, 31} <= ages  # BETWEEN 20 AND 30 and one more and one less at both ends
    write_copy(database, rows, tmp_path / "copy.sqlite")
    assert {"2014", "2015", "2016"} <= {year for (year,) in read(tmp_path / "copy.sqlite", "SELECT year FROM visit")}


def test_conditions_know_their_columns():
    schema = {"person": ("id", "name", "age"), "visit": ("person_id", "year")}
    gold = (
        'SELECT 1 FROM person AS p JOIN visit ON id = person_id WHERE p.name = "Ann" AND year IN (1, 2) AND 3 < p.age'
    )
    assert conditions_of(gold, schema) == (
        Condition(table="visit", column="year", operator="in", values=(1, 2)),
        Condition(table="person", column="name", operator="=", values=("Ann",)),
        Condition(table="person", column="age", operator="<", values=(3,)),
    ) or {c.column for c in conditions_of(gold, schema)} == {"name", "year", "age"}


def test_mutants_by_hand():
    schema = {"person": ("id", "name", "age")}
    gold = "SELECT DISTINCT name FROM person WHERE age > 20 AND id < 9 ORDER BY age LIMIT 3"
    found = {(mutant.kind, mutant.sql) for mutant in mutants_of(gold, schema)}
    assert {
        ("drop_where", "SELECT DISTINCT name FROM person ORDER BY age LIMIT 3"),
        ("drop_conjunct", "SELECT DISTINCT name FROM person WHERE age > 20 ORDER BY age LIMIT 3"),
        ("boundary", "SELECT DISTINCT name FROM person WHERE age >= 20 AND id < 9 ORDER BY age LIMIT 3"),
        ("flip_comparison", "SELECT DISTINCT name FROM person WHERE age < 20 AND id < 9 ORDER BY age LIMIT 3"),
        ("drop_distinct", "SELECT name FROM person WHERE age > 20 AND id < 9 ORDER BY age LIMIT 3"),
        ("flip_order", "SELECT DISTINCT name FROM person WHERE age > 20 AND id < 9 ORDER BY age DESC LIMIT 3"),
        ("limit_off_by_one", "SELECT DISTINCT name FROM person WHERE age > 20 AND id < 9 ORDER BY age LIMIT 4"),
        ("change_literal", "SELECT DISTINCT name FROM person WHERE age > 21 AND id < 9 ORDER BY age LIMIT 3"),
        ("swap_column", 'SELECT DISTINCT "age" FROM person WHERE age > 20 AND id < 9 ORDER BY age LIMIT 3'),
    } <= found
    assert {m.kind for m in mutants_of("SELECT a.id FROM person a JOIN person b ON a.id = b.id", schema)} >= {
        "left_join"
    }
    assert all(sum(kind == k for k, _ in found) <= MAX_PER_KIND for kind in KINDS)
    assert mutants_of("not SQL at all (", schema) == ()


def attempt(told, on_original=False):
    return Attempt(gold="g", kind="k", sql="s", on_original=on_original, told_by=frozenset(told))


def test_distil_takes_what_tells_most_then_what_adds_most():
    told = [{0, 1}, {0, 1}, {0}, {1}, {1}, {2}, {2, 1}, set()]
    trial = Trial(attempts=tuple(map(attempt, told)), unusable_golds=(), bad_copies=frozenset())
    assert distil(trial, 2, 3) == (1, 0)  # 1 tells five; of what is left, 0 and 2 tell one each, and 0 tells more alone
    assert distil(trial, 2, 3, wanted=(2,)) == (1, 2)
    assert len(survivors(trial, (1, 0))) == 2
    bad = Trial(attempts=trial.attempts, unusable_golds=(), bad_copies=frozenset({1}))
    assert distil(bad, 1, 3) == (0,)


def test_copies_tell_what_one_database_accepts(shop, made):
    kinds = {kind.kind: kind for kind in survival_by_kind(made)}
    assert (kinds[CONSTANT].on_original, kinds[CONSTANT].on_all) == (len(GOLDS), 0)
    mutants = [kind for kind in kinds.values() if kind.kind != CONSTANT]
    assert sum(kind.on_all for kind in mutants) < 0.7 * sum(kind.on_original for kind in mutants)
    verifier = SqlVerifier(snapshots=[shop, *made.copies], num_workers=1)
    task = Task(id="t", prompt="?", columns={"gold": GOLDS[0]})
    try:
        assert verifier.judge(task, "SELECT name FROM person WHERE age >= 20 AND age <= 30").reward == 1.0
        assert verifier.judge(task, "SELECT name FROM person WHERE age > 20 AND age < 31").reward == 0.0
        assert verifier.judge(task, "SELECT name FROM person WHERE name IN ('Ann', 'Bob')").reward == 0.0
    finally:
        verifier.close()


def test_right_answers_by_another_route_stay_right(shop, made):
    """What ties, NULLs in keys or repeated names would split."""
    pairs = [
        (GOLDS[5], "SELECT name FROM person WHERE age = (SELECT max(age) FROM person)"),
        (
            "SELECT name FROM person WHERE id NOT IN (SELECT person_id FROM visit)",
            "SELECT p.name FROM person p LEFT JOIN visit v ON v.person_id = p.id WHERE v.year IS NULL",
        ),
    ]
    verifier = SqlVerifier(snapshots=[shop, *made.copies], num_workers=1)
    reasons = [verifier.judge(Task(id="t", prompt="?", columns={"gold": g}), a).reason for g, a in pairs]
    verifier.close()
    assert [reason.split()[0] for reason in reasons] == ["same_rows", "same_rows"]


@pytest.mark.parametrize(("golds", "copies", "word"), [([], 3, "gold_missing"), (GOLDS, 0, "variants")])
def test_what_cannot_work_is_refused(shop, tmp_path, golds, copies, word):
    with pytest.raises(VerifierError, match=word):
        make_variants(shop, golds, tmp_path, num_copies=copies)


def test_no_database_no_variants(tmp_path):
    (tmp_path / "x.sqlite").write_bytes(b"only text " * 200)
    for name, word in [("x.sqlite", "snapshot_bad"), ("none.sqlite", "snapshot_missing")]:
        with pytest.raises(VerifierError, match=word):
            make_variants(tmp_path / name, GOLDS, tmp_path / "out")


def test_a_reference_database(shared, tmp_path):
    spider = shared / "data" / "sql" / "spider"
    if not (spider / "dev.jsonl").is_file():
        pytest.skip(f"no Spider data below {shared}")
    rows = [json.loads(line) for line in (spider / "dev.jsonl").read_text().splitlines()]
    golds = [row["query"] for row in rows if row["db_id"] == "singer"]
    made = make_variants(spider / "sqlite" / "singer.sqlite", golds, tmp_path, num_copies=2)
    kinds = survival_by_kind(made)
    constant = next(kind for kind in kinds if kind.kind == CONSTANT)
    assert constant.on_original == constant.num
    assert constant.on_all <= 0.1 * constant.num
    mutants = [kind for kind in kinds if kind.kind != CONSTANT]
    assert sum(kind.on_all for kind in mutants) < 0.4 * sum(kind.num for kind in mutants)
