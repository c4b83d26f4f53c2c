"""Whether two sets of weights differ on the same prompts.

Prompts differ far more from each other than two methods do. Compared prompt by prompt that spread drops out, and a
difference shows with a fraction of the prompts that two intervals side by side would need.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.runs.intervals import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """The second minus the first.

    Example:
        PairedDifference(difference=0.06, interval=Interval(0.01, 0.11), num_prompts=72)
    """

    difference: float
    """Mean over prompts, -1 to 1."""
    interval: Interval
    num_prompts: int

    @property
    def is_distinguishable(self) -> bool:
        """True where the interval leaves out 0."""
        return self.interval.low > 0 or self.interval.high < 0


def paired_difference(
    first: Mapping[str, float], second: Mapping[str, float], confidence: float = 0.95
) -> PairedDifference:
    """The mean difference of pass rates by prompt, second minus first, with an interval for new prompts of the source.

        d_i = second_i - first_i for the m prompts, and two made up: d = 1 and d = -1
        center = sum of d_i / (m + 2),   s^2 = variance of the m + 2 differences (dividing by m + 1)
        interval = center +- z s / sqrt(m + 2),   z the normal quantile of (1 + confidence) / 2

    The two made-up prompts keep a width where no prompt differs, and make the interval hold what it promises for few
    prompts; they weigh 2 / (m + 2). The interval is widened to hold the measured difference where it does not, and ends
    at -1 and 1. Rates over several samples or seeds of a prompt are one rate: its samples are not independent prompts.
    No prompts: difference 0, interval [-1, 1].

    Source: Bonett and Price (2012), Journal of Educational and Behavioral Statistics 37, for paired proportions.

    Raises:
        ValueError: if the two are not about the same prompts, a rate is outside [0, 1], or confidence outside (0, 1).
    """
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise ValueError(
            f"paired_difference: {len(odd)} prompts are in one of the two only, for instance {odd[0]!r}; "
            "compare rates of the same prompts"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"paired_difference: confidence must lie between 0 and 1, got {confidence}; 0.95 is usual")
    outside = [rate for rates in (first, second) for rate in rates.values() if not 0 <= rate <= 1]
    if outside:
        raise ValueError(f"paired_difference: a rate lies in [0, 1], got {outside[0]}; give rates, not counts")
    differences = [second[prompt] - first[prompt] for prompt in first]
    if not differences:
        return PairedDifference(difference=0.0, interval=Interval(-1.0, 1.0), num_prompts=0)
    mean = math.fsum(differences) / len(differences)
    padded = [*differences, 1.0, -1.0]
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    half_width = z * statistics.stdev(padded) / math.sqrt(len(padded))
    center = math.fsum(padded) / len(padded)
    return PairedDifference(
        difference=mean,
        interval=Interval(max(-1.0, min(mean, center - half_width)), min(1.0, max(mean, center + half_width))),
        num_prompts=len(differences),
    )
