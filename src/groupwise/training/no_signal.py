"""Why nothing can be learned: what collections without any gradient had in common, in words and numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from groupwise.types import Group, Status, Stop

SET_ASIDE = "set_aside_"
"""Metrics with this name and a reason count the prompts that are set aside."""
NUM_REASONS = 3
"""Reasons of the verifier that a diagnosis names."""
MANY_CUT = 0.3
"""Share of completions cut at the token limit from which a diagnosis blames the limit."""
MANY_INVALID = 0.5
"""Share of completions that broke a rule from which a diagnosis blames their form."""
BEGAN_WELL, FELL_TO = 0.1, 0.2
"""A stage that began with this pass rate, and fell to this share of it, has no tasks that are too hard: it broke."""
MOST = 0.8
"""Share of the groups from which one cause is named alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyCollections:
    """Collections in a row that gave no batch, counted.

    Example:
        EmptyCollections(num_collections=1, num_none_solved=2, num_all_solved=1, num_rollouts=24, group_size=8,
                         reasons={"wrong_rows": 16})
    """

    num_collections: int = 0
    num_none_solved: int = 0
    """Groups in which no scored rollout solved the task."""
    num_all_solved: int = 0
    """Groups in which every scored rollout did."""
    num_unscored: int = 0
    """Groups in which the verifier could judge nothing."""
    num_mixed: int = 0
    """Groups with right and wrong answers, all of the same reward."""
    num_rollouts: int = 0
    num_solved: int = 0
    num_invalid: int = 0
    """Rollouts that broke a rule of the verifier."""
    num_cut: int = 0
    """Rollouts that ended at the token limit."""
    group_size: int = 0
    """Most rollouts of one group."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """The first word of the verdict of each rollout that did not solve its task, counted."""

    @property
    def num_groups(self) -> int:
        """All groups."""
        return self.num_none_solved + self.num_all_solved + self.num_unscored + self.num_mixed

    def plus(self, groups: Sequence[Group]) -> EmptyCollections:
        """With the groups of one more collection."""
        rollouts = [r for g in groups for r in g.rollouts]
        words = [r.verdict.reason.split(" ")[0].rstrip(":,") for r in rollouts if r.verdict.outcome is not True]
        dead = [g for g in groups if g.is_dead]
        return EmptyCollections(
            num_collections=self.num_collections + 1,
            num_none_solved=self.num_none_solved + sum(g.num_solved == 0 and g.num_scored > 0 for g in dead),
            num_all_solved=self.num_all_solved + sum(g.num_solved > 0 for g in dead),
            num_unscored=self.num_unscored + sum(g.num_scored == 0 for g in dead),
            num_mixed=self.num_mixed + len(groups) - len(dead),
            num_rollouts=self.num_rollouts + len(rollouts),
            num_solved=self.num_solved + sum(r.verdict.outcome is True for r in rollouts),
            num_invalid=self.num_invalid + sum(r.verdict.status is Status.INVALID for r in rollouts),
            num_cut=self.num_cut + sum(r.completion.stop is Stop.LENGTH for r in rollouts),
            group_size=max(self.group_size, *(len(g.rollouts) for g in groups)) if groups else self.group_size,
            reasons=Counter(self.reasons) + Counter(words),
        )


def diagnosis(empty: EmptyCollections, began_at: float | None = None) -> str:
    """What these collections showed, and what to change. `began_at` is the pass rate of the stage's first collection.

    Example:
        3 collections in a row had no group with both right and wrong answers: of 24 groups, 20 had no right answer and
        4 only right ones. The verifier's reasons: wrong_rows 60 %, no_query 40 %.
          No answer ...
    """
    times = "1 collection" if empty.num_collections == 1 else f"{empty.num_collections} collections in a row"
    counts = f"{empty.num_none_solved} had no right answer and {empty.num_all_solved} only right ones"
    if empty.num_unscored:
        counts += f", and {empty.num_unscored} could not be judged"
    text = f"{times} had no group with both right and wrong answers: of {empty.num_groups} groups, {counts}."
    if empty.num_mixed:
        text = (
            f"{times} had no group with different rewards: of {empty.num_groups} groups, {counts}; "
            f"{empty.num_mixed} had right and wrong answers of the same reward."
        )
    if empty.reasons:
        total = sum(empty.reasons.values())
        common = Counter(empty.reasons).most_common(NUM_REASONS)
        text += " The verifier's reasons: " + ", ".join(f"{word} {n / total:.0%}" for word, n in common) + "."
    return "\n  ".join([text, *(_broke_down(empty, began_at) or _advice(empty))])


def nothing_left(metrics: Mapping[str, float], empty: EmptyCollections) -> str:
    """Why no prompt is left: how many were set aside, by the last metrics, and what the last collections showed."""
    set_aside = {n.removeprefix(SET_ASIDE): count for n, count in metrics.items() if n.startswith(SET_ASIDE)}
    counts = " and ".join(f"{count:.0f} as {reason.replace('_', ' ')}" for reason, count in set_aside.items() if count)
    text = "No training prompt is left to sample" + (f": {counts} were set aside." if counts else ".")
    return f"{text}\n  {diagnosis(empty)}" if empty.num_collections else text


def _broke_down(empty: EmptyCollections, began_at: float | None) -> list[str]:
    """What to change where the stage itself made the model worse; empty where it did not, or where that is unknown."""
    solved = empty.num_solved / max(empty.num_rollouts, 1)
    if began_at is None or began_at < BEGAN_WELL or solved >= FELL_TO * began_at or empty.num_unscored:
        return []
    return [
        f"The stage began with a pass rate of {began_at:.0%}, and these collections have {solved:.0%}: most likely "
        "training broke what the model could do. Try a tenth of optim.lr."
    ]


def _advice(empty: EmptyCollections) -> list[str]:
    """What to change, the likeliest first; empty where nothing was sampled."""
    groups, rollouts = max(empty.num_groups, 1), max(empty.num_rollouts, 1)
    lines = []
    if empty.num_unscored > groups / 2:
        lines.append("Mend the verifier: most groups could not be judged.")
    if empty.num_cut > MANY_CUT * rollouts:
        lines.append(
            f"{empty.num_cut / rollouts:.0%} of the completions were cut: raise rollout.max_completion_tokens."
        )
    if empty.num_invalid > MANY_INVALID * rollouts:
        lines.append(
            f"{empty.num_invalid / rollouts:.0%} of the completions broke a rule of the verifier: say in the prompt "
            "what an answer looks like, or teach the form with an sft stage first."
        )
    larger = f"a larger rollout.group_size than {empty.group_size}"
    if empty.num_none_solved > MOST * groups:
        seen = "" if empty.num_solved else f" (none of {empty.num_rollouts} completions was right)"
        lines.append(
            f"The tasks are too hard for this model{seen}: try easier ones, an sft stage first, or {larger}. "
            "See with `groupwise score` that right answers are paid."
        )
    elif empty.num_all_solved > MOST * groups:
        lines.append(
            "The tasks are too easy for this model, or the verifier pays anything: try `groupwise audit`, then harder "
            "tasks."
        )
    elif empty.num_none_solved + empty.num_all_solved > groups / 2:
        lines.append(
            f"The tasks are too hard or too easy, and hardly any lies between: try {larger}, rollout.extra_rounds, or "
            "tasks of middle difficulty."
        )
    if empty.num_mixed > groups / 2:
        lines.append("Make the verifier pay right answers more than wrong ones.")
    return lines
