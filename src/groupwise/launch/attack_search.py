"""Looks for the audit's attacks in what a policy really wrote and was paid for.

The audit tries texts that must not be paid. A policy may find one that it missed, or that came through because the
audit was accepted. So each paid completion is compared with the attacks on its own task, and with what was paid on
other tasks: one text for tasks with different golds answers none of them.

Both sides are evened out first (`evener`), and a text that equals the gold is never a hit. Attacks that may be right
are left out. Making attacks costs a few queries or string operations a task; it is done for paid completions only, once
a task, and stops when it has taken more than SHARE_OF_TIME of the time since the search began.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.audit import AttackMaker
from groupwise.audit.attack import prompt_text
from groupwise.config import ComposeVerifierSection, VerifierSection
from groupwise.config.verifier import PartVerifierSection
from groupwise.errors import GroupwiseError
from groupwise.launch.attacks import AttackPlan, attack_plan
from groupwise.types import Group, Task

SHARE_OF_TIME = 0.005
FREE_SECONDS = 0.25
"""So that a short run looks at some tasks, too."""
MAX_TASKS = 2_000
"""Tasks whose attacks are kept, the latest ones; some 30 short texts each."""
MAX_CHARS = 8_000
"""Longer attacks and completions are not compared."""
MIN_KEYS = 2
MIN_GOLDS = 5
"""Different golds for which one text must have been paid to be a constant answer. Where a key decides (a label), two
are proof; elsewhere two golds may say the same in other words."""
CONSTANT = "constant_answer"
ECHO = "prompt_copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A paid completion that is an attack.

    Example:
        Hit(attack="limit_trick", task_id="q17", text="SELECT name FROM singer LIMIT 4", paid_reason="same_rows",
            why="LIMIT at the 4 rows of the first snapshot")
    """

    attack: str
    task_id: str
    text: str
    paid_reason: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What one look has found: Looked(hits=(Hit(...),), compared=(("limit_trick", "q17"), None, None))."""

    hits: tuple[Hit, ...]
    compared: tuple[tuple[str, str] | None, ...]
    """(attack, task id), or None, for each paid completion that was compared: what an alarm goes by. A constant answer
    is None here where the gold is one right answer of many (see AttackSearch.gold_is_the_answer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownTask:
    attacks: Mapping[str, tuple[str, str]]
    """(name, why) by evened text."""
    gold: str
    """Evened; empty where none is known."""
    key: str
    """What makes two golds one answer; empty where none is known."""


@dataclass(slots=True)
class AttackSearch:
    """Compares paid completions with attacks. Safe from several threads, one look at a time.

    Example:
        search = AttackSearch.of(recipe.verifier, recipe.folder, verifier.gold)
        search.look(groups).hits          # (Hit(attack="limit_trick", ...),)
    """

    plan: AttackPlan
    even: Callable[[str], str]
    gold_of: Callable[[Task], str]
    gold_is_the_answer: bool = True
    """False for a reward function or model, whose gold is an example: one text may be right for tasks whose golds
    differ. Such constant answers are counted, and alarm nobody."""
    seconds: float = 0.0
    """Spent on looking so far."""
    _known: OrderedDict[str, _KnownTask] = field(default_factory=OrderedDict)
    _paid_for: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """{evened text: {key of a gold: a task with it}}, of texts paid for tasks whose gold they are not."""
    _started: float = field(default_factory=time.monotonic)
    _look_began: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, section: VerifierSection, folder: Path, gold_of: Callable[[Task], str]) -> AttackSearch:
        """The search that fits a [verifier] section; gold_of is that verifier's gold."""
        deciding = _deciding(section)
        return cls(
            plan=attack_plan(section, folder),
            even=evener(section),
            gold_of=gold_of,
            gold_is_the_answer=deciding.kind not in ("function", "reward_model"),
        )

    def look(self, groups: Sequence[Group]) -> Looked:
        """The hits among the paid completions of these groups."""
        with self._lock:
            self._look_began = time.monotonic()
            compared: list[Hit | None] = []
            for group in groups:
                compared += self._look_at(group)
            self.seconds += time.monotonic() - self._look_began
            return Looked(
                hits=tuple(hit for hit in compared if hit is not None),
                compared=tuple(self._alarming(hit) for hit in compared),
            )

    def close(self) -> None:
        """Ends what making attacks needs (a process that runs queries); safe to call twice."""
        self.plan.close()

    def _alarming(self, hit: Hit | None) -> tuple[str, str] | None:
        if hit is None or (hit.attack == CONSTANT and not self.gold_is_the_answer):
            return None
        return hit.attack, hit.task_id

    def _look_at(self, group: Group) -> list[Hit | None]:
        paid = [one for one in group.rollouts if one.verdict.outcome is True and len(one.completion.text) <= MAX_CHARS]
        known = self._task(group.task) if paid else None
        if known is None:
            return []
        found: list[Hit | None] = []
        for rollout in paid:
            text, reason = rollout.completion.text, rollout.verdict.reason
            named = self._named(self.even(text), known, group.task.id)
            if named is None:
                found.append(None)
            else:
                found.append(Hit(attack=named[0], task_id=group.task.id, text=text, paid_reason=reason, why=named[1]))
        return found

    def _named(self, text: str, known: _KnownTask, task_id: str) -> tuple[str, str] | None:
        if text == known.gold:
            return None
        if text in known.attacks:
            return known.attacks[text]
        if not known.key:
            return None  # without a gold nobody can say that two tasks have different answers
        if len(self._paid_for) > 10 * MAX_TASKS:
            self._paid_for.clear()
        keys = self._paid_for[text]
        keys.setdefault(known.key, task_id)
        enough = MIN_KEYS if self.plan.answer_keys is not None else MIN_GOLDS
        return (CONSTANT, f"the same text was paid for {len(keys)} different golds") if len(keys) >= enough else None

    def _task(self, task: Task) -> _KnownTask | None:
        """None where the time for making attacks is used up."""
        known = self._known.get(task.id)
        if known is not None:
            return known
        now = time.monotonic()
        spent = self.seconds + now - self._look_began
        if spent > FREE_SECONDS + SHARE_OF_TIME * (now - self._started):
            return None
        known = _known_task(task, self.plan, self.even, self._gold(task))
        self._known[task.id] = known
        if len(self._known) > MAX_TASKS:
            self._known.popitem(last=False)
        return known

    def _gold(self, task: Task) -> str:
        try:
            return self.gold_of(task)
        except GroupwiseError:  # a reward function or an opinion may know none
            return ""


