"""Breaks a gold query on purpose, in the ways that models do, to measure which of them a set of snapshots can tell.

Some mutants mean the same as the gold (DISTINCT where nothing repeats, LIMIT 1 on one row): no data can kill those, so
a survival of 0 is not to be had. Every kind is bounded for each gold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from sqlglot import exp
from sqlglot.errors import SqlglotError

from groupwise.verifiers.variants_golds import COMPARISONS, column_tables, literal_value, parse_gold

MAX_PER_KIND = 3
LARGE_LIMIT = 100

Edit = Callable[[], object]
Schema = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One broken gold: Mutant(kind="drop_where", sql="SELECT name FROM singer")."""

    kind: str
    sql: str


def mutants_of(gold: str, schema: Schema) -> tuple[Mutant, ...]:
    """Mutants of a gold, at most MAX_PER_KIND of each kind, none of them the gold itself; () where it cannot be parsed.

    `schema` gives the columns of every table, by lower-case table name.
    """
    tree = parse_gold(gold)
    if tree is None:
        return ()
    seen = {_text(tree)}
    found = []
    for kind, maker in KINDS.items():
        taken, number = 0, 0
        while taken < MAX_PER_KIND:
            copy = tree.copy()
            edits = list(maker(copy, schema))
            if number >= len(edits):
                break
            edits[number]()
            number += 1
            text = _text(copy)
            if text and text not in seen:
                seen.add(text)
                taken += 1
                found.append(Mutant(kind=kind, sql=text))
    return tuple(found)


def _text(tree: exp.Expression) -> str:
    try:
        return str(tree.sql(dialect="sqlite"))
    except (SqlglotError, RecursionError, ValueError):
        return ""


def _selects(tree: exp.Expression) -> Iterator[exp.Select]:
    yield from tree.find_all(exp.Select)


