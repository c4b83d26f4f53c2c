"""How far a measured pass rate may be from the true one.

`wilson` is for independent trials. k completions of one prompt are not: a hard prompt fails k times. Counting
them as k trials makes an interval that is too narrow, so `clustered_wilson` first asks how many independent trials
the prompts are worth. Read `wilson` first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval of rates: Interval(0.21, 0.38)."""

    low: float
    high: float


def wilson(successes: float, trials: float, confidence: float = 0.95) -> Interval:
    """The score interval of a proportion from independent trials.

        p = successes / trials,  z = the normal quantile of (1 + confidence) / 2
        center     = (p + z^2 / 2n) / (1 + z^2 / n)
        half width = z / (1 + z^2 / n) * sqrt(p (1 - p) / n + z^2 / 4n^2)

    It stays inside [0, 1] and keeps a width at 0 and at n successes, where p +- z sqrt(p (1 - p) / n) has none. Zero
    trials say nothing: [0, 1]. Trials may be a fraction (an effective sample size).

    Source: Wilson (1927), JASA 22; recommended by Brown, Cai and DasGupta (2001), Statistical Science 16.

    Raises:
        ValueError: unless 0 <= successes <= trials and 0 < confidence < 1.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"wilson: expected 0 <= successes <= trials, got {successes} of {trials}")
    if not 0 < confidence < 1:
        raise ValueError(f"wilson: confidence must lie between 0 and 1, got {confidence}; 0.95 is usual")
    if trials == 0:
        return Interval(0.0, 1.0)
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    p = successes / trials
    shrink = 1 + z * z / trials
    center = (p + z * z / (2 * trials)) / shrink
    half_width = z / shrink * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    # At p = 0 and p = 1 the bound is exactly p; rounding must not push it past the rate that was measured.
    return Interval(max(0.0, min(p, center - half_width)), min(1.0, max(p, center + half_width)))


def clustered_wilson(per_prompt_rates: Sequence[float], samples_per_prompt: int, confidence: float = 0.95) -> Interval:
    """The interval of the mean pass rate over prompts, for new prompts from the same source.

        p     = mean of the m prompt rates,  each the mean of k = samples_per_prompt completions
        n_eff = p (1 - p) / Var(p),  Var(p) = s^2 / m,  s^2 the sample variance (m - 1) of the prompt rates
        wilson(p n_eff, n_eff)

    n_eff is the number of independent trials whose mean would be as uncertain as p: m k / (1 + (k - 1) rho) with
    rho the correlation within a prompt (Kish's design effect). It is kept between m (a prompt's completions all agree)
    and m k (they are independent). Where the prompts do not differ, so that Var(p) = 0, the sample cannot show rho
    and n_eff is m, the careful choice. With k = 1 this is `wilson`. No prompts: [0, 1].

    Source: design effect: Kish (1965), Survey Sampling; its use in a Wilson interval: Korn and Graubard
    (1998), Survey Methodology 24, who do so for the Clopper-Pearson interval.

    Raises:
        ValueError: if a rate is outside [0, 1] or samples_per_prompt < 1.
    """
    if samples_per_prompt < 1:
        raise ValueError(f"clustered_wilson: samples_per_prompt must be 1 or more, got {samples_per_prompt}")
    outside = [rate for rate in per_prompt_rates if not 0 <= rate <= 1]
    if outside:
        raise ValueError(f"clustered_wilson: a prompt's rate lies in [0, 1], got {outside[0]}; give rates, not counts")
    num_prompts = len(per_prompt_rates)
    if num_prompts == 0:
        return wilson(0, 0, confidence)
    p = min(1.0, math.fsum(per_prompt_rates) / num_prompts)
    n_eff = _effective_trials(p, per_prompt_rates, samples_per_prompt)
    return wilson(p * n_eff, n_eff, confidence)


def _effective_trials(p: float, per_prompt_rates: Sequence[float], samples_per_prompt: int) -> float:
    num_prompts = len(per_prompt_rates)
    if num_prompts < 2:
        return float(num_prompts)
    variance_of_mean = statistics.variance(per_prompt_rates) / num_prompts
    if variance_of_mean == 0:
        return float(num_prompts)
    return min(max(p * (1 - p) / variance_of_mean, num_prompts), num_prompts * samples_per_prompt)
