"""Level 2: joins along one foreign key. Golds qualify columns where two tables are in play, and use no aliases."""

from __future__ import annotations

import random

import wording as w
from drafts import Draft, phrase
from patterns_group import draw_measure
from patterns_one import COUNT_WHERE, LIST_COLUMNS, LIST_TWO, LIST_WHERE
from patterns_summary import AGGREGATE, AGGREGATES

LINKS = {  # child, key, parent -> what stands between the child's noun and the parent's
    ("employee", "store_id", "store"): ("who work in", "of", "employed by"),
    ("sale", "customer_id", "customer"): ("to", "made to", "placed by"),
    ("sale", "product_id", "product"): ("of", "that are for", "containing"),
    ("sale", "store_id", "store"): ("in", "made in", "that took place in"),
    ("repair", "customer_id", "customer"): ("for", "ordered by", "done for"),
    ("repair", "employee_id", "employee"): ("by", "done by", "carried out by"),
    ("review", "product_id", "product"): ("of", "about", "that are on"),
    ("review", "customer_id", "customer"): ("by", "written by", "coming from"),
}


def _join(child: str, key: str, parent: str, *, start: str) -> str:
    other = parent if start == child else child
    return f"FROM {start} JOIN {other} ON {child}.{key} = {parent}.id"


def _linked(rng: random.Random) -> tuple[str, str, str, str, w.Condition]:
    """A link and a condition on its parent; the words go "sales" + "of products by Volt"."""
    child, key, parent = rng.choice(list(LINKS))
    cond = w.any_condition(parent, rng)
    return child, key, parent, f"{rng.choice(LINKS[child, key, parent])} {w.noun(parent, rng)} {cond.words}", cond


def join_list(rng: random.Random) -> Draft:
    child, key, parent, words, cond = _linked(rng)
    column = LIST_COLUMNS[child][0]
    question = phrase(
        LIST_WHERE,
        rng,
        rows=w.noun(child, rng),
        one=w.noun(child, rng, plural=False),
        cond=words,
        col=w.label(child, column, rng),
        cols=w.label(child, column, rng, plural=True),
    )
    return f"SELECT {child}.{column} {_join(child, key, parent, start=child)} WHERE {cond.sql(parent)}", question


def join_list_two(rng: random.Random) -> Draft:
    """A column of the child and one of its parent."""
    child, key, parent = rng.choice(list(LINKS))
    cond = w.any_condition(child, rng)
    first = rng.choice(LIST_COLUMNS[child])
    shown = rng.choice(("name", "name", LIST_COLUMNS[parent][1]))
    question = phrase(
        LIST_TWO,
        rng,
        rows=w.noun(child, rng),
        one=w.noun(child, rng, plural=False),
        cond=cond.words,
        col=w.label(child, first, rng),
        other=f"{w.noun(parent, rng, plural=False)} {w.label(parent, shown, rng)}",
    )
    return (
        f"SELECT {child}.{first}, {parent}.{shown} {_join(child, key, parent, start=child)} WHERE {cond.sql(child)}",
        question,
    )


def join_count(rng: random.Random) -> Draft:
    child, key, parent, words, cond = _linked(rng)
    question = phrase(COUNT_WHERE, rng, rows=w.noun(child, rng), cond=words)
    return f"SELECT COUNT(*) {_join(child, key, parent, start=child)} WHERE {cond.sql(parent)}", question


def join_aggregate(rng: random.Random) -> Draft:
    child, key, parent, words, cond = _linked(rng)
    measured, function = draw_measure(child, "", rng)
    question = phrase(
        AGGREGATE,
        rng,
        agg=rng.choice(AGGREGATES[function]),
        col=w.label(child, measured, rng),
        rows=w.noun(child, rng),
        cond=f" {words}",
    )
    return (
        f"SELECT {function}({child}.{measured}) {_join(child, key, parent, start=child)} WHERE {cond.sql(parent)}",
        question,
    )


