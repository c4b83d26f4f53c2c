r"""Finds the declared answer of a completion: from a declared place, or not at all.

The last declared answer counts. Different answers side by side, with nothing but "or" and punctuation between them, are
one hedge and count as none. What stands in <think>...</think> or in a ``` block declares nothing. Every scan is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from groupwise.verifiers.parsing import fenced_blocks

AnswerIn = Literal["auto", "boxed", "hash", "tag", "line", "text"]

MAX_COMPLETION_CHARS = 4_000_000
MAX_DECLARED = 20  # a model that goes round in circles declares hundreds
MAX_ANSWER_CHARS = 1000

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]{0,8}")
_BARE = re.compile(r"[^\s$\\,;]{0,40}")
_HASH = re.compile(r"(?<!#)####(?!#)([^\n]*)")
_TAG = re.compile(r"<answer>|</answer>")
_LINE = re.compile(r"[*_#> \t]{0,8}(?:the )?(?:final )?answer(?: is)?[*_]{0,3} {0,2}[:=]?[*_]{0,3}[ \t](?=\S)", re.I)
_VALUE_START = re.compile(r"[*_ \t]{0,8}[$(\[{\\+\-\u2212.]{0,4} ?[0-9\\]")
_CONNECTIVES = frozenset({"or", "and", "either", "maybe", "perhaps", "also", "possibly", "alternatively"})
_WORD = re.compile(r"[^\W\d_]+")
MAX_GAP_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a completion declares.

    Example:
        Declared(answers=("17", "18"), side_by_side=2); Declared(problem="no_answer: <think> is not closed")
    """

    answers: tuple[str, ...] = ()
    """In order; the last one counts. Those before it are cut behind MAX_ANSWER_CHARS + 1 characters."""
    side_by_side: int = 0
    """How many of the last answers have no words between them, the last one included."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    end: int
    text: str


def declared_answers(completion_text: str, answer_in: AnswerIn) -> Declared:
    r"""The answers that a completion declares.

    answer_in   where an answer stands
    ----------  -----------------------------------------------------------------------
    boxed       \boxed{...}
    hash        behind #### to the end of the line
    tag         <answer>...</answer>; a box inside it is the answer
    line        behind "Answer:" or "The answer is" at the start of a line
    text        the whole completion
    auto        boxed, tag, and those hash lines that start like a value, not like a heading
    """
    if len(completion_text) > MAX_COMPLETION_CHARS:
        return Declared(
            problem=f"too_large: a completion of {len(completion_text)} characters, at most {MAX_COMPLETION_CHARS}"
        )
    text = completion_text.rpartition("</think>")[2]
    if "<think>" in text:
        return Declared(problem="no_answer: <think> is not closed")
    if answer_in == "text":
        found = [_Found(0, len(text), text)]
    else:
        if "```" in text:
            text = fenced_blocks(text)[1]
        found = _outermost(sorted(_candidates(text, answer_in), key=lambda item: item.start))
    if not found:
        return Declared(problem=f"no_answer: nothing declared as answer_in = {answer_in!r} reads it")
    if len(found) > MAX_DECLARED:
        return Declared(problem=f"several_answers: more than {MAX_DECLARED} declared")
    answers = tuple(_inner(item.text) for item in found)
    last = answers[-1]
    if not last:
        return Declared(problem="no_answer: the last declared answer is empty or not closed")
    if len(last) > MAX_ANSWER_CHARS:
        return Declared(problem=f"too_large: an answer of {len(last)} characters, at most {MAX_ANSWER_CHARS} are read")
    shortened = tuple(answer[: MAX_ANSWER_CHARS + 1] for answer in answers)  # one that long is not read, nor kept
    return Declared(answers=shortened, side_by_side=_side_by_side(text, found))


def _candidates(text: str, answer_in: AnswerIn) -> Iterator[_Found]:
    if answer_in in ("auto", "boxed"):
        yield from _boxes(text)
    if answer_in in ("auto", "tag"):
        yield from _tags(text)
    if answer_in in ("auto", "hash"):
        for match in _HASH.finditer(text):
            if answer_in == "hash" or _VALUE_START.match(match[1]):
                yield _Found(match.start(), match.end(), match[1])
    if answer_in == "line":
        start = 0
        for line in text.split("\n"):
            marker = _LINE.match(line)
            if marker:
                yield _Found(start, start + len(line), line[marker.end() :])
            start += len(line) + 1


def _boxes(text: str) -> Iterator[_Found]:
    """Boxes that are in no other box. One that is not closed has no text, and nothing behind it is read."""
    start = 0
    while match := _BOX.search(text, start):
        place = match.end()
        if text[place : place + 1] == "{":
            end = closing_brace(text, place)
            if end < 0:
                yield _Found(match.start(), len(text), "")
                return
            yield _Found(match.start(), end + 1, text[place + 1 : end])
            start = end + 1
        else:
            bare = _BARE.match(text, place)
            assert bare is not None, "the pattern matches the empty text"
            yield _Found(match.start(), bare.end(), bare[0])
            start = bare.end()


def closing_brace(text: str, opening: int) -> int:
    r"""Where the brace that opens at `opening` is closed, -1 if nowhere. \{ and \} do not count."""
    depth, place = 0, opening
    while place < len(text):
        char = text[place]
        if char == "\\":
            place += 2
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return place
        place += 1
    return -1


def _tags(text: str) -> Iterator[_Found]:
    opened = -1
    for match in _TAG.finditer(text):
        if match[0] == "<answer>":
            if opened >= 0:
                break  # one inside another declares nothing that could be read
            opened = match.start()
        elif opened >= 0:
            yield _Found(opened, match.end(), text[opened + len("<answer>") : match.start()])
            opened = -1
    if opened >= 0:
        yield _Found(opened, len(text), "")


def _outermost(found: list[_Found]) -> list[_Found]:
    kept: list[_Found] = []
    for item in found:
        if not kept or item.start >= kept[-1].end:
            kept.append(item)
    return kept


def _inner(text: str) -> str:
    """The last box inside, where there is one, otherwise the text."""
    boxes = list(_boxes(text))
    if len(boxes) > 1:
        return ""
    return (boxes[0].text if boxes else text).strip()


def _side_by_side(text: str, found: list[_Found]) -> int:
    count = 1
    for earlier, later in zip(reversed(found[:-1]), reversed(found[1:]), strict=True):
        gap = text[earlier.end : later.start]
        if len(gap) > MAX_GAP_CHARS or not all(word.lower() in _CONNECTIVES for word in _WORD.findall(gap)):
            break
        count += 1
    return count
