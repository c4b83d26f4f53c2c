"""Level 1, continued: questions that sum up or rank the rows of one table."""

from __future__ import annotations

import random

import wording as w
from drafts import Draft, phrase
from patterns_one import LIST_COLUMNS

AGGREGATES = {
    "AVG": ("average", "mean"),
    "MAX": ("highest", "maximum", "largest"),
    "MIN": ("lowest", "minimum", "smallest"),
    "SUM": ("total", "sum of the"),
}

NUMERIC = (
    ("store", "rent", "AVG MAX MIN SUM"),
    ("employee", "salary", "AVG MAX MIN SUM"),
    ("customer", "age", "AVG MAX MIN"),
    ("product", "price", "AVG MAX MIN"),
    ("product", "stock", "AVG SUM MAX"),
    ("sale", "quantity", "AVG SUM"),
    ("repair", "cost", "AVG MAX MIN SUM"),
    ("review", "stars", "AVG"),
)

AGGREGATE = (
    "What is the {agg} {col} of {rows}{cond}?",
    "Find the {agg} {col} of all {rows}{cond}.",
    "Give the {agg} {col} for {rows}{cond}.",
    "{agg} {col} of {rows}{cond}",
    "Compute the {agg} {col} over all {rows}{cond}.",
    "I would like the {agg} {col} of the {rows}{cond}.",
    "For {rows}{cond}, what is the {agg} {col}?",
)


def _aggregate(table: str, column: str, function: str, rng: random.Random, cond: w.Condition | None) -> Draft:
    where = f" WHERE {cond.sql()}" if cond else ""
    question = phrase(
        AGGREGATE,
        rng,
        agg=rng.choice(AGGREGATES[function]),
        col=w.label(table, column, rng),
        rows=w.noun(table, rng),
        cond=f" {cond.words}" if cond else "",
    )
    return f"SELECT {function}({column}) FROM {table}{where}", question


def aggregate_all(rng: random.Random) -> Draft:
    table, column, functions = rng.choice(NUMERIC)
    return _aggregate(table, column, rng.choice(functions.split()), rng, None)


def aggregate_where(rng: random.Random) -> Draft:
    table, column, functions = rng.choice(NUMERIC[:-1])
    return _aggregate(table, column, rng.choice(functions.split()), rng, w.any_condition(table, rng, avoid=(column,)))


def aggregate_date(rng: random.Random) -> Draft:
    table, column = rng.choice(list(w.DATES))
    function, words = rng.choice([("MIN", ("earliest", "first")), ("MAX", ("latest", "most recent"))])
    cond = w.any_condition(table, rng, avoid=(column,))
    question = phrase(
        AGGREGATE,
        rng,
        agg=rng.choice(words),
        col=w.label(table, column, rng),
        rows=w.noun(table, rng),
        cond=f" {cond.words}",
    )
    return f"SELECT {function}({column}) FROM {table} WHERE {cond.sql()}", question


def lowest_and_highest(rng: random.Random) -> Draft:
    table, column, _ = rng.choice([n for n in NUMERIC if n[1] not in ("stars", "quantity")])
    cond = w.any_condition(table, rng, avoid=(column,))
    templates = (
        "What are the lowest and the highest {col} of {rows} {cond}?",
        "Give the minimum and maximum {col} for {rows} {cond}.",
        "Show the smallest and largest {col} of {rows} {cond}.",
        "Minimum and maximum {col} of {rows} {cond}",
        "For {rows} {cond}, find the lowest and highest {col}.",
        "Return the lowest and the highest {col} among {rows} {cond}.",
    )
    question = phrase(templates, rng, col=w.label(table, column, rng), rows=w.noun(table, rng), cond=cond.words)
    return f"SELECT MIN({column}), MAX({column}) FROM {table} WHERE {cond.sql()}", question


DISTINCT = (
    ("store", "city"),
    ("customer", "city"),
    ("employee", "role"),
    ("product", "kind"),
    ("product", "brand"),
    ("product", "color"),
)


