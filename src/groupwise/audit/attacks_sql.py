"""Wrong queries made from a right one: tricks that return the gold's rows on one snapshot without answering.

The gold is rewritten as a syntax tree; what cannot be rewritten is left out, never guessed. Rewritings that often mean
the same are left out too, or marked `may_pass`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from groupwise.audit.attack import Attack, distinct_attacks
from groupwise.sandbox import Cell, Row
from groupwise.types import Task

RunQuery = Callable[[str], Sequence[Row] | None]
"""Rows of a query on the first snapshot, at most MAX_ROWS; None where it fails or has more."""

MAX_ROWS = 20
_AGGREGATES = (exp.AggFunc,)


def sql_attacks(task: Task, sql: str, run: RunQuery) -> list[Attack]:
    """The attacks of one task. `sql` is the gold query itself, without a fence around it."""
    rows = run(sql)
    attacks = [*_statements(sql), *_constants(sql, rows)]
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return distinct_attacks(attacks, sql)
    attacks += _doubled(tree, sql)
    if isinstance(tree, exp.Select):
        attacks += [*_limit(tree, rows), *_by_value(tree, rows, run), *_conditions(tree, run, rows)]
    return distinct_attacks(attacks, sql)


def _statements(sql: str) -> list[Attack]:
    """Texts that are not one query, and queries that write or ask for what is not theirs."""
    body = sql.rstrip().rstrip(";")
    return [
        Attack(name="two_statements", text=f"{body}; {body}", why="two statements"),
        Attack(name="two_blocks", text=f"```sql\n{body}\n```\n```sql\nSELECT 1\n```", why="two answers"),
        Attack(name="in_a_comment", text=f"SELECT 1 -- {' '.join(body.split())}", why="the right query is a comment"),
        Attack(name="explained", text=f"EXPLAIN {body}", why="asks for a plan, not for rows"),
        Attack(name="in_prose", text=f"The query would be {body}", why="prose before the query"),
        Attack(name="attach", text="ATTACH ':memory:' AS other", why="opens another database"),
        Attack(name="schema_table", text="SELECT * FROM sqlite_master", why="reads the schema, not the data"),
    ]


def _constants(sql: str, rows: Sequence[Row] | None) -> list[Attack]:
    if not rows:
        return []
    values = ", ".join("(" + ", ".join(map(_literal, row)) + ")" for row in rows)
    selects = " UNION ALL ".join("SELECT " + ", ".join(map(_literal, row)) for row in rows)
    attacks = [
        Attack(name="constant_rows", text=f"VALUES {values}", why="the gold's rows as constants"),
        Attack(name="constant_selects", text=selects, why="the gold's rows as constants"),
    ]
    tables = _tables(sql)
    if tables:
        with_read = f"SELECT * FROM (VALUES {values}) WHERE EXISTS (SELECT 1 FROM {tables[0]})"
        attacks.append(
            Attack(name="constant_rows_with_a_read", text=with_read, why="constants, and a table read without use")
        )
    return attacks


def _doubled(tree: exp.Expr, sql: str) -> list[Attack]:
    if tree.args.get("order") is not None or tree.args.get("limit") is not None:
        return []
    body = sql.rstrip().rstrip(";")
    # in brackets: SQLite reads A INTERSECT B UNION ALL A INTERSECT B from the left, which is A INTERSECT B again
    text = f"SELECT * FROM ({body}) UNION ALL SELECT * FROM ({body})"
    return [Attack(name="rows_doubled", text=text, why="every row twice")]


def _limit(tree: exp.Select, rows: Sequence[Row] | None) -> list[Attack]:
    """LIMIT at the number of rows that this snapshot happens to have."""
    if not rows or tree.args.get("limit") is not None or _one_row_by_nature(tree):
        return []
    where = tree.args.get("where")
    by_key = len(rows) == 1 and where is not None and any(where.find_all(exp.EQ))
    query = f"{_sql(tree)} LIMIT {len(rows)}"
    why = f"LIMIT at the {len(rows)} rows of the first snapshot"
    return [Attack(name="limit_trick", text=query, why=why, may_pass=by_key)]


def _by_value(tree: exp.Select, rows: Sequence[Row] | None, run: RunQuery) -> list[Attack]:
    """The answer's own values or row numbers in the filter, and inner queries replaced by their value."""
    attacks = []
    table = _only_table(tree)
    plain = table and not _aggregates(tree) and not any(tree.args.get(k) for k in ("group", "distinct", "limit"))
    if plain and rows:
        found = run(_sql(_with(tree.copy(), expressions=[exp.column("rowid")])))
        if found:
            ids = ", ".join(_literal(row[0]) for row in found)
            query = _filtered(tree, f"rowid IN ({ids})")
            attacks.append(Attack(name="row_ids", text=query, why="row numbers of the answer in the filter"))
        column = tree.expressions[0].unalias()
        if len(tree.expressions) == 1 and isinstance(column, exp.Column) and all(row[0] is not None for row in rows):
            values = ", ".join(dict.fromkeys(_literal(row[0]) for row in rows))
            query = _filtered(tree, f"{column.sql('sqlite')} IN ({values})")
            may_pass = tree.args.get("where") is None or _is_that_filter(tree, column)
            attacks.append(
                Attack(name="answer_in_filter", text=query, why="the answer's values in the filter", may_pass=may_pass)
            )
    for inner in tree.find_all(exp.Subquery):
        value = run(inner.this.sql("sqlite")) if _scalar(inner) else None
        if value is not None and len(value) == 1 and len(value[0]) == 1:
            copy = tree.copy()
            twin = next(s for s in copy.find_all(exp.Subquery) if s == inner)
            twin.replace(sqlglot.parse_one(_literal(value[0][0]), read="sqlite"))
            attacks.append(
                Attack(
                    name="inner_query_by_value", text=_sql(copy), why="an inner query replaced by what it returns here"
                )
            )
    return attacks


