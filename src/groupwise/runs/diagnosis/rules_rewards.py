"""Rules about rewards that are not what they seem: earned by a trick, by length, or on the training prompts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from groupwise.runs.comparison.paired import paired_difference
from groupwise.runs.diagnosis.finding import Finding, change_of, percent, verifier_change
from groupwise.runs.diagnosis.rows import FROM_ROLLOUTS, StageRows, lookup, pass_rate, stage_rows, total
from groupwise.runs.record import RunRecord
from groupwise.runs.stage_log import BASE

CLEAR_RISE = 0.2
"""Rise of the training pass rate that ought to show on held-out prompts."""
NUM_ERRORS = 3.0
"""Standard errors that this rise must exceed."""
SMALL_GAIN = 0.02
"""A held-out gain up to here is none."""
CONFIDENCE = 0.995
"""Of the interval that must lie below 0 for a fall, sampled or greedy: at most one healthy stage in 200 looks so."""
MANY_VISITS = 10
"""Groups of each training prompt, from which a held-out fall is blamed on prompts that are too few."""
PASSED_ON = 0.5
"""Share of the training rise; the held-out interval must end below it, or the held-out set is too small to tell."""


def reward_hacking(record: RunRecord) -> Finding | None:
    """The monitor's own alarm: the newest says most, the oldest says where it began."""
    alarms = [event for event in _last_by_stage(record, "hacking") if event.get("alarm")]
    for event in alarms[-1:]:
        parts = [str(event["alarm"]).rstrip("."), f"measured on {event.get('num_prompts')} held-out prompts"]
        hits = {name: n for name, n in (event.get("attack_hits") or {}).items() if n}
        if hits:
            found = ", ".join(f"{name} {n} times" for name, n in hits.items())
            parts.append(f"attacks found in {event.get('num_completions')} completions: {found}")
        return Finding(
            name="reward_hacking",
            severity="problem",
            title="Rewards are earned without solving the task.",
            evidence="; ".join(parts) + ".",
            change=verifier_change(record.recipe, "stricter, until `groupwise audit` pays for none of these"),
            stage=_stage_of(record, str(alarms[0].get("name", ""))),
        )
    return None


