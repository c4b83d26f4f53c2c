"""The training forward and backward of Llama-like models on a CPU: fewer passes over memory, fewer kept activations.

Automatic differentiation keeps the input of every operation. Of a decoder layer that is about fifteen tensors, most of
which cost less to make again than to write, keep and read. Here two operations are joined in three places, each with
its backward pass written out:

    norm_linear   linear(rms_norm(x))           keeps x
    gated_linear  linear(silu(gate) * up)       keeps gate and up
    rotate        rotary position embedding     keeps nothing but its angles

The weights stay where they are, parameters of a transformers model. That model's own modules are the oracle, and the
fallback for everything that `has_fused_layers` does not recognise: another architecture, adapters, half precision,
a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from groupwise.models.tree_attention import AttentionPlan, planned_forward

FUSED_BODIES = {"LlamaModel", "Qwen2Model", "Qwen3Model"}
"""Bodies with pre-norms, rotary positions, a gated SiLU and no extra factor anywhere, whatever head they carry."""
PACKED_ROWS = 256
"""From this many rows on a product lays its weight out anew."""


def training_forward(model: PreTrainedModel, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
    """[N] ids and [N] positions -> [N, D] last hidden states with gradient; what attends to what is the plan's."""
    if not has_fused_layers(model):
        return planned_forward(model, token_ids, positions, plan)
    body: Any = model.base_model
    hidden = body.embed_tokens(token_ids)
    cos, sin = body.rotary_emb(hidden[None], position_ids=positions[None])
    angles = (cos[0][:, None], sin[0][:, None])
    for number, layer in enumerate(body.layers):
        run = _layer_function(layer, number, angles, plan)
        recompute = layer.gradient_checkpointing and layer.training  # gradient_checkpointing.py sets both
        hidden = layer._gradient_checkpointing_func(run, hidden) if recompute else run(hidden)
    return body.norm(hidden)


def has_fused_layers(model: PreTrainedModel) -> bool:
    """True where this file computes exactly what the model's own modules compute."""
    body: Any = model.base_model
    if type(body).__name__ not in FUSED_BODIES or getattr(model.config, "hidden_act", None) != "silu":
        return False
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    if any(getattr(layer.self_attn, "sliding_window", None) is not None for layer in body.layers):
        return False
    return all(type(linear) is nn.Linear for layer in body.layers for linear in _linears(layer))


