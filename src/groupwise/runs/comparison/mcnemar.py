"""McNemar's test: two sets of weights with one answer each to the same prompts.

Prompts that both solve, or neither does, say nothing about which is better. Of the others each is a coin that falls on
one side or the other, fair where the two are equally good. Several samples a prompt are no coin: for those there is
`bootstrap.sign_flip_test`, which with one sample gives the same p value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """The prompts that changed, and how surprising their split is.

    Example:
        McNemar(improved=6, regressed=1, p_value=0.125, mid_p=0.0703)
    """

    improved: int
    """Prompts that only the second solves."""
    regressed: int
    """Prompts that only the first solves."""
    p_value: float
    """Exact and two-sided; on the careful side, as few splits are possible."""
    mid_p: float
    """Counts the split that was seen half: closer to what it promises, and now and then slightly below it."""


def mcnemar(first: Mapping[str, bool], second: Mapping[str, bool]) -> McNemar:
    """McNemar's exact test on the outcomes by prompt.

    Raises:
        ValueError: if the two are not about the same prompts.
    """
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise ValueError(
            f"mcnemar: {len(odd)} prompts are in one of the two only, for instance {odd[0]!r}; "
            "compare outcomes of the same prompts"
        )
    improved = sum(second[task] and not first[task] for task in first)
    regressed = sum(first[task] and not second[task] for task in first)
    return mcnemar_of_counts(improved, regressed)


def mcnemar_of_counts(improved: int, regressed: int) -> McNemar:
    """The test from the numbers of prompts that changed in either direction.

        n = improved + regressed,  m = the smaller of the two,  X ~ Binomial(n, 1/2)
        p     = min(1, 2 P(X <= m))
        mid p = 2 P(X < m) + P(X = m)

    Both are 1 where the two numbers are equal, nothing having changed included. Symmetric in its arguments.

    Source: McNemar (1947), Psychometrika 12; mid p: Fagerland, Lydersen and Laake (2013), BMC Medical Research
    Methodology 13.

    Raises:
        ValueError: for a negative number.
    """
    if improved < 0 or regressed < 0:
        raise ValueError(f"mcnemar_of_counts: expected numbers of prompts, got {improved} and {regressed}")
    total, fewer = improved + regressed, min(improved, regressed)
    below, at = 0, 1  # binomial coefficients, and the sum of those before
    for i in range(fewer):
        below, at = below + at, at * (total - i) // (i + 1)
    return McNemar(
        improved=improved,
        regressed=regressed,
        p_value=min(1.0, 2 * (below + at) / 2**total),  # whole numbers until here: exact for any number of prompts
        mid_p=min(1.0, (2 * below + at) / 2**total),
    )
