"""Words, sentences, quotes and numbers of a rationale: what the gates and the rationale-to-label model read.

Words are compared without case, accents of form (NFKC) and invisible characters. The rules fit languages that put
white space between words; Chinese and Japanese are cut into characters. Every function takes time linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

_STOP_TEXT = """
a about all also am an and any are as at be because been being both but by can could did do does doing for from had has
have having he her hers him his how i if in into is it its just may me might more most must my no nor not of on one only
or other our out over own same shall she should since so some such than that the their them then there therefore these
they this those thus to too up us very was we were what when where which while who whom why will with would you your
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
"""Words that carry no content of their own."""

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+(?:'[^\W_\u3040-\u30ff\u3400-\u9fff]+)*"
)
_SENTENCE_END = re.compile(r"(?<!\d)\.|\.(?!\d)|[!?;\n\u3002]")
_DOUBLE_QUOTED = re.compile(r'(?<!\d)"([^"\n]+)(?:"|$|\n)')
_SINGLE_QUOTED = re.compile(r"(?<!\w)'(?!(?:s|t|d|m|re|ll|ve)\b)((?:[^'\n]|(?<=\w)'(?=\w))+)'(?!\w)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ELLIPSIS = re.compile(r"\[?\.\.\.\]?")
_SUFFIXES = (
    "ations",
    "ation",
    "ments",
    "ment",
    "ions",
    "ion",
    "ings",
    "ing",
    "ities",
    "ity",
    "ally",
    "al",
    "ed",
    "es",
    "ly",
    "s",
)
_SAME_MARK = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"'}
)
_LOOK_ALIKES = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
MIN_STEM = 4
MAX_STEM = 64  # letters; a word of 100,000 of them has as many beginnings


def normalise(text: str) -> str:
    """Lower case, NFKC, one kind of quote marks (`` and two single ones are one double one), nothing invisible."""
    shown = "".join(char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) != "Cf")
    return shown.translate(_SAME_MARK).replace("\u2026", "...").replace("``", '"').replace("''", '"').casefold()


def words(text: str) -> list[str]:
    """The words of a text in order: words("It's 3 dogs.") == ["it's", "3", "dogs"]."""
    return _WORD.findall(normalise(text))


def mixes_scripts(word: str) -> bool:
    """True where one word has letters of two look-alike alphabets, such as a Cyrillic a in a Latin word."""
    return len({script for char in word if (script := unicodedata.name(char, "").split(" ")[0]) in _LOOK_ALIKES}) > 1


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence. Full stops inside numbers do not end one; a semicolon and a line break do."""
    parts = (_WORD.findall(part) for part in _SENTENCE_END.split(normalise(text)))
    return [part for part in parts if part]


def quotes(text: str) -> list[list[str]]:
    """The words of each quoted piece. A quote that is never closed runs to the end of its line; an ellipsis cuts."""
    plain = normalise(text)
    pieces = _DOUBLE_QUOTED.findall(plain) + _SINGLE_QUOTED.findall(_DOUBLE_QUOTED.sub(" ", plain))
    found = (_WORD.findall(part) for piece in pieces for part in _ELLIPSIS.split(piece))
    return [part for part in found if part]


def numbers(text: str) -> list[str]:
    """Numbers written in digits, without thousands commas: numbers("1,200 or 3.5") == ["1200", "3.5"]."""
    return [number.replace(",", "") for number in _NUMBER.findall(normalise(text))]


def stem(word: str) -> str:
    """The word without one common English ending, where four letters stay: "contradiction" and "contradicts" meet."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= MIN_STEM:
            return word[: -len(suffix)]
    return word


def is_form_of(word: str, stems: Collection[str]) -> bool:
    """True where the word is one of the stems, or begins with one of MIN_STEM to MAX_STEM letters."""
    return word in stems or any(word[:size] in stems for size in range(MIN_STEM, min(len(word), MAX_STEM + 1)))


def content_words(tokens: Iterable[str]) -> list[str]:
    """The tokens that are no stop words and no lone letters or digits; a Chinese or Japanese character counts."""
    return [token for token in tokens if token not in STOP_WORDS and (len(token) > 1 or ord(token) > 0x3000)]


def contains_run(tokens: Sequence[str], run: Sequence[str]) -> bool:
    """True where the words of `run` stand next to each other, in order, in `tokens`."""
    return f" {' '.join(run)} " in f" {' '.join(tokens)} "


def runs_of(tokens: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All runs of `size` neighbouring words, in order; none where there are fewer words."""
    return [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]


def find_run(tokens: Sequence[str], run: Sequence[str]) -> list[int]:
    """Where `run` starts in `tokens`; [] for an empty run."""
    size = len(run)
    if not size:
        return []
    return [i for i, token in enumerate(tokens) if token == run[0] and list(tokens[i : i + size]) == list(run)]
