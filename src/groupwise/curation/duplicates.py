"""Questions that are asked twice: the same text but for case, spaces and punctuation, or nearly the same text.

Differs from the usual in what it takes care not to join. A near duplicate must have the same gold and the same numbers,
as a word problem with one other number is another problem; and questions about different things (another database,
another conversation before them) are never compared. Similarity is exact, not hashed: the Jaccard index of the sets of
5 consecutive characters (3 words where texts are long), with an index over each set's rarest members, so that ten
thousand questions take seconds.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHINGLE = 5
"""Characters in a row that are compared. Shorter ones are shared by any two English texts."""
SHINGLE_WORDS = 3
LONG = 300
"""Mean number of characters from which words are compared: characters would take a hundred times longer there."""
NEAR = 0.8
"""Similarity from which two texts with one gold count as the same question."""
ROUNDING = 1e-9
"""0.8 * 15 is a little more than 12 in floats, and must not count as 13."""
MAX_SHARING = 5
"""Questions that may share a gold and still be worth naming; a gold that more share is a label."""

_TOKENS = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d]\w*|\w|[^\w\s]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_PUNCTUATION = frozenset(".,;:?!\"'`\u00bf\u00a1\u3002\u3001\u2018\u2019\u201c\u201d\u00ab\u00bb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a task asks, without what all tasks share.

    Example:
        Question(id="q17", text="How many singers are there?", gold="SELECT count(*) FROM singer", context="concerts")
    """

    id: str
    text: str
    gold: str | None = None
    """The right answer as text; None = not known, and then nothing is nearly this question."""
    context: str = ""
    """What the question is about, such as its database: only questions with equal contexts are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A question that was asked before: Match(earlier=3, similarity=0.91, same_gold=True)."""

    earlier: int
    """Position of the question that it repeats."""
    similarity: float
    """1 where the normalised texts are equal; else the Jaccard index of their shingles."""
    same_gold: bool
    """False where equal texts have different golds: one of the two must be wrong."""


def normalised(text: str) -> str:
    """The text with case, spaces, width of characters and sentence punctuation evened out.

    Operators and parentheses stay, and so does whatever makes a number: "2+2?" and "2 + 2 ?" become "2 + 2", but
    "2-2", "5!" and "3.5" remain what they are.
    """
    tokens = _TOKENS.findall(unicodedata.normalize("NFKC", text).casefold())
    kept = []
    for place, token in enumerate(tokens):
        if token in _PUNCTUATION and not (token == "!" and place and _takes_factorial(tokens[place - 1])):
            continue
        kept.append(token)
    return " ".join(kept)


def _takes_factorial(token: str) -> bool:
    return token == ")" or bool(_NUMBER.fullmatch(token)) or (len(token) == 1 and token.isalpha())


def normalised_gold(gold: str) -> str:
    """The gold with case and spaces evened out."""
    return " ".join(gold.casefold().split())


def find_duplicates(
    questions: Sequence[Question],
    *,
    near: float = NEAR,
    same_answer: Callable[[int, int], bool] = lambda first, second: False,
) -> dict[int, Match]:
    """For each question that repeats an earlier one, by position: which one. The first of its kind has no entry.

    Questions that repeat another stand for nothing themselves: what is close to them alone is not a repetition.
    same_answer(i, j) is asked about equal texts whose golds differ as text: are they the same answer all the same?
    """
    texts = [normalised(question.text) for question in questions]
    golds = [None if question.gold is None else normalised_gold(question.gold) for question in questions]
    found: dict[int, Match] = {}
    first: dict[tuple[str, str], int] = {}
    for place, question in enumerate(questions):
        earlier = first.setdefault((question.context, texts[place]), place)
        if earlier != place:
            same = golds[earlier] == golds[place] or same_answer(earlier, place)
            found[place] = Match(earlier=earlier, similarity=1.0, same_gold=same)
    buckets: dict[tuple[str, str, tuple[str, ...]], list[int]] = defaultdict(list)
    bare = _without_frames(questions, texts)
    for place, question in enumerate(questions):
        gold = golds[place]
        if place not in found and gold is not None:
            numbers = tuple(sorted(_NUMBER.findall(texts[place])))
            buckets[question.context, gold, numbers].append(place)
    for places in buckets.values():
        if len(places) > 1:
            for place, (earlier, similarity) in _near([bare[p] for p in places], near).items():
                found[places[place]] = Match(earlier=places[earlier], similarity=similarity, same_gold=True)
    return dict(sorted(found.items()))


