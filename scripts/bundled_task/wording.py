"""English for the bike shop's tables and columns: nouns, labels, conditions, rankings.

Every function draws one of several wordings.

A condition is always a phrase that can follow a plural noun ("customers" + "older than 40"), so that patterns can
combine any table with any condition.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from schema import LITERALS, YEARS

SYNONYM_RATE = 0.25
"""How often a table is called something else than its own name. Higher is harder."""

NOUNS = {  # (singular, plural); the first is the table's own name
    "store": [("store", "stores"), ("shop", "shops")],
    "employee": [("employee", "employees"), ("worker", "workers"), ("staff member", "staff members")],
    "customer": [("customer", "customers"), ("client", "clients")],
    "product": [("product", "products"), ("item", "items")],
    "sale": [("sale", "sales"), ("order", "orders")],
    "repair": [("repair", "repairs"), ("repair job", "repair jobs")],
    "review": [("review", "reviews"), ("rating", "ratings")],
}


LABELS = {  # (singular, plural); the first is the column's own name
    ("store", "opened"): [("opening date", "opening dates")],
    ("customer", "joined"): [("join date", "join dates"), ("joining date", "joining dates")],
    "city": [("city", "cities")],
    "quantity": [("quantity", "quantities")],
    "salary": [("salary", "salaries"), ("salary", "salaries"), ("pay", "pay")],
    "day": [("day", "days"), ("day", "days"), ("date", "dates")],
    "stock": [("stock", "stocks")],
    "stars": [("stars", "stars"), ("star count", "star counts")],
    "cost": [("cost", "costs")],
}

SPECIAL_EQUAL = {
    ("store", "city"): ["in {v}", "located in {v}"],
    ("customer", "city"): ["from {v}", "in {v}", "living in {v}", "based in {v}"],
    ("employee", "role"): ["with the role {v}", "working as {v}", "whose role is {v}"],
    ("product", "kind"): ["of kind {v}", "of the kind {v}", "whose kind is {v}"],
    ("product", "brand"): ["from the brand {v}", "by {v}", "made by {v}", "of brand {v}"],
    ("product", "color"): ["in {v}", "colored {v}", "whose color is {v}"],
    ("review", "stars"): ["with {v} stars", "with exactly {v} stars", "giving {v} stars"],
    ("sale", "quantity"): ["with quantity {v}", "with a quantity of exactly {v}"],
}

SPECIAL_OVER = {
    ("customer", "age"): ["older than {v}", "aged over {v}"],
    ("product", "price"): ["that cost more than {v}", "priced above {v}"],
    ("product", "stock"): ["with more than {v} in stock"],
    ("employee", "salary"): ["earning more than {v}", "who earn over {v}"],
    ("store", "rent"): ["paying more than {v} in rent"],
    ("repair", "cost"): ["that cost more than {v}", "costing over {v}"],
    ("review", "stars"): ["with more than {v} stars"],
}

SPECIAL_UNDER = {
    ("customer", "age"): ["younger than {v}", "aged under {v}"],
    ("product", "price"): ["that cost less than {v}", "cheaper than {v}"],
    ("product", "stock"): ["with less than {v} in stock", "with fewer than {v} in stock"],
    ("employee", "salary"): ["earning less than {v}", "who earn under {v}"],
    ("store", "rent"): ["paying less than {v} in rent"],
    ("repair", "cost"): ["that cost less than {v}", "costing under {v}"],
    ("review", "stars"): ["with fewer than {v} stars"],
}

THRESHOLDS = {
    ("store", "rent"): range(1500, 4000, 250),
    ("employee", "salary"): range(2200, 4800, 200),
    ("customer", "age"): range(25, 66, 5),
    ("product", "price"): (20, 40, 50, 75, 100, 120, 150, 200, 300, 400, 500),
    ("product", "stock"): range(10, 80, 10),
    ("sale", "quantity"): range(2, 7),
    ("repair", "cost"): range(30, 220, 10),
    ("review", "stars"): range(2, 5),
}

DATES = {  # before, in, after
    ("store", "opened"): ("opened", ["opened"]),
    ("customer", "joined"): ("joined", ["who joined"]),
    ("sale", "day"): ("day", ["made", "from a day"]),
    ("repair", "day"): ("day", ["done", "from a day"]),
}

NULLABLE = {
    ("customer", "age"): (
        ["with no age", "whose age is missing", "without an age"],
        ["with a known age", "whose age is given"],
    ),
    ("product", "color"): (
        ["with no color", "without a color", "whose color is missing"],
        ["that have a color", "whose color is given"],
    ),
    ("repair", "cost"): (
        ["with no cost", "without a cost", "whose cost is missing"],
        ["that have a cost", "whose cost is known"],
    ),
    ("repair", "employee_id"): (
        ["with no employee", "without an employee"],
        ["that have an employee", "with an employee"],
    ),
}

TABLES = tuple(NOUNS)
NAMED = ("store", "employee", "customer", "product")
EQUAL = {
    "store": ("city",),
    "employee": ("role",),
    "customer": ("city",),
    "product": ("kind", "brand", "color"),
    "sale": ("quantity",),
    "review": ("stars",),
}
NUMBERS: dict[str, tuple[str, ...]] = {t: tuple(c for u, c in THRESHOLDS if u == t) for t in TABLES}
DATE_COLUMNS: dict[str, tuple[str, ...]] = {t: tuple(c for u, c in DATES if u == t) for t in TABLES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One WHERE term and its words: Condition(column="age", test="> 40", words="older than 40")."""

    column: str
    test: str
    words: str

    def sql(self, table: str | None = None) -> str:
        """The term, its column qualified where a join needs it."""
        return f"{table}.{self.column} {self.test}" if table else f"{self.column} {self.test}"


