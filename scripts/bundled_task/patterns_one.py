"""Level 1: questions about one table. Each pattern draws one (gold, question); the caller filters and counts."""

from __future__ import annotations

import random

import wording as w
from drafts import Draft, phrase

LIST_COLUMNS = {
    "store": ("name", "city", "rent", "opened"),
    "employee": ("name", "role", "salary"),
    "customer": ("name", "city", "joined"),
    "product": ("name", "brand", "price", "stock", "kind"),
    "sale": ("id", "quantity", "day"),
    "repair": ("id", "cost", "day"),
    "review": ("id", "stars"),
}

COUNT_WHERE = (
    "How many {rows} {cond} are there?",
    "Count the {rows} {cond}.",
    "What is the number of {rows} {cond}?",
    "Number of {rows} {cond}",
    "How many {rows} {cond} do we have?",
    "I need the count of {rows} {cond}.",
    "{rows} {cond}: how many?",
    "Give the number of {rows} {cond}.",
)

LIST_WHERE = (
    "List the {cols} of {rows} {cond}.",
    "What are the {cols} of the {rows} {cond}?",
    "Show the {col} of each {one} {cond}.",
    "Give me the {cols} of all {rows} {cond}.",
    "{cols} of {rows} {cond}",
    "Find all {rows} {cond} and return their {cols}.",
    "Which {rows} are there {cond}? Return the {cols}.",
    "I want the {col} for every {one} {cond}.",
)

LIST_TWO = (
    "List the {col} and {other} of {rows} {cond}.",
    "Show {col} and {other} for each {one} {cond}.",
    "What are the {col} and {other} of every {one} {cond}?",
    "Give me both the {col} and the {other} of all {rows} {cond}.",
    "{col} and {other} of {rows} {cond}",
    "For {rows} {cond}, return the {col} and the {other}.",
)


def count_all(rng: random.Random) -> Draft:
    table = rng.choice(w.TABLES)
    templates = (
        "How many {rows} are there?",
        "Count all {rows}.",
        "What is the number of {rows}?",
        "Number of {rows}",
        "How many {rows} do we have?",
        "Give me the total count of {rows}.",
        "How many {rows} are on record?",
    )
    return f"SELECT COUNT(*) FROM {table}", phrase(templates, rng, rows=w.noun(table, rng))


def _count(table: str, sql: str, words: str, rng: random.Random) -> Draft:
    return f"SELECT COUNT(*) FROM {table} WHERE {sql}", phrase(COUNT_WHERE, rng, rows=w.noun(table, rng), cond=words)


def count_equal(rng: random.Random) -> Draft:
    table = rng.choice([t for t in w.EQUAL for _ in w.EQUAL[t]])
    cond = w.equal(table, rng.choice(w.EQUAL[table]), rng)
    return _count(table, cond.sql(), cond.words, rng)


def count_compare(rng: random.Random) -> Draft:
    table = rng.choice(w.TABLES)
    cond = w.compare(table, rng.choice(w.NUMBERS[table]), rng)
    return _count(table, cond.sql(), cond.words, rng)


def count_dated(rng: random.Random) -> Draft:
    table, column = rng.choice(list(w.DATES))
    cond = w.dated(table, column, rng)
    return _count(table, cond.sql(), cond.words, rng)


def count_and(rng: random.Random) -> Draft:
    table = rng.choice(w.TABLES[:6])
    first = w.any_condition(table, rng)
    second = w.any_condition(table, rng, avoid=(first.column,))
    return _count(table, f"{first.sql()} AND {second.sql()}", f"{first.words} and {second.words}", rng)


def count_or(rng: random.Random) -> Draft:
    table = rng.choice(("store", "employee", "customer", "product"))
    column = rng.choice(w.EQUAL[table])
    one, two = rng.sample(w.LITERALS[column], k=2)
    lead = {"city": "in", "role": "with the role", "kind": "of kind", "brand": "of brand", "color": "in"}[column]
    words = rng.choice([f"{lead} {one} or {two}", f"{lead} either {one} or {two}", f"whose {column} is {one} or {two}"])
    return _count(table, f"{column} = '{one}' OR {column} = '{two}'", words, rng)


