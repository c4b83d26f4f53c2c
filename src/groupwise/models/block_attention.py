"""Exact attention over a token tree in blocks of queries, forward and backward.

A dense mask over T nodes makes attention cost T x T, although a completion sees its own prompt only. In depth-first
order the nodes of a block of consecutive queries [start, end) see, together, nothing but

    the ancestors of node `start`,   and the nodes start .. end - 1 themselves

so one product of the block's queries with those keys holds every visible pair, and few others. Two prompts of 343
tokens with eight completions of 32 each have 1.39 million pairs in the dense mask and 0.41 million in blocks of 128.

The backward pass computes the weights of a block again instead of keeping them: memory grows with T, not with T x T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from groupwise.models.token_tree import TokenTree

QUERY_BLOCK = 128
"""Queries in a block. Smaller blocks see fewer useless keys; larger ones make larger products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBlock:
    """Consecutive queries and the keys that at least one of them may see."""

    start: int
    end: int
    keys: Tensor | slice
    """Rows of the keys, ascending; a slice where they are consecutive."""
    num_keys: int
    mask: Tensor
    """[end - start, 1, keys], additive: 0 where the query may see the key, else -inf."""


def query_blocks(
    tree: TokenTree, *, device: torch.device, size: int | None = None, num_before: int = 0
) -> tuple[QueryBlock, ...]:
    """Cuts the nodes of a tree into blocks of `size` queries (QUERY_BLOCK by default).

    num_before keys stand before those of the nodes, and every node sees them all: a prefix that is stored already.
    """
    size = QUERY_BLOCK if size is None else size
    nodes = torch.arange(tree.num_nodes)
    blocks = []
    for start in range(0, tree.num_nodes, size):
        end = min(tree.num_nodes, start + size)
        ancestors = nodes[:start][tree.subtree_end[:start] > start]
        seen = torch.cat([ancestors, nodes[start:end]])
        queries = nodes[start:end, None]
        visible = (seen[None] <= queries) & (queries < tree.subtree_end[seen][None])
        visible = torch.nn.functional.pad(visible, (num_before, 0), value=True)
        keys = torch.cat([torch.arange(num_before), seen + num_before])
        mask = torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))
        first = int(keys[0])
        consecutive = num_before + end - first == len(keys)
        blocks.append(
            QueryBlock(
                start=start,
                end=end,
                keys=slice(first, num_before + end) if consecutive else keys.to(device),
                num_keys=len(keys),
                mask=mask[:, None].to(device),
            )
        )
    return tuple(blocks)


def block_attention(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[QueryBlock], scaling: float) -> Tensor:
    """query [H, T, d], key and value [K, T, d] with K dividing H -> [T, H, d]; softmax in float32."""
    num_heads, num_nodes, width = query.shape
    num_key_heads = key.shape[0]
    # the query heads of one key head lie side by side, so that a block of queries is one matrix
    by_key_head = query.view(num_key_heads, num_heads // num_key_heads, num_nodes, width).transpose(1, 2)
    attended: Tensor = _BlockAttention.apply(by_key_head.contiguous(), key, value, blocks, scaling)
    return attended.transpose(0, 1).reshape(num_nodes, num_heads, width)


class _BlockAttention(torch.autograd.Function):
    """query [K, T, r, d], key and value [K, T, d] -> [K, T, r, d], where r query heads share a key head."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[QueryBlock], scaling: float
    ) -> Tensor:
        attended = torch.empty_like(query)
        for block in blocks:
            weights = _weights(query, key, block, scaling)
            torch.bmm(weights, value[:, block.keys], out=_rows(attended, block))
        ctx.save_for_backward(query, key, value, attended)
        ctx.blocks, ctx.scaling = blocks, scaling
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, attended = ctx.saved_tensors
        grad = gradients[0].contiguous()
        # d score = weight * (d weight - delta), with delta = sum over keys of weight * d weight = attended . grad
        delta = (attended.float() * grad.float()).sum(dim=-1, keepdim=True)
        grad_query, grad_key, grad_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        for block in ctx.blocks:
            weights = _weights(query, key, block, ctx.scaling)
            grad_rows = _rows(grad, block)
            _add(grad_value, block, torch.bmm(weights.transpose(1, 2), grad_rows))
            grad_scores = torch.bmm(grad_rows, value[:, block.keys].transpose(1, 2))
            grad_scores = grad_scores.sub_(_rows(delta, block).to(grad.dtype)).mul_(weights).mul_(ctx.scaling)
            torch.bmm(grad_scores, key[:, block.keys], out=_rows(grad_query, block))
            _add(grad_key, block, torch.bmm(grad_scores.transpose(1, 2), _rows(query, block)))
        return grad_query, grad_key, grad_value, None, None


def _rows(by_key_head: Tensor, block: QueryBlock) -> Tensor:
    """[K, T, r, n] -> a view [K, (end - start) * r, n]."""
    return by_key_head[:, block.start : block.end].flatten(1, 2)


def _weights(query: Tensor, key: Tensor, block: QueryBlock, scaling: float) -> Tensor:
    """[K, (end - start) * r, keys] attention weights in the dtype of query."""
    repeats = query.shape[2]
    scores = torch.bmm(_rows(query, block), key[:, block.keys].transpose(1, 2))
    scores = scores.float().mul_(scaling).unflatten(1, (-1, repeats)).add_(block.mask).flatten(1, 2)
    return torch.softmax(scores, dim=-1).to(query.dtype)


def _add(total: Tensor, block: QueryBlock, part: Tensor) -> None:
    if isinstance(block.keys, slice):
        total[:, block.keys] += part
    else:
        total.index_add_(1, block.keys, part)
