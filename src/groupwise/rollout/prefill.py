"""The first forward of waiting prompts: as a token tree, behind the keys of a trunk that is already stored.

The prompts that enter a decode batch together share every common prefix. The trunk, which all prompts of a call share,
is computed with the first of them; those that enter later attend to its stored keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.models.block_attention import block_attention, query_blocks
from groupwise.models.fused_forward import SamplingForward
from groupwise.models.token_tree import TokenTree, shared_prefix_length
from groupwise.models.tree_attention import tree_plan

Pair = tuple[Tensor, Tensor]

TRUNK_WORTH = 512
"""Stored tokens that a trunk must save to be kept apart.

An estimate: its own product and join are a few more operations a layer and step, and reading copies of a short trunk
costs less than those.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """What a prefill computed."""

    kept: dict[int, Pair]
    """Keys and values [1, K, T, d] of each layer."""
    paths: tuple[Tensor, ...]
    """For each prompt, its nodes in `kept`, without those of a trunk that was stored before."""
    last_hidden: Tensor
    """[prompts, D] the last hidden state of each prompt's last token."""
    num_nodes: int


def trunk_length(prompts: Sequence[Sequence[int]]) -> int:
    """Leading tokens that all prompts share, or 0 where keeping them apart saves too little.

    The last token of a prompt never belongs to it.
    """
    first = prompts[0]
    common = min(len(first) - 1, *(min(len(p) - 1, shared_prefix_length(first, p)) for p in prompts))
    return common if common * (len(prompts) - 1) >= TRUNK_WORTH else 0


def prefill(
    forward: SamplingForward, prompts: Sequence[Sequence[int]], trunk: dict[int, Pair], *, device: torch.device
) -> Prefilled:
    """Computes prompts whose leading tokens lie in `trunk` (keys and values [1, K, T0, d] of each layer, or empty)."""
    num_stored = next(iter(trunk.values()))[0].shape[2] if trunk else 0
    tree = TokenTree.build([tuple(p[num_stored:]) for p in prompts])
    plan = TrunkedTreePlan(tree, trunk, device=device) if trunk else tree_plan(tree, device=device, keep_keys=True)
    hidden = forward(tree.token_ids.to(device), tree.depth.to(device) + num_stored, plan)
    paths = tuple(path.to(device) for path in tree.paths)
    return Prefilled(
        kept=plan.kept,
        paths=paths,
        last_hidden=hidden[torch.stack([path[-1] for path in paths])],
        num_nodes=tree.num_nodes,
    )


class TrunkedTreePlan:
    """An AttentionPlan: every node attends to all of the trunk, to its ancestors and to itself."""

    def __init__(self, tree: TokenTree, trunk: dict[int, Pair], *, device: torch.device) -> None:
        """trunk[layer] = keys and values [1, K, T0, d]; `kept` collects the nodes' own."""
        self._trunk = trunk
        self._blocks = query_blocks(tree, device=device, num_before=trunk[0][0].shape[2])
        self.kept: dict[int, Pair] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See AttentionPlan."""
        self.kept[layer] = (key, value)
        keys, values = (torch.cat([old, new], dim=2) for old, new in zip(self._trunk[layer], (key, value), strict=True))
        return block_attention(query[0], keys[0], values[0], self._blocks, scaling)[None]
