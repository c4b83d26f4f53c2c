"""A rule about the size of a group: hard prompts, and groups too small to have a right answer among them.

A group of G answers to a prompt that is solved with chance p is live with chance 1 - (1 - p)^G - p^G. How the chances
are spread over the prompts is read from two measured numbers, the pass rate and the share of live groups: a Beta
distribution has two parameters, and its moments are products, so that nothing must be sampled.
"""

from __future__ import annotations

import math

from groupwise.runs.diagnosis.finding import Finding, change_of, percent
from groupwise.runs.diagnosis.rows import StageRows, pass_rate, stage_rows, total
from groupwise.runs.record import RunRecord

FEW_LIVE = 0.4
"""Share of live groups below which a larger size is looked for."""
HARD = 0.5
"""Pass rate below which the dead groups are those without a right answer; above it the tasks are too easy."""
WANTED_LIVE = 0.5
"""The proposed size is the smallest that makes this share of the groups live, or else the best."""
CLEARLY, MORE_SHARE = 1.4, 0.15
"""A gain: so many times the rollouts in live groups, and so much more of all rollouts. Less is not worth the change,
because fewer prompts a step make a noisier gradient."""
LARGEST = 64
FEWEST_PROMPTS = 4
"""A step needs some different prompts."""
MIN_GROUPS = 32
"""Groups from which a share of live ones is known to about 9 points."""


def group_too_small(record: RunRecord) -> Finding | None:
    """Fewer than FEW_LIVE groups are live, and larger groups of as many rollouts would make clearly more."""
    for stage in stage_rows(record, "grpo"):
        rows = stage.collections
        groups, live, rate = total(rows, "num_groups"), total(rows, "live_groups"), pass_rate(rows)
        none = total(rows, "dead_groups_none_solved")
        if rate is None or groups < MIN_GROUPS or live >= FEW_LIVE * groups or rate.value >= HARD:
            continue
        size = max(2, round(total(rows, "num_rollouts") / groups))
        better = _better_size(stage, size, live / groups, rate.value)
        if better is None:
            continue
        proposed, share = better
        prompts = round(groups / len(rows) * size / proposed)
        return Finding(
            name="group_too_small",
            severity="warning",
            title=f"Groups of {size} are small for prompts this hard: most have no right answer.",
            evidence=f"{live:.0f} of {groups:.0f} groups ({percent(live / groups)}) had right and wrong answers, "
            f"{none:.0f} no right one; the pass rate is {percent(rate.value)}. With groups of {proposed} about "
            f"{percent(share)} of as many rollouts would be in live groups.",
            change=change_of("rollout.group_size", size, proposed)
            + f" (with rollout.prompts_per_step = {prompts} a step has as many rollouts)",
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def live_share(rate: float, spread: float, size: int) -> float:
    """E[1 - (1 - p)^size - p^size] for p from Beta(rate spread, (1 - rate) spread); a large spread = all prompts alike.

    E[p^n] of Beta(a, b) is the product of (a + i) / (a + b + i) for i < n.
    """
    none = math.prod(((1 - rate) * spread + i) / (spread + i) for i in range(size))
    every = math.prod((rate * spread + i) / (spread + i) for i in range(size))
    return 1 - none - every


def spread_of(rate: float, size: int, live: float) -> float:
    """The spread with which groups of this size are live as often as was measured, by bisection; 0.001 to 1000."""
    low, high = math.log(1e-3), math.log(1e3)
    for _ in range(60):
        middle = (low + high) / 2
        if live_share(rate, math.exp(middle), size) < live:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _better_size(stage: StageRows, size: int, live: float, rate: float) -> tuple[int, float] | None:
    """(size, share of live groups) of the proposed size; None where none is clearly better."""
    if not 0 < rate < 1 or not live:
        return None
    spread = spread_of(rate, size, live)
    rollouts = total(stage.collections, "num_rollouts") / len(stage.collections)
    best, proposed = None, 2 * size
    while proposed <= LARGEST and rollouts >= FEWEST_PROMPTS * proposed:
        share = live_share(rate, spread, proposed)
        if share >= max(CLEARLY * live, live + MORE_SHARE):
            best = proposed, share
            if share >= WANTED_LIVE:
                break
        proposed *= 2
    return best
