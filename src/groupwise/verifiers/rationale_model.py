"""A small model that reads a rationale alone and says which label it argues for: multinomial naive Bayes.

    log P(label | text) = log prior(label) + sum over distinct features f of log P(f | label) + constant
    P(f | label)        = (count(f, label) + alpha) / (sum over g of count(g, label) + alpha * number of features)

Features are the words and the pairs of neighbouring words of a rationale, each counted once a rationale, with label
names masked: what is left must argue for the label. Training is counting: the same examples give the same model, in
any order, and a second saves it as a file of counts. Source: McCallum and Nigam (1998), with the presence of features
instead of their counts (Wang and Manning, 2012). The probabilities are too sure of themselves, as naive Bayes is; read
the threshold in RationaleModel.opinion as a point on a measured curve.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import VerifierError
from groupwise.verifiers.rationale_text import find_run, is_form_of, stem, words

ALPHA = 0.5
"""Smoothing count."""
MIN_COUNT = 2
"""A feature seen in fewer examples is dropped: it says nothing about other rationales."""
MASK = "<label>"
FORMAT = "groupwise rationale counts 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the model makes of one text: Opinion(probability=0.02, other="neutral", other_probability=0.97)."""

    probability: float
    """Of the label that the answer gives."""
    other: str
    """The likeliest other label."""
    other_probability: float

    def contradicts(self, threshold: float) -> bool:
        """True where another label reaches the threshold."""
        return self.other_probability >= threshold


class LabelMask:
    """Hides label names in a list of words: every form of a one-word label, and longer labels where they stand whole.

    Example:
        LabelMask(["entailment", "neutral"]).hide(["it", "entails", "this"])  == ["it", "<label>", "this"]
    """

    def __init__(self, labels: Sequence[str]) -> None:
        runs = [words(label.replace("_", " ")) for label in labels]
        self._stems = frozenset(stem(run[0]) for run in runs if len(run) == 1)
        self._runs = sorted((run for run in runs if len(run) > 1), key=len, reverse=True)

    def hide(self, tokens: Sequence[str]) -> list[str]:
        """The words with label names replaced by one mark each."""
        left = list(tokens)
        for run in self._runs:
            for start in reversed(find_run(left, run)):
                left[start : start + len(run)] = [MASK]
        return [MASK if is_form_of(token, self._stems) else token for token in left]


class RationaleModel:
    """Naive Bayes from rationales to labels. Build one with fit_model or load_model.

    Args:
        labels: the closed set, in the order of the columns of `counts`.
        features: the names of the rows.
        counts: [features, labels] how many examples of a label hold a feature.
        num_examples: [labels] examples of each label.

    Raises:
        VerifierError: a label has no example.
    """

    def __init__(
        self, labels: Sequence[str], features: Sequence[str], counts: np.ndarray, num_examples: np.ndarray
    ) -> None:
        for label, number in zip(labels, num_examples, strict=True):
            if number < 1:
                raise VerifierError(
                    f"rationale model: no rationale is labelled {label!r}; give 20 or more of every label"
                )
        self.labels = tuple(labels)
        self._features = tuple(features)
        self._counts = counts.astype(np.int64)
        self._num_examples = num_examples.astype(np.int64)
        self._rows = {feature: row for row, feature in enumerate(self._features)}
        self._mask = LabelMask(self.labels)
        smoothed = self._counts.astype(np.float64) + ALPHA
        self._log_likelihood = np.log(smoothed) - np.log(smoothed.sum(axis=0)) if self._features else smoothed
        self._log_prior = np.log(self._num_examples) - np.log(self._num_examples.sum())

    def probabilities(self, tokens: Sequence[str]) -> Mapping[str, float]:
        """P(label | words) of every label; features that the examples do not have are left out."""
        rows = sorted({self._rows[name] for name in feature_names(self._mask.hide(tokens)) if name in self._rows})
        scores = self._log_prior + self._log_likelihood[rows].sum(axis=0)
        shares = np.exp(scores - scores.max())
        return dict(zip(self.labels, (shares / shares.sum()).tolist(), strict=True))

    def opinion(self, tokens: Sequence[str], label: str) -> Opinion:
        """How the label of the answer stands against the likeliest other label."""
        shares = dict(self.probabilities(tokens))
        own = shares.pop(label)
        other = max(shares, key=lambda name: (shares[name], name))
        return Opinion(probability=own, other=other, other_probability=shares[other])

    def save(self, path: Path) -> None:
        """Writes the counts as JSON; load_model reads them and gives the same probabilities."""
        content = {
            "format": FORMAT,
            "labels": self.labels,
            "num_examples": self._num_examples.tolist(),
            "counts": dict(zip(self._features, self._counts.tolist(), strict=True)),
        }
        path.write_text(json.dumps(content), encoding="utf-8")


