"""Answers that say the same, and answers that repeat themselves.

A group whose members are copies compares nothing, and a text that turns in a circle is a habit that some graders pay.
Neither is wrong by itself: two right answers to a short question are often the same text. So these are numbers to read
beside others, never an alarm of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SHINGLE = 5
"""Characters in a row that two answers share or not. Shorter ones are shared by any two texts of a language."""
NEAR = 0.9
"""Jaccard index from which two answers are near copies: one word in ten may differ."""
MAX_CHARS = 4_000
"""Of longer answers the beginning is compared; what is alike that far is a near copy for a reader, too."""
LOOP_GRAM = 8
LOOP_CHARS = 160
LOOP_SHARE = 0.3
"""Prose, code and JSON stay above 0.6; a sentence said four times comes to 0.25."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """What repeats in some groups of answers.

    Example:
        Repetition(num_answers=32, repeated_frac=0.25, near_repeated_frac=0.375, looping_frac=0.0)
    """

    num_answers: int
    repeated_frac: float
    """Share of answers that another one of their group equals but for case and spaces; 0 without answers."""
    near_repeated_frac: float
    """The same for near copies (see similarity); exact copies are near copies."""
    looping_frac: float
    """Share of answers that turn in a circle (see is_looping)."""


def repetition(groups: Sequence[Sequence[str]]) -> Repetition:
    """Counts over the answers of each group; answers of different groups are never compared."""
    exact = near = looping = total = 0
    for group in groups:
        texts = [normalised(text) for text in group]
        counts = Counter(texts)
        exact += sum(count for count in counts.values() if count > 1)
        near += sum(counts[text] for text in _with_a_near_copy(counts))
        looping += sum(map(is_looping, group))
        total += len(texts)
    return Repetition(
        num_answers=total,
        repeated_frac=exact / total if total else 0.0,
        near_repeated_frac=near / total if total else 0.0,
        looping_frac=looping / total if total else 0.0,
    )


def normalised(text: str) -> str:
    """The text with case and spaces evened out."""
    return " ".join(text.casefold().split())


def similarity(first: str, second: str) -> float:
    """Jaccard index of the two sets of SHINGLE consecutive characters, 0 to 1; 1 for equal texts, two empty ones too.

    A text that is shorter than a shingle is one shingle.
    """
    return 1.0 if first == second else _jaccard(_shingles(first), _shingles(second))


def distinct_share(text: str, gram: int = LOOP_GRAM) -> float:
    """Distinct sequences of `gram` characters divided by all of them, above 0 to 1; 1 for a text without two of them.

    Raises:
        ValueError: gram < 1.
    """
    if gram < 1:
        raise ValueError(f"distinct_share: gram must be 1 or more, got {gram}")
    total = len(text) - gram + 1
    return len({text[i : i + gram] for i in range(total)}) / total if total > 1 else 1.0


def is_looping(text: str) -> bool:
    """True where a text of LOOP_CHARS characters or more, spaces evened out, mostly says what it has said before."""
    even = normalised(text)[:MAX_CHARS]
    return len(even) >= LOOP_CHARS and distinct_share(even) <= LOOP_SHARE


def _with_a_near_copy(counts: Counter[str]) -> set[str]:
    """The texts that stand twice, or close to another one; each pair of texts is looked at once at most."""
    found = {text for text, count in counts.items() if count > 1}
    texts = sorted(counts, key=len)
    sets = [_shingles(text) for text in texts]
    for i, small in enumerate(sets):
        for j in range(i + 1, len(sets)):
            few, many = sorted((len(small), len(sets[j])))
            if few < NEAR * many or (texts[i] in found and texts[j] in found):
                continue  # the index is at most few / many
            if _jaccard(small, sets[j]) >= NEAR:
                found |= {texts[i], texts[j]}
    return found


def _shingles(text: str) -> frozenset[str]:
    text = text[:MAX_CHARS]
    return frozenset(text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1)))


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)
