"""`groupwise variants` as a user calls it: the files it writes, what it prints, what it refuses."""

from __future__ import annotations

import json
import sqlite3

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.cli.variants import _relation
from groupwise.errors import VerifierError


@pytest.fixture
def shop(tmp_path):
    connection = sqlite3.connect(tmp_path / "shop.sqlite")
    connection.execute("CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
    rows = [(1, "Ann", 30), (2, "Bob", 25), (3, "Cem", 41), (4, "Dee", 19)]
    connection.executemany("INSERT INTO person VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    golds = [("shop", "SELECT name FROM person WHERE age > 25"), ("bar", "SELECT nothing FROM nowhere")]
    lines = [json.dumps({"db": name, "query": gold}) for name, gold in golds]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    return tmp_path


def call(folder, *more):
    options = ["--questions", str(folder / "questions.jsonl"), "--out", str(folder / "out"), "--gold-column", "query"]
    return CliRunner().invoke(app, ["variants", str(folder / "shop.sqlite"), *options, *more])


def test_it_writes_the_copies_and_says_what_survives(shop):
    done = call(shop, "--copies", "2", "--where", "db=shop")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (shop / "out").iterdir()) == ["shop_v1.sqlite", "shop_v2.sqlite"]
    assert "all mutants" in done.output
    assert "constant" in done.output
    assert "shop_v2.sqlite" in done.output.split("snapshots = ")[1]
    assert "not used" not in done.output


def test_a_gold_that_fails_is_named(shop):
    done = call(shop, "--copies", "1")
    assert "gold_failed" in done.output
    assert "SELECT nothing FROM nowhere" in done.output


@pytest.mark.parametrize(("option", "value"), [("--foreign-key", "a.b"), ("--copies", "0"), ("--tables", "none.json")])
def test_what_cannot_be_used_is_refused(shop, option, value):
    done = call(shop, "--where", "db=shop", option, value)
    assert isinstance(done.exception, VerifierError)
    assert not (shop / "out").exists()


def test_foreign_keys_are_read():
    assert _relation("visit.person_id = person.id") == ("visit", "person_id", "person", "id")
