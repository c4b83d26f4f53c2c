"""The forward of Llama-like models with fewer and larger products, for sampling.

A decode step of a small model on a CPU is bound by matrix products of a few dozen rows and by the number of operations
around them. This forward reads the weights of a transformers model and does the same arithmetic with the query, key and
value projections as one product, gate and up as one, norms as one operation, and
weights that oneDNN has laid out for the processor once (see `packed`). transformers' own modules remain the oracle
(tests compare both) and the fallback for every other architecture.

The weights must not change while a fused forward is in use; it holds one rearranged copy of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from groupwise.models.lora import effective_weight
from groupwise.models.tree_attention import AttentionPlan, planned_forward

FUSABLE = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
"""Architectures with pre-norms, rotary positions, a gated SiLU and no extra factor anywhere."""

Product = Callable[[Tensor], Tensor]
"""[N, in] -> [N, out]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    norm: Tensor
    qkv: Product
    head_norms: tuple[Tensor, Tensor] | None
    """Qwen3's norms of each query and key head, or None."""
    out: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


class SamplingForward(Protocol):
    """What the engine needs of a model."""

    head: Product
    """[N, D] hidden states -> [N, V] logits."""

    def __call__(self, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """[N] ids and [N] positions -> [N, D] last hidden states; what attends to what is the plan's business."""
        ...


class FusedForward:
    """forward(token ids, positions, plan) -> last hidden states; head(hidden) -> logits. Inference only."""

    def __init__(self, model: PreTrainedModel, num_rows: int) -> None:
        """num_rows is the usual number of rows of a call, a hint for the layout of the weights."""
        config: Any = model.config
        body: Any = model.base_model
        self._embedding: nn.Module = body.embed_tokens
        self._rotary: nn.Module = body.rotary_emb
        self._heads = config.num_attention_heads
        self._key_heads = config.num_key_value_heads
        self._width = body.layers[0].self_attn.head_dim
        self._scaling: float = body.layers[0].self_attn.scaling
        self._eps = config.rms_norm_eps
        self._norm: Tensor = body.norm.weight
        self._layers = [_read_layer(layer, num_rows) for layer in body.layers]
        self.head: Product = packed(model.get_output_embeddings(), num_rows)

    def __call__(self, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """See SamplingForward."""
        hidden = self._embedding(token_ids)
        cos, sin = self._rotary(hidden[None], position_ids=positions[None])
        cos, sin = cos[0][:, None], sin[0][:, None]
        # Rotating is x cos + (x with its halves exchanged) (-sin, sin); the signs are put in once for all layers.
        half = self._width // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        shape, eps = (hidden.shape[-1],), self._eps
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv(F.rms_norm(hidden, shape, layer.norm, eps))
            attended = self._attend(number, layer, qkv, cos, sin, plan)
            hidden = layer.out(attended).add_(hidden)
            gate, up = layer.gate_up(F.rms_norm(hidden, shape, layer.mlp_norm, eps)).chunk(2, dim=-1)
            hidden = layer.down(F.silu(gate).mul_(up)).add_(hidden)
        return F.rms_norm(hidden, shape, self._norm, eps)

    def _attend(self, number: int, layer: _Layer, qkv: Tensor, cos: Tensor, sin: Tensor, plan: AttentionPlan) -> Tensor:
        heads, key_heads = self._heads, self._key_heads
        parts = qkv.view(qkv.shape[0], heads + 2 * key_heads, self._width)
        rotated, value = parts[:, : heads + key_heads], parts[:, heads + key_heads :]
        if layer.head_norms is not None:
            query, key = rotated[:, :heads], rotated[:, heads:]
            shape = (self._width,)
            query, key = (
                F.rms_norm(x, shape, w, self._eps) for x, w in zip((query, key), layer.head_norms, strict=True)
            )
            rotated = torch.cat([query, key], dim=1)
        left, right = rotated.chunk(2, dim=-1)
        rotated = (rotated * cos).addcmul_(torch.cat([right, left], dim=-1), sin)
        query, key = rotated[:, :heads], rotated[:, heads:]
        attended = plan.attend(number, _by_head(query), _by_head(key), _by_head(value), self._scaling)
        return attended.reshape(qkv.shape[0], heads * self._width)


def _by_head(rows: Tensor) -> Tensor:
    """[N, H, d] -> [1, H, N, d]."""
    return rows.transpose(0, 1)[None]


class ModuleForward:
    """The same seam over the model's own modules, for every architecture."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Uses the model as it stands."""
        self._model = model
        head: Any = model.get_output_embeddings()
        self.head: Product = head

    def __call__(self, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """See SamplingForward."""
        return planned_forward(self._model, token_ids, positions, plan)


def sampling_forward(model: PreTrainedModel, num_rows: int) -> SamplingForward:
    """The fused forward of a model's present weights, or its own modules where the architecture is another one."""
    gates_with_silu = getattr(model.config, "hidden_act", None) == "silu"
    if type(model).__name__ in FUSABLE and gates_with_silu:
        return FusedForward(model, num_rows)
    return ModuleForward(model)


def packed(layers: Any, num_rows: int) -> Product:
    """One product for one or several linear layers of the same input, side by side.

    On a CPU in float32 the weight is laid out once by oneDNN: the default product rearranges it at every call, which
    costs as much as the product when rows are few (measured on one AVX2 core at 64 rows: the 49,152-wide head ran at
    31 GFLOP/s without and 86 with).
    """
    together = layers if isinstance(layers, list) else [layers]
    weights = [effective_weight(layer) for layer in together]
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]
    bias = None
    if together[0].bias is not None:
        bias = torch.cat([layer.bias.detach() for layer in together])
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return lambda inputs: F.linear(inputs, weight, bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, num_rows)
    product = torch.ops.mkldnn._linear_pointwise
    return lambda inputs: product(inputs, laid_out, bias, "none", [], "")


def _read_layer(layer: Any, num_rows: int) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    head_norms = (attention.q_norm.weight, attention.k_norm.weight) if hasattr(attention, "q_norm") else None
    return _Layer(
        norm=layer.input_layernorm.weight,
        qkv=packed([attention.q_proj, attention.k_proj, attention.v_proj], num_rows),
        head_norms=head_norms,
        out=packed(attention.o_proj, num_rows),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=packed([mlp.gate_proj, mlp.up_proj], num_rows),
        down=packed(mlp.down_proj, num_rows),
    )
