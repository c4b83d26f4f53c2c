"""Judged completions to demonstrations: the right ones of each prompt (rejection-sampling fine-tuning).

    n completions of a prompt --solved--> --ended by themselves--> one of each text --at most m--> demonstrations

Fine-tuning on them is a policy gradient with advantage 1 for right completions and 0 for wrong ones. Without a limit a
prompt would weigh as much as its pass rate, and the easy prompts would be learned once more; with it every prompt that
is solved at all counts up to the same, as in the maximum likelihood of a right answer. STaR (arXiv:2203.14465) and RFT
(arXiv:2308.01825) choose likewise: distinct right answers, a few of each prompt.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from groupwise.types import Group, Rollout, Stop

Prefer = Literal["random", "shortest"]
"""random = any of the different texts, each as likely; shortest = those of fewest tokens, equal ones at random."""


class NoDemonstration(StrEnum):
    """Why a prompt gave none."""

    UNSCORED = "no verdict"
    NEVER_SOLVED = "never solved"
    CUT = "right ones all cut or empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedChoice:
    """What was chosen of all prompts.

    Example:
        SolvedChoice(rollouts=((r3,), ()), reasons=(None, NoDemonstration.NEVER_SOLVED))
    """

    rollouts: tuple[tuple[Rollout, ...], ...]
    """rollouts[g] are those of groups[g], in the order in which they were sampled."""
    reasons: tuple[NoDemonstration | None, ...]
    """Why groups[g] gave none; None where it gave some."""

    @property
    def num_chosen(self) -> int:
        """Demonstrations of all prompts."""
        return sum(map(len, self.rollouts))

    def counts(self) -> dict[str, int]:
        """Prompts that gave none, by reason; the commonest first."""
        found = Counter(reason.value for reason in self.reasons if reason is not None)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def choose_solved(groups: Sequence[Group], *, max_per_prompt: int, prefer: Prefer, seed: int) -> SolvedChoice:
    """At most max_per_prompt rollouts of each group that are worth imitating.

    That is: scored as solved, ended by itself (a cut or aborted completion would teach never to end), and with a text
    that is not empty. Texts are the same where they differ in white space at their ends alone; the first one sampled
    stands for them. The choice of a group depends on seed, its task and its own rollouts, on no other group.
    """
    rollouts = tuple(_chosen(group, max_per_prompt, prefer, seed) for group in groups)
    reasons = tuple(None if chosen else _why_none(group) for group, chosen in zip(groups, rollouts, strict=True))
    return SolvedChoice(rollouts=rollouts, reasons=reasons)


def _chosen(group: Group, max_per_prompt: int, prefer: Prefer, seed: int) -> tuple[Rollout, ...]:
    by_text: dict[str, int] = {}
    for place, rollout in enumerate(group.rollouts):
        text = rollout.completion.text.strip()
        if rollout.verdict.outcome is True and rollout.completion.stop is Stop.END and text:
            by_text.setdefault(text, place)
    places = list(by_text.values())
    random.Random(f"{seed} {group.task.id}").shuffle(places)
    if prefer == "shortest":
        places.sort(key=lambda place: len(group.rollouts[place].completion.token_ids))
    return tuple(group.rollouts[place] for place in sorted(places[:max_per_prompt]))


def _why_none(group: Group) -> NoDemonstration:
    if group.num_solved:
        return NoDemonstration.CUT
    return NoDemonstration.NEVER_SOLVED if group.num_scored else NoDemonstration.UNSCORED
