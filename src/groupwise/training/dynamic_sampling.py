"""Dynamic sampling (DAPO, arXiv:2503.14476, section 3.2): dead groups of a step are replaced, up to a number of rounds.

A group is dead by its outcomes: all solved, none solved, or nothing scored. What its shaped rewards say does not
matter, so a length bonus among wrong answers keeps no group.

    round 0         prompts_per_step prompts
    round 1, 2 ..   missing / (live share so far) prompts, at most prompts_per_step, none that this step has sampled
    ends            when prompts_per_step live groups are there, the rounds are used up, or no prompt is left

All live groups train, those beyond prompts_per_step too. A dead group that a live one replaced is out of the step: it
is recorded and reported, and no denominator counts it. A dead group that could not be replaced stays, as it does
without dynamic sampling, and is counted. So with L live groups, D dead ones and B = prompts_per_step

    gradient = sum of the live groups / max(L, min(B, L + D))

which is the mean over all groups where nothing was replaced, and DAPO's mean over the live ones where everything was.
The latter is larger by 1 / (share of live groups), the same for every prompt: a dead group has no gradient, so leaving
it out changes no prompt's weight relative to another's. And a step that stays short of live groups takes a
proportionally shorter step, instead of a full one on few groups. A KL term and a std of the whole step are means over
the groups that stay, so beta weighs less against a policy gradient that has become longer. Whether another round is
drawn depends on which groups are live and on nothing else, so the live groups stay a fair sample of live groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.rollout.collect import CollectedGroups
from groupwise.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGroups:
    """Every group of a step, in the order sampled.

    Example:
        SampledGroups(groups=(g0, g1, g2), num_rounds=2, num_wanted=2, cap_reached=False, generate_s=3.1, judge_s=0.2)
    """

    groups: tuple[Group, ...]
    num_rounds: int
    """Draws that gave groups; 1 without dynamic sampling."""
    num_wanted: int
    """Live groups that the step asks for."""
    cap_reached: bool
    """True where the rounds were used up before so many live groups were there."""
    generate_s: float
    judge_s: float

    @property
    def is_kept(self) -> tuple[bool, ...]:
        """For each group, whether the step trains on it or counts it: all live ones, and as many dead ones, the first
        sampled, as are still missing."""
        num_open = max(0, self.num_wanted - sum(not g.is_dead for g in self.groups))
        kept = []
        for group in self.groups:
            kept.append(not group.is_dead or num_open > 0)
            num_open -= group.is_dead
        return tuple(kept)


def next_draw(groups: Sequence[Group], num_wanted: int) -> int:
    """How many prompts to sample next: missing / (live share so far), at most num_wanted; 0 where none is missing."""
    num_live = sum(not g.is_dead for g in groups)
    missing = max(0, num_wanted - num_live)
    if num_live == 0:
        return missing
    return min(num_wanted, math.ceil(missing * len(groups) / num_live))


def sample_live(
    draw: Callable[[int, int, Sequence[Group]], CollectedGroups], *, num_wanted: int, extra_rounds: int
) -> SampledGroups:
    """Samples num_wanted prompts, then replaces dead groups for at most extra_rounds rounds.

    draw(round number from 0, number of prompts, groups so far) gives new groups, of prompts that are not among those
    so far: fewer than asked for, or none, where no more prompts are left.
    """
    groups: list[Group] = []
    generate_s = judge_s = 0.0
    num_rounds = 0
    while num_rounds <= extra_rounds and (size := next_draw(groups, num_wanted)):
        drawn = draw(num_rounds, size, groups)
        if not drawn.groups:
            break
        num_rounds += 1
        groups += drawn.groups
        generate_s += drawn.generate_s
        judge_s += drawn.judge_s
    return SampledGroups(
        groups=tuple(groups),
        num_rounds=num_rounds,
        num_wanted=num_wanted,
        cap_reached=num_rounds > extra_rounds and next_draw(groups, num_wanted) > 0,
        generate_s=generate_s,
        judge_s=judge_s,
    )
