"""Cheap, deterministic gates that a rationale passes before any model or judge is asked.

    reason               the rationale ...
    -------------------  ----------------------------------------------------------------------------------
    rationale_long       has more words than allowed
    repetitive           says the same sentence over and over, or is made of a few repeated phrases
    disguised            mixes look-alike alphabets within a word, or holds a model's control token (<|...|>)
    speaks_to_judge      addresses whoever grades it ("give full marks", "this rationale is consistent")
    rationale_short      has fewer than MIN_CONTENT_WORDS words of content
    restates_label       has that few once the words of the label are hidden
    says_other_label     declares a verdict that is not the label ("therefore the answer is neutral")
    foreign_quote        puts in quote marks what the input does not say
    foreign_number       names a number of two digits or more that the input does not hold
    copies_input         has fewer than MIN_OWN_WORDS words outside runs of four that stand in the input
    ungrounded           shares no word of content with the input: it would fit any input

Each gate returns a Check. Words that the input itself uses are never held against a rationale. Names of people and
places are not compared: telling a name from a word at the start of a sentence needs more than a rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.types import Check
from groupwise.verifiers.rationale_model import MASK, LabelMask
from groupwise.verifiers.rationale_text import (
    contains_run,
    content_words,
    find_run,
    is_form_of,
    mixes_scripts,
    numbers,
    quotes,
    runs_of,
    sentences,
    stem,
    words,
)

MIN_CONTENT_WORDS = 2
MIN_OWN_WORDS = 2
COPIED_RUN = 4
"""Words in a row that count as copied."""
MAX_SAME_SENTENCE = 2
MIN_DISTINCT_FRAC = 0.5
"""Of the runs of COPIED_RUN words, in a rationale with REPETITION_WORDS words or more."""
REPETITION_WORDS = 24

_TO_JUDGE = """
dear judge|grader|graders|evaluator|evaluators|verifier|reward model|to the judge|note to judge|full marks|full credit|
maximum score|maximum reward|highest score|high score|give 1|give it 1|give this 1|give a 1|give 10|give it a|give me a|
assign a score|score this|score of 1|score 1|reward of 1|reward 1|ignore previous|ignore all previous|ignore the above|
ignore all instructions|previous instructions|prior instructions|system prompt|as an ai|language model|
this rationale is|the rationale is|my rationale is|rationale supports|rationale is consistent|rationale is correct|
this explanation is consistent|this explanation is correct|explanation supports the label|my explanation is|
the label is correct|label is right|answer is correct|my answer is|consistent with the label|supports the label
"""
JUDGE_PHRASES = tuple(tuple(phrase.split()) for phrase in _TO_JUDGE.replace("\n", "").split("|"))

_VERDICT_NOUNS = frozenset(
    {
        "answer",
        "label",
        "verdict",
        "conclusion",
        "class",
        "category",
        "relation",
        "relationship",
        "result",
        "intent",
        "choice",
        "option",
    }
)
_CONCLUDING = frozenset(
    {"so", "thus", "hence", "therefore", "conclude", "concluding", "consequently", "overall", "finally"}
)
_POINTING = frozenset({"it", "it's", "this", "that", "which", "they"})
_BETWEEN = frozenset(
    {
        "a",
        "an",
        "the",
        "clearly",
        "simply",
        "definitely",
        "then",
        "just",
        "of",
        "be",
        "is",
        "was",
        "are",
        "must",
        "as",
        "case",
        "called",
    }
)
MAX_LOOK_BACK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The input in the forms that the gates compare with: Source.of("A man plays a guitar.")."""

    tokens: tuple[str, ...]
    stems: frozenset[str]
    runs: frozenset[tuple[str, ...]]
    numbers: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Source:
        """Reads the input once."""
        tokens = words(text)
        return cls(
            tokens=tuple(tokens),
            stems=frozenset(stem(word) for word in content_words(tokens)),
            runs=frozenset(runs_of(tokens, COPIED_RUN)),
            numbers=frozenset(numbers(text)),
        )


def gate_checks(
    rationale: str, *, label: str, labels: Sequence[str], source: Source, max_words: int
) -> tuple[Check, ...]:
    """Every gate in the order of the table, each named by its reason; where the length gate fails, only that one."""
    tokens = words(rationale)
    length = _check("rationale_long", len(tokens) <= max_words, f"{max_words} words or fewer", f"{len(tokens)} words")
    if not length.passed:
        return (length,)
    own = content_words(tokens)
    hidden = [token for token in LabelMask(labels).hide(tokens) if token != MASK]
    label_stems = {stem(word) for word in content_words(words(label.replace("_", " ")))}
    argued = [token for token in content_words(hidden) if not is_form_of(token, label_stems)]
    wanted = f"{MIN_CONTENT_WORDS} words of content or more"
    return (
        length,
        _repetition(tokens, sentences(rationale)),
        _disguise(rationale, tokens, source),
        _to_judge(tokens, source),
        _check("rationale_short", len(own) >= MIN_CONTENT_WORDS, wanted, f"{len(own)}"),
        _check("restates_label", len(argued) >= MIN_CONTENT_WORDS, f"{wanted} beside the label", f"{len(argued)}"),
        _verdict(tokens, label, labels),
        _quotes(rationale, labels, source),
        _numbers(rationale, labels, source),
        _copied(tokens, source),
        _grounded(own, source),
    )


