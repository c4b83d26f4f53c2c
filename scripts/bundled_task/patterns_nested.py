"""Level 3: subqueries and set operations."""

from __future__ import annotations

import random

import wording as w
from drafts import Draft, phrase
from patterns_join import LINKS
from patterns_one import COUNT_WHERE, LIST_COLUMNS

SAFE_LINKS = [link for link in LINKS if link != ("repair", "employee_id", "employee")]
"""NOT IN over repair.employee_id would meet a NULL and return nothing; NOT EXISTS is used there."""

LIST_NAMES = (
    "List the names of {rows} {cond}.",
    "What are the names of the {rows} {cond}?",
    "Show the name of each {one} {cond}.",
    "Which {rows} are there {cond}? Give the names.",
    "Names of {rows} {cond}",
    "Find all {rows} {cond} and return their names.",
    "Give me the names of all {rows} {cond}.",
)

AVERAGED = (
    ("store", "rent"),
    ("employee", "salary"),
    ("customer", "age"),
    ("product", "price"),
    ("product", "stock"),
    ("sale", "quantity"),
    ("repair", "cost"),
    ("review", "stars"),
)


def _names(parent: str, words: str, rng: random.Random) -> str:
    return phrase(LIST_NAMES, rng, rows=w.noun(parent, rng), one=w.noun(parent, rng, plural=False), cond=words)


def _with_child(child: str, rng: random.Random, cond: w.Condition) -> str:
    one = w.article(w.noun(child, rng, plural=False))
    return rng.choice(
        [
            f"with {one} {cond.words}",
            f"that have {one} {cond.words}",
            f"that have at least one {one.split(' ', 1)[1]} {cond.words}",
        ]
    )


def _without_child(child: str, rng: random.Random) -> str:
    one, many = w.noun(child, rng, plural=False), w.noun(child, rng)
    return rng.choice(
        [
            f"without any {one}",
            f"with no {many}",
            f"that have no {many}",
            f"that do not have {w.article(one)}",
            f"without {many}",
        ]
    )


def in_list(rng: random.Random) -> Draft:
    child, key, parent = rng.choice(list(LINKS))
    cond = w.any_condition(child, rng)
    gold = f"SELECT name FROM {parent} WHERE id IN (SELECT {key} FROM {child} WHERE {cond.sql()})"
    return gold, _names(parent, _with_child(child, rng, cond), rng)


def not_in_list(rng: random.Random) -> Draft:
    child, key, parent = rng.choice(SAFE_LINKS)
    if rng.random() < 0.35:
        return f"SELECT name FROM {parent} WHERE id NOT IN (SELECT {key} FROM {child})", _names(
            parent, _without_child(child, rng), rng
        )
    cond = w.any_condition(parent, rng)
    gold = f"SELECT name FROM {parent} WHERE {cond.sql()} AND id NOT IN (SELECT {key} FROM {child})"
    return gold, _names(parent, f"{cond.words} and {_without_child(child, rng)}", rng)


def not_in_count(rng: random.Random) -> Draft:
    child, key, parent = rng.choice(SAFE_LINKS)
    cond = w.any_condition(child, rng)
    one = w.noun(child, rng, plural=False)
    if rng.random() < 0.5:
        words = rng.choice(
            [f"without any {one} {cond.words}", f"that have no {one} {cond.words}", f"with no {one} {cond.words}"]
        )
        gold = f"SELECT COUNT(*) FROM {parent} WHERE id NOT IN (SELECT {key} FROM {child} WHERE {cond.sql()})"
    else:
        words = _without_child(child, rng)
        gold = f"SELECT COUNT(*) FROM {parent} WHERE id NOT IN (SELECT {key} FROM {child})"
    return gold, phrase(COUNT_WHERE, rng, rows=w.noun(parent, rng), cond=words)


def not_exists(rng: random.Random) -> Draft:
    child, key, parent = rng.choice((("repair", "employee_id", "employee"),) * 4 + tuple(SAFE_LINKS[:1]))
    cond = w.any_condition(parent, rng)
    sub = f"NOT EXISTS (SELECT * FROM {child} WHERE {child}.{key} = {parent}.id)"
    words = f"{cond.words} and {_without_child(child, rng)}"
    column = rng.choice(("name", "COUNT(*)"))
    if column == "name":
        return f"SELECT name FROM {parent} WHERE {cond.sql()} AND {sub}", _names(parent, words, rng)
    return f"SELECT COUNT(*) FROM {parent} WHERE {cond.sql()} AND {sub}", phrase(
        COUNT_WHERE, rng, rows=w.noun(parent, rng), cond=words
    )


def _beyond_average(table: str, column: str, rng: random.Random) -> tuple[str, str]:
    sign, words = rng.choice([(">", ("above", "higher than", "greater than")), ("<", ("below", "lower than", "under"))])
    name = w.label(table, column, rng)
    average = rng.choice(("the average", f"the average {name}", "average"))
    text = f"{w.whose(table, column, rng)} {rng.choice(words)} {average}"
    return f"{column} {sign} (SELECT AVG({column}) FROM {table})", text