def noun(table: str, rng: random.Random, *, plural: bool = True) -> str:
    """A word for the table's rows."""
    choice = NOUNS[table][0] if rng.random() >= SYNONYM_RATE else rng.choice(NOUNS[table])
    return choice[plural]


def label(table: str, column: str, rng: random.Random, *, plural: bool = False) -> str:
    """A word for a column: "price", "prices", "opening date"."""
    options = LABELS.get((table, column)) or LABELS.get(column) or [(column, column + "s")]
    return rng.choice(options)[plural]


def article(word: str) -> str:
    """The word with "a" or "an" before it."""
    return f"an {word}" if word[0] in "aeio" else f"a {word}"


def whose(table: str, column: str, rng: random.Random) -> str:
    """The start of a condition on a column: "with a price", "whose price is"."""
    name = "star count" if column == "stars" else label(table, column, rng)
    return rng.choice((f"with {article(name)}", f"with {article(name)}", f"whose {name} is"))


def equal(table: str, column: str, rng: random.Random, value: str | int | None = None) -> Condition:
    """column = value."""
    if value is None:
        value = rng.choice(tuple(LITERALS[column]) if column in LITERALS else tuple(THRESHOLDS[table, column]))
    words = rng.choice(SPECIAL_EQUAL[table, column]).format(v=value)
    return Condition(column=column, test=f"= {value!r}", words=words)


def compare(table: str, column: str, rng: random.Random) -> Condition:
    """column > value, column < value, now and then >= or <=."""
    value = rng.choice(tuple(THRESHOLDS[table, column]))
    if rng.random() < 0.15:
        sign, words = rng.choice([(">=", "at least"), ("<=", "at most")])
        lead = whose(table, column, rng)
        glue = "of " if lead.startswith("with") else ""
        return Condition(column=column, test=f"{sign} {value}", words=f"{lead} {glue}{words} {value}")
    sign, special, words = rng.choice(
        [(">", SPECIAL_OVER, ("above", "over", "greater than")), ("<", SPECIAL_UNDER, ("below", "under", "less than"))]
    )
    if (table, column) in special and rng.random() < 0.55:
        phrase = rng.choice(special[table, column]).format(v=value)
    else:
        phrase = f"{whose(table, column, rng)} {rng.choice(words)} {value}"
    return Condition(column=column, test=f"{sign} {value}", words=phrase)


def dated(table: str, column: str, rng: random.Random) -> Condition:
    """column LIKE 'year%', or before or after a day."""
    _, verbs = DATES[table, column]
    verb = rng.choice(verbs)
    year = rng.choice(YEARS)
    if rng.random() < 0.45:
        return Condition(
            column=column, test=f"LIKE '{year}%'", words=f"{verb} in {year}".replace("from a day in", "from the year")
        )
    sign, word = rng.choice([("<", "before"), (">", "after")])
    day = f"{year}-{rng.randint(1, 12):02d}-{rng.choice((1, 10, 15, 20)):02d}"
    return Condition(column=column, test=f"{sign} '{day}'", words=f"{verb} {word} {day}")


def missing(table: str, column: str, rng: random.Random, *, known: bool = False) -> Condition:
    """column IS NULL, or IS NOT NULL."""
    words = rng.choice(NULLABLE[table, column][known])
    return Condition(column=column, test="IS NOT NULL" if known else "IS NULL", words=words)


def any_condition(table: str, rng: random.Random, *, avoid: tuple[str, ...] = ()) -> Condition:
    """Some condition on one of the table's columns."""
    makers = [(equal, c) for c in EQUAL.get(table, ())] * 2
    makers += [(compare, c) for c in NUMBERS[table]] + [(dated, c) for c in DATE_COLUMNS[table]]
    maker, column = rng.choice([m for m in makers if m[1] not in avoid])
    return maker(table, column, rng)


RANKED = {  # order column -> (adjectives for DESC, adjectives for ASC); a nullable column has no ASC
    ("store", "rent"): ((), ()),
    ("store", "opened"): (("newest", "most recently opened"), ("oldest", "earliest opened")),
    ("employee", "salary"): (("best paid", "highest paid"), ("worst paid", "lowest paid")),
    ("customer", "age"): (("oldest",), None),
    ("customer", "joined"): (("newest", "most recently joined"), ("earliest joined", "longest standing")),
    ("product", "price"): (("most expensive", "priciest"), ("cheapest", "least expensive")),
    ("product", "stock"): ((), ()),
    ("sale", "day"): (("latest", "most recent"), ("earliest", "first")),
    ("repair", "day"): (("latest", "most recent"), ("earliest", "first")),
    ("repair", "cost"): (("most expensive", "costliest"), None),
}
