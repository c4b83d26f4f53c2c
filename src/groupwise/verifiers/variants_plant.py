"""Plants what the golds compare with, so that a changed comparison changes the rows.

For a gold with the conditions c1 AND c2 on one table: a row that meets both, a row that meets all but one (for each),
with the refused value as near as the column allows: one more and one less than a number, another case and a longer
text, a pattern that matches only without its leading or trailing %.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from groupwise.sandbox import Cell
from groupwise.verifiers.variants_columns import ColumnRule
from groupwise.verifiers.variants_golds import Condition
from groupwise.verifiers.variants_schema import ForeignKey, Table, as_text


def plant(
    table: Table,
    rules: Sequence[ColumnRule],
    keys: Sequence[ForeignKey],
    done: Mapping[str, list[list[Cell]]],
    rows: list[list[Cell]],
    golds: Sequence[tuple[Condition, ...]],
    rng: random.Random,
) -> None:
    """Changes cells of `rows` in place. Keys keep pointing at parents that exist, single keys keep their values."""
    allowed: dict[int, set[str] | None] = {}
    for index in range(len(table.columns)):
        if (index,) in table.unique or (index in table.primary_key):
            allowed[index] = set() if index in table.primary_key else None
    for key in keys:
        if len(key.columns) == 1 and key.columns[0] not in table.primary_key:
            parents = done.get(key.parent, [])
            allowed[key.columns[0]] = {as_text(parent[key.parent_columns[0]]) for parent in parents}
    jobs = [job for gold in golds for job in _jobs(table, rules, gold, rng)]
    rng.shuffle(jobs)
    places: list[list[Cell]] = []
    for job in jobs:
        if not places:
            places = rng.sample(rows, len(rows))
        row = places.pop()
        for index, value in job.items():
            _set(rows, row, index, value, table, allowed)


def _set(
    rows: list[list[Cell]],
    row: list[Cell],
    index: int,
    value: Cell,
    table: Table,
    allowed: Mapping[int, set[str] | None],
) -> None:
    if value is None and index in table.not_null:
        return
    limits = allowed.get(index, None)
    if limits is not None and as_text(value) not in limits:
        return
    if (index,) in table.unique and any(other[index] == value for other in rows):
        return
    row[index] = value


def _jobs(
    table: Table, rules: Sequence[ColumnRule], gold: tuple[Condition, ...], rng: random.Random
) -> list[dict[int, Cell]]:
    """Cells to set together: all conditions met, then all but one, for each one and each near miss."""
    mine: dict[int, list[Condition]] = defaultdict(list)
    for condition in gold:
        index = table.position(condition.column)
        if condition.table == table.name.lower() and index is not None:
            mine[index].append(condition)
    met = {index: [v for c in conditions for v in _meeting(c, rules[index])] for index, conditions in mine.items()}
    missed = {index: [v for c in conditions for v in _missing(c, rules[index])] for index, conditions in mine.items()}
    jobs = [{index: value} | _one_each(met, index, rng) for index, values in met.items() for value in values]
    jobs += [{index: value} | _one_each(met, index, rng) for index, values in missed.items() for value in values]
    return jobs


def _one_each(choices: Mapping[int, Sequence[Cell]], but: int, rng: random.Random) -> dict[int, Cell]:
    return {index: rng.choice(values) for index, values in choices.items() if index != but and values}


def _meeting(condition: Condition, rule: ColumnRule) -> list[Cell]:
    """Values for which the condition holds, boundaries first."""
    if condition.operator == "like":
        return [*_pattern_values(str(condition.values[0]))[:2]]
    low, *rest = condition.values
    if condition.operator == "<>":
        return _near(low, rule)[:1]
    if condition.operator in (">", "<"):
        return _near(low, rule)[condition.operator == "<" :][:1]
    return [rule.stored(value) for value in (low, *rest)]


def _missing(condition: Condition, rule: ColumnRule) -> list[Cell]:
    """Values for which it just does not hold, or would not under a slightly other operator."""
    if condition.operator == "like":
        return _pattern_values(str(condition.values[0]))[2:]
    near = [value for literal in condition.values for value in _near(literal, rule)]
    return near + [rule.stored(value) for value in condition.values if condition.operator in (">", "<", "<>")]


def _near(literal: Cell, rule: ColumnRule) -> list[Cell]:
    """One more and one less than a number; a text in another case and a longer one."""
    number = rule.number(literal)
    if number is not None and rule.kind in ("whole", "decimal"):
        if rule.is_flag:
            return [value for value in rule.values if rule.number(value) != number]
        return [rule.from_number(number + 1), rule.from_number(number - 1)]
    if rule.is_flag or not isinstance(literal, str):
        return [value for value in rule.values if value != literal][:2]
    swapped = literal.lower() if literal.lower() != literal else literal.upper()
    return [f"{literal} 2", swapped]


def _pattern_values(pattern: str) -> list[Cell]:
    """Two texts that match a LIKE pattern, then texts that match it only in part."""
    core = pattern.strip("%").replace("%", " ").replace("_", "x")
    front, back = pattern.startswith("%"), pattern.endswith("%")
    before, after = f"Aa {core}", f"{core} zz"
    both = f"Aa {core} zz"
    matching = [core, both if front and back else before if front else after if back else core]
    others = [text for text in (before, after, both) if text not in matching]
    if front and back:
        return [*matching, before, after, core[:-1]]
    return [*matching, *others, core[:-1]]
