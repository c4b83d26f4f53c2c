"""The compact text of a database's schema: what a model must know to write a query, and not a token more."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from groupwise.errors import DataError

_PLAIN_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def schema_text(path: Path) -> str:
    """One line a table, in the order of creation: `singer(singer_id, name, "birth year")`.

    Names that are not plain identifiers are quoted as they must be in a query. Types and keys are left out; views and
    SQLite's own tables too. The file is opened read-only.

    Raises:
        DataError: no such file, not a SQLite database, or no table in it.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist; data.schema_from must lead to a SQLite file for every row.")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY rowid"
            ).fetchall()
            lines = [f"{_quoted(table)}({', '.join(_columns(connection, table))})" for (table,) in tables]
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path} is not a readable SQLite database: {error}") from error
    if not lines:
        raise DataError(f"{path} has no tables, so there is no schema to show.")
    return "\n".join(lines)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))
    return [_quoted(name) for (name,) in rows]


def _quoted(name: str) -> str:
    if _PLAIN_NAME.match(name):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
