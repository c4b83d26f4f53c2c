"""What a group size does with the pass rates of the prompts: closed forms.

A group whose rollouts all solve the task, or none of them, has equal rewards and teaches nothing. Large groups are
seldom dead but few under a fixed budget of rollouts; small ones cover many prompts and are often dead:

    u(p, G) = 1 - p^G - (1 - p)^G            the chance that a group teaches something
    N = B G                                  rollouts of a step = prompts x group size
    B u      usable groups                   falls with G
    N u      rollouts in usable groups       rises with G
    u / G    usable groups a rollout         p (1 - p) at G = 2 and at G = 3, then falls

All of it is averaged over the distribution of pass rates; the mean pass rate does not determine any of it. For
p ~ Beta(a, b) the share of dead groups falls only as a power of G (about G^-a of all-fail, G^-b of all-pass groups).

Everything follows from `pass_rates.solved_distribution`. `simulation` draws the same record. Rewards here are 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from groupwise.errors import ConfigError
from groupwise.planning.bounds import require, require_count, require_number
from groupwise.planning.pass_rates import BetaRates, PassRates, solved_distribution

__all__ = [
    "BetaRates",
    "GroupOutlook",
    "PassRates",
    "SamplingCost",
    "all_fail_probability",
    "all_pass_probability",
    "best_group_size",
    "dynamic_sampling_cost",
    "expected_pass_at_k",
    "group_outlook",
    "informative_fraction",
    "smallest_group_size",
    "zero_variance_probability",
]

_MOSTLY_DEAD = 0.5
"""Below this share of usable groups, most of the rollouts teach nothing, and an outlook says so."""
_ROUNDING = 1e-12
"""Relative rounding of a share: asking for 1/2 must find the group size that gives exactly that."""
_MAX_GROUP_SIZE = 4096
"""Where the search for a group size ends: eight times the largest groups in published runs (512)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutlook:
    """What is to be expected of groups of one size under a fixed budget of rollouts.

    The advantages are reward minus group mean, over all rollouts; those of dead groups are 0 and count. The fields
    that end in `_std` are of GRPO's advantages, which are also divided by the population std of their group.

    Example:
        group_outlook(BetaRates(alpha=1, beta=1), 8, budget=64).informative     # 7/9
    """

    group_size: int
    all_fail: float
    """Share of groups that nobody solves, E[(1 - p)^G]."""
    all_pass: float
    """Share of groups that every rollout solves, E[p^G]."""
    informative: float
    """Share of groups with both outcomes, E[u(p, G)]: the usable ones."""
    num_prompts: int
    """Prompts that the budget covers, B = floor(budget / G). A remainder smaller than one group is not spent."""
    usable_groups: float
    """B times the share of usable groups."""
    usable_per_rollout: float
    """Usable groups divided by the rollouts spent, E[u] / G."""
    usable_samples: float
    """Rollouts in usable groups, G times their number."""
    mean_abs_advantage: float
    """E|A| = 2 (G - 1) / G E[p (1 - p)]."""
    advantage_variance: float
    """E[A^2] = (G - 1) / G E[p (1 - p)]."""
    mean_abs_advantage_std: float
    """E|A| with division by the std: 2 sqrt(q (1 - q)) in a group with the share q solved."""
    advantage_variance_std: float
    """E[A^2] with division by the std: 1 in every usable group. The sample std gives (G - 1) / G of it."""
    standard_errors: Mapping[str, float] = field(default_factory=dict, hash=False)
    """By field name: the standard error of a simulated number. Empty for closed forms."""

    @property
    def warning(self) -> str | None:
        """What is wrong with this group size, or None: most groups carry no signal."""
        if self.informative >= _MOSTLY_DEAD:
            return None
        too_hard = self.all_fail >= self.all_pass
        cause = (
            "too hard: train on demonstrations first, or add easier ones" if too_hard else "too easy: add harder ones"
        )
        return (
            f"{1 - self.informative:.0%} of the groups of {self.group_size} teach nothing: no rollout solves "
            f"{self.all_fail:.0%}, every rollout solves {self.all_pass:.0%} of them. Most such prompts are {cause}. "
            "A larger group_size helps with prompts that are solved sometimes"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingCost:
    """What it takes to fill a step with usable groups by sampling more prompts (dynamic sampling).

    Example:
        SamplingCost(prompts=20.0, rollouts=160.0, prompts_std=3.2)
    """

    prompts: float
    """Prompts that are sampled on average."""
    rollouts: float
    """Rollouts of these prompts."""
    prompts_std: float
    """Standard deviation of the number of prompts."""


def all_fail_probability(pass_rates: PassRates, group_size: int) -> float:
    """E[(1 - p)^G], the chance that no rollout of a group solves the task; Beta: B(a, b + G) / B(a, b).

    Raises:
        ConfigError: for unusable rates or a group size below 1.
    """
    return float(solved_distribution(pass_rates, group_size)[0])


def all_pass_probability(pass_rates: PassRates, group_size: int) -> float:
    """E[p^G], the chance that every rollout of a group solves the task; Beta: B(a + G, b) / B(a, b).

    Raises:
        ConfigError: for unusable rates or a group size below 1.
    """
    return float(solved_distribution(pass_rates, group_size)[-1])


def zero_variance_probability(pass_rate: PassRates, group_size: int) -> float:
    """p^G + (1 - p)^G, the chance that all rewards of a group are equal; its mean for a list or a Beta.

    Raises:
        ConfigError: for unusable rates or a group size below 2, which is always dead.
    """
    check_group_size(group_size)
    return min(1.0, all_fail_probability(pass_rate, group_size) + all_pass_probability(pass_rate, group_size))


def informative_fraction(pass_rates: PassRates, group_size: int) -> float:
    """E[1 - p^G - (1 - p)^G], the share of groups with both outcomes.

    It is at most 1 - p^G - (1 - p)^G at the mean rate p, and often far below it.

    Raises:
        ConfigError: for unusable rates or a group size below 2.
    """
    check_group_size(group_size)
    # A sum of the live cases, not 1 minus the dead ones, keeps its digits where nearly every group is dead.
    return min(1.0, float(solved_distribution(pass_rates, group_size)[1:-1].sum()))


def expected_pass_at_k(pass_rates: PassRates, k: int) -> float:
    """1 - E[(1 - p)^k], the share of prompts that at least one of k attempts solves.

    Raises:
        ConfigError: for unusable rates or k below 1.
    """
    require_count("k", k, advice="Give the number of attempts a prompt.")
    return 1.0 - all_fail_probability(pass_rates, k)


def group_outlook(pass_rates: PassRates, group_size: int, *, budget: int) -> GroupOutlook:
    """The expected dead and usable groups, and sizes of advantages, of `budget` rollouts in groups of one size.

    With K solved rollouts the share is q = K / G. A group's mean |A| is 2 q (1 - q), its mean A^2 is q (1 - q);
    divided by the population std sqrt(q (1 - q)), they are 2 sqrt(q (1 - q)) and 1.

    Raises:
        ConfigError: for unusable rates, a group size below 2, or a budget below one group.
    """
    num_prompts = prompts_in_budget(group_size, budget)
    chances = solved_distribution(pass_rates, group_size)
    solved = np.arange(group_size + 1) / group_size
    spread = solved * (1 - solved)
    informative = min(1.0, float(chances[1:-1].sum()))
    variance = float(chances @ spread)
    return GroupOutlook(
        group_size=group_size,
        all_fail=float(chances[0]),
        all_pass=float(chances[-1]),
        informative=informative,
        num_prompts=num_prompts,
        usable_groups=num_prompts * informative,
        usable_per_rollout=informative / group_size,
        usable_samples=num_prompts * group_size * informative,
        mean_abs_advantage=2 * variance,
        advantage_variance=variance,
        mean_abs_advantage_std=float(chances @ (2 * np.sqrt(spread))),
        advantage_variance_std=informative,
    )


def smallest_group_size(pass_rates: PassRates, informative: float) -> int:
    """The smallest group size at which at least this share of the groups is usable.

    Prompts with a rate of exactly 0 or 1 never give a usable group: with them the share has a ceiling.

    Raises:
        ConfigError: for unusable rates, a share that is not between 0 and 1, or one that no group size reaches.
    """
    require(0 < informative < 1, "informative", informative, "a share between 0 and 1", "0.5 means every second group.")
    reachable = informative_fraction(pass_rates, _MAX_GROUP_SIZE)
    if reachable < informative:
        raise ConfigError(
            f"no group size up to {_MAX_GROUP_SIZE} makes {informative:.1%} of the groups usable; with these rates "
            f"at most {reachable:.1%} are. Leave out prompts that are always or never solved, or ask for less"
        )
    wanted = informative * (1 - _ROUNDING)
    low, high = 1, _MAX_GROUP_SIZE  # the share rises with G: low is too small, high is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if informative_fraction(pass_rates, middle) >= wanted else (middle, high)
    return high


def best_group_size(
    *, prompt_variance: float, rollout_variance: float, prompt_cost: float = 0.0, rollout_cost: float = 1.0
) -> float:
    """The group size with the least variance of the gradient for a fixed cost.

        Var = (V + W / (G - 1)) / B,   cost = B (c_p + G c_r)    ->    G* = 1 + sqrt((W / V) (1 + c_p / c_r))

    V is the variance between prompts of their true gradients, W the mean over prompts of the variance that one rollout
    adds (about E[p (1 - p)] times the squared size of a score). Any unit will do for both, and any for both costs. c_p
    is paid once a prompt (prefill, setting up an environment), c_r once a rollout. The budget has no influence.

    Caveat: this is the variance of one step. It knows nothing of coverage (a hard prompt that no small group ever
    solves) or of exploration, so it is a lower guide where prompts are hard. In measurements the best group size
    grows with the compute that is spent (IsoCompute, arXiv:2603.12151), which contradicts it. Read it beside
    `group_outlook`, and do not let it decide alone.

    Source: two-level sampling, as in Cochran (1977), Sampling Techniques, section 10.6, with the leave-one-out
    baseline's W / (G - 1); compare arXiv:2603.01162.

    Raises:
        ConfigError: unless V, W and c_r are positive and c_p is not negative.
    """
    require_number("prompt_variance", prompt_variance, positive=True, advice="Without it, one prompt would do.")
    require_number("rollout_variance", rollout_variance, positive=True, advice="Without it, two rollouts would do.")
    require_number("prompt_cost", prompt_cost)
    require_number("rollout_cost", rollout_cost, positive=True)
    return 1 + math.sqrt(rollout_variance / prompt_variance * (1 + prompt_cost / rollout_cost))


def dynamic_sampling_cost(pass_rates: PassRates, group_size: int, num_groups: int) -> SamplingCost:
    """What it takes on average to collect `num_groups` usable groups, one prompt after the other.

        prompts = B / u,   rollouts = G B / u,   variance of the prompts = B (1 - u) / u^2      (negative binomial)

    An engine that samples many prompts at once overshoots this by part of its last batch.

    Source: dynamic sampling is from DAPO, arXiv:2503.14476, section 3.2.

    Raises:
        ConfigError: for unusable rates, a group size below 2, no groups, or rates at which no group is usable.
    """
    require_count("num_groups", num_groups, advice="Give the number of usable groups that a step needs.")
    usable = informative_fraction(pass_rates, group_size)
    if usable == 0:
        raise ConfigError(
            f"no group of {group_size} is ever usable: every pass rate is 0 or 1, so that sampling more prompts would "
            "never end; use prompts that are solved sometimes"
        )
    return SamplingCost(
        prompts=num_groups / usable,
        rollouts=group_size * num_groups / usable,
        prompts_std=math.sqrt(num_groups * (1 - usable)) / usable,
    )


def prompts_in_budget(group_size: int, budget: int) -> int:
    """floor(budget / group_size), the whole groups that a number of rollouts pays for.

    Raises:
        ConfigError: for a group size below 2 or a budget below one group.
    """
    check_group_size(group_size)
    require_count(
        "budget",
        budget,
        least=group_size,
        advice=f"One group takes {group_size} rollouts: raise budget, or lower group_size.",
    )
    return budget // group_size


def check_group_size(group_size: int) -> None:
    """Refuses what cannot be a group.

    Raises:
        ConfigError: for anything but a whole number of 2 or more.
    """
    require_count(
        "group_size", group_size, least=2, advice="A reward is compared with others of its group: use 2 or more."
    )
