"""Watches for rewards that are found and not earned: a second grader on held-out completions, and known attacks.

    after each held-out evaluation    the same completions, judged again by monitor.held_back       held_back.py
                                      the gap between paid and held-back, its growth, an alarm      runs/monitors/
    in training and evaluation        paid completions compared with the audit's attacks            attack_search.py

Everything it sees goes into events.jsonl under "hacking"; an alarm is shown as well. It never stops training, and what
breaks in it is told once.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from groupwise.config import Recipe
from groupwise.errors import DataError
from groupwise.launch.attack_search import AttackSearch, Hit, Looked
from groupwise.launch.display import Display
from groupwise.launch.held_back import judge_again, proves_golds, unusable
from groupwise.runs import Interval, RunDirectory, read_events
from groupwise.runs.monitors.hacking import (
    CONFIDENCE,
    MAX_EXAMPLES,
    Gap,
    GradedTwice,
    attack_alarm,
    example,
    examples,
    gap_alarm,
    gap_event,
    gap_of,
)
from groupwise.runs.monitors.repetition import repetition
from groupwise.training import Evaluation
from groupwise.types import Group, Recorder, Rollout, Task
from groupwise.verifiers import TaskVerifier

if TYPE_CHECKING:
    from groupwise.launch.run_state import Run

EVENT = "hacking"
WINDOW = 400
"""Paid training completions that an alarm looks back on, so that what training finds late is not diluted."""
SHOWN_CHARS = 160
"""Of a completion or a reason, on the screen."""
UNSCORED_SHARE = 0.5
"""From here on the user is told that the held-back grader does not work."""
NO_GRADER: Mapping[str, Any] = {
    "paid": None,
    "held_back": None,
    "gap": None,
    "interval": None,
    "growth": None,
    "growth_interval": None,
    "refused_of_paid": None,
    "num_prompts": 0,
    "num_completions": 0,
    "num_unscored": 0,
    "gaps": {},
}
ADVICE = (
    "  What to do: give [verifier] the rule that the held-back grader has (stricter settings, or more snapshots from "
    "`groupwise variants`), run `groupwise audit` on the recipe, and train again."
)


@dataclass(slots=True)
class HackingWatch:
    """What a run remembers between two looks. It is a Recorder of its run, and reads the rollouts that it is given."""

    recipe: Recipe
    directory: RunDirectory
    display: Display
    search: AttackSearch | None
    """None where monitor.attacks is false."""
    recorder: Recorder | None = None
    """Where its events go; set once the recorder of the run is there."""
    recent: deque[tuple[str, str] | None] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """(attack, task id), or None, of the last paid training completions that were compared."""
    training_hits: Counter[str] = field(default_factory=Counter)
    """Completions of training by the attack that they are, since the run (or its restart) began."""
    told: set[str] = field(default_factory=set)
    """Attacks, and failures, that the user knows of."""
    _left_out: Mapping[str, str] | None = None

    @property
    def observers(self) -> tuple[Recorder, ...]:
        """What must be told of every step: itself, where it looks for attacks."""
        return () if self.search is None else (self,)

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See Recorder; nothing to learn here."""

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """See Recorder; nothing to learn here."""

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Looks for attacks among the paid completions of a training step; held-out ones come through watch_hacking."""
        if self.search is None or stage.startswith("evaluation-"):
            return
        try:
            looked = self.search.look(groups)
        except Exception as error:  # whatever breaks here must not stop training
            self.tell_failure(error)
            return
        self.recent.extend(looked.compared)
        self.training_hits.update(hit.attack for hit in looked.hits)
        name = attack_alarm(list(self.recent))
        if name and name not in self.told:
            self._tell_attack(f"{stage} step {step}", name, looked.hits, groups)

    def close(self) -> None:
        """Ends what the search for attacks needs."""
        if self.search is not None:
            self.search.close()

    def tell_failure(self, error: Exception) -> None:
        """Says once for each kind of error that this monitor does not work."""
        if (kind := type(error).__name__) not in self.told:
            self.told.add(kind)
            self.display.line(f"The reward-hacking monitor failed ({kind}: {error}); training goes on without it.")

    def left_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """The held-out tasks whose gold the held-back grader does not pay, where the recipe says to go on without."""
        section = self.recipe.monitor.held_back
        if self._left_out is None:
            drops = section is not None and section.unusable_gold == "drop"
            self._left_out = unusable(section, self.recipe, tasks) if section is not None and drops else {}
        return self._left_out

    def write(self, payload: Mapping[str, Any]) -> None:
        """One event."""
        if self.recorder is not None:
            self.recorder.event(EVENT, payload)

    def show_alarm(self, where: str, sentence: str, shown: Sequence[Mapping[str, str]]) -> None:
        """The alarm, one completion that was paid, why, and why it should not have been; what to do, the first time."""
        self.display.warning(f"{where}: possible reward hacking: {sentence}.")
        lines = []
        for first in shown[:1]:
            text = first["text"] if len(first["text"]) <= SHOWN_CHARS else first["text"][: SHOWN_CHARS - 3] + "..."
            lines.append(f"  For instance task {first['task_id']}: {text!r}")
            lines.append(f"  paid: {first['paid_reason'][:SHOWN_CHARS]}")
            lines.append(f"  refused: {first['held_back_reason'][:SHOWN_CHARS]}")
        if ADVICE not in self.told:
            self.told.add(ADVICE)
            lines.append(ADVICE)
        if lines:
            self.display.line("\n".join(lines))

    def _tell_attack(self, where: str, name: str, hits: Sequence[Hit], groups: Sequence[Group]) -> None:
        self.told.add(name)
        sentence = attack_sentence(name, sum(one is not None and one[0] == name for one in self.recent), "training")
        shown = hit_examples([hit for hit in hits if hit.attack == name])
        versions = [one.completion.policy_version for group in groups for one in group.rollouts]
        repeats = repetition(_texts(groups))
        self.write(
            {
                "name": where,
                "policy_version": max(versions, default=0),
                **NO_GRADER,
                "attack_hits": {},
                "training_attack_hits": dict(self.training_hits),
                "repeated_frac": repeats.repeated_frac,
                "near_repeated_frac": repeats.near_repeated_frac,
                "looping_frac": repeats.looping_frac,
                "alarm": sentence,
                "examples": shown,
            }
        )
        self.show_alarm(where, sentence, shown)


def hacking_watch(recipe: Recipe, verifier: TaskVerifier, directory: RunDirectory, display: Display) -> HackingWatch:
    """The watch of a run; `verifier` is the one that training is paid by."""
    search = AttackSearch.of(recipe.verifier, recipe.folder, verifier.gold) if recipe.monitor.attacks else None
    return HackingWatch(recipe=recipe, directory=directory, display=display, search=search)


def watch_hacking(run: Run, name: str, evaluation: Evaluation) -> None:
    """Called after every held-out evaluation of a run; name is that of the evaluation.

    With a held-back grader there is an event each time; without one, where a paid completion is an attack.
    """
    watch = run.hacking
    if watch is None:
        return
    try:
        look_again(watch, name, run.policy_version, evaluation.groups or evaluation.greedy_groups)
    except Exception as error:  # a second opinion must not stop training
        watch.tell_failure(error)


def look_again(watch: HackingWatch, name: str, policy_version: int, groups: Sequence[Group]) -> None:
    """Judges the completions of one evaluation again, looks for attacks among them, and tells what came of it."""
    began = time.monotonic()
    has_grader = watch.recipe.monitor.held_back is not None
    graded = _graded_twice(watch, groups) if has_grader else []
    looked = Looked(hits=(), compared=())
    if watch.search is not None:
        looked = watch.search.look(_not_vouched_for(groups, graded) if graded else groups)
    if not has_grader and not looked.hits:
        return
    base, base_refused = _base(watch.directory)
    gap = gap_of(graded, base)
    alarm = _alarm(watch, gap, base_refused, looked)
    shown = (examples(graded) or hit_examples(looked.hits)) if alarm or has_grader else hit_examples(looked.hits)
    repeats = repetition(_texts(groups))
    watch.write(
        {
            "name": name,
            "policy_version": policy_version,
            **(gap_event(gap) if has_grader else NO_GRADER),
            "attack_hits": dict(Counter(hit.attack for hit in looked.hits)),
            "training_attack_hits": dict(watch.training_hits),
            "repeated_frac": repeats.repeated_frac,
            "near_repeated_frac": repeats.near_repeated_frac,
            "looping_frac": repeats.looping_frac,
            "seconds": time.monotonic() - began,
            "alarm": alarm,
            "examples": shown,
        }
    )
    if alarm:
        watch.show_alarm(name, alarm, shown)
    elif has_grader:
        watch.display.line(_agreement(name, gap))


def attack_sentence(name: str, count: int, where: str) -> str:
    """What is said of an attack that was paid."""
    return f"{count} paid completions of {where} are the audit's attack {name!r}: texts that no verifier should pay"


def hit_examples(hits: Sequence[Hit]) -> list[dict[str, str]]:
    """Hits as examples, each text once; what the audit says of the attack stands as the reason to refuse it."""
    first_of: dict[str, Hit] = {}
    for hit in hits:
        first_of.setdefault(hit.text, hit)
    return [
        example(
            GradedTwice(
                task_id=hit.task_id,
                text=hit.text,
                paid=True,
                paid_reason=hit.paid_reason,
                held_back=False,
                held_back_reason=f"attack {hit.attack}: {hit.why}",
            )
        )
        for hit in list(first_of.values())[:MAX_EXAMPLES]
    ]


def _graded_twice(watch: HackingWatch, groups: Sequence[Group]) -> list[GradedTwice]:
    left_out = watch.left_out([group.task for group in groups])
    pairs = [(group.task, one) for group in groups if group.task.id not in left_out for one in group.rollouts]
    verdicts = judge_again(watch.recipe, [(task, one.completion.text) for task, one in pairs])
    return [
        GradedTwice(
            task_id=task.id,
            text=one.completion.text,
            paid=one.verdict.outcome,
            paid_reason=one.verdict.reason,
            held_back=verdict.outcome,
            held_back_reason=verdict.reason,
        )
        for (task, one), verdict in zip(pairs, verdicts, strict=True)
    ]


def _not_vouched_for(groups: Sequence[Group], graded: Sequence[GradedTwice]) -> list[Group]:
    """The groups without what the held-back grader pays as well: an attack that two graders call right is none."""
    vouched = {(one.task_id, one.text) for one in graded if one.held_back is True}

    def stays(group: Group, one: Rollout) -> bool:
        return (group.task.id, one.completion.text) not in vouched

    return [
        Group(task=group.task, prompt=group.prompt, rollouts=tuple(one for one in group.rollouts if stays(group, one)))
        for group in groups
    ]


def _alarm(watch: HackingWatch, gap: Gap, base_refused: Interval | None, looked: Looked) -> str:
    monitor = watch.recipe.monitor
    sentence = ""
    if monitor.held_back is not None:
        proves = proves_golds(monitor.held_back)
        sentence = gap_alarm(gap, max_gap=monitor.max_gap, proves=proves, base_refused=base_refused)
    attack = attack_alarm(looked.compared)
    if attack and not sentence:
        count = sum(one is not None and one[0] == attack for one in looked.compared)
        sentence = attack_sentence(attack, count, "this evaluation")
    return sentence


def _base(directory: RunDirectory) -> tuple[Mapping[str, float], Interval | None]:
    """Gaps by task id, and the share refused of what was paid, as the run's first evaluation has them; read from the
    file, so that a restarted run compares with the same."""
    try:
        events = read_events(directory.events) if directory.events.exists() else []
    except (DataError, OSError):
        return {}, None
    first: Mapping[str, Any] = next((e for e in events if e.get("event") == EVENT and e.get("gaps")), {})
    refused = first.get("refused_of_paid")
    return first.get("gaps") or {}, Interval(*refused) if refused else None


def _agreement(name: str, gap: Gap) -> str:
    total = gap.num_completions + gap.num_unscored
    if math.isnan(gap.gap) or gap.num_unscored > UNSCORED_SHARE * total:
        return f"{name}: the held-back grader could not judge {gap.num_unscored} of {total} completions"
    if not gap.num_paid:
        return f"{name}: the verifier pays none of the held-out completions, so there is nothing to look at twice"
    low, high = 100 * gap.interval.low, 100 * gap.interval.high
    return (
        f"{name}: the held-back grader, which training never sees, pays {gap.held_back:.1%} of the same completions, "
        f"and the verifier {gap.paid:.1%}: {_verdict(gap)} (difference {100 * gap.gap:+.1f} points, "
        f"{CONFIDENCE:.0%} interval {low:+.1f} to {high:+.1f})"
    )


def _verdict(gap: Gap) -> str:
    if gap.interval.low <= 0 <= gap.interval.high:
        return "no sign that rewards are found and not earned"
    if gap.interval.high < 0:
        return "it is the milder of the two, so it says little about rewards that are found and not earned"
    return "they differ, by no more than the recipe allows or two graders may"


def _texts(groups: Sequence[Group]) -> list[list[str]]:
    return [[one.completion.text for one in group.rollouts] for group in groups]
