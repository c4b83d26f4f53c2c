"""What the pass rates of a whole set of prompts look like, before a single one of them is judged.

Prompts of one data set are mostly very easy or very hard for a model. Knowing that from all counts together makes the
few attempts at each one say more: under a prior that is full of hopeless prompts, 0 of 4 is already strong evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from groupwise.curation.pass_rate import PassRate

PENALTY_SD = 1.0
"""Spread of log(alpha / 0.5) and log(beta / 0.5) that the fit expects: a factor of e either way. By Fisher information
it weighs as much as one prompt of eight attempts for the mean of the rates, and as much as six for their spread."""
LARGEST_WEIGHT = 500.0
"""Upper bound of alpha and beta. Counts that vary no more than coin flips of one rate would push both to infinity."""
SMALLEST_WEIGHT = 0.005
"""Lower bound of alpha and beta. Counts that hold no success, or no failure, would push one of them to zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaPrior:
    """The distribution Beta(alpha, beta) of the pass rates of a set of prompts.

    Example:
        BetaPrior(alpha=0.3, beta=0.9).posterior(solved=1, scored=4).mean      # (1 + 0.3) / (4 + 1.2) = 0.25

    Raises:
        ValueError: unless both weights are positive and finite.
    """

    alpha: float
    """Weight of success, in attempts, > 0; below 1 many prompts are never solved."""
    beta: float
    """Weight of failure, in attempts, > 0; below 1 many prompts are always solved."""

    def __post_init__(self) -> None:
        PassRate(solved=0, scored=0, alpha=self.alpha, beta=self.beta)

    def posterior(self, *, solved: float, scored: float) -> PassRate:
        """What is known of one prompt of the set after `scored` attempts, of which `solved` solved it.

        Raises:
            ValueError: unless 0 <= solved <= scored.
        """
        return PassRate(solved=solved, scored=scored, alpha=self.alpha, beta=self.beta)


JEFFREYS = BetaPrior(alpha=0.5, beta=0.5)
"""The prior where nothing is known of the set: worth one attempt."""


def fit_prior(counts: Sequence[tuple[int, int]]) -> BetaPrior:
    """The Beta distribution of pass rates under which these counts, (solved, scored) of each prompt, are most likely.

        maximise   sum_i log B(a + k_i, b + n_i - k_i) / B(a, b)   -   (log(2 a)^2 + log(2 b)^2) / (2 PENALTY_SD^2)

    The first term is the Beta-binomial likelihood. The second pulls towards Jeffreys' Beta(1/2, 1/2) with the weight
    of a few prompts and is what is left where counts say nothing: no counts at all give exactly JEFFREYS, one attempt
    a prompt fixes the mean and leaves the spread to it. Both weights stay within SMALLEST_WEIGHT and LARGEST_WEIGHT.
    The order of counts does not matter, and prompts without a scored attempt are left out.

    Raises:
        ValueError: unless 0 <= solved <= scored in every count.
    """
    for k, n in counts:
        if not 0 <= k <= n:
            raise ValueError(f"fit_prior: expected 0 <= solved <= scored, got {k} of {n}")
    kinds = sorted(Counter((k, n) for k, n in counts if n).items())
    if not kinds:
        return JEFFREYS
    solved = np.array([k for (k, _), _ in kinds], dtype=np.float64)
    failed = np.array([n - k for (k, n), _ in kinds], dtype=np.float64)
    num_prompts = np.array([count for _, count in kinds], dtype=np.float64)

    def loss(log_ratios: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative of what is maximised, and its gradient, at (log(2 a), log(2 b))."""
        a, b = 0.5 * np.exp(log_ratios)
        likelihood = num_prompts @ (special.betaln(a + solved, b + failed) - special.betaln(a, b))
        both = special.psi(a + b) - special.psi(a + b + solved + failed)
        slope = np.array(
            [
                a * (num_prompts @ (special.psi(a + solved) - special.psi(a) + both)),
                b * (num_prompts @ (special.psi(b + failed) - special.psi(b) + both)),
            ]
        )
        penalty = log_ratios @ log_ratios / (2 * PENALTY_SD**2)
        return float(penalty - likelihood), log_ratios / PENALTY_SD**2 - slope

    bounds = [(float(np.log(2 * SMALLEST_WEIGHT)), float(np.log(2 * LARGEST_WEIGHT)))] * 2
    fitted = optimize.minimize(loss, np.zeros(2), jac=True, bounds=bounds, method="L-BFGS-B")
    alpha, beta = 0.5 * np.exp(fitted.x)
    return BetaPrior(alpha=float(alpha), beta=float(beta))
