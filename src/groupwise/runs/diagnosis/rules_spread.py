"""Rules about what a stage had to learn from: groups without spread, prompts that ran out or are too few, verdicts that
are missing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from groupwise.runs.diagnosis.finding import Finding, change_of, percent, shown, verifier_change
from groupwise.runs.diagnosis.rows import (
    FROM_ROLLOUTS,
    StageRows,
    last_rollouts,
    lookup,
    one_answer,
    pass_rate,
    share,
    stage_rows,
    total,
)
from groupwise.runs.intervals import wilson
from groupwise.runs.record import RunRecord

FEW_LIVE = 0.2
"""Under one live group in five, surely: a step of 8 prompts has 1 or 2 that teach. Healthy runs have a third and more,
and come down to a fifth at their very end."""
ONE_KIND = 0.8
"""Share of the dead groups from which they are called by their kind."""
LARGEST_ADVISED = 64
"""Group sizes beyond it cost more than easier prompts do."""
WANTED_LIVE = 0.5
"""The advised group size makes at least this share of the groups live, were all prompts alike."""
MANY_UNSCORED = 0.03
"""Share of answers without a verdict, surely exceeded. A verifier that works fails never; from here on the failures are
no accident, and they are a choice among the answers."""
MANY_VISITS = 50
"""Groups of each prompt in one stage. R1-Zero saw each 1.6 times; small sets are learned by heart long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dead:
    """Groups of a stage by what became of them."""

    groups: float
    none: float
    all: float
    live: float
    rate: float
    """Pass rate over the judged groups."""
    rollouts: float
    group_size: int


