"""Makes one counterfactual copy of a database: the same rules, other contents.

Keys, foreign keys and columns that never repeat stay what they are (variants_schema.py). Within them rows are dropped
and added, columns shuffled, numbers moved, some parents left without children, and the values that the golds compare
with planted together with their near misses. NULLs go only where the column already holds some. Two columns of the
same table are shuffled independently, so nothing but the keys connects the cells of a row.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.sandbox import Cell
from groupwise.verifiers.variants_columns import ColumnRule, column_rule, fresh_value, moved
from groupwise.verifiers.variants_golds import Condition
from groupwise.verifiers.variants_plant import plant
from groupwise.verifiers.variants_schema import Database, ForeignKey, Table, as_text, quoted

Rows = list[list[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStyle:
    """How far a copy is from the original: CopyStyle(keep=0.8, min_rows=20)."""

    keep: float = 0.85
    """Share of the original's rows that stay, 0 to 1."""
    grow: float = 1.2
    """Rows of a table after, as a multiple of the rows before."""
    min_rows: int = 16
    """Smaller tables grow to about this size, so that there is room for what is planted."""
    max_rows: int = 500
    """Growth ends here; a table that is larger already changes its size by a tenth."""
    shuffle: float = 0.7
    """Probability that a column is shuffled."""
    move: float = 0.4
    """Probability that a number changes a little."""
    invent: float = 0.1
    """Share of added rows with a text that was not there before."""
    childless: float = 0.25
    """Share of parents that no child may point at."""
    plant: float = 1.0
    """Share of the golds' conditions that are planted."""


def copy_rows(
    database: Database, style: CopyStyle, golds: Sequence[tuple[Condition, ...]], seed: int
) -> dict[str, Rows]:
    """The rows of the copy, by lower-case table name. The same seed gives the same rows."""
    rng = random.Random(seed)
    done: dict[str, Rows] = {}
    for name in _parents_first(database):
        table = database.tables[name]
        keys = [key for key in database.foreign_keys if key.child == name]
        done[name] = _copy_table(table, keys, done, style, golds, rng) if table.rows else []
    return done


def write_copy(database: Database, rows: Mapping[str, Rows], target: Path) -> None:
    """A file with the original's schema and these rows. Rows that a constraint refuses are left out, and their children
    with them.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(database.path, target)
    connection = sqlite3.connect(target, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {quoted(name)}")
        for name, cells in rows.items():
            table = database.tables[name]
            connection.execute(f"DELETE FROM {quoted(table.name)}")
            columns = ", ".join(map(quoted, table.columns))
            places = ", ".join("?" * len(table.columns))
            insert = f"INSERT OR IGNORE INTO {quoted(table.name)}({columns}) VALUES ({places})"
            connection.executemany(insert, cells)
        for _ in range(len(database.tables)):
            if not sum(_drop_orphans(connection, database, key) for key in database.foreign_keys):
                break
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("COMMIT")
        connection.execute("VACUUM")
    finally:
        connection.close()


def _drop_orphans(connection: sqlite3.Connection, database: Database, key: ForeignKey) -> int:
    child, parent = database.tables[key.child], database.tables[key.parent]
    if _has_orphans(child, parent, key):
        return 0  # the original has them too
    filled = " AND ".join(f"{quoted(child.columns[index])} IS NOT NULL" for index in key.columns)
    equal = " AND ".join(
        f"p.{quoted(parent.columns[theirs])} = {quoted(child.name)}.{quoted(child.columns[ours])}"
        for ours, theirs in zip(key.columns, key.parent_columns, strict=True)
    )
    return connection.execute(
        f"DELETE FROM {quoted(child.name)} WHERE {filled} AND NOT EXISTS "
        f"(SELECT 1 FROM {quoted(parent.name)} AS p WHERE {equal})"
    ).rowcount


def _has_orphans(child: Table, parent: Table, key: ForeignKey) -> bool:
    there = {tuple(as_text(row[index]) for index in key.parent_columns) for row in parent.rows}
    pointed = [tuple(row[index] for index in key.columns) for row in child.rows]
    return any(None not in cells and tuple(map(as_text, cells)) not in there for cells in pointed)


def _parents_first(database: Database) -> list[str]:
    """Every table after those it points at; a circle is cut where it is entered."""
    order: dict[str, None] = {}
    entered: set[str] = set()

    def visit(name: str) -> None:
        if name in entered:
            return
        entered.add(name)
        for key in database.foreign_keys:
            if key.child == name:
                visit(key.parent)
        order[name] = None

    for name in database.tables:
        visit(name)
    return list(order)


def _copy_table(
    table: Table,
    keys: Sequence[ForeignKey],
    done: Mapping[str, Rows],
    style: CopyStyle,
    golds: Sequence[tuple[Condition, ...]],
    rng: random.Random,
) -> Rows:
    own = table.name.lower()
    pointing = {index for key in keys for index in key.columns}
    protected = {index for columns in table.unique for index in columns} | pointing
    rules = [column_rule([row[index] for row in table.rows]) for index in range(len(table.columns))]
    rows, num_kept = _drop_and_add(table, style, rng)
    for columns in table.unique:
        if len(columns) == 1 and columns[0] not in pointing:
            _make_fresh(rows, num_kept, columns[0], rules[columns[0]], rng)
    for index, rule in enumerate(rules):
        if index not in protected:
            _change_column(rows, num_kept, index, rule, style, rng)
        elif (index,) in table.unique and (index,) != table.primary_key and index not in pointing:
            _shuffle(rows, index, rng)
    for key in keys:
        parents = rows if key.parent == own else done.get(key.parent, [list(row) for row in table.rows])
        if key.parent == own or key.parent in done:
            _point(rows, num_kept, key, parents, rules, style, rng)
    chosen = [gold for gold in golds if rng.random() < style.plant]
    plant(table, rules, keys, done, rows, chosen, rng)
    rows = _without_repeats(rows, table.unique)
    for index, rule in enumerate(rules):
        if index not in protected:
            _keep_extremes_single(rows, index, rule, [row[index] for row in table.rows])
    rng.shuffle(rows)
    return rows


def _drop_and_add(table: Table, style: CopyStyle, rng: random.Random) -> tuple[Rows, int]:
    """Rows that stay, then copies of rows; how many stay. The size always differs from the original's."""
    num_kept = max(1, round(len(table.rows) * style.keep))
    size = max(round(len(table.rows) * style.grow), round(style.min_rows * rng.uniform(0.8, 1.3)))
    if size > style.max_rows:
        size = max(style.max_rows, round(len(table.rows) * rng.uniform(0.9, 1.1)))
    size += size == len(table.rows)
    num_kept = min(num_kept, size)
    rows: Rows = [list(row) for row in rng.sample(table.rows, num_kept)]
    while len(rows) < size:
        rows.append(list(rng.choice(table.rows)))
    return rows, num_kept


