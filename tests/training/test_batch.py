"""How a step is cut into forwards, and where its seeds come from."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.models import ScoredSequence
from groupwise.models.token_tree import count_nodes
from groupwise.training.batch import derive_seed, microbatches, padded

token_rows = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=12)


def as_sequences(rows: list[tuple[int, ...]]) -> list[ScoredSequence]:
    return [ScoredSequence(token_ids=row, prompt_length=0) for row in rows]


@given(rows=token_rows, limit=st.integers(1, 20))
def test_every_row_comes_once_and_no_cut_is_over_the_limit(rows: list[tuple[int, ...]], limit: int) -> None:
    cuts = microbatches(as_sequences(rows), limit)
    assert sorted(r for cut in cuts for r in cut) == list(range(len(rows)))
    for cut in cuts:
        # only a sequence that is too long by itself may exceed the limit, and then it is alone in its nodes
        longest = max(len(rows[r]) for r in cut)
        assert count_nodes([rows[r] for r in cut]) <= max(limit, longest)


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
