"""Level 2: groups of one table. Groups by a foreign key are never asked for few rows: keys with none do not show."""

from __future__ import annotations

import random

import wording as w
from drafts import Draft, phrase
from patterns_summary import AGGREGATES, DISTINCT, NUMERIC

GROUPS = (
    *DISTINCT[:-1],
    ("sale", "quantity"),
    ("review", "stars"),
    ("sale", "product_id"),
    ("sale", "store_id"),
    ("sale", "customer_id"),
    ("review", "product_id"),
)


MEASURES = {t: [(c, f) for u, c, f in NUMERIC if u == t] for t in w.TABLES}


def draw_measure(table: str, column: str, rng: random.Random) -> tuple[str, str]:
    """A numeric column of the table other than `column`, and an aggregate that makes sense on it."""
    measured, functions = rng.choice([m for m in MEASURES[table] if m[0] != column])
    return measured, rng.choice(functions.split())


def _group_label(table: str, column: str, rng: random.Random, *, plural: bool = False) -> str:
    if column.endswith("_id"):
        return w.noun(column[:-3], rng, plural=False) + (" ids" if plural else " id")
    return w.label(table, column, rng, plural=plural)


def group_count(rng: random.Random) -> Draft:
    table, column = rng.choice(GROUPS)
    templates = (
        "How many {rows} are there for each {col}?",
        "Count the {rows} per {col}; show the {col} and the count.",
        "For each {col}, show the number of {rows}.",
        "Number of {rows} by {col}, with the {col} first",
        "Show every {col} of {rows} with its number of {rows}.",
        "List each {col} and how many {rows} have it.",
        "Give the {col} and the count of {rows}, grouped by {col}.",
    )
    question = phrase(templates, rng, rows=w.noun(table, rng), col=_group_label(table, column, rng))
    return f"SELECT {column}, COUNT(*) FROM {table} GROUP BY {column}", question


def group_count_where(rng: random.Random) -> Draft:
    table, column = rng.choice(GROUPS)
    cond = w.any_condition(table, rng, avoid=(column,)) if table != "review" else w.equal(table, "stars", rng)
    if cond.column == column:
        cond = w.compare("review", "stars", rng)
    templates = (
        "Of the {rows} {cond}, how many are there per {col}?",
        "Count the {rows} {cond} per {col}; show the {col} and the count.",
        "Take the {rows} {cond} and show each {col} among them with its count.",
        "Number of {rows} {cond} by {col}, with the {col} first",
        "Among {rows} {cond}, give each {col} with its count.",
        "Group the {rows} {cond} by {col} and show the {col} and the count.",
    )
    question = phrase(templates, rng, rows=w.noun(table, rng), col=_group_label(table, column, rng), cond=cond.words)
    return f"SELECT {column}, COUNT(*) FROM {table} WHERE {cond.sql()} GROUP BY {column}", question


def group_aggregate(rng: random.Random) -> Draft:
    table, column = rng.choice([g for g in GROUPS if g[1] not in ("quantity", "stars")])
    measured, function = draw_measure(table, column, rng)
    templates = (
        "What is the {agg} {num} of {rows} for each {col}?",
        "Show the {agg} {num} per {col} of {rows}, with the {col} first.",
        "For each {col}, give the {agg} {num} of the {rows}.",
        "{agg} {num} of {rows} by {col}, {col} first",
        "List every {col} with the {agg} {num} of its {rows}.",
        "Group the {rows} by {col} and show the {col} and the {agg} {num}.",
        "Return each {col} and the {agg} {num} of {rows} with that {col}.",
    )
    question = phrase(
        templates,
        rng,
        agg=rng.choice(AGGREGATES[function]),
        num=w.label(table, measured, rng),
        rows=w.noun(table, rng),
        col=_group_label(table, column, rng),
    )
    return f"SELECT {column}, {function}({measured}) FROM {table} GROUP BY {column}", question


