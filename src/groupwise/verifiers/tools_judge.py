"""From what a completion did to a verdict: every criterion of the plan is a named check, and all must pass.

forbidden   no forbidden call was tried
failed      no more calls failed than are allowed
calls       exact: the calls are the right calls, one to one, in any order
writes      writes: the same records were changed, as often, by whichever calls
end_state   the tables end as they should; tables nobody named end as they began
steps       the required steps were taken, in their partial order, with their arguments bound to each other
answer      the text after the last call says what it must
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.types import Check, Status, Verdict
from groupwise.verifiers.tools_effects import State
from groupwise.verifiers.tools_json import canonical
from groupwise.verifiers.tools_match import SearchTooLarge, match_bags, matches_object, missing_phrases
from groupwise.verifiers.tools_plan import GoldCall, ToolPlan
from groupwise.verifiers.tools_steps import DoneCall, count_steps, find_steps
from groupwise.verifiers.tools_world import Bag, changes

MAX_SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What a transcript did: Episode(calls=(DoneCall(...),), final_text="Done.", writes=Counter(), end_state={...})."""

    calls: tuple[DoneCall, ...]
    final_text: str = ""
    writes: Bag
    end_state: State | None
    """None without simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The verifier's settings that decide: Rules(exact=True, max_failed_calls=0, partial_cap=0.0)."""

    exact: bool
    """True: the calls are compared; False: only what they changed."""
    max_failed_calls: int
    partial_cap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    check: Check
    word: str
    """The verdict's reason where the check does not pass."""
    progress: float
    """0..1, how much of it is right."""


def judge_no_call(plan: ToolPlan, final_text: str, num_calls: int) -> Verdict:
    """The verdict where text and no call is right. No text is no answer: doing nothing earns nothing."""
    check = Check(name="calls", passed=num_calls == 0, expected="no call", found=f"{num_calls} calls")
    if num_calls:
        return scored(0.0, "called_a_tool: no call is right here", (check,))
    if not any(character.isalnum() for character in final_text):
        return invalid("no_answer: neither a call nor a text")
    finding = _answer(plan, final_text)
    if not finding.check.passed:
        return scored(0.0, f"{finding.word}: {finding.check.found}", (check, finding.check))
    return scored(1.0, "right_refusal: text and no call", (check, finding.check) if plan.answer else (check,))


def judge_episode(plan: ToolPlan, gold: Episode, episode: Episode, rules: Rules) -> Verdict:
    """The verdict on an episode, compared with the gold's."""
    findings = [_forbidden(plan, episode)] if plan.forbidden else []
    findings.append(_failed(episode, rules.max_failed_calls))
    if not episode.calls:
        missing = Check(name="calls", passed=False, expected=f"{len(plan.calls)} calls", found="no call")
        return scored(0.0, "missing_call: no call in the completion", (missing,))
    if rules.exact:
        findings.append(_calls(plan, episode))
    else:
        findings += [_writes(gold, episode), _end_state(plan, gold, episode)]
    if plan.required:
        try:
            findings.append(_steps(plan, episode))
        except SearchTooLarge as error:
            return invalid(f"too_many_calls: {error}")
    if plan.answer:
        findings.append(_answer(plan, episode.final_text))
    checks = tuple(finding.check for finding in findings)
    wrong = [finding for finding in findings if not finding.check.passed]
    if not wrong:
        return scored(1.0, f"right_calls: {len(episode.calls)} calls", checks)
    progress = 1.0
    for finding in findings:
        progress *= finding.progress
    reason = f"{wrong[0].word}: expected {wrong[0].check.expected}, found {wrong[0].check.found}"
    return scored(rules.partial_cap * progress, reason, checks, outcome=False)


def scored(reward: float, reason: str, checks: Sequence[Check], *, outcome: bool | None = None) -> Verdict:
    """A decided verdict; outcome is whether the reward is 1, unless given."""
    solved = reward == 1.0 if outcome is None else outcome
    return Verdict(status=Status.SCORED, reward=reward, outcome=solved, reason=reason, checks=tuple(checks))


def invalid(reason: str) -> Verdict:
    """The completion broke a rule."""
    word = reason.partition(":")[0]
    check = Check(name="form", passed=False, expected="calls that can be read and fit their schemas", found=word)
    return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))


