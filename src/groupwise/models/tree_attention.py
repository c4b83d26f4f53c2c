"""Attention over a token tree, plugged into any transformers model that lets its attention be chosen.

transformers looks its attention function up by name and hands it every extra keyword of the model's forward. We
register one function under the name "groupwise" and pass the object that knows which keys a query may see as the
keyword `attention_plan`. Two plans exist: TreePlan here (training, scoring, prefill) and DecodePlan in
rollout/decode.py (one new token a row against stored keys). The model stays a plain transformers model: its own
projections, norms and rotary embedding run unchanged, and switching the name back gives the original attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from groupwise.models.token_tree import TokenTree

NAME = "groupwise"


class AttentionPlan(Protocol):
    """What the attention of one forward may see."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """query [1, H, N, d], key and value [1, K, N, d] of the N tokens of this forward -> [1, N, H, d]."""
        ...


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


def planned_forward(model: PreTrainedModel, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
    """[N] ids and [N] positions -> [N, D] last hidden states, by the model's own modules under a plan."""
    with planned(model):
        output = model.base_model(
            input_ids=token_ids[None], position_ids=positions[None], use_cache=False, attention_plan=plan
        )
    return output.last_hidden_state[0]


class TreePlan:
    """Every node of a token tree attends to its ancestors and itself, through SDPA with a dense mask.

    The mask is additive and built once a forward: SDPA would convert a boolean one again in every layer.
    """

    def __init__(self, tree: TokenTree, *, device: torch.device, dtype: torch.dtype, keep_keys: bool = False) -> None:
        """keep_keys stores each layer's keys and values [1, K, T, d] in `kept`, for a prefill."""
        visible = tree.visible().to(device)
        self._mask = torch.zeros(visible.shape, device=device, dtype=dtype).masked_fill_(~visible, float("-inf"))
        self._mask = self._mask[None, None]
        self._keep_keys = keep_keys
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See AttentionPlan."""
        if self._keep_keys:
            self.kept[layer] = (key, value)
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self._mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
        )
        return attended.transpose(1, 2)