def above_average(rng: random.Random) -> Draft:
    table, column = rng.choice(AVERAGED)
    test, words = _beyond_average(table, column, rng)
    shown = LIST_COLUMNS[table][0]
    if rng.random() < 0.35:
        question = phrase(COUNT_WHERE, rng, rows=w.noun(table, rng), cond=words)
        return f"SELECT COUNT(*) FROM {table} WHERE {test}", question
    templates = tuple(
        t.replace("names", f"{shown}s").replace("Names", f"{shown}s").replace("name", shown) for t in LIST_NAMES
    )
    question = phrase(templates, rng, rows=w.noun(table, rng), one=w.noun(table, rng, plural=False), cond=words)
    return f"SELECT {shown} FROM {table} WHERE {test}", question


def above_average_and(rng: random.Random) -> Draft:
    table, column = rng.choice(AVERAGED[:5])
    test, words = _beyond_average(table, column, rng)
    cond = w.any_condition(table, rng, avoid=(column,))
    if rng.random() < 0.4:
        question = phrase(
            COUNT_WHERE, rng, rows=w.noun(table, rng), cond=f"{cond.words} and {words} of all {w.noun(table, rng)}"
        )
        return f"SELECT COUNT(*) FROM {table} WHERE {cond.sql()} AND {test}", question
    gold = f"SELECT name FROM {table} WHERE {cond.sql()} AND {test}"
    return gold, _names(table, f"{cond.words} and {words} of all {w.noun(table, rng)}", rng)


def at_extreme(rng: random.Random) -> Draft:
    table, column = rng.choice(AVERAGED[:5] + AVERAGED[6:7])
    function, word = rng.choice([("MAX", "highest"), ("MAX", "maximum"), ("MIN", "lowest"), ("MIN", "minimum")])
    cond = w.any_condition(table, rng, avoid=(column,))
    shown = LIST_COLUMNS[table][0]
    templates = (
        "List the {c}s of all {rows} whose {col} equals the {word} {col} of {rows} {cond}.",
        "Which {rows} have the same {col} as the {word} {col} of {rows} {cond}? Give the {c}s.",
        "Show the {c} of each {one} whose {col} is the {word} {col} among {rows} {cond}.",
        "{c}s of {rows} whose {col} is equal to the {word} {col} of {rows} {cond}",
        "Find all {rows} with {col} equal to the {word} {col} of {rows} {cond} and return their {c}s.",
        "What are the {c}s of the {rows} with the same {col} as the {word} {col} of {rows} {cond}?",
    )
    question = phrase(
        templates,
        rng,
        rows=w.noun(table, rng),
        one=w.noun(table, rng, plural=False),
        cond=cond.words,
        c=shown,
        col=w.label(table, column, rng),
        word=word,
    )
    return (
        f"SELECT {shown} FROM {table} WHERE {column} = (SELECT {function}({column}) FROM {table} WHERE {cond.sql()})",
        question,
    )


SET_WORDS = {
    "UNION": (
        "List all {what} found in {a} or in {b}, each once.",
        "Which {what} appear in {a} or {b}? No repeats.",
        "Show the distinct {what} of {a} and {b} together.",
        "Combine the {what} of {a} and of {b}, without duplicates.",
        "All distinct {what} from {a} and from {b}",
        "Give me every {one} that occurs in {a} or in {b}, once each.",
    ),
    "INTERSECT": (
        "List the distinct {what} found both in {a} and in {b}.",
        "Which {what} appear in both {a} and {b}?",
        "Show each {one} that {a} and {b} have in common, once.",
        "What {what} are shared by {a} and {b}?",
        "{what} common to {a} and {b}, no repeats",
        "Find the {what} that occur in {a} and also in {b}.",
    ),
    "EXCEPT": (
        "List the distinct {what} found in {a} but not in {b}.",
        "Which {what} appear in {a} but not in {b}?",
        "Show each {one} of {a} that is missing from {b}, once.",
        "What {what} occur in {a} and never in {b}?",
        "{what} in {a} but not in {b}, no repeats",
        "Find the {what} of {a} that do not occur in {b}.",
    ),
}


def set_same_table(rng: random.Random) -> Draft:
    operation = rng.choice(("UNION", "INTERSECT", "EXCEPT"))
    table, column, by = rng.choice(
        [
            ("product", "brand", "kind"),
            ("product", "kind", "brand"),
            ("customer", "city", "age"),
            ("employee", "role", "salary"),
            ("product", "brand", "price"),
            ("product", "kind", "stock"),
        ]
    )
    make = w.equal if by in ("kind", "brand") else w.compare
    one, two = make(table, by, rng), make(table, by, rng)
    question = phrase(
        SET_WORDS[operation],
        rng,
        what=w.label(table, column, rng, plural=True),
        one=w.label(table, column, rng),
        a=f"{w.noun(table, rng)} {one.words}",
        b=f"{w.noun(table, rng)} {two.words}",
    )
    return (
        f"SELECT {column} FROM {table} WHERE {one.sql()} {operation} SELECT {column} FROM {table} WHERE {two.sql()}",
        question,
    )


PATTERNS = (
    in_list,
    not_in_list,
    not_in_count,
    not_exists,
    above_average,
    above_average_and,
    at_extreme,
    set_same_table,
)
