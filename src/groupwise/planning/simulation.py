"""What a group size does with the pass rates of the prompts, drawn instead of derived.

The simulation goes through the motions of a step: it draws prompts, then the outcome of each rollout, then it makes
the advantages and counts. It shares no formula with `groups`, so each checks the other. Its standard errors say how
much of a difference between two group sizes is luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.planning.bounds import require, require_count
from groupwise.planning.groups import GroupOutlook, prompts_in_budget
from groupwise.planning.pass_rates import PassRates, draw_rates


def simulate_group_sizes(
    pass_rates: PassRates, group_sizes: Sequence[int], *, budget: int, seed: int, num_repeats: int = 200
) -> tuple[GroupOutlook, ...]:
    """One outlook for each group size, each the mean of `num_repeats` simulated steps of `budget` rollouts.

    Prompts are drawn independently of each other: from a list with replacement, because the list stands for all the
    prompts that it was measured on. A run that goes through a shuffled data set has the same means, and spreads less.

    `standard_errors` holds the standard error of every number over the repeats (sample std / sqrt(num_repeats)). It
    is 0 where all repeats agree, which also happens to an event that is too rare to be seen.

    The same seed gives the same outlook for a group size, whatever other sizes are asked for.

    Raises:
        ConfigError: for unusable rates, no group size or one below 2, a budget below one group, a negative seed, or
            fewer than 2 repeats.
    """
    require(len(group_sizes) > 0, "group_sizes", group_sizes, "at least one group size", "Usual ones: 4, 8, 16, 32.")
    require_count("seed", seed, least=0)
    require_count("num_repeats", num_repeats, least=2, advice="Standard errors need repeats; 200 is usual.")
    return tuple(_simulate(pass_rates, size, budget, seed, num_repeats) for size in group_sizes)


def _simulate(pass_rates: PassRates, group_size: int, budget: int, seed: int, num_repeats: int) -> GroupOutlook:
    num_prompts = prompts_in_budget(group_size, budget)
    # The size is part of the seed: with the same draws for all sizes, their errors would go the same way.
    generator = np.random.default_rng((seed, group_size))
    steps = []
    for _ in range(num_repeats):
        rates = draw_rates(pass_rates, num_prompts, generator)
        rewards = (generator.random((num_prompts, group_size)) < rates[:, None]).astype(np.float64)
        steps.append(_measure(rewards))
    names = tuple(steps[0])
    table = np.array([[step[name] for name in names] for step in steps])
    errors = table.std(axis=0, ddof=1) / np.sqrt(num_repeats)
    return GroupOutlook(
        group_size=group_size,
        num_prompts=num_prompts,
        standard_errors=dict(zip(names, errors.tolist(), strict=True)),
        **dict(zip(names, table.mean(axis=0).tolist(), strict=True)),
    )


def _measure(rewards: NDArray[np.float64]) -> Mapping[str, float]:
    """The numbers of one step from its rewards [B, G], by counting."""
    num_rollouts = rewards.size
    solved = rewards.sum(axis=1)
    all_fail, all_pass = solved == 0, solved == rewards.shape[1]
    alive = ~(all_fail | all_pass)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    spread = rewards.std(axis=1, keepdims=True)
    # Rounding leaves a dead group with a std of 1e-17 instead of 0; its advantages are 0 by definition.
    scaled = np.where(alive[:, None], centred / np.where(alive[:, None], spread, 1.0), 0.0)
    usable_groups = float(alive.sum())
    return {
        "all_fail": float(all_fail.mean()),
        "all_pass": float(all_pass.mean()),
        "informative": float(alive.mean()),
        "usable_groups": usable_groups,
        "usable_per_rollout": usable_groups / num_rollouts,
        "usable_samples": usable_groups * rewards.shape[1],
        "mean_abs_advantage": float(np.abs(centred).mean()),
        "advantage_variance": float((centred**2).mean()),
        "mean_abs_advantage_std": float(np.abs(scaled).mean()),
        "advantage_variance_std": float((scaled**2).mean()),
    }
