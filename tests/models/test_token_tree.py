from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.models import TokenTree
from groupwise.models.token_tree import count_nodes, shared_prefix_length

# Few letters and short words, so that shared, equal and nested prefixes are common.
token_sequences = st.lists(st.lists(st.integers(0, 2), max_size=6).map(tuple), min_size=1, max_size=8)


def brute_force_ancestors(tree: TokenTree) -> torch.Tensor:
    """[T, T]: walks up the parents of every node."""
    seen = torch.zeros((tree.num_nodes, tree.num_nodes), dtype=torch.bool)
    for node in range(tree.num_nodes):
        ancestor = node
        while ancestor >= 0:
            seen[node, ancestor] = True
            ancestor = int(tree.parent[ancestor])
    return seen


def test_two_sequences_by_hand() -> None:
    tree = TokenTree.build([(5, 7, 8), (5, 7, 9)])
    assert tree.token_ids.tolist() == [5, 7, 8, 9]
    assert tree.depth.tolist() == [0, 1, 2, 2]
    assert tree.parent.tolist() == [-1, 0, 1, 1]
    assert tree.subtree_end.tolist() == [4, 4, 3, 4]
    assert [path.tolist() for path in tree.paths] == [[0, 1, 2], [0, 1, 3]]
    # Node 3 (the 9) sees 0, 1 and itself, not its sibling 2.
    assert tree.visible().int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]


def test_several_first_tokens_make_several_roots() -> None:
    tree = TokenTree.build([(9,), (4, 6)])
    assert tree.token_ids.tolist() == [4, 6, 9]
    assert tree.parent.tolist() == [-1, 0, -1]
    assert tree.subtree_end.tolist() == [2, 2, 3]
    assert [path.tolist() for path in tree.paths] == [[2], [0, 1]]


def test_equal_sequences_have_equal_paths() -> None:
    tree = TokenTree.build([(1, 2), (3,), (1, 2)])
    assert tree.num_nodes == 3
    assert tree.paths[0].tolist() == tree.paths[2].tolist()


def test_an_empty_sequence_has_an_empty_path() -> None:
    tree = TokenTree.build([(), (1,), ()])
    assert [path.tolist() for path in tree.paths] == [[], [0], []]


def test_no_sequences_make_an_empty_tree() -> None:
    for sequences in ([], [()]):
        tree = TokenTree.build(sequences)
        assert tree.num_nodes == 0
        assert tree.visible().shape == (0, 0)


@settings(deadline=None)
@given(token_sequences)
def test_the_paths_spell_the_sequences(sequences: list[tuple[int, ...]]) -> None:
    tree = TokenTree.build(sequences)
    assert [tuple(tree.token_ids[path].tolist()) for path in tree.paths] == sequences
    for path in tree.paths:
        assert tree.depth[path].tolist() == list(range(len(path)))
        assert tree.parent[path].tolist() == [-1, *path.tolist()][: len(path)]


@settings(deadline=None)
@given(token_sequences)
def test_every_distinct_prefix_is_one_node(sequences: list[tuple[int, ...]]) -> None:
    prefixes = {s[:length] for s in sequences for length in range(1, len(s) + 1)}
    assert TokenTree.build(sequences).num_nodes == len(prefixes)
    assert count_nodes(sequences) == len(prefixes)


@settings(deadline=None)
@given(token_sequences)
def test_nodes_stand_in_depth_first_order(sequences: list[tuple[int, ...]]) -> None:
    tree = TokenTree.build(sequences)
    parents, ends = tree.parent.tolist(), tree.subtree_end.tolist()
    for node, (parent, end) in enumerate(zip(parents, ends, strict=True)):
        assert parent < node < end <= tree.num_nodes
        if parent >= 0:
            assert end <= ends[parent]
            assert int(tree.depth[node]) == int(tree.depth[parent]) + 1


@settings(deadline=None)
@given(token_sequences)
def test_a_node_sees_its_ancestors_and_itself(sequences: list[tuple[int, ...]]) -> None:
    tree = TokenTree.build(sequences)
    assert torch.equal(tree.visible(), brute_force_ancestors(tree))


def test_shared_prefix_length_by_hand() -> None:
    assert shared_prefix_length((1, 2, 3), (1, 2, 4)) == 2
    assert shared_prefix_length((1, 2), (1, 2, 4)) == 2
    assert shared_prefix_length((1, 2), (2, 2)) == 0
    assert shared_prefix_length((), (2,)) == 0
