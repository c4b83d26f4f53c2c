"""Runs calls on a task's tables, by declared effects or by a user's Python functions, and says what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import VerifierError
from groupwise.sandbox.workers import (
    WorkerCrashed,
    WorkerLimits,
    WorkerPool,
    WorkerStarved,
    WorkerTimeout,
    WorkerUnavailable,
)
from groupwise.verifiers.tools_effects import State, StepResult, run_effect
from groupwise.verifiers.tools_json import canonical

NUM_WORKERS = 2
MEMORY_LIMIT_MB = 512
WALL_GRACE_S = 5.0
"""On a busy machine; only a function that sleeps gets here."""

Bag = Counter[str]
Volatile = Mapping[str, Sequence[str]]
"""Table to the fields that are left out of every comparison: ids, times, free text."""


class PolicyTooSlow(Exception):
    """What the policy asked for used up its time or memory."""


class ToolWorker:
    """Functions and patterns behind a killable process: ToolWorker(functions=Path("shop.py"), time_limit_s=2.0)."""

    def __init__(self, *, functions: Path | None, time_limit_s: float) -> None:
        self._time_limit_s = time_limit_s
        self._pool = WorkerPool(
            Path(__file__).with_name("tools_worker.py"),
            num_workers=NUM_WORKERS,
            limits=WorkerLimits(memory_mb=MEMORY_LIMIT_MB),
            handler_settings={"functions": str(functions) if functions else ""},
        )

    def search(self, pattern: str, text: str) -> bool:
        """re.search, ended by force if it takes too long.

        Raises:
            PolicyTooSlow: it did.
            VerifierError: the worker cannot be used.
        """
        return bool(self._call({"do": "search", "pattern": pattern, "text": text})["found"])

    def run(self, state: State, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[StepResult]:
        """Every call through its function, each on the state that the one before left.

        Raises:
            PolicyTooSlow: the calls together took too long.
            VerifierError: the worker cannot be used.
        """
        reply = self._call({"do": "run", "state": state, "calls": [[name, dict(given)] for name, given in calls]})
        steps: list[StepResult] = []
        for ok, result, changed in reply["steps"]:
            state = state if changed is None else changed
            steps.append(StepResult(ok=ok, result=result, state=state))
        return steps

    def close(self) -> None:
        """Ends the processes."""
        self._pool.close()

    def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            reply = self._pool.call(
                request, cpu_limit_s=self._time_limit_s, wall_limit_s=self._time_limit_s + WALL_GRACE_S
            )
        except WorkerTimeout as error:
            raise PolicyTooSlow(str(error)) from error
        except (WorkerStarved, WorkerCrashed, WorkerUnavailable) as error:
            raise VerifierError(f"worker_failed: {error}") from error
        if reply.get("status") == "memory":
            raise PolicyTooSlow("out of memory")
        if reply.get("status") != "ok":
            raise VerifierError(f"worker_failed: {reply.get('message')}")
        return reply


def run_effects(
    effects: Mapping[str, Any], state: State, calls: Sequence[tuple[str, Mapping[str, Any]]], seed: str
) -> list[StepResult]:
    """Every call through its declared effect, each on the state that the one before left."""
    steps: list[StepResult] = []
    for name, arguments in calls:
        step = run_effect(effects[name], arguments, state, seed)
        state = step.state
        steps.append(step)
    return steps


def writes_of(start: State, steps: Sequence[StepResult], volatile: Volatile) -> Bag:
    """Every record that some call removed (-) or added (+), as often as it happened. What is written and undone shows
    as two writes."""
    writes: Bag = Counter()
    for step in steps:
        writes += changes(start, step.state, volatile)
        start = step.state
    return writes


def changes(before: State, after: State, volatile: Volatile) -> Bag:
    """The records in which two states differ, "+ orders {...}" where it is only in the second; empty where equal."""
    found: Bag = Counter()
    for table in sorted({*before, *after}):
        old, new = before.get(table, ()), after.get(table, ())
        if old is new:
            continue
        kept = {id(record) for record in old} & {id(record) for record in new}
        olds, news = (_bag(records, volatile.get(table, ()), kept) for records in (old, new))
        found += Counter({f"- {table} {text}": count for text, count in (olds - news).items()})
        found += Counter({f"+ {table} {text}": count for text, count in (news - olds).items()})
    return found


def _bag(records: Sequence[Mapping[str, Any]], hidden: Sequence[str], kept: set[int]) -> Bag:
    return Counter(
        canonical({key: value for key, value in record.items() if key not in hidden})
        for record in records
        if id(record) not in kept
    )
