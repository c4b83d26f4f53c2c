"""Judgements to findings: pure functions, so that each limit can be tested by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.audit.attack import Attack, prompt_text
from groupwise.audit.null_agents import NullAgent
from groupwise.audit.report import Example, Finding
from groupwise.runs.intervals import wilson
from groupwise.types import Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold

FAIR_SHARE_MARGIN = 0.02
MANY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One completion with its verdict: Judged(task=task, text="SELECT 1", verdict=verdict, seconds=0.002)."""

    task: Task
    text: str
    verdict: Verdict
    seconds: float = 0.0


def smallest(judged: Iterable[Judged], whys: Mapping[int, str] | None = None) -> Example | None:
    """The one with the shortest prompt and completion, or None where there is none; whys[id(it)] says what is wrong."""
    ordered = sorted(judged, key=lambda j: (len(prompt_text(j.task)) + len(j.text), j.task.id))
    if not ordered:
        return None
    first = ordered[0]
    return Example(
        task_id=first.task.id,
        prompt=prompt_text(first.task),
        completion=first.text,
        reason=first.verdict.reason if whys is None else f"{whys[id(first)]}; judged: {first.verdict.reason}",
    )


def gold_findings(
    tasks: Sequence[Task], unusable: Sequence[UnusableGold], golds: Sequence[Judged], *, dropped: bool
) -> list[Finding]:
    """Every gold earns 1, or the recipe drops its task. A composition's check() has proved what its parts pay: there, a
    gold that is solved may earn less, from a part that is an opinion."""
    blocking = {u.task_id: u.reason for u in unusable if u.blocking}
    weak = {u.task_id: u.reason for u in unusable if not u.blocking}
    by_id = {task.id: task for task in tasks}
    short = [j for j in golds if j.verdict.reward != 1.0 and j.task.id not in blocking]
    failed = [j for j in short if not (j.verdict.parts and j.verdict.outcome)]
    found = f"{sum(j.verdict.reward == 1.0 for j in golds)} of {len(tasks)} golds earn 1"
    if opinions := len(short) - len(failed):
        found += f", {opinions} are solved and earn less for an opinion"
    if unknown := len(tasks) - len(golds) - len(blocking):
        found += f", {unknown} tasks have no known gold"
    if blocking:
        found += f", {len(blocking)} cannot be used" + (" (their tasks are dropped)" if dropped else "")
    example = smallest(failed) or _unusable_example(blocking, by_id)
    go = not failed and (dropped or not blocking) and len(blocking) < max(1, len(tasks))
    findings = [Finding(check="gold earns 1", go=go, found=found, allowed="all", example=None if go else example)]
    if weak:
        text = f"{len(weak)} of {len(tasks)} golds let a wrong answer pass more easily"
        findings.append(
            Finding(check="golds that say little", go=True, found=text, example=_unusable_example(weak, by_id))
        )
    return findings


def _unusable_example(reasons: Mapping[str, str], by_id: Mapping[str, Task]) -> Example | None:
    known = [by_id[task_id] for task_id in reasons if task_id in by_id]
    if not known:
        return None
    task = min(known, key=lambda t: (len(prompt_text(t)), t.id))
    return Example(task_id=task.id, prompt=prompt_text(task), completion="(the gold)", reason=reasons[task.id])


def null_finding(agent: NullAgent, judged: Sequence[Judged], *, max_share: float, num_tasks: int) -> Finding:
    """What an agent that ignores the task earns on average, against what it may.

    allowed = max_share, or the agent's fair share + 0.02 where that is more. Where only a sample of the tasks was
    judged, the lower end of the 95 % Wilson interval has to be above it: one lucky hit of twenty proves nothing.
    """
    earned = [j.verdict.reward or 0.0 for j in judged]
    share = sum(earned) / len(earned) if earned else 0.0
    allowed = max(max_share, agent.fair_share + FAIR_SHARE_MARGIN) if agent.fair_share else max_share
    sure = share if len(judged) >= num_tasks else wilson(sum(earned), len(earned)).low
    go = sure <= allowed
    found = f"earns {share:.1%} on {len(judged)} tasks"
    if agent.fair_share > MANY:
        found += f"; {agent.fair_share:.0%} of the golds are this one answer: there is little to learn"
    paid = [j for j in judged if j.verdict.reward]
    return Finding(
        check=f"null agent: {agent.name}",
        go=go,
        found=found,
        allowed=f"{allowed:.1%}",
        example=None if go else smallest(paid),
    )


