"""Which item of the answer stands for which item of the gold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

MAX_ASSIGNED = 48


def align_bag(
    gold_keys: Sequence[Hashable], found_keys: Sequence[Hashable], overlap: Callable[[int, int], int]
) -> list[tuple[int | None, int | None]]:
    """Pairs (gold index, found index) in any order of items; None where one side has nothing left.

    Items with equal keys are paired first. That loses nothing: if overlap counts common parts, some best assignment
    pairs equal items. The rest is assigned so that the sum of overlaps is greatest, among the first MAX_ASSIGNED of
    each side; what is beyond is paired in order, which can only lower partial counts.
    """
    waiting: dict[Hashable, list[int]] = {}
    for index in range(len(found_keys) - 1, -1, -1):
        waiting.setdefault(found_keys[index], []).append(index)
    pairs: list[tuple[int | None, int | None]] = []
    gold_left: list[int] = []
    for index, key in enumerate(gold_keys):
        same = waiting.get(key)
        if same:
            pairs.append((index, same.pop()))
        else:
            gold_left.append(index)
    found_left = sorted(index for indices in waiting.values() for index in indices)
    few_gold, few_found = gold_left[:MAX_ASSIGNED], found_left[:MAX_ASSIGNED]
    if few_gold and few_found:
        weights = [[overlap(g, f) for f in few_found] for g in few_gold]
        assigned = [(few_gold[row], few_found[column]) for row, column in best_assignment(weights)]
        pairs += assigned
        gold_done, found_done = {g for g, _ in assigned}, {f for _, f in assigned}
        gold_left = [index for index in gold_left if index not in gold_done]
        found_left = [index for index in found_left if index not in found_done]
    return pairs + align_in_order(gold_left, found_left)


def align_in_order(gold: Sequence[int], found: Sequence[int]) -> list[tuple[int | None, int | None]]:
    """First with first, second with second; the longer side's rest alone."""
    length = max(len(gold), len(found))
    return [
        (gold[index] if index < len(gold) else None, found[index] if index < len(found) else None)
        for index in range(length)
    ]


def best_assignment(weights: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs (row, column), min(rows, columns) of them, with the greatest sum of weights[row][column].

    The Hungarian method with potentials (Kuhn 1955; Jonker and Volgenant 1987): one shortest augmenting path for each
    row, O(rows^2 * columns).
    """
    if len(weights) > len(weights[0]):
        turned = [[row[column] for row in weights] for column in range(len(weights[0]))]
        return sorted((row, column) for column, row in best_assignment(turned))
    num_rows, num_columns = len(weights), len(weights[0])
    row_potential = [0] * (num_rows + 1)
    column_potential = [0] * (num_columns + 1)
    row_of = [0] * (num_columns + 1)  # 1-based; column 0 is where the path of the new row starts
    for new_row in range(1, num_rows + 1):
        row_of[0] = new_row
        column = 0
        shortest: list[float] = [float("inf")] * (num_columns + 1)
        before = [0] * (num_columns + 1)
        done = [False] * (num_columns + 1)
        while row_of[column]:
            done[column] = True
            row = row_of[column]
            step, nearest = float("inf"), 0
            for other in range(1, num_columns + 1):
                if done[other]:
                    continue
                cost = -weights[row - 1][other - 1] - row_potential[row] - column_potential[other]
                if cost < shortest[other]:
                    shortest[other], before[other] = cost, column
                if shortest[other] < step:
                    step, nearest = shortest[other], other
            for other in range(num_columns + 1):
                if done[other]:
                    row_potential[row_of[other]] += int(step)
                    column_potential[other] -= int(step)
                else:
                    shortest[other] -= step
            column = nearest
        while column:
            row_of[column] = row_of[before[column]]
            column = before[column]
    return sorted((row_of[column] - 1, column - 1) for column in range(1, num_columns + 1) if row_of[column])
