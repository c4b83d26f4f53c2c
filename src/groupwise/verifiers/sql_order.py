"""Finds the sort keys of a gold query, so that rows that tie may come in any order.

Works on the gold only, which is the user's own text; a completion is never parsed here. The gold's result always comes
from its original text. Only the sort keys come from a second, rewritten query, and a rewriting that does not
reproduce the original result is dropped, which leaves plain row-by-row comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from groupwise.sandbox import Row
from groupwise.verifiers.sql_compare import TieGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """How to obtain sort keys.

    Example, for SELECT name FROM singer ORDER BY age LIMIT 3:
        OrderPlan(keyed_sql="SELECT name, age AS order_key_0 FROM singer ORDER BY age", num_hidden=1,
                  visible_keys=(), offset=0)
    """

    keyed_sql: str | None
    """A query whose rows are the gold's, without LIMIT, then num_hidden key columns. None: the gold's rows suffice."""
    num_hidden: int
    visible_keys: tuple[int, ...]
    """Positions of the sort keys that the gold shows."""
    offset: int


def plan_order(gold: str, dialect: str = "sqlite") -> OrderPlan | None:
    """The plan for a gold with a top-level ORDER BY, or None where its sort keys cannot be had.

    `dialect` is a name that sqlglot knows: sqlite or duckdb.
    """
    try:
        tree = sqlglot.parse_one(gold, read=dialect)
    except (SqlglotError, RecursionError):
        return None
    order = tree.args.get("order")
    if order is None or not isinstance(tree, (exp.Select, exp.SetOperation)):
        return None
    visible: list[int] = []
    hidden: list[exp.Expression] = []
    for ordered in order.expressions:
        key = ordered.this if isinstance(ordered, exp.Ordered) else ordered
        position = _position(tree, key)
        if position is not None:
            visible.append(position)
        else:
            hidden.append(_expand_alias(tree, key))
    if hidden and (not isinstance(tree, exp.Select) or tree.args.get("distinct")):
        return None  # another column would change which rows are distinct
    offset = _offset(tree)
    if offset is None:
        return None
    if not hidden and tree.args.get("limit") is None:
        return OrderPlan(keyed_sql=None, num_hidden=0, visible_keys=tuple(visible), offset=offset)
    keyed = tree.copy()
    keyed.set("limit", None)
    keyed.set("offset", None)
    if isinstance(keyed, exp.Select):
        for number, key in enumerate(hidden):
            keyed.append("expressions", exp.alias_(key.copy(), f"order_key_{number}"))
    return OrderPlan(
        keyed_sql=keyed.sql(dialect=dialect), num_hidden=len(hidden), visible_keys=tuple(visible), offset=offset
    )


def _projections(tree: exp.Expression) -> list[exp.Expression]:
    while isinstance(tree, exp.SetOperation):
        tree = tree.this
    return list(tree.expressions) if isinstance(tree, exp.Select) else []


def _position(tree: exp.Expression, key: exp.Expression) -> int | None:
    """Where the result shows `key`: by number, by name, or as the same expression."""
    if isinstance(key, exp.Literal) and key.is_int:
        return int(key.this) - 1
    for index, projection in enumerate(_projections(tree)):
        if projection.is_star:
            return None  # positions after a star are not known here
        is_name = isinstance(key, exp.Column) and not key.table
        if is_name and projection.alias_or_name.lower() == key.name.lower():
            return index
        if projection.unalias() == key:
            return index
    return None


def _expand_alias(tree: exp.Expression, key: exp.Expression) -> exp.Expression:
    """An alias cannot be used inside the list that defines it."""
    for projection in _projections(tree):
        named = isinstance(projection, exp.Alias) and isinstance(key, exp.Column) and not key.table
        if named and projection.alias.lower() == key.name.lower():
            return cast(exp.Expression, projection.unalias())
    return key


def _offset(tree: exp.Expression) -> int | None:
    """OFFSET as a number, 0 if there is none, None if it is an expression."""
    clause = tree.args.get("offset")
    if clause is None:
        return 0
    value = clause.expression
    return int(value.this) if isinstance(value, exp.Literal) and value.is_int else None


def tie_groups(
    plan: OrderPlan, keyed_rows: Sequence[Row], num_shown: int, complete: bool
) -> tuple[TieGroup, ...] | None:
    """The gold's rows by equal sort keys, cut to the window that OFFSET and LIMIT show.

    keyed_rows are the rows of plan.keyed_sql (or the gold's own), in order. complete=False says that more exist.
    None: the rows do not reach past the last tie of the window, so which rows may stand there is unknown.
    """
    groups: list[TieGroup] = []
    window_start, window_end = plan.offset, plan.offset + num_shown
    start = 0
    for _, members in groupby(keyed_rows, key=lambda row: _key(plan, row)):
        rows = tuple(row[: len(row) - plan.num_hidden] for row in members)
        end = start + len(rows)
        shown = min(end, window_end) - max(start, window_start)
        if shown > 0:
            if end == len(keyed_rows) and not complete:
                return None
            groups.append(TieGroup(num_shown=shown, rows=rows))
        start = end
    return tuple(groups) if sum(group.num_shown for group in groups) == num_shown else None


def _key(plan: OrderPlan, row: Row) -> Row:
    return tuple(row[position] for position in plan.visible_keys) + row[len(row) - plan.num_hidden :]
