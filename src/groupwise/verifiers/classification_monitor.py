"""What one verdict cannot see: a policy that gives one label, or one rationale, to everything.

Pure functions over the answers of a batch or an evaluation. A policy that has collapsed onto the majority class still
earns its share of the reward, so the mean reward alone does not show it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.errors import DataError
from groupwise.types import Status, Verdict
from groupwise.verifiers.rationale_text import words

MIN_EXCESS = 0.15
"""A share this far above the gold's is worth a word, whatever the numbers."""
NUM_DEVIATIONS = 4.0
"""Standard deviations of a share of honest answers that an excess must exceed as well."""
MIN_LABELS_FRAC = 0.6
"""Of the gold's effective number of labels that the answers must reach."""
MIN_ANSWERS = 20
"""Fewer answers say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCollapse:
    """How the given labels spread, next to the right ones: LabelCollapse(collapsed=True, label="neutral", ...)."""

    collapsed: bool
    label: str
    """Given most often above its share among the right labels."""
    given_frac: float
    gold_frac: float
    given_effective_labels: float
    """exp(entropy): 1.0 where one label is given to everything, the number of labels where all are equally frequent."""
    gold_effective_labels: float
    accuracy: float
    majority_accuracy: float
    """What the most frequent right label alone would earn: an accuracy at this height is no skill."""
    num_answers: int
    num_missing: int
    """Completions without a label; they are left out of every share."""


def label_collapse(labels: Sequence[str | None], gold_labels: Sequence[str]) -> LabelCollapse:
    """Whether one label, or too few, crowd out the others. labels[i] answers a task that is rightly gold_labels[i].

    Collapsed means, from MIN_ANSWERS answers on, one of two. The excess of one label's share over its gold share g is
    above max(MIN_EXCESS, NUM_DEVIATIONS * sqrt(g (1 - g) / n)). Or the effective number of given labels is below
    MIN_LABELS_FRAC of the gold's.

    Raises:
        DataError: the two lists differ in length.
    """
    if len(labels) != len(gold_labels):
        raise DataError(f"label_collapse: {len(labels)} labels for {len(gold_labels)} gold labels; give one for each")
    pairs = [(given, gold) for given, gold in zip(labels, gold_labels, strict=True) if given is not None]
    given, golds = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    number = max(1, len(pairs))
    excess = {label: (given[label] - golds[label]) / number for label in given}
    label = max(sorted(excess), key=lambda name: excess[name], default="")
    share = golds[label] / number
    bound = max(MIN_EXCESS, NUM_DEVIATIONS * math.sqrt(share * (1 - share) / number))
    spread, wanted = effective_number(given), effective_number(golds)
    crowded = excess.get(label, 0.0) > bound or spread < MIN_LABELS_FRAC * wanted
    return LabelCollapse(
        collapsed=len(pairs) >= MIN_ANSWERS and crowded,
        label=label,
        given_frac=given[label] / number,
        gold_frac=share,
        given_effective_labels=spread,
        gold_effective_labels=wanted,
        accuracy=sum(left == right for left, right in pairs) / number,
        majority_accuracy=max(golds.values(), default=0) / number,
        num_answers=len(pairs),
        num_missing=len(labels) - len(pairs),
    )


def effective_number(counts: Counter[str]) -> float:
    """exp(entropy in nats) of the shares; 0.0 where nothing was counted."""
    total = counts.total()
    if total == 0:
        return 0.0
    return math.exp(-sum(n / total * math.log(n / total) for n in counts.values() if n))


def shared_rationale_frac(rationales: Sequence[str], task_ids: Sequence[str]) -> float:
    """The share of rationales that stand word for word under another task as well: a template that fits any input.

    Raises:
        DataError: the two lists differ in length.
    """
    if len(rationales) != len(task_ids):
        raise DataError(
            f"shared_rationale_frac: {len(rationales)} rationales for {len(task_ids)} task ids; give one for each"
        )
    keys = [" ".join(words(rationale)) for rationale in rationales]
    tasks: defaultdict[str, set[str]] = defaultdict(set)
    for key, task_id in zip(keys, task_ids, strict=True):
        tasks[key].add(task_id)
    return sum(len(tasks[key]) > 1 for key in keys) / max(1, len(keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """How the LLM judge compares, counted from verdicts: JudgeReport(num_asked=90, num_contradicts=9, ...).

    The judge is asked only about answers that every gate and the rationale-to-label model let through, so
    `disagreement_frac` is one-sided: of what those accept, the share that the judge does not.
    """

    num_asked: int
    num_supports: int
    num_contradicts: int
    num_unclear: int
    """The two prompts did not agree, or saw no label argued for."""
    num_failed: int
    """Calls that gave no usable reply; their verdicts are unscored."""

    @property
    def disagreement_frac(self) -> float:
        """num_contradicts over the replies that could be read; 0.0 where there are none."""
        read = self.num_supports + self.num_contradicts + self.num_unclear
        return self.num_contradicts / read if read else 0.0


def judge_report(verdicts: Sequence[Verdict]) -> JudgeReport:
    """Counts the check named "judge" and the failures; verdicts that a cheaper gate decided are left out."""
    found = Counter(check.found.split(":")[0] for v in verdicts for check in v.checks if check.name == "judge")
    failed = sum(v.status is Status.UNSCORED and v.reason.startswith("judge_failed") for v in verdicts)
    return JudgeReport(
        num_asked=found.total() + failed,
        num_supports=found["supports"],
        num_contradicts=found["contradicts"],
        num_unclear=found["unclear"],
        num_failed=failed,
    )