def _check(name: str, passed: bool, expected: str, found: str) -> Check:
    return Check(name=name, passed=passed, expected=expected, found=found)


def _repetition(tokens: Sequence[str], parts: Sequence[Sequence[str]]) -> Check:
    same = max(Counter(" ".join(part) for part in parts if len(part) > 2).values(), default=0)
    runs = runs_of(tokens, COPIED_RUN)
    distinct = len(set(runs)) / len(runs) if len(tokens) >= REPETITION_WORDS else 1.0
    return _check(
        "repetitive",
        same <= MAX_SAME_SENTENCE and distinct >= MIN_DISTINCT_FRAC,
        f"no sentence more than {MAX_SAME_SENTENCE} times, {MIN_DISTINCT_FRAC:.0%} of its phrases new",
        f"one {same} times, {distinct:.0%} new",
    )


def _disguise(rationale: str, tokens: Sequence[str], source: Source) -> Check:
    """Both hide words from the gates that read words, and no honest rationale needs them."""
    mixed = [word for word in tokens if mixes_scripts(word) and word not in source.tokens]
    found = mixed[0] if mixed else "<|" if "<|" in rationale else ""
    return _check("disguised", not found, "words of one alphabet, no control tokens", found or "none")


def _to_judge(tokens: Sequence[str], source: Source) -> Check:
    said = next((p for p in JUDGE_PHRASES if contains_run(tokens, p) and not contains_run(source.tokens, p)), ())
    return _check("speaks_to_judge", not said, "no words to whoever grades it", " ".join(said) or "none")


def _verdict(tokens: Sequence[str], label: str, labels: Sequence[str]) -> Check:
    declared = declared_labels(tokens, labels)
    others = sorted(declared - {label})
    return _check("says_other_label", not others, f"no verdict but {label}", ", ".join(others)[:80] or "none")


def declared_labels(tokens: Sequence[str], labels: Sequence[str]) -> set[str]:
    """Labels that the text declares as its verdict: "the answer is X", "label: X", "so it is X", "thus X".

    A noun such as "answer" is enough before a label; a pronoun needs a concluding word before it. "is not X" declares
    nothing. Where one label is a part of another, the longer one is read.
    """
    found: set[str] = set()
    taken: set[int] = set()
    runs = [(label, words(label.replace("_", " "))) for label in labels]
    for label, run in sorted(runs, key=lambda pair: len(pair[1]), reverse=True):
        for start in find_run(tokens, run):
            if start not in taken:
                taken.update(range(start, start + len(run)))
                if _is_declared(tokens[max(0, start - MAX_LOOK_BACK) : start]):
                    found.add(label)
    return found


def _is_declared(before: Sequence[str]) -> bool:
    pointed = False
    for token in reversed(before):
        if token in _CONCLUDING or (token in _VERDICT_NOUNS and not pointed):
            return True
        if token in _POINTING:
            pointed = True
        elif token not in _BETWEEN:
            return False
    return False


def _quotes(rationale: str, labels: Sequence[str], source: Source) -> Check:
    allowed = [words(label.replace("_", " ")) for label in labels] + [words(label) for label in labels]
    text = f" {' '.join(source.tokens)} "
    foreign = [piece for piece in quotes(rationale) if f" {' '.join(piece)} " not in text and piece not in allowed]
    found = " ".join(foreign[0])[:80] if foreign else "none"
    return _check("foreign_quote", not foreign, "quotes that the input holds", found)


def _numbers(rationale: str, labels: Sequence[str], source: Source) -> Check:
    known = source.numbers | {number for label in labels for number in numbers(label)}
    foreign = [number for number in numbers(rationale) if len(number) > 1 and number not in known]
    return _check("foreign_number", not foreign, "numbers that the input holds", foreign[0][:40] if foreign else "none")


def _copied(tokens: Sequence[str], source: Source) -> Check:
    copied: set[int] = set()
    for start, run in enumerate(runs_of(tokens, COPIED_RUN)):
        if run in source.runs:
            copied.update(range(start, start + COPIED_RUN))
    own = len(tokens) - len(copied)
    return _check("copies_input", own >= MIN_OWN_WORDS, f"{MIN_OWN_WORDS} words or more that are not copied", f"{own}")


def _grounded(own: Sequence[str], source: Source) -> Check:
    shared = next((word for word in own if stem(word) in source.stems or is_form_of(word, source.stems)), "")
    return _check("ungrounded", bool(shared) or not source.stems, "a word of the input", shared or "none")
