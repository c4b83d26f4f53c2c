"""How many attempts each prompt of a step gets, where a fixed number of rollouts is to be spent.

With n_i rollouts of prompt i and the leave-one-out baseline, the noise of its gradient is a_i / (n_i - 1), where
a_i = E[p_i (1 - p_i)] is how much its outcomes vary. A prompt that is sometimes solved deserves more rollouts than one
that nearly always is. The sizes must come from attempts made *before* the group is sampled: a group that grows until
something in it is solved has a mean that is too high, -p ln p / (1 - p) instead of p at the first success.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from groupwise.curation.pass_rate import PassRate


def allocate(
    posteriors: Sequence[PassRate], budget: int, *, minimum: int = 2, maximum: int | None = None
) -> tuple[int, ...]:
    """Group sizes n_i that minimise sum_i a_i / (n_i - 1), with sum_i n_i = budget and minimum <= n_i <= maximum.

    Without bounds and rounding this is n_i = 1 + (N - B) sqrt(a_i) / sum_j sqrt(a_j), N the budget, B the number of
    prompts. The whole numbers are exact, not rounded: each rollout in turn goes to the prompt whose noise it lowers
    most, by a_i / (n_i (n_i - 1)), which is optimal because each term is convex. Of equal gains the earlier prompt
    wins. maximum = None sets no limit; where every prompt has reached it, the rest of the budget is not spent.

    Source: Neyman (1934) for the square roots; the variance of the leave-one-out gradient for n_i - 1.

    Raises:
        ValueError: for no prompts, a minimum below 2 (a rollout cannot be its own baseline), a maximum below the
            minimum, or a budget that does not reach the minimum of each prompt.
    """
    if not posteriors:
        raise ValueError("allocate: there are no prompts to give rollouts to")
    if minimum < 2:
        raise ValueError(f"allocate: a group needs 2 or more rollouts to compare, got minimum={minimum}")
    if maximum is not None and maximum < minimum:
        raise ValueError(f"allocate: maximum must be at least minimum, got maximum={maximum}, minimum={minimum}")
    if budget < minimum * len(posteriors):
        raise ValueError(
            f"allocate: {len(posteriors)} prompts of {minimum} or more rollouts need a budget of at least "
            f"{minimum * len(posteriors)}, got {budget}; raise the budget, or take fewer prompts"
        )
    spread = [rate.outcome_variance for rate in posteriors]
    sizes = [minimum] * len(posteriors)
    gains = [(-a / (minimum * (minimum - 1)), i) for i, a in enumerate(spread)]
    heapq.heapify(gains)
    for _ in range(budget - sum(sizes)):
        while gains and sizes[gains[0][1]] == maximum:
            heapq.heappop(gains)
        if not gains:
            break
        i = gains[0][1]
        sizes[i] += 1
        heapq.heapreplace(gains, (-spread[i] / (sizes[i] * (sizes[i] - 1)), i))
    return tuple(sizes)
