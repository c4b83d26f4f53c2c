"""Reads a database and what its contents must obey, so that copies of it stay possible databases.

A copy that breaks a rule which everybody takes for granted would call right answers wrong: a NULL in a foreign key
splits NOT IN from the anti-join, two people of one name split GROUP BY name from GROUP BY id. Files often declare no
such rule. Beside the declared keys these count:

    foreign keys    given by the caller; what golds join on, where one side is a unique column that holds every value
                    of the other
    unique columns  text that never repeats in 8 or more rows, or that a gold groups by
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from groupwise.errors import VerifierError
from groupwise.sandbox import Row
from groupwise.verifiers.variants_golds import column_tables, parse_gold

MIN_ROWS_FOR_UNIQUE = 8
MAX_ROWS = 200_000
"""Rows of one table that are read: copies are made in memory and are meant to be small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table with its rows. Columns are named by position in `columns`.

    Example:
        Table(name="singer", columns=("id", "name"), primary_key=(0,), unique=((0,),), not_null=frozenset({0}),
              rows=((1, "Ann"),))
    """

    name: str
    columns: tuple[str, ...]
    primary_key: tuple[int, ...]
    unique: tuple[tuple[int, ...], ...]
    """Sets of columns that together never repeat, the primary key among them."""
    not_null: frozenset[int]
    rows: tuple[Row, ...]

    def position(self, column: str) -> int | None:
        """Where a column stands, whatever its case; None if there is none."""
        names = [name.lower() for name in self.columns]
        return names.index(column.lower()) if column.lower() in names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """child.columns point at parent.columns: ForeignKey(child="concert", columns=(3,), parent="stadium",
    parent_columns=(0,))."""

    child: str
    columns: tuple[int, ...]
    parent: str
    parent_columns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Tables by lower-case name, and the foreign keys among them."""

    path: Path
    tables: dict[str, Table]
    foreign_keys: tuple[ForeignKey, ...]


Relation = tuple[str, str, str, str]
"""(child table, child column, parent table, parent column)."""


def read_database(path: Path, golds: Sequence[str], relations: Iterable[Relation] = ()) -> Database:
    """The tables of an SQLite file with their rows and rules. Views, virtual tables and generated columns are left out.

    Raises:
        VerifierError: no SQLite database, a table that is too large, or no rows at all.
    """
    if not path.is_file():
        raise VerifierError(f"snapshot_missing: no file {path}; give an SQLite database")
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    try:
        names = [
            str(name)
            for name, sql in connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            )
            if not str(sql).upper().startswith("CREATE VIRTUAL")
        ]
        grouped = _grouped_columns(golds)
        tables = {name.lower(): _read_table(connection, name, grouped) for name in names}
        declared = [key for name in names for key in _declared_keys(connection, tables, name)]
    except sqlite3.Error as error:
        raise VerifierError(f"snapshot_bad: {path.name}: {error}; variants are made of SQLite files") from error
    finally:
        connection.close()
    if not any(table.rows for table in tables.values()):
        raise VerifierError(f"snapshot_bad: {path.name} holds no rows; variants are made from the rows that are there")
    keys = {(key.child, key.columns): key for key in declared}
    for relation in [*relations, *_joined_columns(golds, tables)]:
        key = _relation_key(tables, relation)
        if key is not None:
            keys.setdefault((key.child, key.columns), key)
    return Database(path=path, tables=tables, foreign_keys=tuple(keys.values()))


