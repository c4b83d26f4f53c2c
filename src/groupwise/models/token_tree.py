"""A batch of token sequences stored as a trie: every distinct prefix once.

A group repeats its prompt G times and prompts repeat a system turn or a schema. Stored as a trie in depth-first order,

    token_ids[T]  depth[T]  parent[T]  subtree_end[T]        paths[s] = the nodes of sequence s

each shared prefix is one run of nodes, and the whole batch is one forward over T nodes in which

    token i may attend to token j   iff   j <= i < subtree_end[j]

because in depth-first order the nodes below j are exactly j .. subtree_end[j] - 1. depth is the position id. The
log-probability of node n is read from the hidden state of parent[n].

Read this file, then tree_attention.py (the rule as an attention mask), then logprobs.py (the forward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTree:
    """Token sequences as a depth-first trie.

    Example, for the sequences (5, 7, 8) and (5, 7, 9):
        token_ids = [5, 7, 8, 9]   depth = [0, 1, 2, 2]   parent = [-1, 0, 1, 1]   subtree_end = [4, 4, 3, 4]
        paths = ([0, 1, 2], [0, 1, 3])
    """

    token_ids: Tensor
    """[T] int64."""
    depth: Tensor
    """[T] int64, the position id: 0 for a first token."""
    parent: Tensor
    """[T] int64, -1 for a first token."""
    subtree_end: Tensor
    """[T] int64, one past the last node below this one."""
    paths: tuple[Tensor, ...]
    """One [len(s)] int64 tensor per given sequence, in the given order."""

    @property
    def num_nodes(self) -> int:
        """T."""
        return self.token_ids.shape[0]

    @classmethod
    def build(cls, sequences: Sequence[Sequence[int]]) -> TokenTree:
        """Merges equal prefixes. Sorted sequences share a prefix with their predecessor only, so one pass suffices.

        An empty sequence has an empty path. Equal sequences have equal paths.
        """
        token_ids: list[int] = []
        depth: list[int] = []
        parent: list[int] = []
        subtree_end: list[int] = []
        paths: list[list[int]] = [[] for _ in sequences]
        open_path: list[int] = []
        previous: Sequence[int] = ()
        for s in sorted(range(len(sequences)), key=lambda i: tuple(sequences[i])):
            tokens = sequences[s]
            shared = shared_prefix_length(previous, tokens)
            for node in open_path[shared:]:
                subtree_end[node] = len(token_ids)
            del open_path[shared:]
            for position in range(shared, len(tokens)):
                parent.append(open_path[-1] if open_path else -1)
                open_path.append(len(token_ids))
                token_ids.append(tokens[position])
                depth.append(position)
                subtree_end.append(-1)
            paths[s] = list(open_path)
            previous = tokens
        for node in open_path:
            subtree_end[node] = len(token_ids)
        return cls(
            token_ids=torch.tensor(token_ids, dtype=torch.long),
            depth=torch.tensor(depth, dtype=torch.long),
            parent=torch.tensor(parent, dtype=torch.long),
            subtree_end=torch.tensor(subtree_end, dtype=torch.long),
            paths=tuple(torch.tensor(path, dtype=torch.long) for path in paths),
        )

    def visible(self) -> Tensor:
        """[T, T] bool: True where query i (row) may attend to key j (column)."""
        index = torch.arange(self.num_nodes)
        below_or_same = index[None, :] <= index[:, None]
        return below_or_same & (index[:, None] < self.subtree_end[None, :])


def shared_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """The number of leading tokens that two sequences have in common."""
    length = min(len(left), len(right))
    return next((i for i in range(length) if left[i] != right[i]), length)


def count_nodes(sequences: Sequence[Sequence[int]]) -> int:
    """The number of nodes of TokenTree.build(sequences), without building it."""
    ordered = sorted(tuple(s) for s in sequences)
    return sum(
        len(tokens) - shared_prefix_length(previous, tokens)
        for previous, tokens in zip([(), *ordered], ordered, strict=False)
    )
