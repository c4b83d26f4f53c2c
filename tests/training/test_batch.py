"""How a step is cut into forwards, and where its seeds come from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from training_cases import batch_of, mixed_groups, small_llama, weights, weights_after_plain_descent

from groupwise.models import ScoredSequence
from groupwise.models.token_tree import count_nodes
from groupwise.training.batch import Batch, cut, derive_seed, microbatches, padded, rows_of
from groupwise.training.grpo import GrpoOptions

token_rows = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=12)


def as_sequences(rows: list[tuple[int, ...]]) -> list[ScoredSequence]:
    return [ScoredSequence(token_ids=row, prompt_length=0) for row in rows]


@given(rows=token_rows, limit=st.integers(1, 20))
def test_every_row_comes_once_and_no_cut_is_over_the_limit(rows: list[tuple[int, ...]], limit: int) -> None:
    cuts = microbatches(as_sequences(rows), limit)
    assert sorted(r for forward in cuts for r in forward) == list(range(len(rows)))
    for forward in cuts:
        # only a sequence that is too long by itself may exceed the limit, and then it is alone in its nodes
        longest = max(len(rows[r]) for r in forward)
        assert count_nodes([rows[r] for r in forward]) <= max(limit, longest)


@given(rows=token_rows)
def test_no_cut_is_closed_while_the_next_row_still_fits(rows: list[tuple[int, ...]]) -> None:
    """The nodes counted on the way are those of count_nodes: with a limit of all nodes there is one cut, with one less
    there are two."""
    num_nodes = count_nodes(rows)
    assert len(microbatches(as_sequences(rows), num_nodes)) == 1
    if num_nodes > max(map(len, rows)):
        assert len(microbatches(as_sequences(rows), num_nodes - 1)) == 2


def test_rows_that_share_a_prefix_share_a_forward() -> None:
    rows = [(1, 2, 3), (5, 6, 7), (1, 2, 4), (5, 6, 8)]
    assert microbatches(as_sequences(rows), 4) == [[0, 2], [1, 3]]


@given(rows=token_rows, limit=st.integers(1, 20), numbers=st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_a_unit_is_never_cut_and_one_over_the_limit_is_alone(
    rows: list[tuple[int, ...]], limit: int, numbers: list[int]
) -> None:
    units = numbers[: len(rows)]
    cuts = microbatches(as_sequences(rows), limit, units)
    assert sorted(r for forward in cuts for r in forward) == list(range(len(rows)))
    for number in set(units):
        assert sum(number in {units[r] for r in forward} for forward in cuts) == 1
    for forward in cuts:
        assert len({units[r] for r in forward}) == 1 or count_nodes([rows[r] for r in forward]) <= limit


@given(rows=token_rows, limit=st.integers(1, 20))
def test_units_of_one_row_are_cut_as_rows_without_units(rows: list[tuple[int, ...]], limit: int) -> None:
    sequences = as_sequences(rows)
    assert microbatches(sequences, limit, range(len(rows))) == microbatches(sequences, limit)


def test_both_sides_of_a_pair_share_a_forward_however_far_their_tokens_are_apart() -> None:
    """Pairs 7 and 3: sorted, their sides would alternate. 3 nodes a row, none shared."""
    rows = [(1, 2, 3), (4, 5, 6), (2, 2, 3), (5, 5, 6)]
    assert microbatches(as_sequences(rows), 6, (7, 7, 3, 3)) == [[0, 1], [2, 3]]
    assert microbatches(as_sequences(rows), 1, (7, 7, 3, 3)) == [[0, 1], [2, 3]]
    assert microbatches(as_sequences(rows), 12, (7, 7, 3, 3)) == [[0, 1, 2, 3]]


def whole_batch() -> Batch:
    """7 rows: every field holds the row's number, or what tells it."""
    batch = batch_of(mixed_groups(), GrpoOptions())
    numbers = torch.arange(7.0)
    return replace(
        batch,
        denominator=12.0,
        old_logprobs=numbers[:, None] + torch.arange(8) / 10,
        weights=numbers + 0.5,
        extra={"margin": numbers * 2, "returns": numbers[:, None] * torch.ones(8)},
        units=(5, 5, 1, 1, 1, 0, 9),
    )


