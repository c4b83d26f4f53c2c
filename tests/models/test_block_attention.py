"""Attention in blocks of queries is the attention of the rule: values, gradients, and no more pairs than stated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupwise.models.block_attention import block_attention, query_blocks
from groupwise.models.token_tree import TokenTree

CPU = torch.device("cpu")
SEQUENCES = [
    [*range(20), *range(100, 109)],
    [*range(20), *range(100, 104), 7, 8],  # parts from its sibling inside a completion
    [*range(20)],  # a prefix of the others
    [*range(5), *range(200, 221)],  # shares a system turn only
    [50, 51],
]


def dense(query: Tensor, key: Tensor, value: Tensor, tree: TokenTree, scaling: float) -> Tensor:
    """The definition: every score, hidden ones at -inf. [H, T, d] -> [T, H, d]."""
    repeats = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(repeats, 0), value.repeat_interleave(repeats, 0)
    scores = (query @ key.transpose(1, 2) * scaling).masked_fill(~tree.visible(), float("-inf"))
    return (scores.softmax(-1) @ value).transpose(0, 1)


def inputs(tree: TokenTree, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(6, tree.num_nodes, 4), (2, tree.num_nodes, 4), (2, tree.num_nodes, 4)]
    return [torch.randn(s, generator=generator, dtype=dtype, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("size", [1, 4, 7, 32, 1000])
def test_values_and_gradients_are_those_of_the_dense_mask(size: int) -> None:
    tree = TokenTree.build(SEQUENCES)
    tensors = inputs(tree)
    weights = torch.randn(tree.num_nodes, 6, 4, dtype=torch.float64)
    blocks = query_blocks(tree, device=CPU, size=size)
    found = block_attention(*tensors, blocks, 0.3)
    expected = dense(*tensors, tree, 0.3)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)  # the softmax inside is float32
    grads = torch.autograd.grad((found * weights).sum(), tensors)
    for grad, wanted in zip(grads, torch.autograd.grad((expected * weights).sum(), tensors), strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-5, atol=1e-6)


def test_one_node_by_hand() -> None:
    tree = TokenTree.build([[5]])
    query, key, value = torch.ones(1, 1, 2), torch.ones(1, 1, 2), torch.tensor([[[3.0, 4.0]]])
    found = block_attention(query, key, value, query_blocks(tree, device=CPU), 1.0)
    assert found.tolist() == [[[3.0, 4.0]]]  # one visible key has weight 1


def test_siblings_do_not_see_each_other() -> None:
    """Sequences (1, 2) and (1, 3): nodes 1, 2, 3. Node 3 sees 1 and itself; equal scores give weights of one half."""
    tree = TokenTree.build([[1, 2], [1, 3]])
    value = torch.tensor([[[1.0], [10.0], [100.0]]])
    zeros = torch.zeros(1, 3, 1)
    found = block_attention(zeros, zeros, value, query_blocks(tree, device=CPU, size=2), 1.0)
    assert found.flatten().tolist() == [1.0, 5.5, 50.5]


@pytest.mark.parametrize("size", [1, 3, 8])
def test_blocks_cover_every_query_once_and_every_visible_key(size: int) -> None:
    tree = TokenTree.build(SEQUENCES)
    visible = tree.visible()
    covered = 0
    for block in query_blocks(tree, device=CPU, size=size):
        assert block.start == covered
        covered = block.end
        keys = torch.arange(tree.num_nodes)[block.keys]
        assert len(keys) == block.num_keys == block.mask.shape[-1]
        seen = torch.zeros(block.end - block.start, tree.num_nodes, dtype=torch.bool)
        seen[:, keys] = block.mask[:, 0] == 0
        assert torch.equal(seen, visible[block.start : block.end])
    assert covered == tree.num_nodes


def test_pairs_grow_with_what_is_visible_not_with_the_square() -> None:
    """Eight completions of 32 after a prompt of 343: the last block holds 128 own nodes and the prompt, not all 599."""
    prompt = list(range(343))
    tree = TokenTree.build([prompt + [1000 + 100 * g + i for i in range(32)] for g in range(8)])
    blocks = query_blocks(tree, device=CPU, size=128)
    pairs = sum((b.end - b.start) * b.num_keys for b in blocks)
    assert tree.num_nodes == 599
    # starts 0, 128, 256, 384, 512; ancestors: all before in the prompt, then 343 and part of a completion
    by_hand = 128 * 128 + 128 * 256 + 128 * 384 + 128 * (343 + 9 + 128) + 87 * (343 + 9 + 87)
    assert pairs == by_hand < 0.6 * 599 * 599


def test_bfloat16_keeps_its_dtype_and_stays_near_the_exact_result() -> None:
    tree = TokenTree.build(SEQUENCES)
    tensors = inputs(tree, torch.bfloat16)
    found = block_attention(*tensors, query_blocks(tree, device=CPU, size=8), 0.3)
    found.sum().backward()
    assert found.dtype == tensors[0].grad.dtype == torch.bfloat16  # type: ignore[union-attr]
    expected = dense(*[t.detach().double() for t in tensors], tree, 0.3)
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("size", [1, 4, 1000])  # node 4 parts from its sibling, so that its keys have a gap
def test_keys_that_are_stored_already_are_seen_by_every_node(size: int) -> None:
    """A tree behind 7 stored keys gives what the whole tree gives for its nodes."""
    prefix = list(range(300, 307))
    suffixes = [[1, 2, 3, 4], [1, 2, 5], [6]]
    whole, behind = TokenTree.build([prefix + s for s in suffixes]), TokenTree.build(suffixes)
    query, key, value = inputs(whole)
    expected = block_attention(query, key, value, query_blocks(whole, device=CPU), 0.3)[7:]
    blocks = query_blocks(behind, device=CPU, size=size, num_before=7)
    torch.testing.assert_close(block_attention(query[:, 7:], key, value, blocks, 0.3), expected, rtol=1e-6, atol=1e-6)