def shared_golds(questions: Sequence[Question]) -> dict[int, int]:
    """For each question whose gold an earlier question in its context has too, by position: the first with that gold.

    Such questions are worth a look and no duplicates: two ways to ask for one query, or chance. Golds that more than
    MAX_SHARING questions have are left out.
    """
    same: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        if question.gold is not None:
            same[question.context, normalised_gold(question.gold)].append(place)
    groups = [places for places in same.values() if 1 < len(places) <= MAX_SHARING]
    return dict(sorted((place, places[0]) for places in groups for place in places[1:]))


def _without_frames(questions: Sequence[Question], texts: Sequence[str]) -> list[str]:
    """Each text without the words that all questions of its context begin and end with.

    An instruction or a schema that is part of every text would make any two of them look alike.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        members[question.context].append(place)
    bare = list(texts)
    for places in members.values():
        words = sorted({tuple(texts[place].split()) for place in places})
        if len(words) < 3:
            continue
        start = _common_words(words[0], words[-1])
        backwards = sorted(tuple(reversed(w)) for w in words)
        end = _common_words(backwards[0], backwards[-1])
        for place in places:
            own = texts[place].split()
            bare[place] = " ".join(own[start : max(start, len(own) - end)])
    return bare


def _common_words(first: Sequence[str], last: Sequence[str]) -> int:
    """Words that two lists begin with alike. Of the first and the last in order: what all between them begin with."""
    pairs = zip(first, last, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))


def _shingles(texts: Sequence[str]) -> list[set[str]]:
    """What each text consists of: runs of SHINGLE characters, or of SHINGLE_WORDS words where texts are long."""
    if sum(map(len, texts)) <= LONG * len(texts):
        return [{text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))} for text in texts]
    words = [text.split() for text in texts]
    return [{" ".join(w[i : i + SHINGLE_WORDS]) for i in range(max(1, len(w) - SHINGLE_WORDS + 1))} for w in words]


def _near(texts: Sequence[str], near: float) -> dict[int, tuple[int, float]]:
    """For each text that is similar to an earlier one that is kept: the most similar of those, the first of equals.

    Two sets of similarity t share a member of the first |x| - ceil(t |x|) + 1 of each, in any fixed order: the rest
    alone is too small. With the rarest members first, few sets have to be compared.

    Source: Bayardo, Ma and Srikant (2007), "Scaling up all pairs similarity search".
    """
    sets = _shingles(texts)
    spread = Counter(shingle for shingles in sets for shingle in shingles)
    index: dict[str, list[int]] = defaultdict(list)
    found: dict[int, tuple[int, float]] = {}
    for place, shingles in enumerate(sets):
        size = len(shingles)
        rarest = sorted(shingles, key=lambda shingle: (spread[shingle], shingle))
        rarest = rarest[: size - math.ceil(near * size - ROUNDING) + 1]
        best, best_similarity = -1, 0.0
        for other in sorted({other for shingle in rarest for other in index[shingle]}):
            if not near * size - ROUNDING <= len(sets[other]) <= size / near + ROUNDING:
                continue
            common = len(shingles & sets[other])
            similarity = common / (size + len(sets[other]) - common)
            if similarity >= near and similarity > best_similarity:
                best, best_similarity = other, similarity
        if best >= 0:
            found[place] = (best, best_similarity)
        else:
            for shingle in rarest:
                index[shingle].append(place)
    return found
