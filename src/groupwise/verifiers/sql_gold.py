"""The right answers: runs gold queries, once for each snapshot, and keeps what they return.

A gold that cannot serve (it fails, is slow, finds nothing anywhere) raises VerifierError, whose message starts with the
word that the verdict's reason will start with.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox import QUERY_FAULTS, QueryResult, QuerySandbox, QueryStatus, Row
from groupwise.sandbox.sql_text import scan_sql
from groupwise.verifiers.lru_cache import LruCache
from groupwise.verifiers.sql_answer import problem_of_form
from groupwise.verifiers.sql_compare import GoldRows, TieGroup, canonical_rows, same_order
from groupwise.verifiers.sql_order import plan_order, tie_groups

MAX_GOLD_ROWS = 20_000
MAX_TIE_ROWS = 2_000  # rows read past LIMIT to learn who ties with the last one
MAX_CACHED_GOLDS = 16_384
GOLD_TIME_FACTOR = 0.5  # a gold near the limit would let noise decide about answers equal to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The gold's answer on one snapshot and the tables that it comes from.

    Example:
        Truth(answer=GoldRows(num_columns=1, rows=((6,),), ties=None), tables=frozenset({"singer"}))
    """

    answer: GoldRows
    tables: frozenset[str]


def stamp(path: Path) -> tuple[str, int, int, int]:
    """What identifies a snapshot's contents without reading them; zeros for a missing file."""
    try:
        stat = os.stat(path)
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size)


class GoldAnswers:
    """Computes and remembers truths. Safe to use from many threads."""

    def __init__(self, sandbox: QuerySandbox, dialect: str = "sqlite") -> None:
        self._sandbox = sandbox
        self._dialect = dialect
        self._cache: LruCache[Truth | str] = LruCache(MAX_CACHED_GOLDS)

    def truths(self, gold: str, paths: Sequence[Path]) -> list[Truth]:
        """The gold's answers, in the order of `paths`.

        Raises:
            VerifierError: gold_failed, gold_empty, snapshot_missing, snapshot_bad or worker_failed.
        """
        form = scan_sql(gold)
        problem = problem_of_form(gold, form)
        if problem:
            raise VerifierError(f"gold_failed: {problem}")
        truths = [self.truth(gold, path) for path in paths]
        if not any(truth.answer.rows for truth in truths):
            raise VerifierError(
                f"gold_empty: no rows on any of {len(paths)} snapshots, so every empty answer would pass; "
                "add a snapshot on which the gold finds something, or drop the task"
            )
        return truths

    def truth(self, gold: str, path: Path) -> Truth:
        """The gold's answer on one snapshot, which may be empty.

        Raises:
            VerifierError: gold_failed, snapshot_missing, snapshot_bad or worker_failed.
        """
        key = (gold, stamp(path))
        cached = self._cache.get(key)
        if cached is None:
            outcome = self._sandbox.run(path, gold, max_rows=MAX_GOLD_ROWS, time_factor=GOLD_TIME_FACTOR)
            cached = self._truth_from(gold, path, scan_sql(gold).has_order, outcome)
            if outcome.status is QueryStatus.OK or outcome.status in QUERY_FAULTS:
                self._cache.put(key, cached)
        if isinstance(cached, str):
            raise VerifierError(cached)
        return cached

    def _truth_from(self, gold: str, path: Path, has_order: bool, outcome: QueryResult) -> Truth | str:
        if outcome.status in QUERY_FAULTS:
            hint = " (a gold gets half of time_limit_s)" if outcome.status is QueryStatus.TIMEOUT else ""
            return f"gold_failed: {outcome.status} on {path.name}: {outcome.message}{hint}"
        if outcome.status is not QueryStatus.OK:
            return f"{outcome.status}: {path.name}: {outcome.message}"
        if outcome.truncated:
            return f"gold_failed: too_large on {path.name}: more than {MAX_GOLD_ROWS} rows"
        rows = canonical_rows(outcome.rows)
        if any(isinstance(cell, float) and isinf(cell) for row in rows for cell in row):
            return f"gold_failed: an infinite number on {path.name}"
        answer = GoldRows(num_columns=outcome.num_columns, rows=rows, ties=None)
        if has_order:
            answer = self._with_ties(answer, gold, path)
        return Truth(answer=answer, tables=frozenset(table for table, _ in outcome.columns_read))

    def _with_ties(self, answer: GoldRows, gold: str, path: Path) -> GoldRows:
        """Adds the tie groups; every row is its own group where the sort keys cannot be had."""
        strict = replace(answer, ties=tuple(_single(row) for row in answer.rows))
        plan = plan_order(gold, self._dialect)
        if plan is None:
            return strict
        keyed_rows, complete = answer.rows, True
        if plan.keyed_sql is not None:
            max_rows = plan.offset + len(answer.rows) + MAX_TIE_ROWS
            keyed = self._sandbox.run(path, plan.keyed_sql, max_rows=max_rows)
            if keyed.status is QueryStatus.WORKER_FAILED:  # strict order now and ties later would be two verdicts
                raise VerifierError(f"worker_failed: {path.name}: {keyed.message}")
            if keyed.status is not QueryStatus.OK or keyed.num_columns != answer.num_columns + plan.num_hidden:
                return strict
            keyed_rows, complete = canonical_rows(keyed.rows), not keyed.truncated
        if not all(-1 < position < answer.num_columns for position in plan.visible_keys):
            return strict
        ties = tie_groups(plan, keyed_rows, len(answer.rows), complete)
        loose = replace(answer, ties=ties)
        return strict if ties is None or not same_order(loose, answer.rows) else loose


def _single(row: Row) -> TieGroup:
    return TieGroup(num_shown=1, rows=(row,))
