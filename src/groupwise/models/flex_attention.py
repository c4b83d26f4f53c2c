"""Tree attention on a GPU: FlexAttention with the tree's rule as its mask function.

The rule  j <= i < subtree_end[j]  is a mask function of one line. FlexAttention's kernels evaluate it inside the
blocks of 128 x 128 node pairs that hold both visible and hidden pairs, skip the blocks without a visible pair, and run
the others unmasked. No [T, T] mask exists, neither for the kernels nor while the lists of blocks are made.

FlexAttention must be compiled to be fast, and a compiled kernel is made for one number of nodes. Trees are therefore
padded to `padded_size(T)`: at most a quarter more nodes, and at most four numbers between a power of two and the next.
A padding node sees itself only and nothing sees it, so that it costs its share of one block.

Source: Dong et al., "Flex Attention", arXiv:2412.05496. Without a GPU, FlexPlan computes the same forward through
FlexAttention's uncompiled path, which has no backward pass there: it serves tests, TreePlan serves CPUs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from groupwise.models.token_tree import TokenTree

BLOCK = 128
"""Nodes on a side of a block: the size that FlexAttention's kernels and its own block masks are made for."""
NARROWEST_HEAD = 16
"""The GPU kernels refuse narrower heads; zeros added to queries, keys and values change no result."""
MOST_COMPILATIONS = 96
"""Padded sizes x (with gradient, without, inference mode) that a process may compile. Dynamo's own limit is 8."""


class FlexPlan:
    """Every node of a token tree attends to its ancestors and itself; an AttentionPlan."""

    def __init__(self, tree: TokenTree, *, device: torch.device, keep_keys: bool = False) -> None:
        """keep_keys stores each layer's keys and values [1, K, T, d] in `kept`, for a prefill."""
        self._num_padded = padded_size(tree.num_nodes)
        subtree_end = torch.arange(1, self._num_padded + 1, dtype=torch.int32)
        subtree_end[: tree.num_nodes] = tree.subtree_end
        self._block_mask = tree_block_mask(subtree_end.to(device))
        # one type for both: the overloads of flex_attention differ in what they return
        self._attention: Any = compiled_flex_attention() if device.type == "cuda" else flex_attention
        self._keep_keys = keep_keys
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See AttentionPlan."""
        if self._keep_keys:
            self.kept[layer] = (key, value)
        num_nodes, width = query.shape[2:]
        padding = (0, max(0, NARROWEST_HEAD - width), 0, self._num_padded - num_nodes)
        # Always contiguous: another memory layout would be another compilation.
        query, key, value = (nn.functional.pad(x, padding).contiguous() for x in (query, key, value))
        attended = self._attention(
            query,
            key,
            value,
            block_mask=self._block_mask,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return attended[:, :, :num_nodes, :width].transpose(1, 2)


def padded_size(num_nodes: int) -> int:
    """The smallest multiple of BLOCK and of a quarter of the power of two below that is not smaller.

    128, 256, 384, 512, 640, ..., 1024, 1280, 1536, 1792, 2048, 2560, ...
    """
    step = max(BLOCK, 1 << max(0, max(1, num_nodes - 1).bit_length() - 3))
    return max(1, -(-num_nodes // step)) * step


def tree_block_mask(subtree_end: Tensor) -> BlockMask:
    """The lists of blocks for a tree of P nodes, from [P] subtree_end; P is a multiple of BLOCK.

    Key j is seen by the queries j .. subtree_end[j] - 1. So a block of keys and a later block of queries have a visible
    pair where the largest subtree_end of the keys is past the first query, and are all visible where the smallest is
    past the last query. On the diagonal a node sees itself and not its successor: visible in part. Equal to
    create_block_mask of the same rule, which would evaluate it on all P x P pairs.
    """

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < subtree_end[key])

    ends = subtree_end.view(-1, BLOCK)
    block = torch.arange(ends.shape[0], device=subtree_end.device)
    first_query = (block * BLOCK)[:, None]
    earlier = block[None, :] < block[:, None]
    full = earlier & (ends.amin(dim=1)[None, :] >= first_query + BLOCK)
    partial = (earlier & (ends.amax(dim=1)[None, :] > first_query) & ~full) | (block[None, :] == block[:, None])
    return BlockMask.from_kv_blocks(*_listed(partial), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=sees)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """[Q, K] bool -> how many key blocks each query block has [1, 1, Q], and their numbers first [1, 1, Q, K]."""
    numbers = blocks.int().argsort(dim=1, descending=True, stable=True)
    return blocks.sum(dim=1, dtype=torch.int32)[None, None], numbers.int()[None, None]


@functools.cache
def compiled_flex_attention(backend: str | Callable[..., Any] = "inductor") -> Callable[..., Tensor]:
    """FlexAttention as fused kernels, compiled once a process for each padded size.

    Shapes are static, the best-tested way. Past MOST_COMPILATIONS it raises, because Dynamo would otherwise go on
    uncompiled, with a matrix of all scores. The limit is a setting of the process and is only ever raised.
    """
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, MOST_COMPILATIONS)
    return torch.compile(flex_attention, dynamic=False, fullgraph=True, backend=backend)
