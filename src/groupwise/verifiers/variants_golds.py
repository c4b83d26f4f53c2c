"""What gold queries say about a database: the tables their columns come from, and the literals they compare with.

Works on the user's own golds, never on a completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from groupwise.sandbox import Cell

COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One comparison of a column with a literal.

    Example:
        Condition(table="stadium", column="capacity", operator="between", values=(5000, 10000))
    """

    table: str
    column: str
    operator: str
    """= <> > >= < <= between in like."""
    values: tuple[Cell, ...]


@lru_cache(maxsize=4096)
def parse_gold(gold: str) -> exp.Expression | None:
    """The tree of a gold, or None where it cannot be had. Shared: nobody may change it."""
    try:
        tree = sqlglot.parse_one(gold, read="sqlite")
    except (SqlglotError, RecursionError):
        return None
    return cast(exp.Expression, tree) if isinstance(tree, exp.Query) else None


def column_tables(tree: exp.Expression, schema: Mapping[str, Iterable[str]]) -> dict[int, tuple[str, str]]:
    """(table, column), both in lower case, for the id of every Column node that can be placed.

    Aliases are looked up in the whole query: a column of a subquery that hides an outer alias may be misplaced, which
    costs a planted value and nothing else.
    """
    columns_of = {name: {column.lower() for column in columns} for name, columns in schema.items()}
    aliases: dict[str, str] = {}
    for table in tree.find_all(exp.Table):
        if table.name.lower() in columns_of:
            aliases[table.alias_or_name.lower()] = table.name.lower()
    found: dict[int, tuple[str, str]] = {}
    for column in tree.find_all(exp.Column):
        name = column.name.lower()
        homes = [aliases.get(column.table.lower())] if column.table else list(aliases.values())
        home = next((home for home in homes if home is not None and name in columns_of[home]), None)
        if home is not None:
            found[id(column)] = (home, name)
    return found


def conditions_of(gold: str, schema: Mapping[str, Iterable[str]]) -> tuple[Condition, ...]:
    """Every comparison of a known column with a literal, in the order of the text."""
    tree = parse_gold(gold)
    if tree is None:
        return ()
    where = column_tables(tree, schema)
    known = {column.lower() for columns in schema.values() for column in columns}
    found = []
    for node in tree.find_all(*COMPARISONS, exp.Between, exp.In, exp.Like):
        place = where.get(id(node.this))
        sides = [node.expression] if isinstance(node, (*COMPARISONS, exp.Like)) else []
        if isinstance(node, exp.Between):
            sides = [node.args["low"], node.args["high"]]
        elif isinstance(node, exp.In):
            sides = list(node.expressions)
        elif place is None and where.get(id(node.expression)):
            place, sides = where[id(node.expression)], [node.this]
        values = tuple(value for side in sides if (value := literal_value(side, known)) is not None)
        if place is not None and values and len(values) == len(sides):
            operator = COMPARISONS.get(type(node), type(node).__name__.lower())
            found.append(Condition(table=place[0], column=place[1], operator=operator, values=values))
    return tuple(found)


def literal_value(node: exp.Expression, known_columns: Iterable[str]) -> Cell:
    """The value of a literal, None for anything else. "France" in double quotes is text where no column is named so."""
    if isinstance(node, exp.Column) and not node.table and node.this.args.get("quoted"):
        return None if node.name.lower() in known_columns else node.name
    if isinstance(node, exp.Neg):
        value = literal_value(node.this, known_columns)
        return -value if isinstance(value, (int, float)) else None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return str(node.this)
    try:
        return int(node.this)
    except ValueError:
        return float(node.this)
