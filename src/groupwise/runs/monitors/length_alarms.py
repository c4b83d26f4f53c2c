"""When a change of length means something: alarms over the held-out evaluations of one stage.

Length alone is no alarm. Answers may grow because longer ones are right more often, or shrink because the model learns
to stop. It is one where the reward says so, too:

    kind                 length                                            and
    -------------------  ------------------------------------------------  ------------------------------------------
    longer_not_better    answers 1.5 times as long                         the held-out pass rate does not rise
    cut_not_better       share cut at the limit up by 10 points            the held-out pass rate does not rise
    paid_not_better      answers twice as long, or half                    paid reward rises, held-out pass rate not
    paid_collapse        right answers a third as long, on the same        paid reward rises
                         prompts

All lengths are compared on the same prompts with the evaluation before the stage, and must be more than chance. The
last kind looks at right answers because what a prompt needs to be answered does not shrink to a third; a text that the
grader takes for an answer may. It asks nothing of the held-out pass rate, which the same grader made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

from groupwise.runs.monitors.lengths import LengthSample, prompt_lengths

LONGER = 1.5
"""Growth that a reader sees at once. Over healthy GRPO stages we saw 0.92 to 1.00 times."""
MOVED = 2.0
"""Or its inverse: with the pass rate flat and the reward rising, answers of another kind."""
COLLAPSED = 1 / 3
"""Leaving out an explanation around an answer may halve it: a third is less than the answer itself."""
MORE_CUT = 0.10
"""Ten points more of cut answers cost up to ten points of pass rate."""
NOT_BETTER = 0.01
"""A pass rate that rises by less than a point has not risen: no evaluation of hundreds of prompts shows less."""
PAID_MORE = 0.05
"""Rise of the mean training reward between the first and the last third of the steps."""
MIN_PROMPTS = 10
"""Fewer shared prompts raise no alarm."""
MIN_STEPS = 6
"""Fewer steps have no trend: two in each third."""
CONFIDENCE = 0.99
"""Of every change that is asked for. A stage is looked at several times, so 0.95 would be too easy to reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedLengths:
    """One evaluation by prompt.

    Example:
        evaluated_lengths("grpo", samples).tokens["heldout-0004"]      # 22.5
    """

    name: str
    rates: Mapping[str, float]
    """Share solved of the scored completions."""
    tokens: Mapping[str, float]
    """Mean tokens of all completions, cut ones included."""
    right_tokens: Mapping[str, float]
    """Mean tokens of the right ones."""
    cut: Mapping[str, float]
    """Share cut at the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthAlarm:
    """LengthAlarm(kind="longer_not_better", sentence="grpo: held-out answers are 1.8 times as long ...")."""

    kind: str
    sentence: str


def evaluated_lengths(name: str, samples: Sequence[LengthSample]) -> EvaluatedLengths:
    """An evaluation from its completions; a prompt without a scored completion has no rate."""
    outcomes: dict[str, list[bool]] = {}
    cut: dict[str, list[bool]] = {}
    for s in samples:
        cut.setdefault(s.task_id, []).append(s.is_cut)
        if s.outcome is not None:
            outcomes.setdefault(s.task_id, []).append(s.outcome)
    return EvaluatedLengths(
        name=name,
        rates={task: fmean(values) for task, values in outcomes.items()},
        tokens=prompt_lengths(samples),
        right_tokens=prompt_lengths(samples, only_right=True),
        cut={task: fmean(values) for task, values in cut.items()},
    )


def length_alarms(series: Sequence[EvaluatedLengths], paid: Sequence[float] = ()) -> tuple[LengthAlarm, ...]:
    """What the last evaluation of a series shows against the first, which was made before the stage began.

    paid are the mean rewards of the stage's steps so far, in order; without them (a stage that no reward drives) there
    is no alarm about paid reward. One evaluation alone, or fewer than 10 shared prompts: no alarm.
    """
    if len(series) < 2:
        return ()
    first, last = series[0], series[-1]
    gain = _changes(first.rates, last.rates)
    if len(gain) < MIN_PROMPTS:
        return ()
    is_better = fmean(gain.values()) > NOT_BETTER
    rates = f"the held-out pass rate went from {_mean(first.rates, gain):.1%} to {_mean(last.rates, gain):.1%}"
    found = []
    if not is_better:
        found += _longer(first, last, rates) + _more_cut(first, last, rates)
    if paid_rise(paid) >= PAID_MORE:
        found += _paid(first, last, paid, rates, is_better)
    return tuple(found)


def paid_rise(paid: Sequence[float]) -> float:
    """How far the reward rose: mean of the last third of the steps minus that of the first, 0 where it may be chance.

    Chance: the difference is under 2.6 of its standard errors (99 %). Steps of one stage differ in their prompts, which
    is in their spread. Values that are not finite are left out.
    """
    known = [value for value in paid if math.isfinite(value)]
    third = len(known) // 3
    if len(known) < MIN_STEPS:
        return 0.0
    first, last = known[:third], known[-third:]
    rise = fmean(last) - fmean(first)
    error = math.sqrt(stdev(first) ** 2 / third + stdev(last) ** 2 / third)
    return rise if rise > 2.6 * error else 0.0


def _longer(first: EvaluatedLengths, last: EvaluatedLengths, rates: str) -> list[LengthAlarm]:
    changes = _log_changes(first.tokens, last.tokens)
    if not _is_above(changes, math.log(LONGER)):
        return []
    sentence = (
        f"{last.name}: held-out answers are {_factor(changes)} as long as at {first.name} "
        f"({_mean(first.tokens, changes):.0f} to {_mean(last.tokens, changes):.0f} tokens on {len(changes)} prompts), "
        f"while {rates}: length is learned, and not being right."
    )
    return [LengthAlarm(kind="longer_not_better", sentence=sentence)]


def _more_cut(first: EvaluatedLengths, last: EvaluatedLengths, rates: str) -> list[LengthAlarm]:
    changes = _changes(first.cut, last.cut)
    if not _is_above(changes, MORE_CUT):
        return []
    sentence = (
        f"{last.name}: {_mean(last.cut, changes):.0%} of the held-out answers are cut at the token limit, "
        f"{_mean(first.cut, changes):.0%} at {first.name}, while {rates}: answers run into the limit."
    )
    return [LengthAlarm(kind="cut_not_better", sentence=sentence)]


def _paid(
    first: EvaluatedLengths, last: EvaluatedLengths, paid: Sequence[float], rates: str, is_better: bool
) -> list[LengthAlarm]:
    found = []
    reward = f"the training reward rose by {paid_rise(paid):.2f}"
    changes = _log_changes(first.tokens, last.tokens)
    if not is_better and (_is_above(changes, math.log(MOVED)) or _is_above(_negated(changes), math.log(MOVED))):
        sentence = (
            f"{last.name}: {reward}, {rates}, and held-out answers are {_factor(changes)} as long as at {first.name}: "
            "what is paid may not be what is wanted. Read some rollouts."
        )
        found.append(LengthAlarm(kind="paid_not_better", sentence=sentence))
    right = _log_changes(first.right_tokens, last.right_tokens)
    if _is_above(_negated(right), -math.log(COLLAPSED)):
        sentence = (
            f"{last.name}: {reward}, and right answers to the same {len(right)} prompts are {_factor(right)} as long "
            f"as at {first.name}: the grader may take something else for an answer. Read some rollouts."
        )
        found.append(LengthAlarm(kind="paid_collapse", sentence=sentence))
    return found


def _changes(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    return {task: last[task] - first[task] for task in first if task in last}


def _log_changes(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """One token is added on both sides, as an answer may be empty."""
    return {task: math.log((last[task] + 1) / (first[task] + 1)) for task in first if task in last}


def _negated(changes: Mapping[str, float]) -> dict[str, float]:
    return {task: -change for task, change in changes.items()}


def _is_above(changes: Mapping[str, float], least: float) -> bool:
    """The mean over prompts is at least that large, and above 0 by more than chance (Student's t, two-sided)."""
    values = list(changes.values())
    if len(values) < MIN_PROMPTS:
        return False
    margin = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) >= least - 1e-12 and fmean(values) > margin


def _mean(values: Mapping[str, float], prompts: Mapping[str, float]) -> float:
    return fmean(values[task] for task in prompts)


def _factor(changes: Mapping[str, float]) -> str:
    factor = math.exp(fmean(changes.values()))
    return f"{factor:.1f} times" if factor >= 1 else f"{factor:.2f} times"
