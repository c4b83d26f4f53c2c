from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaincinv, stdtrit

from groupwise.errors import ConfigError
from groupwise.planning import (
    BetaRates,
    PassRates,
    compare_samples_per_prompt,
    difference_shown,
    expected_flips,
    greedy_difference_shown,
    greedy_prompts_needed,
    pass_rate_interval_width,
    prompts_needed,
    samples_needed,
)

HARD = BetaRates(alpha=0.6, beta=1.4)
GRID = np.linspace(1e-6, 1 - 1e-6, 4001)
Quantiles = Callable[[np.ndarray], np.ndarray]


def beta_quantiles(rates: BetaRates) -> Quantiles:
    values = betaincinv(rates.alpha, rates.beta, GRID)
    return lambda chances: np.interp(chances, GRID, values)


def found_share(design_prompts: int, samples: int, before: Quantiles, after: Quantiles, correlation: float) -> float:
    """How often a paired t interval of the difference lies above 0, in 2000 evaluations of two models.

    A prompt keeps its rank in difficulty with the chance `correlation`; otherwise its second rate is drawn anew.
    """
    generator = np.random.default_rng(17)
    found, repeats = 0, 2000
    critical = float(stdtrit(design_prompts - 1, 0.975))
    for _ in range(repeats):
        rank, other = generator.random((2, design_prompts))
        keeps = generator.random(design_prompts) < correlation
        first = generator.binomial(samples, before(rank)) / samples
        second = generator.binomial(samples, after(np.where(keeps, rank, other))) / samples
        change = second - first
        found += change.mean() > critical * change.std(ddof=1) / math.sqrt(design_prompts)
    return found / repeats


@pytest.mark.parametrize(
    ("samples", "difference", "correlation"), [(1, 0.1, 0.5), (4, 0.08, 0.7), (4, 0.15, 0.0), (16, 0.06, 0.8)]
)
def test_the_wanted_power_is_reached(samples: int, difference: float, correlation: float) -> None:
    design = prompts_needed(HARD, difference, samples_per_prompt=samples, correlation=correlation)
    # the same alpha + beta is the same polarisation; the mean is shifted
    shifted = BetaRates(alpha=0.6 + 2 * difference, beta=1.4 - 2 * difference)
    power = found_share(design.num_prompts, samples, beta_quantiles(HARD), beta_quantiles(shifted), correlation)
    assert 0.75 < power < 0.87


def test_the_wanted_power_is_reached_with_measured_rates() -> None:
    rates = [0.25, 0.375, 0.5, 0.5, 0.625, 0.75]
    design = prompts_needed(rates, 0.1, samples_per_prompt=2, correlation=0.9)

    def before(chances: np.ndarray) -> np.ndarray:
        return np.array(rates)[(chances * 6).astype(int)]

    power = found_share(design.num_prompts, 2, before, lambda chances: before(chances) + 0.1, 0.9)
    assert 0.75 < power < 0.87


