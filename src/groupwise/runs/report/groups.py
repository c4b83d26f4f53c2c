"""Groups to read: the answers to one prompt side by side, with verdict, advantage and what did not train.

Numbers say that something happened; the answers say what. Chosen are the most contested groups, the best and the worst
of the latest steps, prompts whose first and last group differ most, and held-out prompts that got better or worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from groupwise.errors import DataError
from groupwise.pages import Board, Card, Section, Tone
from groupwise.runs.record import EVALUATION, RecordedRollout, RunRecord
from groupwise.runs.report.prompts import pasts_of
from groupwise.runs.report.rollouts import Digest, GroupDigest, groups_of
from groupwise.runs.report.words import cut, several

MAX_CARDS = 16
MAX_TEXT = 2000
"""Characters of an answer."""
MAX_PROMPT = 3000
MAX_GOLD = 1000
_LATEST = 0.25
"""Share of the run that "latest" looks at."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A group and why it is shown: Choice("most contested", digest)."""

    why: str
    group: GroupDigest


def groups_section(record: RunRecord, digest: Digest) -> Section:
    """The boards of every chosen group."""
    choices = [*training_choices(digest), *heldout_choices(record)]
    boards = [board for choice in choices if (board := _board(record, choice)) is not None]
    boards[:1] = [replace(board, is_open=True) for board in boards[:1]]
    if not boards:
        return Section(heading="Answers to read", text=("No answers are on record.",))
    text = (
        "Open a line to see all answers to one prompt side by side. The advantage says how strongly an answer is made "
        "more (+) or less (-) likely; answers that were left out of the loss say why.",
    )
    return Section(heading="Answers to read", text=text, boards=tuple(boards))


def training_choices(digest: Digest) -> list[Choice]:
    """Groups of training: contested, best and worst of the latest steps, and prompts that changed most."""
    judged = [group for group in digest.groups if group.scored > 1]
    if not judged:
        return []
    latest = judged[-max(8, int(_LATEST * len(judged))) :]
    choices: list[Choice] = []
    contested = sorted(latest, key=lambda g: (-min(g.solved, g.scored - g.solved) / g.scored, -g.spread))
    choices += [Choice("most contested", group) for group in _distinct(contested, 2) if 0 < group.solved < group.scored]
    spread = max(judged, key=lambda g: g.spread)
    if spread.spread > 0:
        choices.append(Choice("widest advantages", spread))
    best = max(reversed(latest), key=lambda g: (g.solved / g.scored, g.scored))
    worst = min(reversed(latest), key=lambda g: (g.solved / g.scored, -g.scored))
    choices += [Choice("best of the latest steps", best)] if best.solved else []
    choices += [Choice("worst of the latest steps", worst)] if worst.solved < worst.scored else []
    changes = [
        (p.visits[-1].solved / p.visits[-1].scored - p.visits[0].solved / p.visits[0].scored, p)
        for p in pasts_of(digest)
    ]
    for why, sign in (("improved most", 1), ("lost most", -1)):
        change, past = max(changes, key=lambda c: sign * c[0], default=(0.0, None))
        if past is not None and sign * change > 0:
            choices += [Choice(f"{why}, first visit", past.visits[0]), Choice(f"{why}, last visit", past.visits[-1])]
    return _once(choices)


