"""How many held-out prompts it takes to see a difference, before anything is evaluated.

Two models answer the same prompts, k times each. With p the rate of one model on a prompt and p' that of the other,

    D      = mean over n prompts of (solved share of the second model - solved share of the first)
    Var(D) = ( Var(p' - p)  +  E[p (1 - p)] / k  +  E[p' (1 - p')] / k ) / n
               between         within prompts

More samples a prompt only shrink the second part. The first one goes down with n alone.

What is known before is the distribution of p. Three assumptions make Var(D) of it and of the wanted difference d:

- The mean of p' is E[p] + d.
- The rates stay as polarised as they are: Var(p) is the same share of E[p] (1 - E[p]) before and after.
- `correlation` is that of p and p' over the prompts: 1 where the second model finds the same prompts hard, 0 where the
  pairing does not help. The rates are meant, which are more alike than solved shares are. Between SFT models and what
  GRPO made of them we measured 0.75 and more, with rates that had become more polarised; 0.5, the default, overstated
  the variance of the difference in all four runs, 0.8 was about right. Better: two evaluations of your own.

A greedy completion has no rate: a prompt is solved or not. For those, `greedy_prompts_needed` works with the share of
prompts whose outcome flips (McNemar's test).

Prompts stand for a source of prompts: everything here is about new prompts of the same kind, not about these alone.

Source: paired variance: Miller (2024), arXiv:2411.00640; added z^2 / 2 for an estimated variance: Guenther (1981),
The American Statistician 35; flips: Connor (1987), Biometrics 43.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import ndtri

from groupwise.errors import ConfigError
from groupwise.planning.bounds import require, require_count, require_number
from groupwise.planning.pass_rates import PassRates, mean_and_variance


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDesign:
    """A paired evaluation of two models, and what it can show.

    Example:
        EvaluationDesign(num_prompts=400, samples_per_prompt=4, difference=0.05, standard_error=0.0178)
    """

    num_prompts: int
    """Held-out prompts, answered by both models."""
    samples_per_prompt: int
    """Completions of each prompt by each model; 1 for greedy decoding."""
    difference: float
    """The true difference of the mean pass rates that is found with the wanted power."""
    standard_error: float
    """Of the measured difference."""
    power: float = 0.8
    """Chance that the interval of the difference leaves out 0, if the difference is as large as that."""
    confidence: float = 0.95
    """Of that interval, two-sided."""

    @property
    def interval_width(self) -> float:
        """Width of the interval of the difference, from end to end: 2 z times the standard error."""
        return 2 * _quantile(self.confidence) * self.standard_error

    @property
    def num_completions(self) -> int:
        """Completions of both models together."""
        return 2 * self.num_prompts * self.samples_per_prompt


def prompts_needed(
    pass_rates: PassRates,
    difference: float,
    *,
    samples_per_prompt: int = 1,
    correlation: float = 0.5,
    power: float = 0.8,
    confidence: float = 0.95,
) -> EvaluationDesign:
    """The smallest number of held-out prompts at which a paired test finds this difference with this power.

        n = (z_confidence + z_power)^2 V / d^2 + z_confidence^2 / 2,   V = n Var(D)

    The difference may be negative: the size at which a loss is found. The assumptions stand at the top of this file.

    Raises:
        ConfigError: for unusable rates, a difference of 0 or one that leads out of [0, 1], or options out of range.
    """
    require_count("samples_per_prompt", samples_per_prompt)
    between, within = _variances(pass_rates, difference, correlation)
    variance = between + within / samples_per_prompt
    num_prompts = math.ceil(_multiple(power, confidence) * variance / difference**2 + _quantile(confidence) ** 2 / 2)
    return EvaluationDesign(
        num_prompts=num_prompts,
        samples_per_prompt=samples_per_prompt,
        difference=difference,
        standard_error=math.sqrt(variance / num_prompts),
        power=power,
        confidence=confidence,
    )


def compare_samples_per_prompt(
    pass_rates: PassRates,
    difference: float,
    samples_per_prompt: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    correlation: float = 0.5,
    power: float = 0.8,
    confidence: float = 0.95,
) -> tuple[EvaluationDesign, ...]:
    """Designs of equal power, one for each number of samples: few prompts and many samples, or the other way.

    More samples always need fewer prompts and, as the part between prompts stays, never fewer completions. They pay
    where prompts are scarce, or where a prompt costs more than a completion.

    Raises:
        ConfigError: as `prompts_needed`, and for an empty list.
    """
    require(
        len(samples_per_prompt) > 0, "samples_per_prompt", samples_per_prompt, "at least one number", "Give (1, 4)."
    )
    return tuple(
        prompts_needed(
            pass_rates,
            difference,
            samples_per_prompt=samples,
            correlation=correlation,
            power=power,
            confidence=confidence,
        )
        for samples in samples_per_prompt
    )


def samples_needed(
    pass_rates: PassRates,
    difference: float,
    num_prompts: int,
    *,
    correlation: float = 0.5,
    power: float = 0.8,
    confidence: float = 0.95,
) -> EvaluationDesign:
    """The fewest samples a prompt at which these many prompts find the difference.

    Raises:
        ConfigError: as `prompts_needed`, and where no number of samples is enough, naming how many prompts would be.
    """
    require_count("num_prompts", num_prompts)
    between, within = _variances(pass_rates, difference, correlation)
    prompts_for_variance = _multiple(power, confidence) / difference**2
    effective_prompts = num_prompts - _quantile(confidence) ** 2 / 2
    spare = effective_prompts / prompts_for_variance - between
    if spare <= 0:
        enough = math.floor(num_prompts - effective_prompts + prompts_for_variance * between) + 1
        raise ConfigError(
            f"num_prompts = {num_prompts}: too few to see a difference of {difference:g}, with any number of samples; "
            f"expected {enough} or more. Add held-out prompts, or look for a larger difference"
        )
    samples = max(1, math.ceil(within / spare))
    return EvaluationDesign(
        num_prompts=num_prompts,
        samples_per_prompt=samples,
        difference=difference,
        standard_error=math.sqrt((between + within / samples) / num_prompts),
        power=power,
        confidence=confidence,
    )


def difference_shown(
    pass_rates: PassRates,
    num_prompts: int,
    *,
    samples_per_prompt: int = 1,
    correlation: float = 0.5,
    power: float = 0.8,
    confidence: float = 0.95,
) -> EvaluationDesign:
    """The smallest improvement that these many prompts find with this power: the inverse of `prompts_needed`.

    Raises:
        ConfigError: for unusable rates, options out of range, or so few prompts that even the step to a rate of 1 is
            not found.
    """
    require_count("num_prompts", num_prompts)
    require_count("samples_per_prompt", samples_per_prompt)
    largest = 1 - mean_and_variance(pass_rates)[0]
    effective_prompts = num_prompts - _quantile(confidence) ** 2 / 2
    multiple = _multiple(power, confidence)

    def variance(difference: float) -> float:
        between, within = _variances(pass_rates, difference, correlation, allow_zero=True)
        return between + within / samples_per_prompt

    def surplus(difference: float) -> float:
        return difference**2 * effective_prompts - multiple * variance(difference)

    _refuse_if_too_few(num_prompts, surplus(largest))
    difference = float(brentq(surplus, 0.0, largest))
    return EvaluationDesign(
        num_prompts=num_prompts,
        samples_per_prompt=samples_per_prompt,
        difference=difference,
        standard_error=math.sqrt(variance(difference) / num_prompts),
        power=power,
        confidence=confidence,
    )


def greedy_prompts_needed(
    difference: float, flipped: float, *, power: float = 0.8, confidence: float = 0.95
) -> EvaluationDesign:
    """`prompts_needed` for one greedy completion a prompt, where McNemar's test is used.

        n = (z_confidence sqrt(f) + z_power sqrt(f - d^2))^2 / d^2

    f is the share of prompts that one model solves and the other does not, whichever: at least |d|, and never known
    before. `expected_flips` gives a start.

    Raises:
        ConfigError: unless |difference| is above 0 and at most flipped, and flipped at most 1, or for a power or
            confidence out of range.
    """
    _check_difference(difference)
    require_number("flipped", flipped, least=abs(difference), most=1.0, advice="Each gained prompt is a flip.")
    num_prompts = math.ceil(_flip_multiple(difference, flipped, power, confidence) / difference**2)
    return _greedy_design(num_prompts, difference, flipped, power, confidence)


def greedy_difference_shown(
    num_prompts: int, flipped: float, *, power: float = 0.8, confidence: float = 0.95
) -> EvaluationDesign:
    """The smallest improvement that these many greedy completions find: the inverse of `greedy_prompts_needed`.

    Raises:
        ConfigError: for a share of flips outside (0, 1], or so few prompts that not even all flips one way are found.
    """
    require_count("num_prompts", num_prompts)
    require_number("flipped", flipped, most=1.0, positive=True, advice="Without a flip there is no difference.")

    def surplus(difference: float) -> float:
        return difference**2 * num_prompts - _flip_multiple(difference, flipped, power, confidence)

    _refuse_if_too_few(num_prompts, surplus(flipped))
    difference = float(brentq(surplus, 0.0, flipped))
    return _greedy_design(num_prompts, difference, flipped, power, confidence)


def expected_flips(pass_rates: PassRates, difference: float, *, correlation: float = 0.5) -> float:
    """The share of prompts whose outcome differs between one completion of each model, both sampled.

        f = m (1 - m') + m' (1 - m) - 2 Cov(p, p'),   m the mean rate, m' = m + difference

    Greedy completions of similar models flip less often, so this is on the careful side.

    Raises:
        ConfigError: for unusable rates, a difference that leads out of [0, 1], or a correlation outside [0, 1].
    """
    between, within = _variances(pass_rates, difference, correlation)
    return between + within + difference**2


def pass_rate_interval_width(
    pass_rates: PassRates, num_prompts: int, samples_per_prompt: int = 1, *, confidence: float = 0.95
) -> float:
    """How wide the interval of one model's pass rate will be: Wilson's, for prompts with several samples.

        n_eff = n m (1 - m) / (Var(p) + E[p (1 - p)] / k)
        width = 2 z / (1 + z^2 / n_eff) sqrt(m (1 - m) / n_eff + z^2 / 4 n_eff^2)

    n_eff is between n (a prompt's completions all agree) and n k (the prompts do not differ).

    Raises:
        ConfigError: for unusable rates, no prompts or samples, or a confidence outside (0, 1).
    """
    require_count("num_prompts", num_prompts)
    require_count("samples_per_prompt", samples_per_prompt)
    mean, between = mean_and_variance(pass_rates)
    binomial = mean * (1 - mean)
    variance = between + max(0.0, binomial - between) / samples_per_prompt
    trials = num_prompts * binomial / variance if variance > 0 else float(num_prompts)
    z = _quantile(confidence)
    return 2 * z / (1 + z * z / trials) * math.sqrt(binomial / trials + z * z / (4 * trials * trials))


def _variances(
    pass_rates: PassRates, difference: float, correlation: float, *, allow_zero: bool = False
) -> tuple[float, float]:
    """n Var(D) in two parts: Var(p' - p), and E[p (1 - p)] + E[p' (1 - p')], which is to be divided by k."""
    if not allow_zero:
        _check_difference(difference)
    require_number("correlation", correlation, most=1.0, advice="0 ignores the pairing, 0.5 is careful.")
    mean, spread = mean_and_variance(pass_rates)
    after = mean + difference
    require(
        -1e-12 <= after <= 1 + 1e-12,
        "difference",
        difference,
        f"one that keeps the mean rate of {mean:g} between 0 and 1, so {-mean:g} to {1 - mean:g}",
        "Ask for a smaller one.",
    )
    binomial, binomial_after = mean * (1 - mean), max(0.0, after * (1 - after))
    if spread >= binomial * (1 - 1e-9):
        raise ConfigError(
            "every pass rate is 0 or 1: that is one attempt a prompt, which does not show how rates differ. "
            "Expected rates from several attempts, or BetaRates; for greedy completions use greedy_prompts_needed"
        )
    polarised = spread / binomial
    spread_after = polarised * binomial_after
    between = spread + spread_after - 2 * correlation * math.sqrt(spread * spread_after)
    return max(0.0, between), (1 - polarised) * (binomial + binomial_after)


def _greedy_design(
    num_prompts: int, difference: float, flipped: float, power: float, confidence: float
) -> EvaluationDesign:
    return EvaluationDesign(
        num_prompts=num_prompts,
        samples_per_prompt=1,
        difference=difference,
        standard_error=math.sqrt(max(0.0, flipped - difference**2) / num_prompts),
        power=power,
        confidence=confidence,
    )


def _flip_multiple(difference: float, flipped: float, power: float, confidence: float) -> float:
    _check_power(power)
    spread = math.sqrt(max(0.0, flipped - difference**2))
    return (_quantile(confidence) * math.sqrt(flipped) + float(ndtri(power)) * spread) ** 2


def _multiple(power: float, confidence: float) -> float:
    """(z_confidence + z_power)^2: 7.85 at 95 % and 80 %."""
    _check_power(power)
    return (_quantile(confidence) + float(ndtri(power))) ** 2


def _quantile(confidence: float) -> float:
    """z of a two-sided interval: 1.96 at 95 %."""
    require(0 < confidence < 1, "confidence", confidence, "a number between 0 and 1", "0.95 is usual.")
    return float(ndtri((1 + confidence) / 2))


def _check_power(power: float) -> None:
    require(0.5 <= power < 1, "power", power, "a chance from 0.5 to below 1", "0.8 is usual.")


def _check_difference(difference: float) -> None:
    allowed = difference != 0 and abs(difference) <= 1  # false for nan, too
    require(allowed, "difference", difference, "a share between -1 and 1, not 0", "0.05 stands for 5 points.")


def _refuse_if_too_few(num_prompts: int, surplus: float) -> None:
    require(
        surplus >= 0,
        "num_prompts",
        num_prompts,
        "enough prompts to see the largest possible difference",
        "Add held-out prompts, or ask for less power or confidence.",
    )
