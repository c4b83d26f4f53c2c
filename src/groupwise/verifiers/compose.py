"""One verdict from several verifiers: gates that must hold, parts that decide, parts that shape.

    role      what it does
    --------  --------------------------------------------------------------------------------------------------------
    gate      multiplies: where it does not hold, the reward is 0 and no other part is asked
    outcome   decides: the task is solved where every gate holds and every outcome part says solved; carries a weight
    shaping   carries a weight and decides nothing

    solved:   reward = sum_outcome w + sum_shaping w r          with the weights scaled to sum to 1
    wrong:    reward = min(partial_cap, sum_outcome w r + sum_shaping w r)

partial_cap is smaller than the outcome parts' weights together, so no wrong answer earns as much as any right one. A
completion that breaks a rule of a gate or of an outcome part is invalid: reward 0. A part that cannot judge makes the
whole verdict unscored: half a judgement is none.

    status      reason starts with
    ----------  -------------------------------------------------------
    scored      solved | NAME_wrong NAME_failed     (NAME is the part's)
    invalid     NAME_invalid
    unscored    NAME_unscored
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from groupwise.errors import VerifierError
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.contract import TaskVerifier, UnusableGold

Role = Literal["gate", "outcome", "shaping"]
_ORDER: Mapping[str, int] = {"gate": 0, "outcome": 1, "shaping": 2}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One verifier of a composition: Part(name="answer", role="outcome", weight=3.0, verifier=MathVerifier(...))."""

    name: str
    verifier: TaskVerifier
    role: Role = "outcome"
    weight: float = 1.0
    """Share of the reward relative to the other weights, above 0. Without meaning for a gate."""
    opinion: bool = False
    """True where the part knows no right answer (a reward model without golds): it need not pay the gold in full."""


