"""Runs mutants and constant answers on candidate snapshots, and chooses those that tell most of them from the golds.

An answer survives where it returns the gold's rows on every snapshot, compared as sql_compare.py compares. A constant
answer is the gold's result on the original, written down as values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox import QueryStatus, SqliteSandbox
from groupwise.verifiers.sql_compare import GoldRows, canonical_rows, compare_shape, compare_values
from groupwise.verifiers.sql_gold import GoldAnswers
from groupwise.verifiers.variants_mutants import Schema, mutants_of

CONSTANT = "constant"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One wrong answer to one gold, and which snapshots tell it.

    Example:
        Attempt(gold="SELECT name FROM singer WHERE age > 20", kind="drop_where", sql="SELECT name FROM singer",
                on_original=False, told_by=frozenset({0, 2}))
    """

    gold: str
    kind: str
    sql: str
    """Empty for a constant answer."""
    on_original: bool
    """The original tells it: its result there differs from the gold's."""
    told_by: frozenset[int]
    """Positions of the candidate copies that tell it; empty where the original does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All attempts, and what could not take part."""

    attempts: tuple[Attempt, ...]
    unusable_golds: tuple[tuple[str, str], ...]
    """(gold, why): it fails on the original, or finds nothing on any snapshot."""
    bad_copies: frozenset[int]
    """Copies on which some gold fails; they must not be chosen."""


def run_trial(
    original: Path,
    copies: Sequence[Path],
    golds: Sequence[str],
    schema: Schema,
    sandbox: SqliteSandbox,
    progress: Progress = lambda done, total: None,
) -> Trial:
    """Tries every mutant and the constant answer of every gold on the original and, where that cannot tell, the copies.

    A mutant that does not run on the original is left out: no snapshot is needed to tell it.
    """
    answers = GoldAnswers(sandbox)
    attempts: list[Attempt] = []
    unusable: list[tuple[str, str]] = []
    bad: set[int] = set()
    for number, gold in enumerate(golds):
        progress(number, len(golds))
        try:
            first = answers.truth(gold, original).answer
        except VerifierError as error:
            unusable.append((gold, str(error)))
            continue
        truths: list[GoldRows | None] = []
        for index, path in enumerate(copies):
            try:
                truths.append(answers.truth(gold, path).answer)
            except VerifierError:
                bad.add(index)
                truths.append(None)
        if not first.rows and not any(truth is not None and truth.rows for truth in truths):
            unusable.append((gold, "gold_empty: no rows on any snapshot"))
            continue
        attempts.append(_constant(gold, first, truths))
        for mutant in mutants_of(gold, schema):
            attempt = _attempt(gold, mutant.kind, mutant.sql, (original, *copies), (first, *truths), sandbox)
            if attempt is not None:
                attempts.append(attempt)
    progress(len(golds), len(golds))
    return Trial(attempts=tuple(attempts), unusable_golds=tuple(unusable), bad_copies=frozenset(bad))


def _constant(gold: str, first: GoldRows, truths: Sequence[GoldRows | None]) -> Attempt:
    told = set()
    for index, truth in enumerate(truths):
        if truth is not None:
            shape = compare_shape(truth, first.num_columns, len(first.rows), False)
            if not shape.equal or not compare_values([first, truth], [first.rows, first.rows]).equal:
                told.add(index)
    return Attempt(gold=gold, kind=CONSTANT, sql="", on_original=False, told_by=frozenset(told))


def _attempt(
    gold: str,
    kind: str,
    sql: str,
    paths: Sequence[Path],
    truths: Sequence[GoldRows | None],
    sandbox: SqliteSandbox,
) -> Attempt | None:
    told = set()
    first_rows = None
    for index, (path, truth) in enumerate(zip(paths, truths, strict=True)):
        if truth is None:
            continue
        outcome = sandbox.run(path, sql, max_rows=len(truth.rows))
        if index == 0 and outcome.status in (QueryStatus.SQL_ERROR, QueryStatus.FORBIDDEN):
            return None
        rows = canonical_rows(outcome.rows)
        equal = (
            outcome.status is QueryStatus.OK
            and compare_shape(truth, outcome.num_columns, len(rows), outcome.truncated).equal
        )
        if index == 0:
            if not equal or not compare_values([truth], [rows]).equal:
                return Attempt(gold=gold, kind=kind, sql=sql, on_original=True, told_by=frozenset())
            first_rows, first = rows, truth
        elif not equal or not compare_values([first, truth], [first_rows or (), rows]).equal:
            told.add(index - 1)
    return Attempt(gold=gold, kind=kind, sql=sql, on_original=False, told_by=frozenset(told))


def distil(trial: Trial, num_copies: int, num_candidates: int, *, wanted: Sequence[int] = ()) -> tuple[int, ...]:
    """The copies that together tell most attempts, chosen one after the other, the best first. Constant answers and
    mutants count alike; ties go to the copy that tells more by itself, then to the earlier one. One of `wanted` is
    among 2 or more, if only as the last.
    """
    left = [attempt.told_by for attempt in trial.attempts if not attempt.on_original]
    alone = [sum(index in told for told in left) for index in range(num_candidates)]
    chosen: list[int] = []
    offered = [index for index in range(num_candidates) if index not in trial.bad_copies]
    while offered and len(chosen) < num_copies:
        is_last = 1 < num_copies == len(chosen) + 1
        must = [index for index in offered if index in wanted] if is_last and not set(wanted) & set(chosen) else []
        best = max(must or offered, key=lambda index: (sum(index in told for told in left), alone[index], -index))
        chosen.append(best)
        offered.remove(best)
        left = [told for told in left if best not in told]
    return tuple(chosen)


def survivors(trial: Trial, chosen: Sequence[int]) -> tuple[Attempt, ...]:
    """The attempts that neither the original nor any of the chosen copies tells."""
    return tuple(a for a in trial.attempts if not a.on_original and not a.told_by & set(chosen))
