"""Does a model still find the answer when it may try more often? pass@k of two evaluations on the same prompts.

Training on its own answers makes a model surer: what it solves at times it solves more often, and what it solves seldom
it may lose. Then the pass rate rises, or stays, while pass@k falls, and the pass rate alone does not show it. Read
`pass_at_differences`, then `variety_sentence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from groupwise.pages import format_fixed, format_number
from groupwise.runs.comparison.paired import PairedDifference, paired_difference
from groupwise.runs.pass_at_k import k_values, pass_at_k

Counts = Mapping[str, tuple[int, int]]
"""(solved, scored) by task id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtKDifference:
    """pass@k of both sides over the prompts with k scored samples on both: second minus first."""

    k: int
    first: float
    second: float
    difference: PairedDifference
    is_distinguishable: bool
    """The interval leaves out 0, at a level that is corrected for the number of comparisons."""
    confidence: float = 0.95
    """Of the interval in `difference`."""


def pass_at_differences(
    first: Counts, second: Counts, *, confidence: float = 0.95, num_comparisons: int = 1
) -> tuple[PassAtKDifference, ...]:
    """For k = 2, 4, ... and the largest number of samples, over the prompts that have k scored samples on both sides.

    With m comparisons a difference must leave out 0 at 1 - (1 - confidence) / m as well (Bonferroni).
    """
    shared = sorted(first.keys() & second.keys())
    least = {task: min(first[task][1], second[task][1]) for task in shared}
    rows = []
    for k in k_values(max(least.values(), default=0)):
        usable = [task for task in shared if least[task] >= k]
        if k == 1 or not usable:
            continue
        one, other = ({t: pass_at_k(side[t][1], side[t][0], k) for t in usable} for side in (first, second))
        strict = paired_difference(one, other, 1 - (1 - confidence) / num_comparisons)
        rows.append(
            PassAtKDifference(
                k=k,
                first=fmean(one.values()),
                second=fmean(other.values()),
                difference=paired_difference(one, other, confidence),
                is_distinguishable=strict.is_distinguishable,
                confidence=confidence,
            )
        )
    return tuple(rows)


def variety_sentence(
    rate: PairedDifference, pass_at: Sequence[PassAtKDifference], *, is_sure: bool | None = None, who: str = ""
) -> str:
    """What pass@k of the largest k says that the pass rate does not: it surely goes the other way, or it surely moves
    where nobody can say whether the pass rate does. Else empty; without a full stop.

    The largest k is the one that half of the prompts or more have the samples for. is_sure: whether the difference of
    the pass rate is distinguishable, where more than its interval decides. who: the model that solves them; empty:
    the prompts are the subject.
    """
    widest = max(
        (row for row in pass_at if 2 * row.difference.num_prompts >= rate.num_prompts), key=lambda r: r.k, default=None
    )
    if widest is None or not widest.is_distinguishable:
        return ""
    moved, is_rate_sure = widest.difference.difference, rate.is_distinguishable if is_sure is None else is_sure
    if is_rate_sure and moved * rate.difference > 0:
        return ""
    more, verb = ("more", "rose") if moved > 0 else ("fewer", "fell")
    start = f"{who} solves {more} prompts at all" if who else f"{more} prompts are solved at all"
    # Where the pass rate is as good or better and fewer prompts are solved, the same number of right answers falls on
    # fewer prompts. Where the rate went the same way as pass@k, that alone may be the reason.
    varies = f"; answers to a prompt vary {'more' if moved > 0 else 'less'}" if moved * rate.difference <= 0 else ""
    ends = widest.difference.interval
    return (
        f"{start}: pass@{widest.k} (solved at least once in {widest.k} samples) {verb} from "
        f"{format_fixed(100 * widest.first, 1)} to {format_fixed(100 * widest.second, 1)} %, "
        f"{format_fixed(100 * moved, 1, signed=True)} points [{format_fixed(100 * ends.low, 1)}, "
        f"{format_fixed(100 * ends.high, 1)}] at {format_number(100 * widest.confidence)} %{varies}"
    )