def feature_names(masked: Sequence[str]) -> set[str]:
    """Words, and pairs of neighbours joined by one space. A mask is no feature alone but may be half of a pair."""
    pairs = {f"{left} {right}" for left, right in pairwise(masked)}
    return {token for token in masked if token != MASK} | pairs


def fit_model(examples: Iterable[tuple[str, str]], labels: Sequence[str]) -> RationaleModel:
    """Counts features in (label, rationale) pairs.

    Raises:
        VerifierError: a label is not one of `labels`, or one of them has no example.
    """
    columns = {label: column for column, label in enumerate(labels)}
    mask = LabelMask(labels)
    num_examples = np.zeros(len(labels), dtype=np.int64)
    seen: Counter[tuple[str, int]] = Counter()
    for label, rationale in examples:
        if label not in columns:
            known = ", ".join(labels)
            raise VerifierError(f"rationale model: an example is labelled {label!r}, which is not one of: {known}")
        column = columns[label]
        num_examples[column] += 1
        seen.update((name, column) for name in feature_names(mask.hide(words(rationale))))
    totals: Counter[str] = Counter()
    for (name, _), number in seen.items():
        totals[name] += number
    features = sorted(name for name, number in totals.items() if number >= MIN_COUNT)
    rows = {name: row for row, name in enumerate(features)}
    counts = np.zeros((len(features), len(labels)), dtype=np.int64)
    for (name, column), number in seen.items():
        if name in rows:
            counts[rows[name], column] = number
    return RationaleModel(labels, features, counts, num_examples)


def load_model(path: Path, labels: Sequence[str]) -> RationaleModel:
    """The model of a file: `.json` holds saved counts, anything else labelled rationales, one JSON object a line.

    A line is {"label": "neutral", "rationale": "..."}; the rationale may be a list of several, and may be called
    "explanation" or "explanations". Other keys are ignored.

    Raises:
        VerifierError: the file is missing or a line cannot be used.
    """
    if not path.is_file():
        raise VerifierError(f"rationale_examples: no file {path}; name a JSONL file of labelled rationales")
    if path.suffix == ".json":
        return _load_counts(path, labels)
    return fit_model(read_examples(path), labels)


def read_examples(path: Path) -> list[tuple[str, str]]:
    """The (label, rationale) pairs of a JSONL file, in its order; see load_model for a line."""
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            label = row["label"]
            names = [name for name in ("rationale", "explanation", "explanations") if name in row]
            given = row[names[0]]
            texts = [given] if isinstance(given, str) else list(given)
            usable = isinstance(label, str) and all(isinstance(text, str) for text in texts)
        except (ValueError, KeyError, IndexError, TypeError):
            usable = False
        if not usable:
            raise VerifierError(
                f'{path.name}, line {number}: not a labelled rationale; write {{"label": "...", "rationale": "..."}}'
            )
        pairs.extend((label, text) for text in texts)
    return pairs


def _load_counts(path: Path, labels: Sequence[str]) -> RationaleModel:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        known = content["format"] == FORMAT and set(content["labels"]) == set(labels)
        order = [content["labels"].index(label) for label in labels] if known else []
        features = list(content["counts"]) if known else []
        counts = np.array([content["counts"][name] for name in features], dtype=np.int64).reshape(len(features), -1)
        if known:
            return RationaleModel(
                labels, features, counts[:, order], np.array(content["num_examples"], dtype=np.int64)[order]
            )
    except (ValueError, KeyError, TypeError, IndexError):
        pass
    raise VerifierError(
        f"rationale_examples: {path.name} does not hold rationale counts for the labels {', '.join(labels)}; "
        "write it again with RationaleModel.save, or name the JSONL file of examples"
    )