def quoted(name: str) -> str:
    """A name as SQLite reads it whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def _read_table(connection: sqlite3.Connection, name: str, grouped: set[str]) -> Table:
    described = [row for row in connection.execute(f"PRAGMA table_xinfo({quoted(name)})") if row[6] == 0]
    columns = tuple(str(row[1]) for row in described)
    wanted = ", ".join(map(quoted, columns))
    rows = connection.execute(f"SELECT {wanted} FROM {quoted(name)} LIMIT {MAX_ROWS + 1}").fetchall()
    if len(rows) > MAX_ROWS:
        raise VerifierError(f"too_large: table {name} has more than {MAX_ROWS} rows; make variants of a smaller sample")
    position = {column.lower(): index for index, column in enumerate(columns)}
    ordered_key = sorted((row[5], position[str(row[1]).lower()]) for row in described if row[5])
    primary_key = tuple(index for _, index in ordered_key)
    unique = {primary_key} if primary_key else set()
    for index in connection.execute(f"PRAGMA index_list({quoted(name)})").fetchall():
        if index[2]:
            members = [row[2] for row in connection.execute(f"PRAGMA index_info({quoted(index[1])})")]
            if all(member is not None and str(member).lower() in position for member in members):
                unique.add(tuple(position[str(member).lower()] for member in members))
    for index_of, column in enumerate(columns):
        if (index_of,) not in unique and _never_repeats(rows, index_of, column.lower() in grouped):
            unique.add((index_of,))
    not_null = frozenset(position[str(row[1]).lower()] for row in described if row[3] or row[5])
    return Table(
        name=name,
        columns=columns,
        primary_key=primary_key,
        unique=tuple(sorted(unique)),
        not_null=not_null,
        rows=tuple(map(tuple, rows)),
    )


def _never_repeats(rows: Sequence[Row], index: int, is_grouped: bool) -> bool:
    values = [row[index] for row in rows]
    if len(values) < (2 if is_grouped else MIN_ROWS_FOR_UNIQUE) or not all(isinstance(v, str) and v for v in values):
        return False
    return len(set(values)) == len(values) and not all(_is_number(str(value)) for value in values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _grouped_columns(golds: Iterable[str]) -> set[str]:
    """Names of columns that some gold groups by, in lower case."""
    trees = [tree for gold in golds if (tree := parse_gold(gold)) is not None]
    groups = [group for tree in trees for group in tree.find_all(exp.Group)]
    return {column.name.lower() for group in groups for column in group.find_all(exp.Column)}


def _declared_keys(connection: sqlite3.Connection, tables: dict[str, Table], name: str) -> list[ForeignKey]:
    parts: dict[int, list[tuple[str, str, str | None]]] = {}
    for row in connection.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall():
        parts.setdefault(int(row[0]), []).append((str(row[2]), str(row[3]), row[4]))
    keys = []
    for members in parts.values():
        child, parent = tables[name.lower()], tables.get(members[0][0].lower())
        if parent is None:
            continue
        columns = [child.position(column) for _, column, _ in members]
        targets = (
            list(parent.primary_key)
            if any(target is None for _, _, target in members)
            else [parent.position(str(target)) for _, _, target in members]
        )
        if None not in columns and None not in targets and len(columns) == len(targets):
            keys.append(_key(child, columns, parent, targets))
    return keys


def _key(child: Table, columns: Sequence[int | None], parent: Table, targets: Sequence[int | None]) -> ForeignKey:
    return ForeignKey(
        child=child.name.lower(),
        columns=tuple(index for index in columns if index is not None),
        parent=parent.name.lower(),
        parent_columns=tuple(index for index in targets if index is not None),
    )


def _joined_columns(golds: Iterable[str], tables: dict[str, Table]) -> list[Relation]:
    """Both readings of every equality between columns of two tables, where the data allow it."""
    found: dict[Relation, None] = {}
    for gold in golds:
        tree = parse_gold(gold)
        if tree is None:
            continue
        where = column_tables(tree, {name: table.columns for name, table in tables.items()})
        for equality in tree.find_all(exp.EQ):
            left, right = equality.this, equality.expression
            if isinstance(left, exp.Column) and isinstance(right, exp.Column):
                a, b = where.get(id(left)), where.get(id(right))
                if a is not None and b is not None and a[0] != b[0]:
                    found[(a[0], a[1], b[0], b[1])] = None
                    found[(b[0], b[1], a[0], a[1])] = None
    return [relation for relation in found if _is_contained(relation, tables)]


def _is_contained(relation: Relation, tables: dict[str, Table]) -> bool:
    key = _relation_key(tables, relation)
    if key is None:
        return False
    child, parent = tables[key.child], tables[key.parent]
    is_key = key.parent_columns in parent.unique
    is_own_key = key.columns == child.primary_key and key.parent_columns != parent.primary_key
    values = {as_text(row[key.columns[0]]) for row in child.rows if row[key.columns[0]] is not None}
    return is_key and not is_own_key and values <= {as_text(row[key.parent_columns[0]]) for row in parent.rows}


def _relation_key(tables: dict[str, Table], relation: Relation) -> ForeignKey | None:
    child, parent = tables.get(relation[0].lower()), tables.get(relation[2].lower())
    if child is None or parent is None:
        return None
    column, target = child.position(relation[1]), parent.position(relation[3])
    if column is None or target is None or (child.name == parent.name and column == target):
        return None
    return _key(child, [column], parent, [target])


def as_text(value: object) -> str:
    """How keys of different column types meet: 3, 3.0 and '3' are one key."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
