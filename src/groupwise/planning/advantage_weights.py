"""How much each way to make advantages counts a prompt, by its pass rate p.

The expected policy gradient of a prompt is w(p) times the gradient of its pass rate: w says what is optimised. With
rewards 0 and 1 it follows from the score S of a rollout, whose mean is grad p / p where the reward is 1 and
-grad p / (1 - p) where it is 0.

A dead group contributes 0 under every estimator with a baseline. Leaving dead groups out therefore changes no ratio
of weights between prompts: all of them are multiplied by 1 / E[u], the mean now being over the groups that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
from scipy.special import xlog1py, xlogy

from groupwise.planning.bounds import require, require_number
from groupwise.planning.groups import check_group_size
from groupwise.planning.pass_rates import log_choices

Estimator = Literal["rloo", "mean_baseline", "std", "sample_std", "maxrl", "mean_of_solved"]
Scale = Literal["none", "std", "sample_std"]


def difficulty_weight(pass_rate: float, group_size: int, estimator: Estimator = "std") -> float:
    """w(p): by how much the gradient of this prompt's pass rate is multiplied in the expected update.

        estimator         advantage of a rollout                 w(p)                                     at p = 0
        ----------------  -------------------------------------  ---------------------------------------  -----------
        rloo              r - mean of the others                 1                                        1
        mean_baseline     r - group mean (Dr. GRPO)              (G - 1) / G                              (G - 1) / G
        std               (r - mean) / population std (GRPO)     E[sqrt(q (1 - q))] / (p (1 - p))         sqrt(G - 1)
        sample_std        (r - mean) / sample std                sqrt((G - 1) / G) times that of std
        maxrl             (r - mean) / mean                      (1 - (1 - p)^(G - 1)) / p                G - 1
        mean_of_solved    r / mean, no baseline                  (1 - (1 - p)^G) / p                      G

    q is the solved share of a group of G rollouts, each solved with chance p, and the advantages are averaged over G.
    rloo optimises the mean pass rate; std counts prompts at both ends more, towards 1 / sqrt(p (1 - p)); maxrl counts
    hard prompts more, towards 1 / p, which is the gradient of the mean of log p.

    Source: Dr. GRPO: arXiv:2503.20783; GRPO: arXiv:2402.03300; RLOO: arXiv:2402.14740; MaxRL: arXiv:2602.02710.

    Raises:
        ConfigError: for a rate outside [0, 1], a group size below 2 or an unknown estimator.
    """
    require_number("pass_rate", pass_rate, most=1.0, advice="Give solved / scored.")
    check_group_size(group_size)
    require(
        estimator in _WEIGHTS,
        "estimator",
        estimator,
        "one of " + ", ".join(_WEIGHTS),
        "Choose how advantages are made.",
    )
    return _WEIGHTS[estimator](float(pass_rate), group_size)


def largest_advantage(group_size: int, scale: Scale = "std") -> float:
    """The advantage of the only solved rollout of a group, the largest that rewards 0 and 1 can give.

        none          (G - 1) / G
        std           sqrt(G - 1)              divided by the population std
        sample_std    (G - 1) / sqrt(G)        divided by the sample std

    It grows with G: at 64 rollouts one lucky success is pushed 8 times as hard as at 2.

    Raises:
        ConfigError: for a group size below 2 or an unknown scale.
    """
    check_group_size(group_size)
    largest = {
        "none": (group_size - 1) / group_size,
        "std": math.sqrt(group_size - 1),
        "sample_std": (group_size - 1) / math.sqrt(group_size),
    }
    require(scale in largest, "scale", scale, "one of " + ", ".join(largest), "Choose what advantages are divided by.")
    return largest[scale]


def _population_std(p: float, group_size: int) -> float:
    """sum of C(G, K) p^(K - 1) (1 - p)^(G - K - 1) sqrt(q (1 - q)) over K = 1 .. G - 1: finite at p = 0 and 1."""
    solved = np.arange(1, group_size)
    failed = group_size - solved
    chances = np.exp(log_choices(group_size)[1:-1] + xlogy(solved - 1, p) + xlog1py(failed - 1, -p))
    return float(chances @ np.sqrt(solved * failed)) / group_size


def _any_solved_per_rate(p: float, attempts: int) -> float:
    """(1 - (1 - p)^attempts) / p, without the digits that are lost in 1 - (1 - small); its limit at 0 is `attempts`."""
    if p == 0.0:
        return float(attempts)
    return 1.0 if p == 1.0 else -math.expm1(attempts * math.log1p(-p)) / p


_WEIGHTS: Mapping[str, Callable[[float, int], float]] = MappingProxyType(
    {
        "rloo": lambda p, g: 1.0,
        "mean_baseline": lambda p, g: (g - 1) / g,
        "std": _population_std,
        "sample_std": lambda p, g: math.sqrt((g - 1) / g) * _population_std(p, g),
        "maxrl": lambda p, g: _any_solved_per_rate(p, g - 1),
        "mean_of_solved": lambda p, g: _any_solved_per_rate(p, g),
    }
)