def attack_findings(judged: Sequence[tuple[Attack, Judged]], *, max_share: float, num_tasks: int) -> list[Finding]:
    """One finding for all attacks together, one for each that was paid, one for those that may happen to be right.

    Where only a sample of the tasks was attacked, the lower end of the 95 % Wilson interval of the share has to be
    above max_share; with max_share = 0 every hit is.
    """
    by_name: dict[str, list[tuple[Attack, Judged]]] = {}
    for attack, one in judged:
        by_name.setdefault(attack.name, []).append((attack, one))
    tasks = {one.task.id for _, one in judged}
    findings: list[Finding] = []
    lucky: list[Judged] = []
    paid_tasks: set[str] = set()
    for name, ones in sorted(by_name.items()):
        paid = [(a, one) for a, one in ones if one.verdict.outcome is True]
        certain = [(a, one) for a, one in paid if not a.may_pass]
        lucky += [one for a, one in paid if a.may_pass]
        if not certain:
            continue
        paid_tasks |= {one.task.id for _, one in certain}
        tried = {one.task.id for _, one in ones}
        hit = {one.task.id for _, one in certain}
        example = smallest((one for _, one in certain), {id(one): a.why for a, one in certain})
        findings.append(
            Finding(
                check=f"attack: {name}",
                go=True,
                found=f"paid on {len(hit)} of {len(tried)} tasks",
                example=example,
            )
        )
    share = len(paid_tasks) / len(tasks) if tasks else 0.0
    total = Finding(
        check="attacks",
        go=(share if len(tasks) >= num_tasks else wilson(len(paid_tasks), len(tasks)).low) <= max_share,
        found=f"{len(judged)} texts of {len(by_name)} kinds; some were paid on {len(paid_tasks)} of {len(tasks)} tasks",
        allowed=f"{max_share:.1%}",
    )
    findings = [Finding(check=f.check, go=total.go, found=f.found, example=f.example) for f in findings]
    if lucky:
        num = len({one.task.id for one in lucky})
        text = f"{len(lucky)} texts on {num} tasks were paid; they may be right there"
        findings.append(Finding(check="near misses", go=True, found=text, example=smallest(lucky)))
    return [total, *findings]


def agreement_finding(first: Sequence[Judged], second: Sequence[Verdict]) -> Finding:
    """The same texts, judged again by another process in the opposite order; compared without the reason's details."""
    differing = [
        (one, other) for one, other in zip(first, second, strict=True) if _decision(one.verdict) != _decision(other)
    ]
    example = None
    if differing:
        one, other = min(differing, key=lambda pair: len(prompt_text(pair[0].task)) + len(pair[0].text))
        reason = f"first: {one.verdict.reward} {one.verdict.reason}; then: {other.reward} {other.reason}"
        example = Example(task_id=one.task.id, prompt=prompt_text(one.task), completion=one.text, reason=reason)
    return Finding(
        check="two processes agree",
        go=not differing,
        found=f"{len(differing)} of {len(first)} verdicts differ",
        allowed="0",
        example=example,
    )


def _decision(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.status, verdict.reward, verdict.outcome, verdict.reason.split(" ")[0].rstrip(":"))


def unscored_finding(judged: Sequence[Judged], *, max_share: float) -> Finding:
    """How often the verifier could not judge."""
    unscored = [j for j in judged if j.verdict.status is Status.UNSCORED]
    share = len(unscored) / len(judged) if judged else 0.0
    return Finding(
        check="verifier failures",
        go=share <= max_share,
        found=f"{len(unscored)} of {len(judged)} judgements unscored",
        allowed=f"{max_share:.1%}",
        example=smallest(unscored),
    )


def latency_finding(judged: Sequence[Judged]) -> Finding:
    """Time of a judgement: the middle one and the 99th of a hundred. Never a no-go: the machine may be busy."""
    times = sorted(j.seconds for j in judged)
    if not times:
        return Finding(check="latency", go=True, found="nothing judged")
    p50, p99 = (times[min(len(times) - 1, int(share * len(times)))] * 1000.0 for share in (0.5, 0.99))
    return Finding(check="latency", go=True, found=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms over {len(times)} judgements")


def labelled_findings(judged: Sequence[tuple[Judged, bool]], *, max_share: float) -> list[Finding]:
    """False positives and false negatives against a person's labels, with 95 % Wilson intervals.

    A judgement that the verifier could not make counts in neither rate. A false positive is what a policy moves
    toward, so its rate has the limit of the attacks; the other rate is told.
    """
    scored = [(one, right) for one, right in judged if one.verdict.outcome is not None]
    wrong_paid = [one for one, right in scored if not right and one.verdict.outcome]
    right_refused = [one for one, right in scored if right and not one.verdict.outcome]
    num_right = sum(right for _, right in scored)
    num_wrong = len(scored) - num_right
    go = not num_wrong or len(wrong_paid) / num_wrong <= max_share
    return [
        Finding(
            check="false positives",
            go=go,
            found=_rate(len(wrong_paid), num_wrong, "wrong"),
            allowed=f"{max_share:.1%}",
            example=smallest(wrong_paid),
        ),
        Finding(
            check="false negatives",
            go=True,
            found=_rate(len(right_refused), num_right, "right"),
            example=smallest(right_refused),
        ),
    ]


def _rate(count: int, total: int, word: str) -> str:
    interval = wilson(count, total)
    share = f"{count / total:.1%}" if total else "unknown"
    return f"{share} [{interval.low:.1%}, {interval.high:.1%}], {count} of {total} {word} completions"
