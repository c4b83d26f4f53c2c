"""The grader that training never sees: its golds are proved before training, and it judges held-out completions again.

It is built for one evaluation and closed after it, so that it holds no process and no memory while the policy trains.
What it cannot judge, or not in time, is unscored: it is counted, and no part of any gap.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from groupwise.config import ComposeVerifierSection, Recipe, VerifierSection
from groupwise.config.verifier_function import FunctionVerifierSection
from groupwise.config.verifier_reward_model import RewardModelVerifierSection
from groupwise.errors import GroupwiseError, VerifierError
from groupwise.launch.verifiers import verifier_of
from groupwise.types import GroupVerifier, Status, Task, Verdict, Verifier
from groupwise.verifiers.judging import JUDGE_THREADS, judge_safely

UNSCORED_WORD = "held_back_unscored"


def refuse_unusable_held_back(recipe: Recipe, heldout: Sequence[Task]) -> None:
    """Proves the golds of the held-out tasks to the held-back grader, before a model is loaded.

    With unusable_gold = "drop" the tasks that fail are refused too where none is left; else they are left out of every
    gap (`unusable`).

    Raises:
        VerifierError: the grader cannot be built, or does not pay a gold.
    """
    section = recipe.monitor.held_back
    if section is None:
        return
    num = recipe.evaluation.num_prompts or len(heldout)
    tasks = heldout[:num]
    reasons = unusable(section, recipe, tasks)
    if not reasons or (section.unusable_gold == "drop" and len(reasons) < len(tasks)):
        return
    shown = "\n".join(f"  {task_id}: {reason}" for task_id, reason in list(reasons.items())[:5])
    raise VerifierError(
        f"monitor.held_back does not pay {len(reasons)} of {len(tasks)} held-out golds, so it would call right answers "
        f"wrong:\n{shown}\n"
        '  Mend its settings or these golds, or set monitor.held_back.unusable_gold = "drop" to leave such tasks out '
        "of the comparison."
    )


def unusable(section: VerifierSection, recipe: Recipe, tasks: Sequence[Task]) -> dict[str, str]:
    """Why the held-back grader cannot judge these tasks, by task id; a weakness is no reason.

    Raises:
        GroupwiseError: it cannot be built.
    """
    verifier = verifier_of(section, recipe.folder)
    try:
        return {problem.task_id: problem.reason for problem in verifier.check(tasks) if problem.blocking}
    finally:
        verifier.close()


def proves_golds(section: VerifierSection) -> bool:
    """True where the grader is known to pay right answers, because it has paid their golds; an opinion is not."""
    if isinstance(section, ComposeVerifierSection):
        return all(proves_golds(part.verifier) for part in section.parts if part.role != "shaping")
    if isinstance(section, FunctionVerifierSection | RewardModelVerifierSection):
        return section.gold_column is not None
    return True


def judge_again(recipe: Recipe, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
    """The held-back grader's verdicts in the order of the (task, text) pairs, within monitor.time_limit_s.

    Nothing raises: a grader that cannot be built, fails or is late gives unscored verdicts that say so.
    """
    section, limit_s = recipe.monitor.held_back, recipe.monitor.time_limit_s
    assert section is not None, "there is a held-back grader"
    deadline = time.monotonic() + limit_s
    try:
        verifier = verifier_of(section, recipe.folder)
    except (GroupwiseError, OSError, ValueError, RuntimeError) as error:
        return [_unscored(f"it cannot be built: {error}")] * len(pairs)
    try:
        return judge_in_time(verifier, pairs, deadline)
    finally:
        verifier.close()


def judge_in_time(verifier: Verifier, pairs: Sequence[tuple[Task, str]], deadline: float) -> list[Verdict]:
    """Verdicts in the order of the pairs; those that are not there at the deadline (time.monotonic()) are unscored.

    The threads are daemons: one that hangs in somebody's code cannot keep the process from ending.
    """
    verdicts: list[Verdict | None] = [None] * len(pairs)
    work: queue.SimpleQueue[Sequence[int]] = queue.SimpleQueue()
    for places in _portions(verifier, pairs):
        work.put(places)

    def judge() -> None:
        while time.monotonic() < deadline:
            try:
                places = work.get_nowait()
            except queue.Empty:
                return
            for place, verdict in zip(places, _judged(verifier, [pairs[p] for p in places]), strict=True):
                verdicts[place] = verdict

    num_threads = 1 if isinstance(verifier, GroupVerifier) else JUDGE_THREADS
    threads = [threading.Thread(target=judge, daemon=True) for _ in range(min(num_threads, len(pairs)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = _unscored("not judged within monitor.time_limit_s")
    return [late if verdict is None else verdict for verdict in list(verdicts)]


def _portions(verifier: Verifier, pairs: Sequence[tuple[Task, str]]) -> list[list[int]]:
    """One pair at a time; for a grader of groups, the pairs of one task together."""
    if not isinstance(verifier, GroupVerifier):
        return [[place] for place in range(len(pairs))]
    by_task: dict[str, list[int]] = {}
    for place, (task, _) in enumerate(pairs):
        by_task.setdefault(task.id, []).append(place)
    return list(by_task.values())


def _judged(verifier: Verifier, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
    if isinstance(verifier, GroupVerifier):
        try:
            return verifier.judge_many(pairs)
        except Exception:  # the process boundary of a grader; one by one tells which completion broke it
            pass
    return [judge_safely(verifier, *pair) for pair in pairs]


def _unscored(why: str) -> Verdict:
    return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=f"{UNSCORED_WORD}: {why}")