def join_distinct(rng: random.Random) -> Draft:
    child, key, parent = rng.choice(list(LINKS))
    cond = w.any_condition(child, rng)
    shown = rng.choice(("name", "name", LIST_COLUMNS[parent][1]))
    templates = (
        "List the different {cols} of {parents} with {child} {cond}.",
        "What are the distinct {cols} of {parents} that have {child} {cond}?",
        "Show the unique {cols} of {parents} that have {child} {cond}.",
        "Distinct {cols} of {parents} with {child} {cond}",
        "Give the distinct {cols} of all {parents} having {child} {cond}.",
        "Return the different {cols} of {parents} with at least {child} {cond}.",
    )
    child_word = w.noun(child, rng, plural=False)
    template = rng.choice(templates)
    question = phrase(
        (template,),
        rng,
        cols=w.label(parent, shown, rng, plural=True),
        parents=w.noun(parent, rng),
        cond=cond.words,
        child=f"one {child_word}" if "at least" in template else w.article(child_word),
    )
    return (
        f"SELECT DISTINCT {parent}.{shown} {_join(child, key, parent, start=parent)} WHERE {cond.sql(child)}",
        question,
    )


def join_group(rng: random.Random) -> Draft:
    """Children counted by a column of their parent."""
    child, key, parent = rng.choice(list(LINKS))
    column = rng.choice(w.EQUAL[parent][:2])
    link = rng.choice(LINKS[child, key, parent])
    templates = (
        "How many {rows} {link} {parents} are there for each {col}?",
        "Count the {rows} per {one} {col}; show the {col} and the count.",
        "For each {one} {col}, show the number of {rows}.",
        "Number of {rows} by {one} {col}, with the {col} first",
        "Group the {rows} by {one} {col} and show the {col} and the count.",
        "Show each {one} {col} with its number of {rows}.",
    )
    question = phrase(
        templates,
        rng,
        rows=w.noun(child, rng),
        link=link,
        parents=w.noun(parent, rng),
        one=w.noun(parent, rng, plural=False),
        col=w.label(parent, column, rng),
    )
    gold = f"SELECT {parent}.{column}, COUNT(*) {_join(child, key, parent, start=child)} GROUP BY {parent}.{column}"
    with_zeros = (
        f"SELECT {parent}.{column}, COUNT({child}.id) FROM {parent} LEFT JOIN {child} ON {child}.{key} = {parent}.id "
        f"GROUP BY {parent}.{column}"
    )
    return gold, question, with_zeros


def join_top(rng: random.Random) -> Draft:
    child, key, parent = rng.choice(list(LINKS))
    column = rng.choice(LIST_COLUMNS[parent][:2])
    templates = (
        "What is the {col} of the {one} with the most {rows}?",
        "Which {one} has the most {rows}? Give the {col}.",
        "Find the {one} with the most {rows} and show the {col}.",
        "{col} of the {one} with the most {rows}",
        "Show the {col} of the {one} that has the most {rows}.",
        "Return the {col} of the {one} having the most {rows}.",
    )
    question = phrase(
        templates, rng, col=w.label(parent, column, rng), one=w.noun(parent, rng, plural=False), rows=w.noun(child, rng)
    )
    join = _join(child, key, parent, start=parent)
    return f"SELECT {parent}.{column} {join} GROUP BY {parent}.id ORDER BY COUNT(*) DESC LIMIT 1", question


def join_having(rng: random.Random) -> Draft:
    child, key, parent = rng.choice(list(LINKS))
    sign, words, number = rng.choice(
        [
            (">", "more than", 2),
            (">", "more than", 3),
            (">", "over", 4),
            (">=", "at least", 3),
            (">=", "at least", 2),
            (">", "more than", 5),
            (">=", "at least", 5),
            (">", "more than", 1),
        ]
    )
    templates = (
        "Which {parents} have {n} {rows}? Give the names.",
        "List the names of {parents} with {n} {rows}.",
        "Show the name of each {one} that has {n} {rows}.",
        "Names of {parents} with {n} {rows}",
        "Find all {parents} that have {n} {rows} and return their names.",
        "What are the names of the {parents} having {n} {rows}?",
    )
    question = phrase(
        templates,
        rng,
        parents=w.noun(parent, rng),
        one=w.noun(parent, rng, plural=False),
        rows=w.noun(child, rng),
        n=f"{words} {number}",
    )
    join = _join(child, key, parent, start=parent)
    return f"SELECT {parent}.name {join} GROUP BY {parent}.id HAVING COUNT(*) {sign} {number}", question


PATTERNS = (
    join_list,
    join_list_two,
    join_count,
    join_aggregate,
    join_distinct,
    join_group,
    join_top,
    join_having,
)