def having_count(rng: random.Random) -> Draft:
    table, column = rng.choice([g for g in GROUPS if g[1] not in ("quantity", "stars")])
    few = [] if column.endswith("_id") else [("<", "fewer than"), ("<", "less than")]
    number = rng.choice((2, 3, 4, 5, 6, 7, 8, 10, 12, 15))
    sign, words = rng.choice([(">", "more than"), (">", "over"), (">=", "at least"), *few])
    templates = (
        "Which {cols} have {n} {rows}?",
        "List the {cols} with {n} {rows}.",
        "Show each {col} that has {n} {rows}.",
        "What are the {cols} that have {n} {rows}?",
        "Find the {cols} with {n} {rows}.",
        "{cols} having {n} {rows}",
    )
    question = phrase(
        templates,
        rng,
        cols=_group_label(table, column, rng, plural=True),
        col=_group_label(table, column, rng),
        n=f"{words} {number}",
        rows=w.noun(table, rng),
    )
    return f"SELECT {column} FROM {table} GROUP BY {column} HAVING COUNT(*) {sign} {number}", question


def having_aggregate(rng: random.Random) -> Draft:
    table, column = rng.choice(DISTINCT[:-1])
    measured, function = draw_measure(table, column, rng)
    bound = rng.choice(tuple(w.THRESHOLDS[table, measured])) * (1 if function != "SUM" else 5)
    sign, words = rng.choice([(">", "above"), (">", "over"), ("<", "below"), ("<", "under")])
    templates = (
        "Which {cols} have {a} {num} of {rows} {n}?",
        "List the {cols} where the {agg} {num} of {rows} is {n}.",
        "Show each {col} whose {rows} have {a} {num} {n}.",
        "For which {cols} is the {agg} {num} of the {rows} {n}?",
        "Find the {cols} of {rows} with {a} {num} {n}, taken per {col}.",
        "{cols} where the {rows} have {a} {num} {n}",
    )
    agg = {"AVG": rng.choice(("average", "mean")), "MAX": "maximum", "MIN": "minimum", "SUM": "total"}[function]
    question = phrase(
        templates,
        rng,
        cols=w.label(table, column, rng, plural=True),
        col=w.label(table, column, rng),
        agg=agg,
        a=w.article(agg),
        num=w.label(table, measured, rng),
        rows=w.noun(table, rng),
        n=f"{words} {bound}",
    )
    return f"SELECT {column} FROM {table} GROUP BY {column} HAVING {function}({measured}) {sign} {bound}", question


def top_group_aggregate(rng: random.Random) -> Draft:
    table, column = rng.choice([g for g in GROUPS if g[1] not in ("quantity", "stars")])
    measured, functions = rng.choice([m for m in MEASURES[table] if m[0] != column])
    function = rng.choice([f for f in functions.split() if f in ("AVG", "SUM")])
    direction, most = rng.choice([(" DESC", "highest"), (" DESC", "largest"), ("", "lowest")])
    templates = (
        "Which {col} has the {most} {agg} {num} of {rows}?",
        "What is the {col} with the {most} {agg} {num} of {rows}?",
        "Find the {col} whose {rows} have the {most} {agg} {num}.",
        "{col} with the {most} {agg} {num} of its {rows}",
        "Show the {col} having the {most} {agg} {num} of {rows}.",
        "For which {col} is the {agg} {num} of {rows} the {most}?",
    )
    agg = {"AVG": "average", "SUM": "total"}[function]
    question = phrase(
        templates,
        rng,
        col=_group_label(table, column, rng),
        most=most,
        agg=agg,
        num=w.label(table, measured, rng),
        rows=w.noun(table, rng),
    )
    return (
        f"SELECT {column} FROM {table} GROUP BY {column} ORDER BY {function}({measured}){direction} LIMIT 1",
        question,
    )


PATTERNS = (
    group_count,
    group_count_where,
    group_aggregate,
    having_count,
    having_aggregate,
    top_group_aggregate,
)
