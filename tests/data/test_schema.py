from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from groupwise.data import schema_text
from groupwise.errors import DataError


def database(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def test_one_line_a_table_in_the_order_of_creation(tmp_path: Path) -> None:
    path = database(
        tmp_path / "odd #1?.sqlite",
        """CREATE TABLE zoo (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT);
        CREATE TABLE "order details" (id INT, "unit ""net"" price" REAL);
        CREATE VIEW names AS SELECT name FROM zoo;
        CREATE TABLE sqlitex (a);
        INSERT INTO zoo (name) VALUES ('x');""",
    )
    assert schema_text(path) == 'zoo(id, name)\n"order details"(id, "unit ""net"" price")\nsqlitex(a)'


def test_the_file_is_not_changed(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite", "CREATE TABLE a (b)")
    before = path.read_bytes()
    schema_text(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_has_no_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        schema_text(tmp_path / "a.sqlite")
    assert not (tmp_path / "a.sqlite").exists()
    (tmp_path / "b.sqlite").write_text("hello " * 200)
    with pytest.raises(DataError, match="not a readable SQLite database"):
        schema_text(tmp_path / "b.sqlite")
    with pytest.raises(DataError, match="no tables"):
        schema_text(database(tmp_path / "c.sqlite", "VACUUM"))
