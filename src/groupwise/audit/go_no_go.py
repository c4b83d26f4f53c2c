"""Attacks a verifier before it pays anyone, and says go or no-go.

golds            every gold earns 1, or its task is dropped
null agents      what ignores the task earns no more than a stated share
attacks          texts made from the verifier's own grammar to be wrong are not paid
two processes    the same text gets the same verdict elsewhere, in another order
failures, time   how often the verifier cannot judge, and how long it takes
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from groupwise.audit.attack import Attack, AttackMaker
from groupwise.audit.checks import (
    Judged,
    agreement_finding,
    attack_findings,
    gold_findings,
    latency_finding,
    null_finding,
    unscored_finding,
)
from groupwise.audit.null_agents import NullAgent, null_agents
from groupwise.audit.report import AuditReport, Finding
from groupwise.errors import VerifierError
from groupwise.types import Task, Verdict
from groupwise.verifiers.contract import TaskVerifier
from groupwise.verifiers.judging import judge_safely

Rejudge = Callable[[Sequence[tuple[Task, str]]], Sequence[Verdict]]
"""Verdicts of another process on these (task, completion text) pairs, in their order."""
Progress = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """What is allowed and how much is tried; the names are those of config.AuditSection."""

    max_null_share: float = 0.05
    max_attack_share: float = 0.0
    max_unscored_share: float = 0.01
    tasks: int = 200
    """Tasks that null agents and attacks are tried on."""
    max_seconds: float | None = None
    """No further task is attacked after this time; None = all are."""
    rejudged_tasks: int = 8
    """Tasks whose judgements a second process repeats."""


def audit(
    verifier: TaskVerifier,
    tasks: Sequence[Task],
    *,
    attack: AttackMaker = lambda task, gold: [],
    answer_keys: Callable[[Task, str], str] | None = None,
    constants: Sequence[str] = (),
    rejudge: Rejudge | None = None,
    drop_unusable: bool = False,
    check_golds: bool = True,
    limits: AuditLimits = AuditLimits(),
    seed: int = 0,
    progress: Progress = lambda done, total, note="": None,
) -> AuditReport:
    """Attack a verifier with these tasks.

    Args:
        attack: makes wrong completions of one task from its gold; see attacks_<kind>.py.
        answer_keys: (task, gold) -> what makes two golds the same answer; None = their text.
        constants: null answers that are well-formed for this kind of verifier.
        rejudge: judges again in another process; None = that check is left out.
        drop_unusable: tasks with unusable golds are dropped, so that they are no reason to stop.
        check_golds: False where every gold was checked just before.

    Raises:
        VerifierError: there is no task to audit with.
    """
    if not tasks:
        raise VerifierError("audit: there is no task to attack the verifier with; name tasks in [data]")
    started = time.monotonic()
    unusable = verifier.check(tasks) if check_golds else []
    blocked = {u.task_id for u in unusable if u.blocking}
    golds = _golds(verifier, [task for task in tasks if task.id not in blocked])
    usable = [task for task in tasks if task.id not in blocked]
    proven = [task for task in usable if task.id in golds]
    chosen = _sample(usable, limits.tasks, seed)
    proofs = [_judge(verifier, t, golds[t.id]) for t in (proven if check_golds else chosen) if t.id in golds]
    findings = gold_findings(tasks if check_golds else chosen, unusable, proofs, dropped=drop_unusable)

    keys = None if answer_keys is None else {task.id: answer_keys(task, golds[task.id]) for task in proven}
    agents = null_agents(golds, keys, constants)
    nulls: dict[str, list[Judged]] = {agent.name: [] for agent in agents}
    attacks: list[tuple[Attack, Judged]] = []
    repeated: list[Judged] = []
    num_attacked = 0
    for task in chosen:
        if limits.max_seconds is not None and time.monotonic() - started > limits.max_seconds:
            break
        for agent in agents:
            nulls[agent.name].append(_judge(verifier, task, agent.answer(task)))
        mine = [(one, _judge(verifier, task, one.text)) for one in attack(task, golds.get(task.id, ""))]
        attacks += mine
        num_attacked += 1
        if num_attacked <= limits.rejudged_tasks:
            repeated += [judged for _, judged in mine]
            repeated += [one for one in proofs if one.task.id == task.id]
            repeated += [ones[-1] for ones in nulls.values()]
        progress(num_attacked, len(chosen))
    findings += _null_findings(agents, nulls, limits, len(usable))
    findings += _attack_findings(attacks, limits, len(usable))
    if rejudge is not None and repeated:
        reverse = repeated[::-1]
        findings.append(agreement_finding(reverse, rejudge([(one.task, one.text) for one in reverse])))
    everything = [*proofs, *(one for ones in nulls.values() for one in ones), *(one for _, one in attacks)]
    findings += [unscored_finding(everything, max_share=limits.max_unscored_share), latency_finding(everything)]
    return AuditReport(
        findings=tuple(findings),
        verifier_version=verifier.version,
        num_tasks=len(tasks),
        num_attacked=num_attacked,
        seconds=time.monotonic() - started,
    )


def _golds(verifier: TaskVerifier, tasks: Sequence[Task]) -> dict[str, str]:
    golds = {}
    for task in tasks:
        try:
            golds[task.id] = verifier.gold(task)
        except VerifierError:
            continue  # no right answer is known to a reward function: its task is attacked all the same
    return golds


def _sample(tasks: Sequence[Task], number: int, seed: int) -> list[Task]:
    if len(tasks) <= number:
        return list(tasks)
    return Random(seed).sample(list(tasks), number)


def _judge(verifier: TaskVerifier, task: Task, text: str) -> Judged:
    started = time.perf_counter()
    verdict = judge_safely(verifier, task, text)
    return Judged(task=task, text=text, verdict=verdict, seconds=time.perf_counter() - started)


def _attack_findings(attacks: Sequence[tuple[Attack, Judged]], limits: AuditLimits, num_tasks: int) -> list[Finding]:
    if not attacks:
        return []
    return attack_findings(attacks, max_share=limits.max_attack_share, num_tasks=num_tasks)


def _null_findings(
    agents: Sequence[NullAgent], judged: Mapping[str, Sequence[Judged]], limits: AuditLimits, num_tasks: int
) -> list[Finding]:
    """One line an agent that earns too much, and one for all others: what the best of them earns."""
    findings = [
        null_finding(agent, judged[agent.name], max_share=limits.max_null_share, num_tasks=num_tasks)
        for agent in agents
    ]
    good = [(finding, agent) for finding, agent in zip(findings, agents, strict=True) if finding.go]
    if not good:
        return findings

    def earned(agent: NullAgent) -> float:
        return sum(one.verdict.reward or 0.0 for one in judged[agent.name])

    best, agent = max(good, key=lambda pair: earned(pair[1]))
    found = f"the best of {len(good)}, {agent.name}, {best.found}"
    harmless = Finding(check="null agents", go=True, found=found, allowed=best.allowed)
    return [harmless, *(finding for finding in findings if not finding.go)]
