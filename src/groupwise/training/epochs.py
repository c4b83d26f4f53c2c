"""Which rows of a fixed set a step learns from: each once an epoch, in an order that the seed decides."""

from __future__ import annotations

import random

from groupwise.training.batch import derive_seed


def rows_of_step(num_rows: int, per_step: int, step: int, seed: int) -> list[int]:
    """Row numbers of a step (counted from 0): consecutive places in an endless run of shuffled epochs.

    The last step of an epoch takes the first rows of the next one.
    """
    rows: list[int] = []
    first, last = step * per_step, (step + 1) * per_step
    for epoch in range(first // num_rows, (last - 1) // num_rows + 1):
        order = list(range(num_rows))
        random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
        rows += order[max(0, first - epoch * num_rows) : last - epoch * num_rows]
    return rows
