"""The bootstrap of a mean over prompts, and a test of whether such a mean is 0.

A prompt is the unit: its samples are not independent, so prompts are drawn, never completions. The difference of two
evaluations is a mean over prompts of paired differences, which makes both functions paired.

Which bootstrap: the percentile interval, with its two levels moved outwards as Student's t asks. The plain percentile
interval is as much too narrow as a normal interval with the variance divided by n. BCa corrects bias and skewness; a
mean has no bias, and differences of rates lie on so few values that the share of draws below the mean, which BCa reads
its correction from, is decided by ties. We measured all of them, see tests/runs/test_bootstrap.py.

Which interval decides: not this one. Where few prompts differ at all, draws know nothing beyond these few: four gains
and no loss on 50 prompts give an interval above 0, where an exact test says p = 0.125. Verdicts about rates rest on
`paired.paired_difference`, which holds its promise there. The bootstrap stands beside it, and is the interval of what
is no rate, such as a length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from groupwise.runs.comparison.paired import paired_difference
from groupwise.runs.intervals import Interval

NUM_DRAWS = 10_000
"""The ends of a 95 % interval are then known to about 2 % of its width."""
_CELLS = 2_000_000
"""Numbers held at a time: 16 MB."""
_EXACT_SIGNS = 13
"""Up to so many values that are not 0 all signs are tried: 8192."""


def bootstrap_mean(
    values: Sequence[float], *, bound: float, confidence: float = 0.95, seed: int = 0, num_draws: int = NUM_DRAWS
) -> Interval:
    """An interval of the mean of the source that these values, one a prompt, were drawn from.

        mean_b = mean of n values drawn with replacement, b = 1..num_draws
        interval = quantiles of mean_b at a and 1 - a,   a = Phi(sqrt(n / (n - 1)) t),
        t = the (1 - confidence) / 2 quantile of Student's t with n - 1 degrees of freedom

    bound is what no value can exceed in size: 1 for a difference of rates, the longest answer for one of lengths. It
    keeps a width where draws have none: 0 and 1 values give [-bound, bound], equal ones what `paired_difference` does.
    The interval holds the mean of the values and is cut at -bound and bound. The same seed gives the same interval.

    Source: bootstrap: Efron (1979), Annals of Statistics 7; the levels: Hesterberg (2015), The American Statistician
    69, arXiv:1411.5279, "expanded percentile interval".

    Raises:
        ValueError: if a value exceeds bound or is not finite, confidence is outside (0, 1), or num_draws below 100.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"bootstrap_mean: confidence must lie between 0 and 1, got {confidence}; 0.95 is usual")
    if num_draws < 100:
        raise ValueError(f"bootstrap_mean: expected 100 draws or more, got {num_draws}; {NUM_DRAWS} is usual")
    sample = np.asarray(values, dtype=np.float64)
    outside = [value for value in values if not abs(value) <= bound * (1 + 1e-12)]  # true for nan, too
    if outside:
        raise ValueError(f"bootstrap_mean: a value lies between -{bound:g} and {bound:g}, got {outside[0]}")
    if sample.size < 2:
        return Interval(-bound, bound)
    mean = float(sample.mean())
    if float(np.ptp(sample)) <= 1e-12 * bound:
        return _without_spread(mean, sample.size, bound, confidence)
    tail = float(ndtr(math.sqrt(sample.size / (sample.size - 1)) * stdtrit(sample.size - 1, (1 - confidence) / 2)))
    low, high = np.quantile(_drawn_means(sample, num_draws, seed), [tail, 1 - tail])
    return Interval(max(-bound, min(mean, float(low))), min(bound, max(mean, float(high))))


def sign_flip_test(differences: Sequence[float], *, seed: int = 0, num_draws: int = NUM_DRAWS) -> float:
    """The two-sided p value of paired differences, one a prompt, if the two sides could be exchanged on every prompt.

        p = share of the sign patterns s with |sum s_i d_i| >= |sum d_i|

    Differences of 0 change nothing. With at most 13 others every pattern is tried and p is exact; with more, num_draws
    random ones, and p = (1 + hits) / (1 + num_draws), so that it is never 0. One sample a prompt on each side makes it
    McNemar's exact test. No difference at all: p = 1.

    Source: Fisher (1935), The Design of Experiments, section 21; random patterns: Phipson and Smyth (2010), Statistical
    Applications in Genetics and Molecular Biology 9.

    Raises:
        ValueError: if a difference is not finite.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError("sign_flip_test: a difference is not a finite number; leave out prompts without a score")
    moved = np.asarray([d for d in differences if d != 0], dtype=np.float64)
    if moved.size == 0:
        return 1.0
    # Sums that are equal on paper differ by rounding: rates are fractions such as 1/3.
    reached = abs(float(moved.sum())) - 1e-9 * float(np.abs(moved).sum())
    if moved.size <= _EXACT_SIGNS:
        patterns = (np.arange(2**moved.size)[:, None] >> np.arange(moved.size)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ moved) >= reached))
    draw = np.random.default_rng(seed)
    hits = 0
    for size in _chunks(num_draws, moved.size):
        signs = draw.integers(0, 2, size=(size, moved.size), dtype=np.int8) * 2 - 1
        hits += int(np.count_nonzero(np.abs(signs @ moved) >= reached))
    return (1 + hits) / (1 + num_draws)


def _without_spread(value: float, count: int, bound: float, confidence: float) -> Interval:
    first, second = max(0.0, -value / bound), max(0.0, value / bound)
    prompts = [str(i) for i in range(count)]
    found = paired_difference(dict.fromkeys(prompts, first), dict.fromkeys(prompts, second), confidence).interval
    return Interval(bound * found.low, bound * found.high)


def _drawn_means(sample: NDArray[np.float64], num_draws: int, seed: int) -> NDArray[np.float64]:
    draw = np.random.default_rng(seed)
    parts = [
        sample[draw.integers(0, sample.size, size=(size, sample.size))].mean(axis=1)
        for size in _chunks(num_draws, sample.size)
    ]
    return np.concatenate(parts)


def _chunks(num_draws: int, width: int) -> list[int]:
    """Numbers of draws that are made at once, so that memory stays small for many prompts."""
    size = max(1, _CELLS // width)
    return [min(size, num_draws - start) for start in range(0, num_draws, size)]