class ComposeVerifier:
    """Gates times a weighted sum. Safe from many threads where its parts are.

    Example:
        verifier = ComposeVerifier(parts=[Part(name="form", role="gate", verifier=form),
                                          Part(name="answer", verifier=answer, weight=4.0),
                                          Part(name="style", role="shaping", verifier=style)])
        A right answer without style earns 0.8, with half the style 0.9; a wrong one earns 0.

    Args:
        parts: one or more of them with the role outcome. The composition owns them: close() closes them.
        partial_cap: the most that a wrong answer may earn; 0 = nothing.

    Raises:
        VerifierError: no outcome part, two parts of one name, a weight that is not positive, a cap that would let a
            wrong answer earn as much as a right one.
    """

    def __init__(self, *, parts: Sequence[Part], partial_cap: float = 0.0) -> None:
        _refuse(parts)
        weighted = [part for part in parts if part.role != "gate"]
        total = math.fsum(part.weight for part in weighted)
        self._parts = tuple(sorted(parts, key=lambda part: _ORDER[part.role]))
        self._weights = {part.name: part.weight / total for part in weighted}
        outcome_share = math.fsum(self._weights[part.name] for part in weighted if part.role == "outcome")
        if not 0 <= partial_cap < outcome_share:
            raise VerifierError(
                f"ComposeVerifier: partial_cap = {partial_cap!r} cannot be used; give 0 or more and less than "
                f"{outcome_share:.3g}, the share of the outcome parts: a wrong answer must earn less than any right one"
            )
        self._partial_cap = partial_cap

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each part that has one; they sum to 1."""
        return dict(self._weights)

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """Asks the gates, then the other parts; see the module's text for what comes out."""
        verdicts: dict[str, Verdict] = {}
        for part in self._parts:
            verdict = verdicts[part.name] = _in_range(part.verifier.judge(task, completion_text))
            if verdict.status is Status.UNSCORED:
                return Verdict(
                    status=Status.UNSCORED,
                    reward=None,
                    outcome=None,
                    reason=f"{part.name}_unscored: {verdict.reason}",
                    checks=self._checks(verdicts),
                )
            if verdict.status is Status.INVALID and part.role != "shaping":
                return self._nothing(Status.INVALID, f"{part.name}_invalid: {verdict.reason}", verdicts)
            if part.role == "gate" and not verdict.outcome:
                return self._nothing(Status.SCORED, f"{part.name}_failed: {verdict.reason}", verdicts)
        return self._weigh(verdicts)

    def gold(self, task: Task) -> str:
        """The gold of the first outcome part; check() proves that every other part accepts it.

        Raises:
            VerifierError: that part has no gold for this task.
        """
        return self._deciding.verifier.gold(task)

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """What the outcome parts find, and the tasks whose gold does not earn 1 from all parts together.

        A gate or a shaping part need not have a gold of its own: what it finds is not asked. What an opinion
        withholds of a gold is no finding; where the first outcome part is one, there is no gold to prove.
        """
        found: list[UnusableGold] = []
        for part in self._parts:
            if part.role == "outcome":
                findings = part.verifier.check(tasks)
                found += [replace(finding, reason=f"{part.name}_{finding.reason}") for finding in findings]
        blocked = {finding.task_id for finding in found if finding.blocking}
        for task in tasks:
            if task.id in blocked:
                continue
            try:
                own = self.judge(task, self.gold(task))
            except VerifierError as error:
                if not self._deciding.opinion:
                    found.append(UnusableGold(task_id=task.id, reason=f"gold_missing: {error}"))
                continue
            if not self._earns_all(own):
                earned = "no reward" if own.reward is None else f"{own.reward:.3g}, not 1"
                reason = f"gold_failed: it earns {earned} from all parts together: {own.reason}"
                found.append(UnusableGold(task_id=task.id, reason=reason))
        return found

    @property
    def version(self) -> str:
        """Hash of this code, the roles and weights, and the versions of the parts."""
        digest = hashlib.sha256(Path(__file__).read_bytes())
        parts = [[p.name, p.role, self._weights.get(p.name), p.verifier.version] for p in self._parts]
        digest.update(json.dumps([self._partial_cap, parts]).encode())
        return digest.hexdigest()[:16]

    def close(self) -> None:
        """Closes every part."""
        for part in self._parts:
            part.verifier.close()

    @property
    def _deciding(self) -> Part:
        """The part that has the golds."""
        return next(part for part in self._parts if part.role == "outcome")

    def _earns_all(self, verdict: Verdict) -> bool:
        """True where every part pays in full, opinions aside."""
        full = [part.name for part in self._parts if part.role != "gate" and not part.opinion]
        return verdict.outcome is True and all(verdict.parts[name] == 1.0 for name in full)

    def _weigh(self, verdicts: Mapping[str, Verdict]) -> Verdict:
        deciding = [part.name for part in self._parts if part.role == "outcome"]
        wrong = [name for name in deciding if not verdicts[name].outcome]
        earned = {name: _reward(verdicts[name]) for name in self._weights}
        if not wrong:
            earned |= dict.fromkeys(deciding, 1.0)
            # all of everything is 1 to the last bit, whatever the scaled weights round to
            reward = 1.0 if all(value == 1 for value in earned.values()) else min(1.0, self._sum(earned))
            return self._verdict(Status.SCORED, True, reward, _solved(earned), verdicts, earned)
        full = self._sum(earned)
        reward = min(self._partial_cap, full)
        scale = reward / full if full > 0 else 0.0
        earned = {name: value * scale for name, value in earned.items()}
        reason = f"{wrong[0]}_wrong: {verdicts[wrong[0]].reason}"
        return self._verdict(Status.SCORED, False, reward, reason, verdicts, earned)

    def _sum(self, earned: Mapping[str, float]) -> float:
        return math.fsum(self._weights[name] * value for name, value in earned.items())

    def _nothing(self, status: Status, reason: str, verdicts: Mapping[str, Verdict]) -> Verdict:
        return self._verdict(status, False, 0.0, reason, verdicts, dict.fromkeys(self._weights, 0.0))

    def _verdict(
        self,
        status: Status,
        outcome: bool,
        reward: float,
        reason: str,
        verdicts: Mapping[str, Verdict],
        earned: Mapping[str, float],
    ) -> Verdict:
        return Verdict(
            status=status,
            reward=reward,
            outcome=outcome,
            reason=reason,
            checks=self._checks(verdicts),
            parts=dict(earned),
        )

    def _checks(self, verdicts: Mapping[str, Verdict]) -> tuple[Check, ...]:
        """One check for each part that was asked, then the part's own under its name."""
        checks: list[Check] = []
        for part in self._parts:
            if part.name not in verdicts:
                continue
            verdict = verdicts[part.name]
            found = verdict.reason if verdict.reward is None else f"{verdict.reward:.3g}: {verdict.reason}"
            checks.append(Check(name=part.name, passed=verdict.outcome is True, expected=part.role, found=found))
            checks += [replace(check, name=f"{part.name}.{check.name}") for check in verdict.checks]
        return tuple(checks)


def _solved(earned: Mapping[str, float]) -> str:
    below = [f"{name} {value:.3g}" for name, value in earned.items() if value < 1]
    return "solved" + (f": less than all for {', '.join(below)}" if below else "")


def _reward(verdict: Verdict) -> float:
    return 0.0 if verdict.reward is None else verdict.reward


def _in_range(verdict: Verdict) -> Verdict:
    """A part that pays outside 0..1 would change what the weights mean: its verdict counts as none."""
    if verdict.reward is None or 0 <= verdict.reward <= 1:
        return verdict
    reason = f"reward_out_of_range: {verdict.reward!r}, a part pays 0 to 1"
    return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=reason, checks=verdict.checks)


def _refuse(parts: Sequence[Part]) -> None:
    names = [part.name for part in parts]
    if not any(part.role == "outcome" for part in parts):
        raise VerifierError(
            "ComposeVerifier: no part has the role outcome, so nothing would decide what is right; "
            'give role = "outcome" to the part that knows the answer'
        )
    for part in parts:
        if not _NAME.fullmatch(part.name) or names.count(part.name) > 1:
            raise VerifierError(
                f"ComposeVerifier: a part is named {part.name!r}; give each part a name of its own, of small letters, "
                "digits and _, a letter first"
            )
        if part.role not in _ORDER:
            raise VerifierError(
                f"ComposeVerifier: part {part.name!r} has role {part.role!r}; known: {', '.join(_ORDER)}"
            )
        if not (part.weight > 0 and math.isfinite(part.weight)):
            raise VerifierError(
                f"ComposeVerifier: part {part.name!r} has weight {part.weight!r}; give a number above 0"
            )
