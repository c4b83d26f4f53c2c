"""Generate and judge: prompts in, groups of rollouts out. No tensors here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from groupwise.rollout.engine import Engine, Progress, Sampling
from groupwise.types import Completion, Group, GroupVerifier, Prompt, Rollout, Status, Stop, Task, Verdict, Verifier

JUDGE_THREADS = 8
"""Judgements in flight; a verifier bounds its own workers."""
_ABORTED = Verdict(
    status=Status.UNSCORED, reward=None, outcome=None, reason="engine_aborted: there is no completion to judge"
)


class CollectedGroups(NamedTuple):
    """Judged groups and what they took."""

    groups: list[Group]
    generate_s: float
    judge_s: float


def collect_groups(
    engine: Engine,
    verifier: Verifier,
    tasks: Sequence[Task],
    prompts: Sequence[Prompt],
    *,
    group_size: int | Sequence[int],
    sampling: Sampling,
    seed: int,
    progress: Progress | None = None,
) -> CollectedGroups:
    """One group of judged completions for each task, of group_size or group_size[i]; prompts[i] belongs to tasks[i]."""
    started = time.monotonic()
    completions = engine.generate(prompts, group_size, sampling, seed=seed, progress=progress)
    generated = time.monotonic()
    pairs = [(task, completion) for task, group in zip(tasks, completions, strict=True) for completion in group]
    verdicts = iter(judge_all(verifier, pairs))
    groups = [
        Group(
            task=task,
            prompt=prompt,
            rollouts=tuple(Rollout(completion=completion, verdict=next(verdicts)) for completion in group),
        )
        for task, prompt, group in zip(tasks, prompts, completions, strict=True)
    ]
    return CollectedGroups(groups, generated - started, time.monotonic() - generated)


def judge_all(verifier: Verifier, pairs: Sequence[tuple[Task, Completion]]) -> list[Verdict]:
    """Verdicts in the order of the pairs, all at once where the verifier offers that.

    What the engine gave up on is unscored and not shown to the verifier: the failure is not the policy's.
    """
    verdicts = iter(_judge_finished(verifier, [pair for pair in pairs if pair[1].stop is not Stop.ABORTED]))
    return [_ABORTED if completion.stop is Stop.ABORTED else next(verdicts) for _, completion in pairs]


def _judge_finished(verifier: Verifier, pairs: Sequence[tuple[Task, Completion]]) -> list[Verdict]:
    if isinstance(verifier, GroupVerifier):
        try:
            return verifier.judge_many([(task, completion.text) for task, completion in pairs])
        except Exception:  # one by one tells which completion broke it
            return [judge_safely(verifier, task, completion.text) for task, completion in pairs]
    with ThreadPoolExecutor(JUDGE_THREADS) as threads:
        return list(threads.map(lambda pair: judge_safely(verifier, pair[0], pair[1].text), pairs))


def judge_safely(verifier: Verifier, task: Task, text: str) -> Verdict:
    """The verdict, or an unscored one that names the exception: a verifier's failure is never a reward."""
    try:
        return verifier.judge(task, text)
    except Exception as error:  # the process boundary of a verifier that we did not write
        return Verdict(
            status=Status.UNSCORED,
            reward=None,
            outcome=None,
            reason=f"verifier_raised {type(error).__name__}: {error}",
        )
