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


PATTERNS = (
    join_list,
    join_list_two,
    join_count,
    join_aggregate,
    join_distinct,
)
