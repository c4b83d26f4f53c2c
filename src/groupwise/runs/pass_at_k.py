"""How often at least one of k attempts solves a prompt (pass@k), and how often all k do (pass^k), from n attempts.

Both are means over the subsets of k of the n scored attempts, which is why they have no bias. Putting the measured
rate c / n into 1 - (1 - p)^k has one: it falls short, by 0.10 at n = 8, c = 2, k = 4. That formula is right where the
rates themselves are assumed, as in planning (`planning.expected_pass_at_k`); here they are what is measured.

Read `pass_at_k` and `pass_all_k`, then `over_prompts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from groupwise.runs.intervals import Interval, clustered_wilson

Counts = Iterable[tuple[int, int]]
"""(solved, scored) of each prompt; attempts that could not be scored are in neither number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRate:
    """pass@k or pass^k over prompts.

    Example:
        KRate(k=4, rate=0.78, interval=Interval(0.69, 0.85), num_prompts=96)
    """

    k: int
    rate: float
    """Mean over prompts; NaN where no prompt has k scored attempts."""
    interval: Interval
    """95 %, for new prompts of the same source."""
    num_prompts: int
    """Those with at least k scored attempts; the others are left out of this k."""


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """The chance that k of the n attempts, drawn without putting back, hold a solved one.

        pass@k = 1 - C(n - c, k) / C(n, k),    C(n - c, k) / C(n, k) = prod_{i = n-c+1}^{n} (1 - k / i)

    1 where fewer than k attempts failed, 0 where none was solved. At k = 1 it is c / n.

    Source: Chen et al. (2021), arXiv:2107.03374, section 2.1.

    Raises:
        ValueError: unless 1 <= k <= n and 0 <= c <= n. From n attempts nothing is known about more of them.
    """
    _check(num_samples, num_solved, k)
    return 1.0 - _none_of(num_samples, num_solved, k)


def pass_all_k(num_samples: int, num_solved: int, k: int) -> float:
    """The chance that k of the n attempts, drawn without putting back, are all solved.

        pass^k = C(c, k) / C(n, k)

    0 where fewer than k attempts were solved, 1 where all were. At k = 1 it is c / n.

    Source: tau-bench, arXiv:2406.12045, section 3.

    Raises:
        ValueError: as pass_at_k.
    """
    _check(num_samples, num_solved, k)
    return _none_of(num_samples, num_samples - num_solved, k)  # all k are solved = none of the k has failed


def k_values(num_samples: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to n, and n itself; empty for n = 0."""
    powers = [2**i for i in range(num_samples.bit_length()) if 2**i <= num_samples]
    return tuple(sorted({*powers, num_samples} - {0}))


def over_prompts(counts: Counts, k: int, estimate: Callable[[int, int, int], float] = pass_at_k) -> KRate:
    """The mean of an estimate over prompts, each of the same weight, with an interval for new prompts.

    The prompts are the independent trials: `clustered_wilson` of their estimates, where one prompt is worth at most
    floor(n / k) trials. An average over all subsets of k varies no more than one over floor(n / k) disjoint ones
    (Hoeffding, 1963, section 5), so that the interval is not too narrow. At k = 1 it is the interval of a pass rate, at
    k = n that of one trial a prompt. A prompt with fewer than k scored attempts is left out.

    Raises:
        ValueError: if k < 1.
    """
    if k < 1:
        raise ValueError(f"over_prompts: k must be 1 or more, got {k}; give the number of attempts")
    usable = [(scored, solved) for solved, scored in counts if scored >= k]
    rates = [estimate(scored, solved, k) for scored, solved in usable]
    trials = min((scored // k for scored, _ in usable), default=1)
    return KRate(
        k=k,
        rate=math.fsum(rates) / len(rates) if rates else math.nan,
        interval=clustered_wilson(rates, trials),
        num_prompts=len(rates),
    )


def k_rates(
    counts: Sequence[tuple[int, int]], num_samples: int, estimate: Callable[[int, int, int], float] = pass_at_k
) -> tuple[KRate, ...]:
    """`over_prompts` for every k of `k_values(num_samples)`.

    Raises:
        ValueError: if a prompt has more scored attempts than num_samples, or solved more than were scored.
    """
    over = [scored for _, scored in counts if scored > num_samples]
    if over:
        raise ValueError(f"k_rates: a prompt has {over[0]} scored attempts, more than num_samples = {num_samples}")
    return tuple(over_prompts(counts, k, estimate) for k in k_values(num_samples))


def _none_of(num_samples: int, num_marked: int, k: int) -> float:
    """C(n - m, k) / C(n, k): no marked one among k. A product of factors in [0, 1]: nothing overflows."""
    if num_samples - num_marked < k:
        return 0.0
    return math.prod(1.0 - k / i for i in range(num_samples - num_marked + 1, num_samples + 1))


def _check(num_samples: int, num_solved: int, k: int) -> None:
    if not 0 <= num_solved <= num_samples:
        raise ValueError(f"pass@k: expected 0 <= solved <= samples, got {num_solved} of {num_samples}")
    if not 1 <= k <= num_samples:
        raise ValueError(
            f"pass@k: k must lie between 1 and the {num_samples} samples, got {k}; sample more, or ask for a smaller k"
        )