def _add_distinct(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    if isinstance(tree, exp.Select) and not tree.args.get("distinct"):
        yield partial(tree.set, "distinct", exp.Distinct())


def _drop_distinct(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for select in _selects(tree):
        if select.args.get("distinct"):
            yield partial(select.set, "distinct", None)


def _count_distinct(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for count in tree.find_all(exp.Count):
        if isinstance(count.this, exp.Distinct):
            yield partial(count.set, "this", count.this.expressions[0].copy())


def _add_limit(number: int) -> Callable[[exp.Expression, Schema], Iterator[Edit]]:
    def make(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
        if tree.args.get("limit") is None:
            yield partial(tree.set, "limit", exp.Limit(expression=exp.Literal.number(number)))

    return make


def _limit_off_by_one(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for limit in tree.find_all(exp.Limit):
        value = limit.expression
        if isinstance(value, exp.Literal) and value.is_int:
            for other in (int(value.this) + 1, int(value.this) - 1):
                if other > 0:
                    yield partial(value.set, "this", str(other))


def _drop_part(name: str) -> Callable[[exp.Expression, Schema], Iterator[Edit]]:
    def make(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
        for select in _selects(tree):
            if select.args.get(name) is not None:
                yield partial(select.set, name, None)

    return make


def _drop_conjunct(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for both in tree.find_all(exp.And, exp.Or):
        yield partial(both.replace, both.expression.copy())
        yield partial(both.replace, both.this.copy())


def _and_or(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for both in tree.find_all(exp.And, exp.Or):
        other = exp.Or if isinstance(both, exp.And) else exp.And
        yield partial(both.replace, other(this=both.this.copy(), expression=both.expression.copy()))


def _remade(kind: Any, node: exp.Expression) -> exp.Expression:
    """A node of another kind with copies of the same children: one that is never used must not own them."""
    children = {name: child.copy() for name in ("this", "expression") if (child := node.args.get(name)) is not None}
    return cast(exp.Expression, kind(**children))


def _replaced(tree: exp.Expression, others: Mapping[Any, Any]) -> Iterator[Edit]:
    for node in tree.find_all(*others):
        if node.find_ancestor(exp.Join) is None or node.find_ancestor(exp.Where) is not None:
            yield partial(node.replace, _remade(others[type(node)], node))


def _boundary(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    yield from _replaced(tree, {exp.GT: exp.GTE, exp.GTE: exp.GT, exp.LT: exp.LTE, exp.LTE: exp.LT})
    for between in tree.find_all(exp.Between):
        column, low, high = between.this, between.args["low"], between.args["high"]
        strict = exp.and_(
            exp.GT(this=column.copy(), expression=low.copy()), exp.LT(this=column.copy(), expression=high.copy())
        )
        yield partial(between.replace, exp.paren(strict))


def _flip_comparison(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    flips = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.EQ: exp.NEQ, exp.NEQ: exp.EQ}
    yield from _replaced(tree, flips)


def _swap_aggregate(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    others: dict[Any, Any] = {
        exp.Max: exp.Min,
        exp.Min: exp.Max,
        exp.Avg: exp.Sum,
        exp.Sum: exp.Avg,
        exp.Count: exp.Max,
    }
    for node in tree.find_all(*others):
        if not isinstance(node.this, (exp.Star, exp.Distinct)):
            yield partial(node.replace, _remade(others[type(node)], node))


def _left_join(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for join in tree.find_all(exp.Join):
        if not join.side and join.args.get("on") is not None:
            yield partial(join.set, "side", "LEFT")
        elif join.side:
            yield partial(join.set, "side", None)


def _flip_order(tree: exp.Expression, _: Schema) -> Iterator[Edit]:
    for ordered in tree.find_all(exp.Ordered):
        desc = not ordered.args.get("desc")
        other = exp.Ordered(this=ordered.this.copy(), desc=desc, nulls_first=not desc)  # as SQLite orders them
        yield partial(ordered.replace, other)


def _change_literal(tree: exp.Expression, schema: Schema) -> Iterator[Edit]:
    known = {column.lower() for columns in schema.values() for column in columns}
    for node in tree.find_all(*COMPARISONS, exp.Between, exp.In, exp.Like):
        for side in [node.expression, *node.expressions, node.args.get("low"), node.args.get("high")]:
            value = literal_value(side, known) if isinstance(side, exp.Expression) else None
            if isinstance(value, (int, float)):
                yield partial(side.replace, exp.Literal.number(value + 1))
            elif isinstance(value, str) and value:
                other = value.lower() if value.lower() != value else value.upper()
                shorter = value[1:] if value.startswith("%") else f"{value} 2"
                text = shorter if isinstance(node, exp.Like) else other
                yield partial(side.replace, exp.Literal.string(text))


def _swap_column(tree: exp.Expression, schema: Schema) -> Iterator[Edit]:
    """Another column of the same table in the list of results."""
    where = column_tables(tree, schema)
    for select in _selects(tree):
        for column in [c for shown in select.expressions for c in shown.find_all(exp.Column)]:
            place = where.get(id(column))
            if place is None:
                continue
            names = list(schema[place[0]])
            other = names[([name.lower() for name in names].index(place[1]) + 1) % len(names)]
            yield partial(column.set, "this", exp.to_identifier(other, quoted=True))


KINDS: Mapping[str, Callable[[exp.Expression, Schema], Iterator[Edit]]] = {
    "add_distinct": _add_distinct,
    "add_limit_1": _add_limit(1),
    "add_large_limit": _add_limit(LARGE_LIMIT),
    "drop_where": _drop_part("where"),
    "left_join": _left_join,
    "flip_order": _flip_order,
    "drop_order": _drop_part("order"),
    "boundary": _boundary,
    "swap_aggregate": _swap_aggregate,
    "drop_having": _drop_part("having"),
    "drop_conjunct": _drop_conjunct,
    "drop_distinct": _drop_distinct,
    "count_distinct": _count_distinct,
    "flip_comparison": _flip_comparison,
    "and_or": _and_or,
    "limit_off_by_one": _limit_off_by_one,
    "change_literal": _change_literal,
    "swap_column": _swap_column,
}
"""Name to maker: an edit for each place of a tree that can be broken this way."""