def heldout_choices(record: RunRecord) -> list[Choice]:
    """The held-out prompt that gained most and the one that lost most between the first and last evaluation."""
    finals = [e for e in record.events_named("evaluation") if " step " not in str(e.get("name"))]
    if not finals:
        return []
    first, last = (
        {
            g.task_id: g
            for g in groups_of(
                record, f"{EVALUATION}{str(event.get('name')).replace(' ', '-')}", event.get("policy_version") or 0
            )
        }
        for event in (finals[0], finals[-1])
    )
    if len(finals) == 1 or not last:
        contested = [g for g in last.values() if 0 < g.solved < g.scored]
        best = max(contested, key=lambda g: min(g.solved, g.scored - g.solved), default=None)
        return [Choice("held out, most contested", best)] if best is not None else []
    both = [
        (last[t].solved / last[t].scored - g.solved / g.scored, t)
        for t, g in first.items()
        if t in last and g.scored and last[t].scored
    ]
    choices = []
    for why, sign in (("gained most", 1), ("lost most", -1)):
        change, task = max(both, key=lambda c: sign * c[0], default=(0.0, ""))
        if sign * change > 0:
            choices += [Choice(f"held out, {why}, before", first[task]), Choice(f"held out, {why}, after", last[task])]
    return choices


def answer_card(rollout: RecordedRollout) -> Card:
    """One answer: its verdict in words, what training made of it, its text, and what was wrong."""
    title, tone = _verdict(rollout)
    facts = [f"{rollout.num_tokens} tokens"]
    if not rollout.stage.startswith(EVALUATION):
        facts.insert(0, f"advantage {rollout.advantage:+.3g}")
    if rollout.reward is not None and rollout.reward not in (0, 1):
        facts.append(f"reward {rollout.reward:.3g}")
    if rollout.stop == "length":
        facts.append("cut at the limit")
    if rollout.left_out:
        facts.append(f"not trained: {rollout.left_out.replace('_', ' ')}")
    notes = [cut(rollout.reason, 400)] if rollout.reason else []
    for check in rollout.checks:
        if not check.get("passed"):
            expected, found = check.get("expected"), check.get("found")
            detail = f": expected {expected}, found {found}" if expected or found else ""
            notes.append(cut(f"Failed: {check.get('name')}{detail}", 400))
    text = cut(rollout.text, MAX_TEXT) if rollout.text.strip() else "(empty)"
    return Card(title=title, text=text, facts=tuple(facts), notes=tuple(notes), tone=tone)


def _verdict(rollout: RecordedRollout) -> tuple[str, Tone]:
    if rollout.outcome is None:
        return "not judged", "warning"
    if rollout.outcome:
        return "right", "good"
    return ("invalid" if rollout.status == "invalid" else "wrong"), "problem"


def _board(record: RunRecord, choice: Choice) -> Board | None:
    group = choice.group
    try:
        rows = record.rollouts(group.stage, group.step)
    except DataError:
        return None
    answers = [row for row in rows if row.group == group.group and row.task_id == group.task_id]
    if not answers:
        return None
    place = group.stage.removeprefix(EVALUATION)
    where = f"after {place}" if group.stage.startswith(EVALUATION) else f"{place}, step {group.step}"
    more = len(answers) - MAX_CARDS
    shown = f" ({several(more, 'answer')} more not shown)" if more > 0 else ""
    return Board(
        title=f"{choice.why}: {group.task_id}, {where}: {group.solved} of {group.scored} right{shown}",
        text="\n\n".join(filter(None, (cut(answers[0].prompt, MAX_PROMPT), _gold(answers)))),
        cards=tuple(answer_card(answer) for answer in answers[:MAX_CARDS]),
    )


def _gold(answers: Sequence[RecordedRollout]) -> str:
    """A right answer, where one is on record."""
    gold = next((answer.gold for answer in answers if answer.gold), "")
    return f"Right answer: {cut(gold, MAX_GOLD)}" if gold else ""


def _distinct(groups: Iterable[GroupDigest], count: int) -> list[GroupDigest]:
    """The first `count` groups of different prompts."""
    found: dict[str, GroupDigest] = {}
    for group in groups:
        found.setdefault(group.task_id, group)
        if len(found) == count:
            break
    return list(found.values())


def _once(choices: Sequence[Choice]) -> list[Choice]:
    """Every group once, under the first reason."""
    found: dict[tuple[str, int, int], Choice] = {}
    for choice in choices:
        found.setdefault((choice.group.stage, choice.group.step, choice.group.group), choice)
    return list(found.values())