def count_between(rng: random.Random) -> Draft:
    table, column = rng.choice([key for key in w.THRESHOLDS if key[1] not in ("stars", "quantity")])
    low, high = sorted(rng.sample(tuple(w.THRESHOLDS[table, column]), k=2))
    name = w.label(table, column, rng)
    words = rng.choice(
        [
            f"with {w.article(name)} between {low} and {high}",
            f"whose {name} is between {low} and {high}",
            f"with {w.article(name)} from {low} to {high}",
        ]
    )
    return _count(table, f"{column} BETWEEN {low} AND {high}", words, rng)


def _list(table: str, column: str, sql: str, words: str, rng: random.Random) -> Draft:
    question = phrase(
        LIST_WHERE,
        rng,
        rows=w.noun(table, rng),
        one=w.noun(table, rng, plural=False),
        cond=words,
        col=w.label(table, column, rng),
        cols=w.label(table, column, rng, plural=True),
    )
    return f"SELECT {column} FROM {table} WHERE {sql}", question


def list_equal(rng: random.Random) -> Draft:
    table = rng.choice([t for t in w.EQUAL for _ in w.EQUAL[t]])
    cond = w.equal(table, rng.choice(w.EQUAL[table]), rng)
    return _list(table, LIST_COLUMNS[table][0], cond.sql(), cond.words, rng)


def list_compare(rng: random.Random) -> Draft:
    table = rng.choice(w.TABLES)
    cond = w.compare(table, rng.choice(w.NUMBERS[table]), rng)
    return _list(table, LIST_COLUMNS[table][0], cond.sql(), cond.words, rng)


def list_dated(rng: random.Random) -> Draft:
    table, column = rng.choice(list(w.DATES))
    cond = w.dated(table, column, rng)
    return _list(table, LIST_COLUMNS[table][0], cond.sql(), cond.words, rng)


def list_and(rng: random.Random) -> Draft:
    table = rng.choice(w.NAMED)
    first = w.any_condition(table, rng)
    second = w.any_condition(table, rng, avoid=(first.column,))
    return _list(table, "name", f"{first.sql()} AND {second.sql()}", f"{first.words} and {second.words}", rng)


def list_two(rng: random.Random) -> Draft:
    table = rng.choice(w.TABLES)
    first, second = LIST_COLUMNS[table][0], rng.choice(LIST_COLUMNS[table][1:])
    cond = w.any_condition(table, rng, avoid=(second,)) if table != "review" else w.equal(table, "stars", rng)
    question = phrase(
        LIST_TWO,
        rng,
        rows=w.noun(table, rng),
        one=w.noun(table, rng, plural=False),
        cond=cond.words,
        col=w.label(table, first, rng),
        other=w.label(table, second, rng),
    )
    return f"SELECT {first}, {second} FROM {table} WHERE {cond.sql()}", question


def name_like(rng: random.Random) -> Draft:
    table = rng.choice(w.NAMED)
    letter = rng.choice("ABCDEFGHIJKMNOPRSTW")
    words = rng.choice(
        [
            f"whose name starts with {letter}",
            f"with a name that begins with {letter}",
            f"with a name starting with {letter}",
        ]
    )
    if rng.random() < 0.5:
        return _count(table, f"name LIKE '{letter}%'", words, rng)
    return _list(table, "name", f"name LIKE '{letter}%'", words, rng)


PATTERNS = (
    count_all,
    count_equal,
    count_compare,
    count_dated,
    count_and,
    count_or,
    count_between,
    list_equal,
    list_compare,
    list_dated,
    list_and,
    list_two,
    name_like,
)
