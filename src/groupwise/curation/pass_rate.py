"""What a few attempts tell about the chance that the policy solves a prompt.

Three failures in three attempts do not make a prompt impossible. The pass rate of a prompt is therefore a
distribution: a Beta prior that every attempt sharpens. Its distribution function is the regularised incomplete beta
function, computed here so that this room needs no numerical library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_MAX_TERMS = 20_000
"""The fraction needs about sqrt(max(a, b)) terms: enough for a hundred million attempts at one prompt."""
_BISECTIONS = 60
"""Halves [0, 1] down to 2^-60, below the spacing of floats near 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """The posterior Beta(alpha + solved, beta + scored - solved) of one prompt's pass rate.

    The default prior is that of Jeffreys, Beta(1/2, 1/2): worth one attempt, and the same on the scale of the log
    odds as on that of the rate.

    Example:
        PassRate(solved=1, scored=4).mean             # (1 + 0.5) / (4 + 1) = 0.3
        PassRate(solved=0, scored=8).probability_below(0.1)

    Raises:
        ValueError: unless 0 <= solved <= scored and both prior weights are positive.
    """

    solved: int
    """Attempts that solved the task."""
    scored: int
    """Attempts with a verdict; those that the verifier could not judge are not counted."""
    alpha: float = 0.5
    """Prior weight of success, in attempts, > 0."""
    beta: float = 0.5
    """Prior weight of failure, in attempts, > 0."""

    def __post_init__(self) -> None:
        if not 0 <= self.solved <= self.scored:
            raise ValueError(f"PassRate: expected 0 <= solved <= scored, got {self.solved} of {self.scored}")
        if not (self.alpha > 0 and self.beta > 0):
            raise ValueError(
                f"PassRate: prior weights must be positive, got alpha={self.alpha}, beta={self.beta}; 0.5 is Jeffreys"
            )

    @property
    def mean(self) -> float:
        """Posterior mean, (alpha + solved) / (alpha + beta + scored): never 0 or 1."""
        return (self.alpha + self.solved) / (self.alpha + self.beta + self.scored)

    def probability_below(self, rate: float) -> float:
        """P(pass rate <= rate), the posterior distribution function; 0 at rate 0, 1 at rate 1.

        Raises:
            ValueError: if rate is outside [0, 1].
        """
        if not 0 <= rate <= 1:
            raise ValueError(f"probability_below: a pass rate lies in [0, 1], got {rate}")
        return regularized_incomplete_beta(self.alpha + self.solved, self.beta + self.scored - self.solved, rate)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Equal-tailed credible interval: (1 - confidence) / 2 of the posterior lies on each side.

        Raises:
            ValueError: unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"interval: confidence must lie between 0 and 1, got {confidence}; 0.95 is usual")
        tail = (1 - confidence) / 2
        return self._quantile(tail), self._quantile(1 - tail)

    def _quantile(self, probability: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if self.probability_below(middle) < probability:
                low = middle
            else:
                high = middle
        return (low + high) / 2


def regularized_incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the distribution function of Beta(a, b) at x, for a, b > 0 and 0 <= x <= 1.

        I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) * 1 / (1 + d1 / (1 + d2 / (1 + ...)))
        d_{2m}   =  m (b - m) x / ((a + 2m - 1)(a + 2m))
        d_{2m+1} = -(a + m)(a + b + m) x / ((a + 2m)(a + 2m + 1))

    The fraction converges fast for x < (a + 1) / (a + b + 2); beyond that I_x(a, b) = 1 - I_{1-x}(b, a).

    Source: NIST Digital Library of Mathematical Functions, 8.17.4 and 8.17.22; evaluated as in Lentz (1976).
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - regularized_incomplete_beta(b, a, 1 - x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    return min(1.0, front / _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)) from the front: the running value is a product of ratios of successive terms."""
    tiny = 1e-300  # stands in for a zero denominator, as Lentz's method prescribes
    fraction = numerator = 1.0
    inverse_denominator = 0.0
    for n in range(1, _MAX_TERMS):
        m = n // 2
        if n % 2 == 0:
            d = m * (b - m) * x / ((a + n - 1) * (a + n))
        else:
            d = -(a + m) * (a + b + m) * x / ((a + n - 1) * (a + n))
        inverse_denominator = 1.0 / ((1.0 + d * inverse_denominator) or tiny)
        numerator = (1.0 + d / numerator) or tiny
        change = numerator * inverse_denominator
        fraction *= change
        if abs(change - 1.0) < 1e-15:
            return fraction
    raise AssertionError(f"the incomplete beta fraction did not converge for a={a}, b={b}, x={x}")