def _make_fresh(rows: Rows, start: int, index: int, rule: ColumnRule, rng: random.Random) -> None:
    """New values for the added rows of a column that never repeats."""
    taken = {row[index] for row in rows[:start]} | set(rule.values)
    for row in rows[start:]:
        row[index] = fresh_value(row[index], rule, taken, rng)
        taken.add(row[index])


def _change_column(
    rows: Rows, num_kept: int, index: int, rule: ColumnRule, style: CopyStyle, rng: random.Random
) -> None:
    if rng.random() < style.shuffle:
        _shuffle(rows, index, rng)
    for number, row in enumerate(rows):
        if rule.can_move and rng.random() < style.move:
            row[index] = moved(row[index], rule, rng)
        if rule.can_invent and number >= num_kept and rng.random() < style.invent:
            row[index] = fresh_value(row[index], rule, set(rule.values), rng)
        if rule.has_null and rng.random() < 0.1:
            row[index] = None


def _shuffle(rows: Rows, index: int, rng: random.Random) -> None:
    cells = [row[index] for row in rows]
    rng.shuffle(cells)
    for row, cell in zip(rows, cells, strict=True):
        row[index] = cell


def _point(
    rows: Rows,
    num_kept: int,
    key: ForeignKey,
    parents: Rows,
    rules: Sequence[ColumnRule],
    style: CopyStyle,
    rng: random.Random,
) -> None:
    """Lets children point at parents that exist: kept rows mostly as before, others unevenly at some of the parents."""
    targets = [tuple(parent[index] for index in key.parent_columns) for parent in parents]
    targets = list(dict.fromkeys(target for target in targets if None not in target))
    if not targets:
        return
    there = {tuple(map(as_text, target)) for target in targets}
    rng.shuffle(targets)
    offered = targets[: max(1, round(len(targets) * (1 - style.childless)))]
    weights = [rng.paretovariate(1.2) for _ in offered]
    for number, row in enumerate(rows):
        cells = [row[index] for index in key.columns]
        if None in cells:
            continue
        stays = number < num_kept and rng.random() < 0.4
        if stays and tuple(map(as_text, cells)) in there:
            continue
        target = rng.choices(offered, weights)[0]
        for index, value in zip(key.columns, target, strict=True):
            row[index] = rules[index].stored(value)


def _without_repeats(rows: Rows, unique: Sequence[tuple[int, ...]]) -> Rows:
    for columns in unique:
        seen: set[tuple[str, ...]] = set()
        kept: Rows = []
        for row in rows:
            cells = [row[index] for index in columns]
            name = tuple(map(as_text, cells))
            if None in cells or name not in seen:
                seen.add(name)
                kept.append(row)
        rows = kept
    return rows


def _keep_extremes_single(rows: Rows, index: int, rule: ColumnRule, before: Sequence[Cell]) -> None:
    """One largest and one smallest number stay one each: `= (SELECT max(x))` and `ORDER BY x DESC LIMIT 1` are both
    right as long as nobody ties.
    """
    if not rule.can_move:
        return
    for sign in (1, -1):
        there = sorted((sign * n for cell in before if (n := rule.number(cell)) is not None), reverse=True)
        if len(there) < 2 or there[0] == there[1]:
            continue
        numbers = [(sign * n, row) for row in rows if (n := rule.number(row[index])) is not None]
        top = max((number for number, _ in numbers), default=0.0)
        tied = [row for number, row in numbers if number == top]
        if len(tied) > 1 and sign * top + sign >= rule.low - (sign < 0):
            tied[0][index] = rule.from_number(sign * (top + 1))
