"""A rule about answers that are right in all but their form: braces, quotes, spaces, a sentence around them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from groupwise.runs.diagnosis.finding import Finding, percent, verifier_change
from groupwise.runs.diagnosis.rows import FROM_ROLLOUTS, RECENT, last_rollouts, one_answer, pass_rate, stage_rows
from groupwise.runs.record import RecordedRollout, RunRecord

RARELY_PAID = 0.05
"""With more right answers than this the form is being learned from them."""
MOST_HOLD = 0.5
"""Share of the wrong answers that hold the right content: from here on the form, and not the task, is what is hard."""
MIN_EXCESS = 0.25
"""And so much more often than they hold the content of other tasks: an answer that lists every option holds all."""
MIN_ANSWERS, MIN_TASKS = 8, 3
"""Fewer wrong answers, or tasks, may agree by chance."""
SHORTEST = 3
"""Letters and digits that must be shared where no word boundary is: shorter pieces are in any text."""
NUM_OTHERS = 8
"""Golds of other tasks that an answer is compared with."""


def form_not_right(record: RunRecord) -> Finding | None:
    """Hardly an answer is paid, and most have the content of the gold: the verifier asks for another form."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        solved = pass_rate(stage.collections[-RECENT:])
        if solved is None or solved.value > RARELY_PAID:
            continue
        wrong = [r for rollouts in last_rollouts(record, stage.name, 3) for r in rollouts if _is_wrong(r)]
        if len(wrong) < MIN_ANSWERS or len({r.task_id for r in wrong}) < MIN_TASKS:
            continue
        holding = [r for r in wrong if holds(r.text, r.gold)]
        share = len(holding) / len(wrong)
        if share < MOST_HOLD or share - _by_chance(wrong) < MIN_EXCESS:
            continue
        return Finding(
            name="form_not_right",
            severity="problem",
            title="The answers hold the right content in another form than the verifier pays.",
            evidence=f"{len(holding)} of {len(wrong)} wrong answers are the right one, or hold it, but for spaces, "
            f"case, punctuation or words around it; the pass rate is {percent(solved.value)}. "
            f"One of them: {one_answer(holding[0])}.",
            change=verifier_change(record.recipe, "so that it pays this form too")
            + " (or data.system_prompt, so that it asks for the form that is paid)",
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def holds(text: str, gold: str) -> bool:
    """Whether one of the two holds the other without regard to spaces, case and punctuation: its words in a row, or its
    letters; letters that are less than half of the gold, or digits out of a longer number, are too little."""
    own, right = _words(text), _words(gold)
    letters, wanted = "".join(own), "".join(right)
    if not letters or not wanted:
        return False
    if letters == wanted or _has_run(own, right) or _has_run(right, own):
        return True
    shorter, longer = sorted((letters, wanted), key=len)
    is_enough = len(shorter) >= SHORTEST and 2 * len(letters) >= len(wanted)
    return is_enough and not shorter.isdigit() and shorter in longer


def _is_wrong(rollout: RecordedRollout) -> bool:
    return rollout.status != "unscored" and not rollout.outcome and rollout.stop != "length" and bool(rollout.gold)


def _by_chance(wrong: Sequence[RecordedRollout]) -> float:
    """How often these answers hold the gold of another task. Where all tasks have one gold nothing can be compared, and
    only answers that are its very letters count: what others hold is then called chance."""
    golds = list(dict.fromkeys(r.gold for r in wrong))
    if len(golds) == 1:
        wanted = "".join(_words(golds[0]))
        return sum("".join(_words(r.text)) != wanted and holds(r.text, r.gold) for r in wrong) / len(wrong)
    held = compared = 0
    for place, rollout in enumerate(wrong):
        others = [gold for gold in golds if gold != rollout.gold]
        begin = place % len(others)  # each answer meets some, all golds are met
        for gold in (others[begin:] + others[:begin])[:NUM_OTHERS]:
            held += holds(rollout.text, gold)
            compared += 1
    return held / compared


def _words(text: str) -> list[str]:
    """Runs of letters and digits of any script, in lower case."""
    return re.findall(r"[^\W_]+", text.casefold())


def _has_run(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted words stand in a row among the words."""
    size = len(wanted)
    return any(list(words[i : i + size]) == list(wanted) for i in range(len(words) - size + 1))