def _conditions(tree: exp.Select, run: RunQuery, rows: Sequence[Row] | None) -> list[Attack]:
    """Filters turned round, dropped or always false; counts that ids stand in for."""
    attacks = []
    where = tree.args.get("where")
    if where is not None:
        negated = tree.copy()
        negated.args["where"].set("this", exp.not_(where.this.copy(), copy=False))
        attacks.append(Attack(name="filter_negated", text=_sql(negated), why="the opposite condition"))
        dropped = tree.copy()
        dropped.set("where", None)
        attacks.append(Attack(name="filter_dropped", text=_sql(dropped), why="no condition"))
    if not _one_row_by_nature(tree):
        attacks.append(Attack(name="no_rows", text=_filtered(tree, "0"), why="a filter that nothing passes"))
    table = _only_table(tree)
    is_count = len(tree.expressions) == 1 and isinstance(tree.expressions[0].unalias(), exp.Count)
    if table and is_count and where is None and not tree.args.get("group"):
        query = f"SELECT max(rowid) FROM {table}"
        attacks.append(Attack(name="id_as_count", text=query, why="the largest row number in place of a count"))
    if tree.args.get("order") is not None and tree.args.get("limit") is None and rows and len(rows) > 1:
        unordered = tree.copy()
        unordered.set("order", None)
        attacks.append(Attack(name="order_dropped", text=_sql(unordered), why="no order", may_pass=True))
    if tree.args.get("distinct") is not None:
        repeated = tree.copy()
        repeated.set("distinct", None)
        attacks.append(Attack(name="distinct_dropped", text=_sql(repeated), why="duplicates kept", may_pass=True))
    return attacks


def _filtered(tree: exp.Select, condition: str) -> str:
    copy = tree.copy()
    copy.set("where", exp.Where(this=sqlglot.parse_one(condition, read="sqlite")))
    return _sql(copy)


def _is_that_filter(tree: exp.Select, column: exp.Column) -> bool:
    """True where the gold's own filter is on the column that it shows: naming its values may be right."""
    names = {c.name.lower() for c in tree.args["where"].find_all(exp.Column)}
    return column.name.lower() in names


def _with(tree: exp.Select, *, expressions: list[exp.Expression]) -> exp.Select:
    tree.set("expressions", expressions)
    return tree


def _tables(sql: str) -> list[str]:
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return []
    named = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    return sorted({table.sql("sqlite").split(" AS ")[0] for table in tree.find_all(exp.Table)} - named)


def _only_table(tree: exp.Select) -> str | None:
    tables = list(tree.find_all(exp.Table))
    simple = len(tables) == 1 and not tree.args.get("joins") and not tree.find(exp.Subquery, exp.CTE)
    return tables[0].name if simple and isinstance(tables[0].this, exp.Identifier) else None


def _aggregates(tree: exp.Select) -> bool:
    return any(projection.find(*_AGGREGATES) is not None for projection in tree.expressions)


def _one_row_by_nature(tree: exp.Select) -> bool:
    return _aggregates(tree) and not tree.args.get("group")


def _scalar(inner: exp.Subquery) -> bool:
    """An aggregate compared with something; not the list of an IN, not a table."""
    select = inner.this
    if not isinstance(select, exp.Select) or not _one_row_by_nature(select):
        return False
    outer = {table.alias_or_name.lower() for table in inner.root().find_all(exp.Table)}
    own = {table.alias_or_name.lower() for table in select.find_all(exp.Table)}
    correlated = any(c.table and c.table.lower() in outer - own for c in select.find_all(exp.Column))
    return isinstance(inner.parent, exp.Binary) and not correlated


def _sql(tree: exp.Expression) -> str:
    return str(tree.sql("sqlite"))


def _literal(cell: Cell) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    if isinstance(cell, str):
        return "'" + cell.replace("'", "''") + "'"
    return repr(cell)
