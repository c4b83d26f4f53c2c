"""What is known of the pass rates of a set of prompts: one rate, a list of measured ones, or a Beta distribution.

Every plan for groups starts here, because a plan needs the whole distribution. At a mean of 0.5 every prompt may be
solved every second time, and every group teaches; or half of the prompts may be always solved and the others never,
and no group does.

Rates that were measured with a few attempts spread more than the true ones: three failures in three attempts do not
make a rate of 0. Plans from a short measurement are therefore too gloomy. Fit a Beta distribution to the counts of
solved and scored attempts, and plan with that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, xlog1py, xlogy

from groupwise.errors import ConfigError
from groupwise.planning.bounds import require_count

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaRates:
    """Pass rates that are spread over the prompts as Beta(alpha, beta).

    alpha below 1 puts many prompts near 0 (never solved), beta below 1 puts many near 1 (always solved).

    Example:
        BetaRates(alpha=0.5, beta=2)     # mean 0.2, most prompts hard

    Raises:
        ConfigError: unless both are positive and finite.
    """

    alpha: float
    """Weight of success, > 0."""
    beta: float
    """Weight of failure, > 0."""

    def __post_init__(self) -> None:
        if not (0 < self.alpha < math.inf and 0 < self.beta < math.inf):
            raise ConfigError(
                f"BetaRates(alpha={self.alpha}, beta={self.beta}): both must be positive numbers; "
                "alpha=1, beta=1 stands for pass rates spread evenly from 0 to 1"
            )

    def after(self, solved: int, scored: int) -> BetaRates:
        """Where one prompt's rate lies after `solved` of `scored` attempts: Beta(alpha + solved, beta + failed).

        The outlook of this distribution is the outlook of that prompt's next group (the posterior predictive).

        Raises:
            ConfigError: unless 0 <= solved <= scored.
        """
        if not 0 <= solved <= scored:
            raise ConfigError(
                f"BetaRates.after: {solved} solved of {scored} scored is not possible; expected 0 <= solved <= scored"
            )
        return BetaRates(alpha=self.alpha + solved, beta=self.beta + scored - solved)


PassRates = float | Sequence[float] | BetaRates
"""One rate that all prompts share, the measured rates of the prompts, or their distribution."""


def mean_and_variance(pass_rates: PassRates) -> tuple[float, float]:
    """Mean and variance of the pass rate over the prompts; a list is the whole population (divide by its length).

    Raises:
        ConfigError: for an empty list or a rate outside [0, 1].
    """
    if isinstance(pass_rates, BetaRates):
        a, b = pass_rates.alpha, pass_rates.beta
        return a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    rates = checked_rates(pass_rates)
    return float(rates.mean()), float(rates.var())


def solved_distribution(pass_rates: PassRates, group_size: int) -> Array:
    """[G + 1] the chance that K = 0 .. G rollouts of a random prompt's group are solved.

        one rate    C(G, K) p^K (1 - p)^(G - K)
        a list      the mean of that over its rates
        a Beta      C(G, K) B(alpha + K, beta + G - K) / B(alpha, beta)       (beta-binomial)

    Computed from logarithms, so that large groups neither overflow nor vanish. Sums to 1.

    Raises:
        ConfigError: for an empty list, a rate outside [0, 1] or a group size below 1.
    """
    require_count("group_size", group_size)
    solved = np.arange(group_size + 1, dtype=np.float64)
    failed = group_size - solved
    log_choose = log_choices(group_size)
    if isinstance(pass_rates, BetaRates):
        a, b = pass_rates.alpha, pass_rates.beta
        return np.exp(log_choose + betaln(a + solved, b + failed) - betaln(a, b))
    # Measured rates repeat (k attempts give k + 1 of them): every different one is worked out once.
    rates, counts = np.unique(checked_rates(pass_rates), return_counts=True)
    column = rates[:, None]
    chances = np.exp(log_choose + xlogy(solved, column) + xlog1py(failed, -column))
    return counts @ chances / counts.sum()


def log_choices(group_size: int) -> Array:
    """[G + 1] the logarithm of the binomial coefficients C(G, K), K = 0 .. G."""
    solved = np.arange(group_size + 1, dtype=np.float64)
    logs = -betaln(solved + 1, group_size - solved + 1) - math.log(group_size + 1)
    logs[[0, -1]] = 0.0  # exactly, so that a prompt that is always solved has a dead group with chance 1
    return logs


def draw_rates(pass_rates: PassRates, num_prompts: int, generator: np.random.Generator) -> Array:
    """[num_prompts] pass rates of prompts that are drawn independently; from a list: with replacement.

    Raises:
        ConfigError: for an empty list or a rate outside [0, 1].
    """
    if isinstance(pass_rates, BetaRates):
        return generator.beta(pass_rates.alpha, pass_rates.beta, size=num_prompts)
    return generator.choice(checked_rates(pass_rates), size=num_prompts)


def checked_rates(pass_rates: float | Sequence[float]) -> Array:
    """[N] the rates as an array; one rate gives one entry.

    Raises:
        ConfigError: for an empty list or a rate outside [0, 1], naming the first one and where it stands.
    """
    rates = np.atleast_1d(np.asarray(pass_rates, dtype=np.float64))
    if rates.size == 0:
        raise ConfigError(
            "the list of pass rates is empty; give one rate from 0 to 1 a prompt, or BetaRates(alpha=1, beta=1) "
            "if nothing has been measured yet"
        )
    outside = np.flatnonzero(~((rates >= 0) & (rates <= 1)))  # the negation also catches nan
    if outside.size:
        first = int(outside[0])
        raise ConfigError(
            f"pass rate {rates[first]:g} (entry {first} of {rates.size}): a pass rate lies between 0 and 1; "
            "give solved / scored, not counts or percentages, and leave out prompts without a scored attempt"
        )
    return rates