def test_the_power_test_would_notice_half_the_prompts() -> None:
    design = prompts_needed(HARD, 0.1)
    shifted = BetaRates(alpha=0.8, beta=1.2)
    power = found_share(design.num_prompts // 2, 1, beta_quantiles(HARD), beta_quantiles(shifted), 0.5)
    assert power < 0.7


@pytest.mark.parametrize(("difference", "flipped"), [(0.1, 0.3), (0.05, 0.1), (0.2, 0.25)])
def test_the_wanted_power_is_reached_by_mcnemar(difference: float, flipped: float) -> None:
    design = greedy_prompts_needed(difference, flipped)
    gained, lost = (flipped + difference) / 2, (flipped - difference) / 2
    counts = np.random.default_rng(5).multinomial(design.num_prompts, [gained, lost, 1 - flipped], size=20_000)
    flips = np.maximum(1, counts[:, 0] + counts[:, 1])
    found = (counts[:, 0] - counts[:, 1]) / np.sqrt(flips) > 1.96
    assert 0.75 < found.mean() < 0.87


def test_prompts_needed_by_hand() -> None:
    # one rate of 1/2 for all, d = 0.1, k = 1: V = 0 + 1/4 + 0.6 * 0.4 = 0.49
    # n = (1.95996 + 0.84162)^2 * 0.49 / 0.01 + 1.95996^2 / 2 = 7.8489 * 49 + 1.9207 = 386.5
    design = prompts_needed(0.5, 0.1)
    assert design.num_prompts == 387
    assert design.standard_error == pytest.approx(0.7 / math.sqrt(387))
    assert design.interval_width == pytest.approx(2 * 1.95996 * 0.7 / math.sqrt(387), rel=1e-5)
    assert design.num_completions == 774


def test_greedy_prompts_needed_by_hand() -> None:
    # f = 0.3, d = 0.1: (1.95996 sqrt(0.3) + 0.84162 sqrt(0.29))^2 / 0.01 = (1.07352 + 0.45322)^2 * 100 = 233.1
    design = greedy_prompts_needed(0.1, 0.3)
    assert design.num_prompts == 234
    assert design.standard_error == pytest.approx(math.sqrt(0.29 / 234))


def test_one_sample_of_each_model_is_a_flip_or_not() -> None:
    # n Var(D) = f - d^2, whichever way it is computed
    flipped = expected_flips(HARD, 0.1, correlation=0.6)
    design = prompts_needed(HARD, 0.1, correlation=0.6)
    assert design.standard_error**2 * design.num_prompts == pytest.approx(flipped - 0.01)
    # one rate of 1/2 before and 0.6 after: 1/2 * 0.4 + 0.6 * 1/2
    assert expected_flips(0.5, 0.1) == pytest.approx(0.5)


@pytest.mark.parametrize("samples", [1, 8])
@pytest.mark.parametrize("rates", [0.4, [0.1, 0.5, 0.9], HARD])
def test_the_difference_shown_is_the_inverse(rates: PassRates, samples: int) -> None:
    design = prompts_needed(rates, 0.07, samples_per_prompt=samples)
    shown = difference_shown(rates, design.num_prompts, samples_per_prompt=samples)
    fewer = difference_shown(rates, design.num_prompts - 1, samples_per_prompt=samples)
    assert shown.difference <= 0.07 < fewer.difference
    assert shown.standard_error == pytest.approx(design.standard_error, rel=0.05)


def test_the_greedy_difference_shown_is_the_inverse() -> None:
    design = greedy_prompts_needed(0.07, 0.2)
    assert greedy_difference_shown(design.num_prompts, 0.2).difference <= 0.07
    assert greedy_difference_shown(design.num_prompts - 1, 0.2).difference > 0.07


@settings(max_examples=40)
@given(difference=st.floats(0.02, 0.2), correlation=st.floats(0, 1))
def test_samples_buy_prompts_but_never_completions(difference: float, correlation: float) -> None:
    designs = compare_samples_per_prompt(HARD, difference, (1, 2, 4, 8, 16), correlation=correlation)
    prompts = [design.num_prompts for design in designs]
    completions = [design.num_completions for design in designs]
    assert prompts == sorted(prompts, reverse=True)
    assert completions == sorted(completions)


def test_pairing_saves_prompts_where_prompts_differ() -> None:
    paired, unpaired = (prompts_needed(HARD, 0.1, samples_per_prompt=8, correlation=c).num_prompts for c in (0.9, 0))
    assert paired < unpaired / 2
    alike = [prompts_needed(0.3, 0.1, correlation=c).num_prompts for c in (0.9, 0)]
    assert alike[0] == alike[1]


def test_the_mean_rate_does_not_decide() -> None:
    # both have mean 1/2; with 16 samples nearly all of the variance is between prompts
    alike = prompts_needed(BetaRates(alpha=20, beta=20), 0.1, samples_per_prompt=16).num_prompts
    polar = prompts_needed(BetaRates(alpha=0.2, beta=0.2), 0.1, samples_per_prompt=16).num_prompts
    assert polar > 3 * alike


def test_samples_needed() -> None:
    enough = prompts_needed(HARD, 0.1, samples_per_prompt=3).num_prompts
    assert samples_needed(HARD, 0.1, enough).samples_per_prompt == 3
    assert samples_needed(HARD, 0.1, 100_000).samples_per_prompt == 1
    with pytest.raises(ConfigError, match=r"num_prompts = 20: too few.*expected (\d+) or more") as refused:
        samples_needed(HARD, 0.1, 20)
    named = int(str(refused.value).split("expected ")[1].split(" ")[0])
    assert samples_needed(HARD, 0.1, named).samples_per_prompt >= 1
    with pytest.raises(ConfigError, match="too few"):
        samples_needed(HARD, 0.1, named - 1)


def test_the_width_of_one_pass_rate() -> None:
    # all prompts alike: n k independent trials. Wilson at 1/2 with 400: z / (1 + z^2 / n) sqrt(1 / 4n + z^2 / 4n^2) * 2
    z = 1.959964
    by_hand = 2 * z / (1 + z * z / 400) * math.sqrt(0.25 / 400 + z * z / (4 * 400 * 400))
    assert pass_rate_interval_width(0.5, 100, 4) == pytest.approx(by_hand, rel=1e-5)
    # prompts always or never solved: samples add nothing
    assert pass_rate_interval_width([0.0, 1.0], 100, 64) == pytest.approx(pass_rate_interval_width(0.5, 100, 1))
    # never solved at all: the interval keeps its width
    assert pass_rate_interval_width(0.0, 100) == pytest.approx(z * z / 100 / (1 + z * z / 100), rel=1e-5)


def test_the_width_of_one_pass_rate_is_what_is_seen() -> None:
    generator = np.random.default_rng(2)
    shares = generator.binomial(4, generator.beta(0.6, 1.4, size=(4000, 200))).mean(axis=1) / 4
    width = pass_rate_interval_width(HARD, 200, 4)
    assert width == pytest.approx(2 * 1.96 * shares.std(), rel=0.05)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"difference = 0"):
        prompts_needed(HARD, 0)
    with pytest.raises(ConfigError, match=r"difference = 0\.8: .*mean rate of 0\.3 .* -0\.3 to 0\.7"):
        prompts_needed(HARD, 0.8)
    with pytest.raises(ConfigError, match=r"every pass rate is 0 or 1.*greedy_prompts_needed"):
        prompts_needed([0.0, 1.0, 1.0], 0.1)
    with pytest.raises(ConfigError, match="correlation = 2"):
        prompts_needed(HARD, 0.1, correlation=2)
    with pytest.raises(ConfigError, match="power = 1"):
        prompts_needed(HARD, 0.1, power=1)
    with pytest.raises(ConfigError, match="confidence = 95"):
        prompts_needed(HARD, 0.1, confidence=95)
    with pytest.raises(ConfigError, match="samples_per_prompt = 0"):
        prompts_needed(HARD, 0.1, samples_per_prompt=0)
    with pytest.raises(ConfigError, match="empty"):
        prompts_needed([], 0.1)
    with pytest.raises(ConfigError, match=r"flipped = 0\.05"):
        greedy_prompts_needed(0.1, 0.05)
    with pytest.raises(ConfigError, match="num_prompts = 3: expected enough prompts"):
        difference_shown(HARD, 3)
    with pytest.raises(ConfigError, match="num_prompts = 3: expected enough prompts"):
        greedy_difference_shown(3, 0.2)
    with pytest.raises(ConfigError, match="at least one number"):
        compare_samples_per_prompt(HARD, 0.1, ())