def _forbidden(plan: ToolPlan, episode: Episode) -> _Finding:
    tried = [
        call.name
        for call in episode.calls
        for rule in plan.forbidden
        if call.name == rule.tool
        and matches_object(rule.arguments, call.arguments, plan.tools.schemas[rule.tool], {}, exact=False)
    ]
    expected = "none of " + ", ".join(sorted({rule.tool for rule in plan.forbidden}))
    return _finding("forbidden", "forbidden_call", not tried, expected, ", ".join(tried) or "none")


def _failed(episode: Episode, most: int) -> _Finding:
    failed = [f"{call.name} {_short(call.result)}" for call in episode.calls if not call.ok]
    return _finding("failed", "call_failed", len(failed) <= most, f"at most {most}", "; ".join(failed) or "none")


def _calls(plan: ToolPlan, episode: Episode) -> _Finding:
    given = [call for call in episode.calls if call.ok]

    def fits(wanted: int, index: int) -> bool:
        gold, call = plan.calls[wanted], given[index]
        schema = plan.tools.schemas[gold.name]
        return gold.name == call.name and matches_object(gold.arguments, call.arguments, schema, {}, exact=True)

    partners = match_bags(len(plan.calls), len(given), fits)
    unmet = [plan.calls[i] for i, partner in enumerate(partners) if partner is None]
    extra = [call for i, call in enumerate(given) if i not in partners]
    word = _word_for(unmet, extra)
    share = (len(partners) - len(unmet)) / max(len(partners), len(given), 1)
    expected = "; ".join(_shown(call) for call in unmet) if unmet else f"{len(plan.calls)} calls"
    found = "; ".join(_shown(call) for call in extra) if extra else f"{len(given)} calls"
    return _finding("calls", word, not unmet and not extra, expected, found, share)


def _word_for(unmet: Sequence[GoldCall], extra: Sequence[DoneCall]) -> str:
    if not unmet:
        return "extra_call"
    if not extra:
        return "missing_call"
    return "wrong_arguments" if {call.name for call in unmet} & {call.name for call in extra} else "wrong_tool"


def _writes(gold: Episode, episode: Episode) -> _Finding:
    missing, extra = gold.writes - episode.writes, episode.writes - gold.writes
    same = (gold.writes & episode.writes).total()
    share = same / max(gold.writes.total(), episode.writes.total()) if gold.writes or episode.writes else 1.0
    expected = _short("; ".join(sorted(missing)) or f"{gold.writes.total()} writes")
    found = _short("; ".join(sorted(extra)) or f"{episode.writes.total()} writes")
    return _finding("writes", "wrong_writes", not missing and not extra, expected, found, share)


def _end_state(plan: ToolPlan, gold: Episode, episode: Episode) -> _Finding:
    wanted = gold.end_state or {}
    if plan.end_state is not None and plan.state is not None:
        wanted = {**plan.state, **plan.end_state}
    differences = changes(wanted, episode.end_state or {}, plan.volatile)
    found = _short("; ".join(sorted(differences)) or "equal")
    return _finding("end_state", "wrong_end_state", not differences, "equal", found)


def _steps(plan: ToolPlan, episode: Episode) -> _Finding:
    total = len(plan.required)
    if find_steps(plan.required, episode.calls, plan.tools):
        return _finding("steps", "", True, f"{total} steps", f"{total} steps")
    word = "wrong_order" if find_steps(plan.required, episode.calls, plan.tools, ordered=False) else "missing_step"
    share = count_steps(plan.required, episode.calls, plan.tools) / total
    expected = ", ".join(step.id for step in plan.required)
    found = ", ".join(f"{call.name}{'' if call.ok else ' (failed)'}" for call in episode.calls)
    return _finding("steps", word, False, _short(expected), _short(found), share)


def _answer(plan: ToolPlan, text: str) -> _Finding:
    missing = missing_phrases(text, plan.answer)
    found = "not said: " + ", ".join(missing) if missing else "all said"
    share = 1 - len(missing) / max(len(plan.answer), 1)
    return _finding("answer", "missing_answer", not missing, ", ".join(plan.answer), found, share)


def _finding(name: str, word: str, passed: bool, expected: str, found: str, progress: float | None = None) -> _Finding:
    check = Check(name=name, passed=passed, expected=_short(expected), found=_short(found))
    return _Finding(check=check, word=word, progress=float(passed) if progress is None else progress)


def _shown(call: GoldCall | DoneCall) -> str:
    return f"{call.name}({_short(call.arguments)})"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else canonical(value)
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair could not be written to a file
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."
