"""What a step sampled, at three distances: the steps there are, the groups of one step, the answers of one group.

    overview(record)                       one line a stage, or a step: groups, solved, live
    groups_of(record, "grpo", 12)          one line a group: solved of G, rewards, lengths, dead or live
    answers of a Group                     text, verdict, checks, advantage, and why it has no part in the loss

A file that is damaged is a line that says so. Texts are data: `printable` escapes what a terminal would obey.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.record import EVALUATION, GREEDY, NO_SIGNAL, RecordedRollout, RunRecord

LEFT_OUT = {
    "unscored": "the verifier failed on it, so it has no reward",
    "truncated": "it was cut at the token limit, and the recipe masks such answers",
    "dead_group": "no answer of its group has an advantage",
    "replaced": "its group made room for a live one",
}
"""Why an answer has no part in the loss, in words; the keys are those of Recorder.rollouts."""

_SPECIAL = re.compile(r"[^\x20-\x7e\n]")
_JOINERS = "\u200c\u200d"
"""Without a shape of their own, and part of ordinary words and emoji all the same."""
_SHOWN_IDS = 8
"""Names that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The answers to one prompt in one step."""

    stage: str
    step: int
    task_id: str
    rollouts: tuple[RecordedRollout, ...]
    """In the order written."""

    @property
    def num_scored(self) -> int:
        """Answers that have a reward."""
        return sum(rollout.outcome is not None for rollout in self.rollouts)

    @property
    def num_solved(self) -> int:
        """Answers whose outcome is True."""
        return sum(rollout.outcome is True for rollout in self.rollouts)

    @property
    def is_live(self) -> bool:
        """Some scored answers solve the task and some do not; decided on the outcome, as in training."""
        return 0 < self.num_solved < self.num_scored

    @property
    def state(self) -> str:
        """live, or dead by the value that all answers have; of one answer alone, which is no group: right, wrong."""
        if len(self.rollouts) == 1:
            return ("right" if self.num_solved else "wrong") if self.num_scored else "not scored"
        if self.is_live:
            return "live"
        if not self.num_scored:
            return "dead: not scored"
        return "dead: all right" if self.num_solved else "dead: all wrong"

    @property
    def reward_mean(self) -> float | None:
        """Over the scored answers."""
        rewards = [rollout.reward for rollout in self.rollouts if rollout.reward is not None]
        return fmean(rewards) if rewards else None

    @property
    def num_cut(self) -> int:
        """Answers cut at the token limit."""
        return sum(rollout.stop == "length" for rollout in self.rollouts)

    @property
    def lengths(self) -> tuple[int, float, int]:
        """Tokens of the shortest answer, their mean, and those of the longest."""
        tokens = [rollout.num_tokens for rollout in self.rollouts]
        return min(tokens), fmean(tokens), max(tokens)

    @property
    def gold(self) -> str:
        """A right answer to the prompt; empty where nobody knows one."""
        return next((rollout.gold for rollout in self.rollouts if rollout.gold), "")

    @property
    def by_text(self) -> list[list[int]]:
        """The places of the answers, from 0, those with the same text together; in the order of their first."""
        places: dict[str, list[int]] = {}
        for place, rollout in enumerate(self.rollouts):
            places.setdefault(rollout.text, []).append(place)
        return list(places.values())

    def as_json(self) -> dict[str, Any]:
        """What the line of the group says."""
        shortest, mean, longest = self.lengths
        return {
            "stage": self.stage,
            "step": self.step,
            "task_id": self.task_id,
            "num_rollouts": len(self.rollouts),
            "num_scored": self.num_scored,
            "num_solved": self.num_solved,
            "reward_mean": self.reward_mean,
            "state": self.state,
            "tokens": {"min": shortest, "mean": mean, "max": longest},
            "num_cut": self.num_cut,
            "left_out": dict(left_out_counts([self])),
        }

    def answers_json(self) -> dict[str, Any]:
        """The line of the group with its prompt and every answer."""
        return self.as_json() | {
            "prompt": self.rollouts[0].prompt,
            "gold": self.gold,
            "rollouts": [asdict(rollout) for rollout in self.rollouts],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """What one file of rollouts holds; num_groups is None where it cannot be read."""

    stage: str
    step: int
    num_groups: int | None = None
    num_live: int = 0
    num_rollouts: int = 0
    num_scored: int = 0
    num_solved: int = 0
    problem: str = ""
    """Why it cannot be read."""

    def as_json(self) -> dict[str, Any]:
        """The fields."""
        return asdict(self)


def overview(record: RunRecord, stage: str | None = None) -> list[RecordedStep]:
    """Every step whose rollouts were recorded; of one stage where it is given. What training sampled comes first, in
    the order of the recipe's stages, then the evaluations in the order of time, which is that of their policy versions.

    Raises:
        DataError: if nothing was recorded, or not of that stage.
    """
    steps = _recorded(record)
    _refuse_unknown_stage(steps, stage)
    return [_recorded_step(record, *place) for place in steps if stage in (None, place[0])]


def resolve_step(record: RunRecord, stage: str | None, step: int | None) -> tuple[str, int]:
    """The (stage, step) that is meant: a stage with one recorded step needs no step, and a step that one training stage
    has needs no stage.

    Raises:
        DataError: if there is none, or more than one; it names those there are.
    """
    steps = _recorded(record)
    _refuse_unknown_stage(steps, stage)
    there = [place for place in steps if stage in (None, place[0]) and step in (None, place[1])]
    if not there:
        numbers = [number for name, number in steps if stage in (None, name)]
        of = f"stage {stage!r}" if stage is not None else "any stage"
        raise DataError(f"no rollouts of step {step} of {of} are on record; there are steps {_spans(numbers)}")
    trained = [place for place in there if not place[0].startswith(EVALUATION) and not place[0].endswith(NO_SIGNAL)]
    for candidates in (there, trained):
        if len(candidates) == 1:
            return candidates[0]
    if stage is None:
        names = dict.fromkeys(name for name, _ in there)
        raise DataError(f"step {step} is on record for several stages; add --stage: {', '.join(names)}")
    raise DataError(f"stage {stage!r} has several steps on record: {_spans([n for _, n in there])}; add --step")


def groups_of(record: RunRecord, stage: str, step: int) -> list[RolloutGroup]:
    """The groups of one step in the order written.

    Raises:
        DataError: if the file cannot be read.
    """
    groups: dict[tuple[int, str], list[RecordedRollout]] = {}
    for rollout in record.rollouts(stage, step):
        groups.setdefault((rollout.group, rollout.task_id), []).append(rollout)
    return [
        RolloutGroup(stage=stage, step=step, task_id=task_id, rollouts=tuple(rollouts))
        for (_, task_id), rollouts in groups.items()
    ]


def groups_named(groups: Sequence[RolloutGroup], task_id: str) -> list[RolloutGroup]:
    """The groups of that prompt.

    Raises:
        DataError: if there is none; it names those there are, the nearest first.
    """
    found = [group for group in groups if group.task_id == task_id]
    if not found:
        raise DataError(f"no prompt {task_id!r} is in this step{_known([group.task_id for group in groups], task_id)}")
    return found


def history_of(record: RunRecord, task_id: str, stage: str | None = None) -> list[RolloutGroup]:
    """Every recorded group of one prompt, by stage and step; files that cannot be read are passed over.

    Raises:
        DataError: if there is none.
    """
    found: list[RolloutGroup] = []
    ids: dict[str, None] = {}
    for step in overview(record, stage):
        if step.num_groups is not None:
            groups = groups_of(record, step.stage, step.step)
            ids.update(dict.fromkeys(group.task_id for group in groups))
            found += [group for group in groups if group.task_id == task_id]
    if not found:
        raise DataError(f"no rollouts of prompt {task_id!r} are on record{_known(list(ids), task_id)}")
    return found


def left_out_counts(groups: Iterable[RolloutGroup]) -> Mapping[str, int]:
    """How many answers have no part in the loss, by reason."""
    counts: dict[str, int] = {}
    for group in groups:
        for rollout in group.rollouts:
            if rollout.left_out:
                counts[rollout.left_out] = counts.get(rollout.left_out, 0) + 1
    return counts


def left_out_sentence(rollout: RecordedRollout) -> str:
    """Why the answer has no part in the loss, in words; empty where it has one, or where nobody knows."""
    if not rollout.left_out:
        return ""
    return f"left out of the loss: {LEFT_OUT.get(rollout.left_out, rollout.left_out)}"


def printable(text: str) -> str:
    r"""The text with everything that is no character spelled out: an escape code becomes \x1b, a carriage return \r.

    Newlines stay, tabs become four spaces. Letters, marks and symbols of every script stay as they are; control
    characters, marks without a shape (of direction, of width zero), line separators and lone surrogates do not.
    """
    return _SPECIAL.sub(lambda found: _spelled(found[0]), text)


def _spelled(char: str) -> str:
    if char == "\t":
        return "    "
    is_shapeless = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in _JOINERS
    return char.encode("unicode_escape").decode("ascii") if is_shapeless else char


def _recorded(record: RunRecord) -> list[tuple[str, int]]:
    steps = record.recorded()
    if not steps:
        raise DataError(f"{record.name} has no rollouts on record yet; `groupwise runs` says how far it is")
    names = [str(table.get("name")) for table in record.stages]
    measured = [str(event.get("name")).replace(" ", "-") for event in record.events_named("evaluation")]
    return sorted(steps, key=lambda place: _when(place, names, measured))


def _when(place: tuple[str, int], names: Sequence[str], measured: Sequence[str]) -> tuple[int, int, int, str, int]:
    """Sorts by training or evaluation, then by time: a stage by its place in the recipe (its best-of-n and no-signal
    files with it), an evaluation by its policy version, and those of one version as the events have them."""
    stage, step = place
    if stage.startswith(EVALUATION):
        name = stage.removeprefix(EVALUATION)
        known = name if name in measured else name.removesuffix(GREEDY)
        return 1, step, measured.index(known) if known in measured else len(measured), stage, step
    own = [i for i, name in enumerate(names) if stage == name or stage.startswith(f"{name}-")]
    exact = [i for i in own if names[i] == stage]
    return 0, (exact or own or [len(names)])[0], 0, stage, step


def _refuse_unknown_stage(steps: Sequence[tuple[str, int]], stage: str | None) -> None:
    """Raises DataError with all training stages, then the evaluations nearest to what was asked for."""
    names = list(dict.fromkeys(name for name, _ in steps))
    if stage is None or stage in names:
        return
    trained = [name for name in names if not name.startswith(EVALUATION)]
    held_out = [name for name in names if name.startswith(EVALUATION)]
    there = f"; there are {', '.join(map(printable, trained))}" if trained else ""
    more = _known(held_out, stage).removeprefix("; there are ") if held_out else ""
    evaluations = f"{'; and of evaluations ' if trained else '; there are '}{more}" if more else ""
    raise DataError(f"no rollouts of stage {stage!r} are on record{there}{evaluations}")


def _recorded_step(record: RunRecord, stage: str, step: int) -> RecordedStep:
    try:
        groups = groups_of(record, stage, step)
    except DataError as error:
        return RecordedStep(stage=stage, step=step, problem=str(error))
    return RecordedStep(
        stage=stage,
        step=step,
        num_groups=len(groups),
        num_live=sum(group.is_live for group in groups),
        num_rollouts=sum(len(group.rollouts) for group in groups),
        num_scored=sum(group.num_scored for group in groups),
        num_solved=sum(group.num_solved for group in groups),
    )


def _known(names: Sequence[str], wanted: str) -> str:
    """The end of an error: the names there are, the nearest first."""
    distinct = list(dict.fromkeys(names))
    if not distinct:
        return "; there is nothing else"
    near = difflib.get_close_matches(wanted, distinct, n=_SHOWN_IDS, cutoff=0.5)
    shown = [*near, *(name for name in distinct if name not in near)][:_SHOWN_IDS]
    more = f" and {len(distinct) - len(shown)} more" if len(distinct) > len(shown) else ""
    return f"; there are {', '.join(printable(name) for name in shown)}{more}"


def _spans(numbers: Iterable[int]) -> str:
    """Numbers as spans: 1-4, 7."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)
