"""Every prompt the same weight, however many rollouts it got.

With group sizes n_g that differ from prompt to prompt, a mean over rollouts weighs a prompt by its size, and a reward
minus the mean of its own group is shorter than the leave-one-out advantage by (n - 1) / n:

    E[ 1/n sum_i (r_i - mean_g) grad log p_i ] = (n - 1) / n grad p        p = pass rate of the prompt

So a row of group g is multiplied by two numbers:

    prompt weight     mean(n) / n_g                         on the whole loss of the row, policy and KL
    baseline factor   n_g / (n_g - 1)  (G - 1) / G          on its advantage

with n_g the scored rollouts of the group and G = rollout.group_size, the size that the n_g vary around. The mean
gradient is then (G - 1) / G mean_g grad p_g, that of equal groups of size G, for every choice of sizes that was made
before the rollouts were seen: only its variance depends on the sizes. Both numbers are 1 where all sizes are G.

The baseline factor exists where the advantage is a centred reward over a number that is the same for all groups
(scale none, batch_std). A group's own std is itself an estimate that depends on n: E[A grad log p] = w(p, n) grad p has
no form w(p) f(n), and one factor cannot mend it. With scale = "std", and where parts are compared one by one, prompts
have equal weight in the mean, and a larger group of a rare success counts for more, as it does with a larger G.
"""

from __future__ import annotations

from collections.abc import Sequence


def prompt_weights(num_scored: Sequence[int]) -> list[float]:
    """mean(n) / n_g for each group; the mean is over groups with a scored rollout, the others get 0.

    They sum to the number of rollouts when each is counted once a rollout, so denominators stay what they are:
    sum_g n_g (mean(n) / n_g) = sum_g n_g.
    """
    sizes = [n for n in num_scored if n > 0]
    mean_size = sum(sizes) / max(len(sizes), 1)
    return [mean_size / n if n > 0 else 0.0 for n in num_scored]


def baseline_factors(num_scored: Sequence[int], group_size: int) -> list[float]:
    """n / (n - 1) x (G - 1) / G for each group of n scored rollouts; 1 where n < 2, which has no advantage at all."""
    return [n / (n - 1) * (group_size - 1) / group_size if n > 1 else 1.0 for n in num_scored]
