"""Judged completions to preference pairs: a solved completion against an unsolved one of the same prompt.

    group --solved, finished--> x --closest lengths--> pairs
          --unsolved ---------> x

Which of them are compared decides what is learned beside the answer. Wrong completions are often longer than right ones
(some never end), so that pairs drawn at random teach to be short. By default the pairs are those of nearest length.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from groupwise.types import Group, Rollout, Stop

Pick = Literal["closest", "random"]
"""closest = the pairs of nearest length, in tokens; random = any, drawn with the seed."""


class NoPair(StrEnum):
    """Why a prompt gave no pair."""

    NOT_SAMPLED = "not sampled"
    UNSCORED = "no verdict"
    ALWAYS_SOLVED = "always solved"
    NEVER_SOLVED = "never solved"
    CUT = "right ones all cut"
    APART = "right and wrong never in one group"
    SAME_TEXT = "no two different texts"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRule:
    """Which pairs are taken.

    Example:
        PairRule(max_pairs=2, pick="closest", seed=17)
    """

    max_pairs: int = 1
    """Most pairs of a prompt; 1 = every prompt counts the same. A completion is in one pair at most."""
    pick: Pick = "closest"
    seed: int = 0
    """Decides among pairs of equal length difference, or with "random" among all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPair:
    """Two rollouts of one group: ChosenPair(group=..., chosen=solved, rejected=unsolved)."""

    group: Group
    chosen: Rollout
    rejected: Rollout

    @property
    def length_difference(self) -> int:
        """Tokens of the chosen completion minus tokens of the rejected one."""
        return len(self.chosen.completion.token_ids) - len(self.rejected.completion.token_ids)


def choose_pairs(groups: Sequence[Group], rule: PairRule) -> tuple[ChosenPair, ...] | NoPair:
    """The pairs of one prompt, or why there is none. `groups` are its groups, the newest last.

    Both sides come from one group, so that the same weights wrote them: across groups a pair would also teach what
    training has changed in between. The newest groups are used first. A chosen completion has ended by itself, with a
    text that is not empty; unscored and aborted ones are on neither side.
    """
    found: list[ChosenPair] = []
    for number, group in reversed(list(enumerate(groups))):
        draw = random.Random(f"{rule.seed} {group.task.id} {number}")
        found += _pairs_of(group, rule, rule.max_pairs - len(found), draw)
    return tuple(found) if found else _why_none(groups)


def _pairs_of(group: Group, rule: PairRule, num_wanted: int, draw: random.Random) -> list[ChosenPair]:
    chosen = _different([r for r in group.rollouts if r.verdict.outcome is True and r.completion.stop is Stop.END])
    rejected = _different(
        [r for r in group.rollouts if r.verdict.outcome is False and r.completion.stop is not Stop.ABORTED]
    )
    possible = [ChosenPair(group=group, chosen=c, rejected=r) for c in chosen for r in rejected]
    draw.shuffle(possible)
    if rule.pick == "closest":
        possible.sort(key=lambda pair: abs(pair.length_difference))
    taken: list[ChosenPair] = []
    used: set[str] = set()
    for pair in possible:
        texts = {pair.chosen.completion.text.strip(), pair.rejected.completion.text.strip()}
        if len(taken) < num_wanted and len(texts) == 2 and not texts & used:
            taken.append(pair)
            used |= texts
    return taken


def _different(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The first rollout of each text that is not empty."""
    by_text: dict[str, Rollout] = {}
    for rollout in rollouts:
        by_text.setdefault(rollout.completion.text.strip(), rollout)
    return [rollout for text, rollout in by_text.items() if text]


def _why_none(groups: Sequence[Group]) -> NoPair:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    outcomes = {rollout.verdict.outcome for rollout in rollouts} - {None}
    if not rollouts:
        return NoPair.NOT_SAMPLED
    if not outcomes:
        return NoPair.UNSCORED
    if len(outcomes) == 1:
        return NoPair.ALWAYS_SOLVED if True in outcomes else NoPair.NEVER_SOLVED
    if not any(r.verdict.outcome and r.completion.stop is Stop.END for r in rollouts):
        return NoPair.CUT
    return NoPair.APART if all(group.is_dead for group in groups) else NoPair.SAME_TEXT