def count_distinct(rng: random.Random) -> Draft:
    table, column = rng.choice(
        (
            *DISTINCT,
            ("sale", "customer_id"),
            ("sale", "product_id"),
            ("repair", "customer_id"),
            ("review", "product_id"),
        )
    )
    cond = w.any_condition(table, rng, avoid=(column,)) if rng.random() < 0.75 else None
    name = w.label(table, column, rng, plural=True) if not column.endswith("_id") else w.noun(column[:-3], rng)
    templates = (
        "How many different {cols} do the {rows}{cond} have?",
        "Count the distinct {cols} of {rows}{cond}.",
        "How many distinct {cols} are there among {rows}{cond}?",
        "Number of different {cols} for {rows}{cond}",
        "What is the number of unique {cols} of the {rows}{cond}?",
        "Give the count of distinct {cols} over all {rows}{cond}.",
    )
    question = phrase(templates, rng, cols=name, rows=w.noun(table, rng), cond=f" {cond.words}" if cond else "")
    return f"SELECT COUNT(DISTINCT {column}) FROM {table}" + (f" WHERE {cond.sql()}" if cond else ""), question


def distinct(rng: random.Random) -> Draft:
    table, column = rng.choice(DISTINCT[:-1])
    cond = w.any_condition(table, rng, avoid=(column,)) if rng.random() < 0.75 else None
    templates = (
        "List the different {cols} of {rows}{cond}.",
        "What are the distinct {cols} of the {rows}{cond}?",
        "Show each {col} of {rows}{cond} once.",
        "Which different {cols} do {rows}{cond} have?",
        "Unique {cols} of {rows}{cond}",
        "Give me the distinct {cols} for all {rows}{cond}.",
        "Return every {col} among {rows}{cond}, without repeats.",
    )
    question = phrase(
        templates,
        rng,
        col=w.label(table, column, rng),
        cols=w.label(table, column, rng, plural=True),
        rows=w.noun(table, rng),
        cond=f" {cond.words}" if cond else "",
    )
    return f"SELECT DISTINCT {column} FROM {table}" + (f" WHERE {cond.sql()}" if cond else ""), question


def _sql_direction(direction: str) -> str:
    return " DESC" if direction == "DESC" else ""


def ordered(rng: random.Random) -> Draft:
    table, order = rng.choice([key for key, words in w.RANKED.items() if words[1] is not None])
    direction = rng.choice(("DESC", "ASC"))
    first = LIST_COLUMNS[table][0]
    cond = w.any_condition(table, rng, avoid=(order,))
    is_date = order in ("opened", "joined", "day")
    how = {
        ("ASC", False): ("from low to high", "lowest first"),
        ("DESC", False): ("from high to low", "highest first"),
        ("ASC", True): ("from oldest to newest", "earliest first"),
        ("DESC", True): ("from newest to oldest", "latest first"),
    }
    templates = (
        "List the {cols} of {rows} {cond}, sorted by {order}, {how}.",
        "Show the {cols} of {rows} {cond} ordered by {order} {how}.",
        "What are the {cols} of {rows} {cond}, by {order} {how}?",
        "{cols} of {rows} {cond} by {order}, {how}",
        "Sort the {rows} {cond} by {order}, {how}, and return their {cols}.",
        "Give me the {cols} of all {rows} {cond} in order of {order}, {how}.",
    )
    question = phrase(
        templates,
        rng,
        cols=w.label(table, first, rng, plural=True),
        rows=w.noun(table, rng),
        cond=cond.words,
        order=w.label(table, order, rng),
        how=rng.choice(how[direction, is_date]),
    )
    return f"SELECT {first} FROM {table} WHERE {cond.sql()} ORDER BY {order}{_sql_direction(direction)}", question


PATTERNS = (
    aggregate_all,
    aggregate_where,
    aggregate_date,
    lowest_and_highest,
    count_distinct,
    distinct,
    ordered,
)
