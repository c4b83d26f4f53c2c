"""Attention over a token tree, plugged into any transformers model that lets its attention be chosen.

transformers looks its attention function up by name and hands it every extra keyword of the model's forward. We
register one function under the name "groupwise" and pass the object that knows which keys a query may see as the
keyword `attention_plan`. Three plans exist: TreePlan here and FlexPlan in flex_attention.py (training, scoring,
prefill; on a CPU and on a GPU), and DecodePlan in rollout/decode.py (one new token a row against stored keys). The
model stays a plain transformers model: its own projections, norms and rotary embedding run unchanged, and switching
the name back gives the original attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from groupwise.models.block_attention import block_attention, query_blocks
from groupwise.models.token_tree import TokenTree

NAME = "groupwise"


class AttentionPlan(Protocol):
    """What the attention of one forward may see."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """query [1, H, N, d], key and value [1, K, N, d] of the N tokens of this forward -> [1, N, H, d]."""
        ...


class KeepingPlan(AttentionPlan, Protocol):
    """A plan that can keep what later tokens attend to."""

    kept: dict[int, tuple[Tensor, Tensor]]
    """Keys and values [1, K, T, d] of each layer; empty unless asked for."""


class UnsupportedAttentionError(RuntimeError):
    """The model asks for something that a plan does not compute, such as a sliding window or a soft cap."""


def planned_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attention_plan: AttentionPlan,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls in every layer; delegates to the plan.

    Raises:
        UnsupportedAttentionError: for a sliding window, a soft cap, attention sinks or attention dropout.
    """
    for option in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if options.get(option) is not None:
            raise UnsupportedAttentionError(f"{type(module).__name__} uses {option}")
    if dropout:
        raise UnsupportedAttentionError(f"{type(module).__name__} uses attention dropout {dropout}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    return attention_plan.attend(layer, query, key, value, scale), None


AttentionInterface.register(NAME, planned_attention)


@contextmanager
def planned(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model's attention is `planned_attention`; afterwards it is what it was."""
    before = model.config._attn_implementation
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before


def tree_plan(tree: TokenTree, *, device: torch.device, keep_keys: bool = False) -> KeepingPlan:
    """The plan for a tree on this device: FlexAttention's kernels on a GPU, blocks of queries elsewhere.

    keep_keys stores each layer's keys and values [1, K, T, d] in `kept`, for a prefill.
    """
    if device.type == "cuda":
        from groupwise.models.flex_attention import FlexPlan  # slow to import, and of use on a GPU only

        return FlexPlan(tree, device=device, keep_keys=keep_keys)
    return TreePlan(tree, device=device, keep_keys=keep_keys)


def planned_forward(model: PreTrainedModel, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
    """[N] ids and [N] positions -> [N, D] last hidden states, by the model's own modules under a plan."""
    with planned(model):
        output = model.base_model(
            input_ids=token_ids[None], position_ids=positions[None], use_cache=False, attention_plan=plan
        )
    return output.last_hidden_state[0]


class TreePlan:
    """Every node of a token tree attends to its ancestors and itself, in blocks of queries (block_attention.py)."""

    def __init__(self, tree: TokenTree, *, device: torch.device, keep_keys: bool = False) -> None:
        """keep_keys stores each layer's keys and values [1, K, T, d] in `kept`, for a prefill."""
        self._blocks = query_blocks(tree, device=device)
        self._keep_keys = keep_keys
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See AttentionPlan."""
        if self._keep_keys:
            self.kept[layer] = (key, value)
        return block_attention(query[0], key[0], value[0], self._blocks, scaling)[None]