def _linears(layer: Any) -> Iterator[nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    yield from (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    yield from (mlp.gate_proj, mlp.up_proj, mlp.down_proj)


def _layer_function(
    layer: Any, number: int, angles: tuple[Tensor, Tensor], plan: AttentionPlan
) -> Callable[[Tensor], Tensor]:
    """One decoder layer as a function [N, D] -> [N, D]."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)

    def run(hidden: Tensor) -> Tensor:
        qkv = norm_linear(hidden, layer.input_layernorm, projections)
        query, key, value = (x.unflatten(-1, (-1, attention.head_dim)) for x in qkv)
        if hasattr(attention, "q_norm"):  # Qwen3 norms each head
            query, key = attention.q_norm(query), attention.k_norm(key)
        query, key = rotate(query, *angles), rotate(key, *angles)
        attended = plan.attend(number, _by_head(query), _by_head(key), _by_head(value), attention.scaling)
        hidden = hidden + attention.o_proj(attended.reshape(hidden.shape[0], -1))
        gate, up = norm_linear(hidden, layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj))
        return hidden + gated_linear(gate, up, mlp.down_proj)

    return run


def _by_head(rows: Tensor) -> Tensor:
    """[N, h, d] -> [1, h, N, d], a view."""
    return rows.transpose(0, 1)[None]


def norm_linear(hidden: Tensor, norm: Any, linears: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """linear(norm(hidden)) of each linear layer: [N, D] -> [N, out] each. norm is an RMS norm module."""
    parameters = [p for linear in linears for p in (linear.weight, linear.bias)]
    outputs: tuple[Tensor, ...] = _NormLinear.apply(hidden, norm.weight, norm.variance_epsilon, *parameters)
    return outputs


class _NormLinear(torch.autograd.Function):
    """parameters are weight [out, D] and bias [out] or None, alternating."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, norm_weight: Tensor, eps: float, *parameters: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(hidden, norm_weight, *parameters)
        ctx.eps = eps
        normed = (hidden * _inverse_rms(hidden, eps)).mul_(norm_weight)
        pairs = zip(parameters[::2], parameters[1::2], strict=True)
        return tuple(_product(normed, weight, bias) for weight, bias in pairs if weight is not None)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, norm_weight, *parameters = ctx.saved_tensors
        inverse_rms = _inverse_rms(hidden, ctx.eps)
        unscaled = hidden * inverse_rms
        normed = unscaled * norm_weight
        grad_parameters: list[Tensor | None] = []
        grad_normed: Tensor | None = None
        for grad, weight, bias in zip(gradients, parameters[::2], parameters[1::2], strict=True):
            grad_parameters += [grad.t() @ normed, None if bias is None else grad.sum(dim=0)]
            grad_normed = grad @ weight if grad_normed is None else grad_normed.addmm_(grad, weight)
        assert grad_normed is not None
        grad_norm_weight = (grad_normed * unscaled).sum(dim=0)
        # through x / rms(x): what points along x is taken out
        grad_unscaled = grad_normed.mul_(norm_weight)
        along = (grad_unscaled * unscaled).mean(dim=-1, keepdim=True)
        grad_hidden = grad_unscaled.sub_(unscaled.mul_(along)).mul_(inverse_rms)
        return grad_hidden, grad_norm_weight, None, *grad_parameters


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """F.linear without gradient. With many rows, oneDNN's layout of the weight pays for the copy that makes it: with a
    weight that comes from memory, as each layer's does, 180 instead of 150 GFLOP/s on two cores."""
    if inputs.shape[0] < PACKED_ROWS or inputs.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return F.linear(inputs, weight, bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, inputs.shape[0])
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, laid_out, bias, "none", [], "")
    return product


def _inverse_rms(hidden: Tensor, eps: float) -> Tensor:
    """[N, 1]."""
    mean_square = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).square_().div_(hidden.shape[-1])
    return mean_square.add_(eps).rsqrt_()


def gated_linear(gate: Tensor, up: Tensor, linear: Any) -> Tensor:
    """linear(silu(gate) * up): [N, F] each -> [N, D]."""
    output: Tensor = _GatedLinear.apply(gate, up, linear.weight, linear.bias)
    return output


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        ctx.has_bias = bias is not None
        return _product(F.silu(gate).mul_(up), weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight = ctx.saved_tensors
        grad = gradients[0]
        opened = F.silu(gate)
        grad_weight = grad.t() @ (opened * up)
        grad_product = grad @ weight
        grad_gate = torch.ops.aten.silu_backward(grad_product * up, gate)
        grad_up = grad_product.mul_(opened)
        return grad_gate, grad_up, grad_weight, grad.sum(dim=0) if ctx.has_bias else None


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of heads [N, h, d]: the halves (a, b) become (a cos - b sin, b cos + a sin).

    cos and sin are [N, 1, d]; their two halves need not be equal.
    """
    rotated: Tensor = _Rotate.apply(heads, cos, sin)
    return rotated


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        half = heads.shape[-1] // 2
        rotated = heads * cos
        rotated[..., :half].addcmul_(heads[..., half:], sin[..., :half], value=-1)
        rotated[..., half:].addcmul_(heads[..., :half], sin[..., half:])
        return rotated

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        grad = gradients[0]
        half = grad.shape[-1] // 2
        grad_heads = grad * cos
        grad_heads[..., :half].addcmul_(grad[..., half:], sin[..., half:])
        grad_heads[..., half:].addcmul_(grad[..., :half], sin[..., :half], value=-1)
        return grad_heads, None, None