def no_spread_never_solved(record: RunRecord) -> Finding | None:
    """Nearly every group has no right answer."""
    for stage, dead in _stages_without_spread(record):
        if dead.none < ONE_KIND * (dead.none + dead.all):
            continue
        # nothing right in n answers: at most 3 / n of them are, at 95 %
        rate = max(dead.rate, 0.0)
        bound = rate if rate > 0 else 3 / max(dead.rollouts, 1)
        chance = 1 - (1 - bound) ** dead.group_size
        at_most = "" if rate > 0 else "at most "
        better = _size_for(bound, dead.group_size) if rate > 0 else None
        if better is not None:
            change = change_of("rollout.group_size", dead.group_size, better)
        else:
            change = change_of(
                "data.train", lookup(record.recipe, "data.train"), "easier tasks (or an sft stage before this one)"
            )
        return Finding(
            name="no_spread_never_solved",
            severity="problem",
            title="Nearly no group has a right answer: there is nothing to learn from.",
            evidence=f"{dead.none:.0f} of {dead.groups:.0f} groups had no right answer and {dead.live:.0f} had both "
            f"kinds; the pass rate is {at_most}{percent(bound)}, with which a group of {dead.group_size} has a right "
            f"answer in {at_most}{percent(chance)} of cases.{_reason(record, stage.name)}",
            change=change,
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def no_spread_always_solved(record: RunRecord) -> Finding | None:
    """Nearly every group has right answers only."""
    for stage, dead in _stages_without_spread(record):
        if dead.all < ONE_KIND * (dead.none + dead.all):
            continue
        chance = 1 - dead.rate**dead.group_size
        better = _size_for(1 - dead.rate, dead.group_size) if dead.rate < 1 else None
        curated = lookup(record.recipe, "curation.enabled")
        if curated is False:
            change = change_of("curation.enabled", False, True)
        elif better is not None:
            change = change_of("rollout.group_size", dead.group_size, better)
        else:
            change = change_of("data.train", lookup(record.recipe, "data.train"), "harder tasks")
        return Finding(
            name="no_spread_always_solved",
            severity="problem",
            title="Nearly every group has right answers only: the tasks are too easy, or the verifier pays anything.",
            evidence=f"{dead.all:.0f} of {dead.groups:.0f} groups had only right answers and {dead.live:.0f} had both "
            f"kinds; at a pass rate of {percent(dead.rate)} a group of {dead.group_size} has a wrong answer in "
            f"{percent(chance)} of cases. `groupwise audit` tells whether wrong answers are paid.",
            change=change,
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def no_spread_mixed(record: RunRecord) -> Finding | None:
    """Groups are all right or all wrong, of both kinds: prompts of middle difficulty are missing."""
    for stage, dead in _stages_without_spread(record):
        if max(dead.none, dead.all) >= ONE_KIND * (dead.none + dead.all):
            continue
        rounds = lookup(record.recipe, "rollout.extra_rounds")
        if lookup(record.recipe, "curation.enabled") is False:
            change = change_of("curation.enabled", False, True)
        elif not rounds:
            change = change_of("rollout.extra_rounds", rounds, 2)
        else:
            change = change_of("rollout.group_size", dead.group_size, min(256, 2 * dead.group_size))
        return Finding(
            name="no_spread_mixed",
            severity="problem",
            title="Nearly no group has both right and wrong answers: prompts are too hard or too easy.",
            evidence=f"of {dead.groups:.0f} groups {dead.none:.0f} had no right answer, {dead.all:.0f} only right "
            f"ones, and {dead.live:.0f} both.",
            change=change,
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def unscored_flood(record: RunRecord) -> Finding | None:
    """The verifier itself fails, again and again."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        missing = share(stage.collections, "unscored_frac")
        if missing is None or wilson(min(missing.count, missing.of), missing.of).low <= MANY_UNSCORED:
            continue
        seen = [r for c in last_rollouts(record, stage.name, 3) for r in c if r.status == "unscored"]
        return _flood(record, stage.name, stage.last_step, str(missing), missing.value, seen[0].reason if seen else "")
    for event in record.events_named("failed"):
        if event.get("error") == "VerifierError" and "could not judge" in str(event.get("message")):
            counted = re.search(r"could not judge (\d+ of \d+ completions)", str(event["message"]))
            reason = str(event["message"]).partition("First reason: ")[2].partition("\n")[0]
            said = counted[1] if counted else "too many completions"
            return _flood(record, str(event.get("stage") or ""), None, said, None, reason)
    return None


def _flood(record: RunRecord, stage: str, step: int | None, said: str, value: float | None, reason: str) -> Finding:
    limit = lookup(record.recipe, "verifier.time_limit_s")
    is_slow = re.search(r"time[ _]?out|timed out|time[ _]limit", reason.lower()) is not None
    return Finding(
        name="unscored_flood",
        severity="problem",
        title="The verifier fails: many answers have no verdict.",
        evidence=f"{said} could not be judged"
        + ("" if value is None else f" ({percent(value)})")
        + (f"; one reason: {reason if len(reason) <= 200 else reason[:200].rstrip() + ' ...'}" if reason else "")
        + ". They are out of the baseline, so what is left is a choice among the answers.",
        change=change_of("verifier.time_limit_s", limit, 2 * limit)
        if is_slow and limit is not None
        else verifier_change(record.recipe, "mended for this reason"),
        stage=stage,
        step=step,
    )


def few_prompts(record: RunRecord) -> Finding | None:
    """A step asks for more prompts than there are, or the stage sees each of them again and again."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        kept = [e.get("kept") for e in record.events_named("curated") if e.get("stage") == stage.name]
        available = kept[-1] if kept else lookup(record.environment, "num_tasks.train")
        wanted = lookup(record.recipe, "rollout.prompts_per_step")
        if not isinstance(available, int) or not isinstance(wanted, int) or available < 1:
            continue
        visits = total(stage.collections, "num_groups") / available
        if available >= wanted and visits <= MANY_VISITS:
            continue
        too_few = available < wanted
        return Finding(
            name="few_prompts",
            severity="warning",
            title="There are fewer prompts than a step samples." if too_few else "The prompts are repeated very often.",
            evidence=f"{available} training prompts, {wanted} a step: each was sampled {visits:.1f} times in "
            f"{len(stage.collections)} collections.",
            change=change_of("rollout.prompts_per_step", wanted, available)
            if too_few
            else change_of("data.train", lookup(record.recipe, "data.train"), "more tasks"),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def ran_out_of_prompts(record: RunRecord) -> Finding | None:
    """The stage ended early because nothing was left to learn from."""
    for event in record.events:
        if event.get("event") not in ("no_signal", "nothing_left"):
            continue
        limit = lookup(record.recipe, "curation.max_empty_steps")
        table = next((t for t in record.stages if t.get("name") == event.get("stage")), {})
        left = event["event"] == "nothing_left"
        return Finding(
            name="ran_out_of_prompts",
            severity="problem",
            title="The stage ended early: no prompt was left that could teach anything.",
            evidence=f"ended before step {shown(event.get('step'))} of {shown(table.get('steps'))}: "
            + " ".join(str(event.get("diagnosis", "")).split())[:400]
            + _reason(record, str(event.get("stage", ""))),
            change=change_of("data.train", lookup(record.recipe, "data.train"), "more tasks of middle difficulty")
            if left
            else change_of("curation.max_empty_steps", limit, None if limit is None else 2 * limit),
            stage=str(event.get("stage", "")),
            step=None,
        )
    return None


def _stages_without_spread(record: RunRecord) -> list[tuple[StageRows, _Dead]]:
    found = []
    for stage in stage_rows(record, "grpo"):  # PPO learns from single answers: it needs no spread
        rows = stage.collections
        groups, live = total(rows, "num_groups"), total(rows, "live_groups")
        none, full = total(rows, "dead_groups_none_solved"), total(rows, "dead_groups_all_solved")
        rate = pass_rate(rows)
        if not groups or rate is None or not none + full or wilson(min(live, groups), groups).high >= FEW_LIVE:
            continue
        rollouts = total(rows, "num_rollouts")
        dead = _Dead(
            groups=groups,
            none=none,
            all=full,
            live=live,
            rate=rate.value,
            rollouts=rollouts,
            group_size=max(1, round(rollouts / groups)),
        )
        found.append((stage, dead))
    return found


def _size_for(rate: float, now: int) -> int | None:
    """The smallest power of 2 above `now` with which 1 - (1 - rate)^G reaches WANTED_LIVE; None if that is too many."""
    size = 2
    while size <= LARGEST_ADVISED:
        if size > now and 1 - (1 - rate) ** size >= WANTED_LIVE:
            return size
        size *= 2
    return None


def _reason(record: RunRecord, stage: str) -> str:
    """One verdict, so that a right answer which is not paid can be seen."""
    wrong = [r for c in last_rollouts(record, stage) for r in c if r.status != "unscored" and not r.outcome]
    if not wrong:
        return ""
    return f" A wrong answer: {one_answer(wrong[0])}."
