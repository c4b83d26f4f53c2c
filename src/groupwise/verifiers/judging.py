"""Many completions at once, and what becomes of a verifier that breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from groupwise.types import GroupVerifier, Status, Task, Verdict, Verifier

JUDGE_THREADS = 8
"""Judgements in flight; a verifier bounds its own workers."""


def judge_safely(verifier: Verifier, task: Task, completion_text: str) -> Verdict:
    """The verdict, or an unscored one that names the exception: a verifier's failure is never a reward."""
    try:
        return verifier.judge(task, completion_text)
    except Exception as error:  # the process boundary of a verifier that we did not write
        reason = f"verifier_raised: {type(error).__name__}: {error}"
        return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=reason)


def judge_pairs(verifier: Verifier, pairs: Sequence[tuple[Task, str]]) -> Iterator[Verdict]:
    """Verdicts in the order of the (task, completion text) pairs, as they are ready; all at once where the verifier
    offers that."""
    if isinstance(verifier, GroupVerifier):
        yield from _judge_together(verifier, pairs)
        return
    with ThreadPoolExecutor(JUDGE_THREADS) as threads:
        yield from threads.map(lambda pair: judge_safely(verifier, *pair), pairs)


def _judge_together(verifier: GroupVerifier, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
    try:
        return verifier.judge_many(pairs)
    except Exception:  # as above; one by one tells which completion broke it
        return [judge_safely(verifier, *pair) for pair in pairs]