def test_rows_of_takes_the_same_rows_of_every_field() -> None:
    batch = whole_batch()
    part = rows_of(batch, [4, 1], 3.0)
    assert batch.advantages is not None
    assert part.advantages is not None
    assert part.old_logprobs is not None
    assert part.weights is not None
    assert batch.sampler_logprobs is not None
    assert part.denominator == 3.0
    assert part.sequences == (batch.sequences[4], batch.sequences[1])
    assert part.sampler_logprobs == (batch.sampler_logprobs[4], batch.sampler_logprobs[1])
    assert torch.equal(part.advantages, batch.advantages[[4, 1]])
    assert part.old_logprobs[:, 0].tolist() == [4, 1]
    assert part.old_logprobs.shape == (2, 8)
    assert part.weights.tolist() == [4.5, 1.5]
    assert part.extra["margin"].tolist() == [8, 2]
    assert part.extra["returns"].shape == (2, 8)
    assert part.units == (1, 5)
    bare = rows_of(Batch(sequences=batch.sequences, denominator=1.0), [0], 1.0)
    assert bare == Batch(sequences=batch.sequences[:1], denominator=1.0)


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 9])
def test_a_cut_holds_every_row_once_and_no_unit_twice(num_parts: int) -> None:
    batch = whole_batch()
    assert batch.units is not None
    parts = cut(batch, num_parts, seed=1)
    assert len(parts) == min(num_parts, 4)  # units 5, 1, 0, 9
    assert sorted(s.token_ids for p in parts for s in p.sequences) == sorted(s.token_ids for s in batch.sequences)
    assert sum(len(set(p.units or ())) for p in parts) == 4
    sizes = [len(set(p.units or ())) for p in parts]
    assert max(sizes) - min(sizes) <= 1
    assert {p.denominator for p in parts} == {12.0 / len(parts)}


def test_the_seed_decides_a_cut() -> None:
    batch = replace(whole_batch(), units=None)
    rows = [[[int(x) for x in p.extra["margin"]] for p in cut(batch, 3, seed=seed)] for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0] != [sorted(part) for part in rows[0]]


@pytest.mark.parametrize("units", [None, (0, 0, 1, 1, 2, 2, 2)])
@pytest.mark.parametrize("num_parts", [2, 3])
def test_the_gradients_of_the_parts_add_up_to_so_many_times_the_whole(
    num_parts: int, units: tuple[int, ...] | None
) -> None:
    options = GrpoOptions()
    batch = replace(batch_of(mixed_groups(), options), units=units)
    start = weights(small_llama())
    whole = weights_after_plain_descent(batch, options) - start
    parts = [weights_after_plain_descent(part, options) - start for part in cut(batch, num_parts, seed=3)]
    assert len(parts) == num_parts
    assert whole.norm() > 1e-3
    assert_close(torch.stack(parts).sum(dim=0), num_parts * whole, atol=1e-6, rtol=1e-4)


def test_padded_puts_each_row_under_its_mask() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert padded([(-1.0, -2.0), (-3.0,)], mask).tolist() == [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0]]


def test_a_derived_seed_never_changes() -> None:
    assert derive_seed(17, "grpo", 3) == 3575786544698648819
    assert 0 <= derive_seed(17, "grpo", 3) < 2**63


def test_derived_seeds_differ_by_seed_and_by_label() -> None:
    seeds = {derive_seed(s, name, i) for s in (0, 1) for name in ("a", "b") for i in range(5)}
    assert len(seeds) == 20
    assert derive_seed(1, "2") != derive_seed(1, 2)
