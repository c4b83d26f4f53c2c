"""Makes snapshots that tell wrong queries from right ones: many candidate copies of a database, of which few are kept.

A single database accepts about six in ten broken queries and nearly every constant answer. The copies are made by
variants_copy.py, the broken queries by variants_mutants.py, and variants_trial.py keeps the copies that tell most of
them (the idea of distilled test suites: Zhong, Yu and Klein, arXiv:2010.02840).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox import SqliteSandbox
from groupwise.verifiers.variants_copy import CopyStyle, copy_rows, write_copy
from groupwise.verifiers.variants_golds import conditions_of
from groupwise.verifiers.variants_schema import Relation, read_database
from groupwise.verifiers.variants_trial import Trial, distil, run_trial, survivors

CANDIDATES_PER_COPY = 4
INFLATED = CopyStyle(keep=1.0, grow=40.0, min_rows=160, max_rows=400, childless=0.15)
"""Many rows: tells a large LIMIT and conditions on the number of rows."""
STYLES = (
    CopyStyle(),
    CopyStyle(keep=0.6, grow=1.6, min_rows=30, childless=0.4),
    INFLATED,
    CopyStyle(keep=0.9, grow=1.1, min_rows=60, shuffle=0.9, move=0.6),
)

Advance = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """The copies and what they tell: Variants(copies=(Path("variants/shop_v1.sqlite"),), trial=..., chosen=(2,))."""

    copies: tuple[Path, ...]
    """The files that were kept, the one that tells most first."""
    trial: Trial
    chosen: tuple[int, ...]
    """Their positions among the candidates, which trial.attempts refer to."""


def make_variants(
    database: Path,
    golds: Sequence[str],
    out: Path,
    *,
    num_copies: int = 3,
    relations: Iterable[Relation] = (),
    seed: int = 0,
    time_limit_s: float = 1.0,
    advance: Advance = lambda title, done, total: None,
) -> Variants:
    """Writes OUT/NAME_v1.sqlite and so on, in the order in which they tell most.

    The same inputs and seed give the same copies. `relations` are foreign keys that the file does not declare.

    Raises:
        VerifierError: no gold, not an SQLite database, num_copies below 1, or no copy on which every gold runs.
    """
    if num_copies < 1:
        raise VerifierError(f"variants: {num_copies} copies cannot be made; give 1 or more")
    distinct = list(dict.fromkeys(gold.strip() for gold in golds if gold.strip()))
    if not distinct:
        raise VerifierError("gold_missing: no gold query was given; variants are made for the questions that have one")
    source = read_database(database, distinct, relations)
    schema = {name: table.columns for name, table in source.tables.items()}
    planted = [conditions_of(gold, schema) for gold in distinct]
    folder = out / f".{database.stem}-candidates"
    shutil.rmtree(folder, ignore_errors=True)
    num_candidates = num_copies * CANDIDATES_PER_COPY
    sandbox = SqliteSandbox(num_workers=1, time_limit_s=time_limit_s)
    try:
        candidates = []
        for index in range(num_candidates):
            advance("making copies", index, num_candidates)
            path = folder / f"{index}.sqlite"
            write_copy(source, copy_rows(source, STYLES[index % len(STYLES)], planted, seed * 1000 + index), path)
            candidates.append(path)
        trial = run_trial(
            database, candidates, distinct, schema, sandbox, lambda done, total: advance("trying answers", done, total)
        )
        inflated = tuple(index for index in range(num_candidates) if STYLES[index % len(STYLES)] is INFLATED)
        chosen = distil(trial, num_copies, num_candidates, wanted=inflated)
        if not chosen:
            raise VerifierError(
                f"gold_failed: on each of {num_candidates} copies some gold of {database.name} fails; "
                "raise the time limit or leave slow golds out"
            )
        copies = []
        for number, index in enumerate(chosen, start=1):
            copies.append(out / f"{database.stem}_v{number}.sqlite")
            shutil.move(candidates[index], copies[-1])
    finally:
        sandbox.close()
        shutil.rmtree(folder, ignore_errors=True)
    return Variants(copies=tuple(copies), trial=trial, chosen=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """How many attempts of one kind nothing tells: Survival(kind="drop_where", num=25, on_original=7, on_all=2)."""

    kind: str
    num: int
    on_original: int
    on_all: int


def survival_by_kind(variants: Variants) -> list[Survival]:
    """One entry for each kind that was tried, in the order of first appearance."""
    alive = survivors(variants.trial, variants.chosen)
    kinds = dict.fromkeys(attempt.kind for attempt in variants.trial.attempts)
    return [
        Survival(
            kind=kind,
            num=sum(a.kind == kind for a in variants.trial.attempts),
            on_original=sum(a.kind == kind and not a.on_original for a in variants.trial.attempts),
            on_all=sum(a.kind == kind for a in alive),
        )
        for kind in kinds
    ]