def length_runaway(record: RunRecord) -> Finding | None:
    """The length monitor's own alarm, the last one of every stage."""
    for event in _last_by_stage(record, "length"):
        if not event.get("alarm"):
            continue
        name = _stage_of(record, str(event.get("name", "")))
        table = next((t for t in record.stages if t.get("name") == name), {})
        now = lookup(table, "algorithm.normalize")
        limit = lookup(record.recipe, "rollout.max_completion_tokens")
        return Finding(
            name="length_runaway",
            severity="warning",
            title="The length of the answers runs away.",
            evidence=f"{str(event['alarm']).rstrip('.')}; right answers have {_tokens(event, 'right_tokens')} and "
            f"wrong ones {_tokens(event, 'wrong_tokens')} on {event.get('num_matched_prompts')} held-out prompts.",
            # the mean over each completion's own tokens pushes a long wrong answer less per token
            change=change_of("algorithm.normalize", now, "constant", stage=name)
            if now == "sequence"
            else change_of("rollout.max_completion_tokens", limit, None if limit is None else limit // 2),
            stage=name,
        )
    return None


def reward_up_heldout_flat(record: RunRecord) -> Finding | None:
    """The training pass rate rises clearly, and the held-out one surely not as far."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        rise, heldout = _rise(stage), _heldout(record, stage.name)
        if rise is None or heldout is None:
            continue
        (before, _, _), (after, high, num_prompts) = heldout
        if after > before + SMALL_GAIN or high >= before + PASSED_ON * rise:
            continue
        steps = stage.setting("steps")
        return Finding(
            name="reward_up_heldout_flat",
            severity="problem",
            title="The reward rises on the training prompts alone: they are learned by heart, or the reward is gamed.",
            evidence=f"the training pass rate rose by {percent(rise)}; held out it went from {percent(before)} to "
            f"{percent(after)} (at most {percent(high)} at 95 %) on {num_prompts} prompts.",
            change=change_of("steps", steps, None if steps is None else max(1, steps // 2), stage=stage.name)
            if lookup(record.recipe, "data.train") is None
            else change_of("data.train", lookup(record.recipe, "data.train"), "more, and more different, tasks"),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def heldout_worse(record: RunRecord) -> Finding | None:
    """A stage leaves the held-out prompts surely worse solved than it found them."""
    measured = {str(event.get("name")): event for event in record.events_named("evaluation")}
    before = measured.get(BASE)
    for table in record.stages:
        name, after = str(table.get("name")), measured.get(str(table.get("name")))
        if after is None or lookup(table, "algorithm.name") == "reward_model":  # it leaves the policy as it was
            continue
        said = "" if before is None else _fall(before, after)
        before = after
        if not said:
            continue
        lr, visits = lookup(table, "optim.lr"), _visits(record, name)
        return Finding(
            name="heldout_worse",
            severity="problem",
            title="The stage made the model worse on held-out prompts.",
            evidence=said + (f" Each training prompt was sampled {visits:.0f} times." if visits >= MANY_VISITS else ""),
            change=change_of("data.train", lookup(record.recipe, "data.train"), "more tasks")
            if visits >= MANY_VISITS
            else change_of("optim.lr", lr, None if lr is None else lr / 3, stage=name),
            stage=name,
        )
    return None


def _visits(record: RunRecord, name: str) -> float:
    """Groups of each training prompt in a stage; 0 where that is unknown."""
    groups = sum(
        total(stage.collections, "num_groups") for stage in stage_rows(record, *FROM_ROLLOUTS) if stage.name == name
    )
    return groups / (lookup(record.environment, "num_tasks.train") or math.inf)


def _fall(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """A sentence on the pass rate that surely fell on the prompts of both, sampled or greedy; else empty."""
    for words, prefix in (("sampled", ""), ("greedy", "greedy_")):
        first, second = _rates(before, prefix), _rates(after, prefix)
        both = sorted(first.keys() & second.keys())
        if not both:
            continue
        found = paired_difference({p: first[p] for p in both}, {p: second[p] for p in both}, CONFIDENCE)
        if found.interval.high < 0:
            was, now = (percent(sum(rates[p] for p in both) / len(both)) for rates in (first, second))
            return (
                f"the held-out pass rate ({words}) went from {was} to {now}: {100 * found.difference:+.1f} points "
                f"[{100 * found.interval.low:.1f}, {100 * found.interval.high:.1f}] at {100 * CONFIDENCE:g} % on the "
                f"same {len(both)} prompts."
            )
    return ""


def _rates(event: Mapping[str, Any], prefix: str) -> dict[str, float]:
    scored = event.get(f"{prefix}scored") or {}
    return {task: n / scored[task] for task, n in (event.get(f"{prefix}solved") or {}).items() if scored.get(task)}


def _rise(stage: StageRows) -> float | None:
    """Of the training pass rate from the first to the last quarter; None where it is small or may be chance."""
    width = len(stage.collections) // 4
    if width < 1:
        return None
    first, last = pass_rate(stage.collections[:width]), pass_rate(stage.collections[-width:])
    if first is None or last is None:
        return None
    rise = last.value - first.value
    error = math.sqrt(first.error**2 + last.error**2)
    return rise if rise > max(CLEAR_RISE, NUM_ERRORS * error) else None


def _heldout(record: RunRecord, stage: str) -> tuple[tuple[float, float, int], tuple[float, float, int]] | None:
    """(pass rate, upper end of its interval, prompts) before the stage and after it; None where one is missing."""
    if record.summary is None:
        return None
    stages = record.summary.stages
    places = [i for i, s in enumerate(stages) if s.name == stage and i > 0]
    if not places:
        return None
    before, after = stages[places[-1] - 1], stages[places[-1]]
    return (
        (before.pass_rate, before.interval.high, before.num_prompts),
        (after.pass_rate, after.interval.high, after.num_prompts),
    )


def _last_by_stage(record: RunRecord, name: str) -> list[Mapping[str, Any]]:
    last: dict[str, Mapping[str, Any]] = {}
    for event in record.events_named(name):
        last[_stage_of(record, str(event.get("name", "")))] = event
    return list(last.values())


def _stage_of(record: RunRecord, evaluation: str) -> str:
    """The stage of an evaluation: its name, or NAME step N."""
    names = [str(table.get("name")) for table in record.stages]
    return next((n for n in names if evaluation == n or evaluation.startswith(f"{n} step ")), "")


def _tokens(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return f"{value:.1f} tokens" if isinstance(value, int | float) else "an unknown number of tokens"
