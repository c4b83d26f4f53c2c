"""Takes one label and its rationale out of a completion: from one declared place, or not at all.

    answer_in   the completion
    ----------  ------------------------------------------------------------------------------------------------
    json        {"label": "neutral", "rationale": "..."}: the whole text or one fenced block, no other keys
    text        the rationale, then as last line "Label: neutral"; one such line in all
    auto        json where the text starts with "{" or holds a fence, otherwise text

A label is the whole value: compared without case, white space at the ends and one final stop. "neutral or entailment"
is two labels, not one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.verifiers.parsing import Problem, json_answer
from groupwise.verifiers.rationale_text import contains_run, words

MAX_COMPLETION_CHARS = 32_768
AnswerIn = Literal["auto", "json", "text"]

_LABEL_LINE = re.compile(r"[ \t]*(?:\*\*)?label(?:\*\*)?[ \t]*:(.*)", re.IGNORECASE)
_RATIONALE_START = re.compile(r"\s*(?:\*\*)?rationale(?:\*\*)?[ \t]*:(?:\*\*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledAnswer:
    """What was found: LabelledAnswer(label="neutral", rationale="..."), or why nothing was (problem)."""

    label: str = ""
    """As the completion writes it; match_label finds it in the set."""
    rationale: str = ""
    problem: str = ""


def extract_answer(completion_text: str, answer_in: AnswerIn) -> LabelledAnswer:
    """The label and the rationale of a completion; see the module's table."""
    if len(completion_text) > MAX_COMPLETION_CHARS:
        return _problem(f"too_large: {len(completion_text)} characters, at most {MAX_COMPLETION_CHARS} are read")
    text = completion_text.strip()
    if not text:
        return _problem("no_answer: the completion is empty")
    if answer_in == "json" or (answer_in == "auto" and (text.startswith("{") or "```" in text)):
        return _from_json(text)
    return _from_text(text)


def match_label(given: str, labels: Sequence[str]) -> tuple[str, str]:
    """(label of the set, "") or ("", problem)."""
    known = {fold(label): label for label in labels}
    label = known.get(fold(given))
    if label is not None:
        return label, ""
    if not fold(given):
        return "", "no_answer: the label is empty"
    tokens = words(given.replace("_", " "))
    named = sorted(label for label in labels if contains_run(tokens, words(label.replace("_", " "))))
    if len(named) > 1:
        return "", f"several_answers: the label names {len(named)} labels: {', '.join(named)[:80]}"
    return "", f"unknown_label: {given.strip()[:40]!r} is none of the {len(labels)} labels"


def fold(label: str) -> str:
    """Lower case, without white space at the ends and without one final stop."""
    return label.strip().casefold().removesuffix(".").rstrip()


def _from_json(text: str) -> LabelledAnswer:
    value = json_answer(text, "auto", max_chars=MAX_COMPLETION_CHARS)
    if isinstance(value, Problem):
        return _problem(value.reason)
    if not isinstance(value, dict) or not value.keys() <= {"label", "rationale"}:
        return _problem('wrong_keys: not an object with the keys "label" and "rationale" alone')
    label, rationale = value.get("label"), value.get("rationale", "")
    if isinstance(label, list):
        return _problem(f"several_answers: a list of {len(label)} labels")
    if not isinstance(label, str):
        return _problem('no_answer: "label" is not a text')
    if not isinstance(rationale, str):
        return _problem('no_rationale: "rationale" is not a text')
    return LabelledAnswer(label=label, rationale=rationale.strip())


def _from_text(text: str) -> LabelledAnswer:
    lines = text.splitlines()
    found = _label_lines(text)
    if not found:
        return _problem('no_answer: no line "Label: ..."')
    if len(found) > 1:
        return _problem(f'several_answers: {len(found)} lines "Label: ..."')
    number, value = found[0]
    if number != len(lines) - 1:
        return _problem('no_answer: the line "Label: ..." is not the last')
    rationale = "\n".join(lines[:-1])
    start = _RATIONALE_START.match(rationale)
    return LabelledAnswer(label=value.strip(" \t*"), rationale=rationale[start.end() if start else 0 :].strip())


def _label_lines(text: str) -> list[tuple[int, str]]:
    matches = ((number, _LABEL_LINE.fullmatch(line)) for number, line in enumerate(text.splitlines()))
    return [(number, match.group(1)) for number, match in matches if match]


def _problem(reason: str) -> LabelledAnswer:
    return LabelledAnswer(problem=reason)