def _known_task(task: Task, plan: AttackPlan, even: Callable[[str], str], gold: str) -> _KnownTask:
    even_gold = even(gold) if gold else ""
    attacks = {even(prompt_text(task)): (ECHO, "the prompt again, word for word")}
    for attack in _made(plan.attack, task, gold):
        if not attack.may_pass and len(attack.text) <= MAX_CHARS:
            attacks.setdefault(even(attack.text), (attack.name, attack.why))
    key = (plan.answer_keys(task, gold) if plan.answer_keys is not None else even_gold) if gold else ""
    return _KnownTask(attacks=attacks, gold=even_gold, key=key)


def _made(attack: AttackMaker, task: Task, gold: str) -> list[Any]:
    try:
        return attack(task, gold)
    except (GroupwiseError, KeyError, ValueError):  # the columns of one task do not fit; the audit told before training
        return []


_QUOTED = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`)")
_FENCE = re.compile(r"\A\s*```[a-z]*\n(.*?)\n?```\s*\Z", re.DOTALL)


def evener(section: VerifierSection) -> Callable[[str], str]:
    """The function that makes texts equal where the kind of truth reads them alike: spaces for every kind; case outside
    of quotes and a closing semicolon for sql; the order of keys for JSON; case for classification."""
    by_kind: dict[str, Callable[[str], str]] = {
        "sql": even_sql,
        "tools": even_json,
        "extraction": even_json,
        "classification": lambda text: even_spaces(text).casefold(),
    }
    return by_kind.get(_deciding(section).kind, even_spaces)


def _deciding(section: VerifierSection) -> PartVerifierSection:
    """The section itself; of a composition, that of its first outcome part, whose golds it has."""
    if isinstance(section, ComposeVerifierSection):
        return next(part for part in section.parts if part.role == "outcome").verifier
    return section


def even_spaces(text: str) -> str:
    """Each run of white space as one space, none at the ends."""
    return " ".join(text.split())


def even_sql(text: str) -> str:
    """A query without its fence and last semicolon, in small letters but for what stands in quotes, and without spaces
    beside what is no word. Not parsed: that takes a hundred times longer."""
    fenced = _FENCE.match(text)
    body = (fenced[1] if fenced else text).strip().rstrip(";").strip()
    parts = _QUOTED.split(body)
    even = [part if place % 2 else even_spaces_in_code(part) for place, part in enumerate(parts)]
    return "".join(even)


def even_spaces_in_code(text: str) -> str:
    """Small letters, and spaces only between words."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", re.sub(r"\s+", " ", text.casefold()))


def even_json(text: str) -> str:
    """JSON with its keys in order and no spaces between; other text as even_spaces."""
    fenced = _FENCE.match(text)
    try:
        return json.dumps(json.loads(fenced[1] if fenced else text), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return even_spaces(text)
