"""Prompts that are out before anything is sampled: unusable golds, leaks into the held-out set, repetitions.

The gold goes first. A prompt whose gold the verifier refuses would look never solved, whatever the model writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.curation.decision import Exclusion, Reason
from groupwise.curation.duplicates import NEAR, Match, Question, find_duplicates, shared_golds


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """What looking at the prompts and golds alone has shown; by task id."""

    excluded: Mapping[str, Exclusion]
    notes: Mapping[str, tuple[str, ...]]
    """About prompts that stay: weak golds, golds that another question has too."""


def screen(
    train: Sequence[Question],
    heldout: Sequence[Question],
    *,
    broken: Mapping[str, str],
    weak: Mapping[str, str],
    drop_weak: bool = False,
    near: float = NEAR,
    same_answer: Callable[[Question, Question], bool] = lambda first, second: False,
) -> Screening:
    """Looks at every training question once, in this order: gold, held-out set, earlier training questions.

    `broken` and `weak` are the reasons of golds that cannot be used, or that a wrong answer may pass, by task id; weak
    ones stay, marked, unless drop_weak. Of repeated questions the first usable one stays. Ids of train and heldout may
    be the same, ids within train may not.

    Example:
        screen([Question(id="q1", text="2+2?"), Question(id="q2", text="2 + 2 ?")], [], broken={}, weak={})
        # excluded: q2, duplicate, "of q1: the same text"
    """
    excluded = {task_id: Exclusion(reason=Reason.BROKEN_GOLD, detail=why) for task_id, why in broken.items()}
    if drop_weak:
        golds = {task_id: Exclusion(reason=Reason.UNDETERMINED_GOLD, detail=why) for task_id, why in weak.items()}
        excluded = golds | excluded
    usable = [question for question in train if question.id not in excluded]
    everything = [*heldout, *usable]
    matches = find_duplicates(everything, near=near, same_answer=lambda i, j: same_answer(everything[i], everything[j]))
    for place, match in matches.items():
        if place >= len(heldout):
            excluded[everything[place].id] = _exclusion(match, everything[match.earlier], match.earlier < len(heldout))
    notes: dict[str, list[str]] = defaultdict(list)
    for task_id, why in weak.items():
        notes[task_id].append(f"weak gold: {why}")
    stay = [question for question in usable if question.id not in excluded]
    for place, earlier in shared_golds(stay).items():
        notes[stay[place].id].append(f"same gold as {stay[earlier].id}")
    return Screening(
        excluded=excluded,
        notes={task_id: tuple(texts) for task_id, texts in notes.items() if task_id not in excluded},
    )


def _exclusion(match: Match, earlier: Question, is_heldout: bool) -> Exclusion:
    how = "the same text" if match.similarity == 1.0 else f"similar text ({match.similarity:.2f}) and the same gold"
    if is_heldout:
        return Exclusion(reason=Reason.LEAKS_INTO_HELDOUT, detail=f"as {earlier.id}: {how}")
    if not match.same_gold:
        return Exclusion(reason=Reason.CONFLICTING_GOLD, detail=f"with {earlier.id}: {how}, another gold")
    return Exclusion(reason=Reason.DUPLICATE, detail=f"of {earlier.id}: {how}")
