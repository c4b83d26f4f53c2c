"""What a few attempts tell about the chance that the policy solves a prompt.

Three failures in three attempts do not make a prompt impossible. The pass rate of a prompt is therefore a
distribution: a Beta prior that every attempt sharpens. What is asked of it: how sure is it that the rate is high or
low, how likely does the next group teach nothing, and how much do the outcomes of one prompt vary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """The posterior Beta(alpha + solved, beta + scored - solved) of one prompt's pass rate.

    The default prior is that of Jeffreys, Beta(1/2, 1/2): worth one attempt, and the same on the scale of the log
    odds as on that of the rate. `prior.fit_prior` finds one that fits a whole set of prompts.

    Example:
        PassRate(solved=1, scored=4).mean                              # (1 + 0.5) / (4 + 1) = 0.3
        PassRate(solved=0, scored=8).probability_below(0.05)           # 0.64: not sure yet that it is hopeless
        PassRate(solved=0, scored=8).zero_variance_probability(8)      # 0.71: its next group teaches nothing

    Raises:
        ValueError: unless 0 <= solved <= scored and both prior weights are positive, all of them finite.
    """

    solved: float
    """Attempts that solved the task. Not always a whole number: attempts at an older policy may count for less."""
    scored: float
    """Attempts with a verdict; those that the verifier could not judge are not counted."""
    alpha: float = 0.5
    """Prior weight of success, in attempts, > 0."""
    beta: float = 0.5
    """Prior weight of failure, in attempts, > 0."""

    def __post_init__(self) -> None:
        if not 0 <= self.solved <= self.scored < math.inf:
            raise ValueError(f"PassRate: expected 0 <= solved <= scored, got {self.solved} of {self.scored}")
        if not (0 < self.alpha < math.inf and 0 < self.beta < math.inf):
            raise ValueError(
                f"PassRate: prior weights must be positive, got alpha={self.alpha}, beta={self.beta}; 0.5 is Jeffreys"
            )

    @property
    def posterior(self) -> tuple[float, float]:
        """The two parameters of the posterior: (alpha + solved, beta + scored - solved)."""
        return self.alpha + self.solved, self.beta + (self.scored - self.solved)

    @property
    def mean(self) -> float:
        """Posterior mean, a / (a + b) of Beta(a, b): never 0 or 1."""
        a, b = self.posterior
        return a / (a + b)

    @property
    def variance(self) -> float:
        """How unsure the rate itself is: the posterior variance, a b / ((a + b)^2 (a + b + 1)) of Beta(a, b)."""
        a, b = self.posterior
        return a * b / ((a + b) ** 2 * (a + b + 1))

    @property
    def outcome_variance(self) -> float:
        """How much one attempt is expected to vary: E[p (1 - p)] = a b / ((a + b) (a + b + 1)) of Beta(a, b)."""
        a, b = self.posterior
        return a * b / ((a + b) * (a + b + 1))

    def probability_below(self, rate: float) -> float:
        """P(pass rate <= rate), the posterior distribution function; 0 at rate 0, 1 at rate 1.

        Raises:
            ValueError: if rate is outside [0, 1].
        """
        _refuse_rate("probability_below", rate)
        return float(special.betainc(*self.posterior, rate))

    def probability_above(self, rate: float) -> float:
        """P(pass rate >= rate): 1 - probability_below, without the rounding of that difference.

        Raises:
            ValueError: if rate is outside [0, 1].
        """
        _refuse_rate("probability_above", rate)
        return float(special.betaincc(*self.posterior, rate))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Equal-tailed credible interval: (1 - confidence) / 2 of the posterior lies on each side.

        Raises:
            ValueError: unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"interval: confidence must lie between 0 and 1, got {confidence}; 0.95 is usual")
        tail = (1 - confidence) / 2
        a, b = self.posterior
        return float(special.betaincinv(a, b, tail)), float(special.betaincinv(a, b, 1 - tail))

    def zero_variance_probability(self, group_size: int) -> float:
        """The chance that the next group of this prompt is dead, all solved or none, with the rate still unsure.

            E[p^G] + E[(1 - p)^G] = prod_i (a + i) / (a + b + i) + prod_i (b + i) / (a + b + i),   i = 0 .. G - 1

        This is not p^G + (1 - p)^G at the mean: what nobody knows yet may turn out to be always or never solved.

        Raises:
            ValueError: if group_size < 1.
        """
        if group_size < 1:
            raise ValueError(f"zero_variance_probability: group_size must be 1 or more, got {group_size}")
        a, b = self.posterior
        all_solved = math.prod((a + i) / (a + b + i) for i in range(group_size))
        none_solved = math.prod((b + i) / (a + b + i) for i in range(group_size))
        return min(1.0, all_solved + none_solved)


def _refuse_rate(name: str, rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ValueError(f"{name}: a pass rate lies in [0, 1], got {rate}")
