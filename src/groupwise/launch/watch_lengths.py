"""Watches the length of right and wrong answers on held-out prompts: the event "length", and alarms.

It reads earlier evaluations, training rewards and rollouts back from the run folder, so that a restarted run has them,
too. Where they cannot be read there is no alarm: watching never stops training.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.stage import SftSection, StageSection
from groupwise.runs import RunRecord, read_run
from groupwise.runs.evaluation_record import EVALUATED
from groupwise.runs.monitors.length_alarms import EvaluatedLengths, LengthAlarm, evaluated_lengths, length_alarms
from groupwise.runs.monitors.lengths import (
    NORMALIZATIONS,
    LengthSample,
    gradient_shares,
    length_correlation,
    matched_lengths,
    samples_of_groups,
    samples_of_rollouts,
)
from groupwise.runs.record import EVALUATION, GREEDY
from groupwise.training import Evaluation

if TYPE_CHECKING:
    from groupwise.launch.run_state import Run

LENGTH = "length"
"""The event that this module writes."""
GRADIENT_STEPS = 8
"""Recorded steps whose pushes are averaged: enough groups for a share, and milliseconds to read."""
_UNREADABLE = (OSError, ValueError, KeyError, TypeError)
"""What reading a damaged run folder can raise; DataError is a ValueError."""


def watch_lengths(run: Run, name: str, evaluation: Evaluation) -> None:
    """Called after every held-out evaluation of a run; name is that of the evaluation.

    A kind of alarm is shown once a stage; every event has its own.
    """
    samples = samples_of_groups(evaluation.groups or evaluation.greedy_groups)
    stage = next((s for s in run.recipe.stages if _belongs(name, s.name)), None)
    past: dict[str, Any] = {}
    alarms: tuple[LengthAlarm, ...] = ()
    told: set[str] = set()
    try:
        record = read_run(run.directory.path)
        if stage is not None:
            past = _gradient(record, stage)
            reference = _reference(record, stage.name)
            if reference is not None and _is_paid_or_preferred(stage):
                past["reference"] = reference.name
                alarms = length_alarms([reference, evaluated_lengths(name, samples)], _paid(record, stage))
            told = _told(record, stage.name)
    except _UNREADABLE as error:
        past["unreadable"] = f"{type(error).__name__}: {error}"
    run.recorder.event(
        LENGTH,
        {
            "name": name,
            "policy_version": run.policy_version,
            **_lengths(samples),
            **past,
            "alarm": " ".join(alarm.sentence for alarm in alarms),
            "alarm_kinds": [alarm.kind for alarm in alarms],
        },
    )
    for alarm in alarms:
        if alarm.kind not in told:
            run.display.warning(alarm.sentence)


def _lengths(samples: Sequence[LengthSample]) -> dict[str, Any]:
    found = matched_lengths(samples)
    return {
        "num_matched_prompts": found.num_matched_prompts,
        "right_tokens": found.right_tokens,
        "wrong_tokens": found.wrong_tokens,
        "difference": found.difference,
        "interval": None if found.interval is None else [found.interval.low, found.interval.high],
        "num_right": found.num_right,
        "num_wrong": found.num_wrong,
        "num_unscored": found.num_unscored,
        "num_completions": found.num_completions,
        "truncated_right_frac": found.truncated_right_frac,
        "truncated_wrong_frac": found.truncated_wrong_frac,
        "mean_tokens": found.mean_tokens,
        "correlation": length_correlation(samples),
    }


def _gradient(record: RunRecord, stage: StageSection) -> dict[str, Any]:
    """Means over the last recorded steps in which anything was pushed; only for advantages that whole answers share."""
    if not isinstance(stage.algorithm, GrpoSection):
        return {}
    steps = [step for name, step in record.recorded() if name == stage.name][-GRADIENT_STEPS:]
    shares = [gradient_shares(samples_of_rollouts(record.rollouts(stage.name, step))) for step in steps]
    pushed = [by_name for by_name in shares if by_name[0].long_wrong is not None]
    return {
        "normalize": stage.algorithm.normalize,
        "long_wrong_share": {n: fmean(s[i].long_wrong or 0.0 for s in pushed) for i, n in _numbered(pushed)},
        "no_right_share": {n: fmean(s[i].no_right_answer or 0.0 for s in pushed) for i, n in _numbered(pushed)},
        "num_long_wrong": sum(s[0].num_long_wrong for s in pushed),
        "num_pushed": sum(s[0].num_completions for s in pushed),
        "num_gradient_steps": len(pushed),
    }


def _numbered(pushed: Sequence[Any]) -> list[tuple[int, str]]:
    return list(enumerate(NORMALIZATIONS)) if pushed else []


def _reference(record: RunRecord, stage_name: str) -> EvaluatedLengths | None:
    """The evaluation before the stage, or where nothing was measured then the first one inside it."""
    events = record.events_named(EVALUATED)[:-1]  # the last one is what is being judged
    before = [event for event in events if not _belongs(str(event.get("name")), stage_name)]
    chosen = before[-1] if before else (events[0] if events else None)
    if chosen is None:
        return None
    stage, version = EVALUATION + str(chosen["name"]).replace(" ", "-"), int(chosen["policy_version"])
    rows = record.rollouts(stage, version) or record.rollouts(stage + GREEDY, version)
    return evaluated_lengths(str(chosen["name"]), samples_of_rollouts(rows)) if rows else None


def _paid(record: RunRecord, stage: StageSection) -> list[float]:
    """Mean rewards of the stage's steps; none where its steps have no reward."""
    rewards = [row.get("reward_mean") for row in record.steps(stage.name)]
    return [float(reward) for reward in rewards if reward is not None]


def _told(record: RunRecord, stage_name: str) -> set[str]:
    """The kinds of alarm that this stage has shown."""
    events = [event for event in record.events_named(LENGTH) if _belongs(str(event.get("name")), stage_name)]
    return {kind for event in events for kind in event.get("alarm_kinds", ())}


def _belongs(name: str, stage_name: str) -> bool:
    """Evaluations of a stage are named after it: grpo, and inside it grpo step 20."""
    return name == stage_name or name.startswith(f"{stage_name} step ")


def _is_paid_or_preferred(stage: StageSection) -> bool:
    """Demonstrations set the length of what they teach, so that it is no alarm there."""
    return not isinstance(stage.algorithm, SftSection | RewardModelSection)
