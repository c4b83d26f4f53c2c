"""The fused training layers compute what the model's own modules compute, forward and backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from groupwise.models import trained_layers
from groupwise.models.token_tree import TokenTree
from groupwise.models.trained_layers import gated_linear, has_fused_layers, norm_linear, rotate, training_forward
from groupwise.models.tree_attention import TreePlan, planned_forward

SEQUENCES = [(5, 7, 8, 9), (5, 7, 8, 10, 11), (5, 12), (6, 7)]


class RmsNorm(nn.Module):
    """What norm_linear reads of a transformers RMS norm, and its arithmetic."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, dtype=torch.float64))
        self.variance_epsilon = 1e-2

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weight * hidden / (hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).sqrt()


def gradients(output: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    upstream = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return list(torch.autograd.grad((output * upstream).sum(), leaves))


@pytest.mark.parametrize("bias", [True, False])
def test_norm_linear(bias: bool) -> None:
    torch.manual_seed(0)
    norm = RmsNorm(6)
    linears = tuple(nn.Linear(6, out, bias=bias, dtype=torch.float64) for out in (4, 2))
    hidden = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    leaves = [hidden, norm.weight, *(p for linear in linears for p in linear.parameters())]
    found = torch.cat(norm_linear(hidden, norm, linears), dim=-1)
    expected = torch.cat([linear(norm(hidden)) for linear in linears], dim=-1)
    torch.testing.assert_close(found, expected)
    for grad, wanted in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(grad, wanted)


@pytest.mark.parametrize("bias", [True, False])
def test_gated_linear(bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(6, 4, bias=bias, dtype=torch.float64)
    gate, up = (torch.randn(5, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    leaves = [gate, up, *linear.parameters()]
    found, expected = gated_linear(gate, up, linear), linear(F.silu(gate) * up)
    torch.testing.assert_close(found, expected)
    for grad, wanted in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(grad, wanted)


def test_rotate_by_hand_and_its_gradient() -> None:
    """(a, b) = (1, 2) by a quarter turn: (1 cos - 2 sin, 2 cos + 1 sin) = (-2, 1)."""
    quarter = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    assert rotate(torch.tensor([[[1.0, 2.0]]]), *quarter).flatten().tolist() == [-2.0, 1.0]
    heads = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(3, 1, 4, dtype=torch.float64)  # halves that differ
    assert torch.autograd.gradcheck(lambda x: rotate(x, angle.cos(), angle.sin()), heads)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_model_equals_its_own_modules(tiny_model: Any, family: str) -> None:
    model = copy.deepcopy(tiny_model(family).model)
    assert has_fused_layers(model)
    tree = TokenTree.build(SEQUENCES)
    results = []
    for forward in (training_forward, planned_forward):
        model.zero_grad()
        hidden = forward(model, tree.token_ids, tree.depth, TreePlan(tree, device=model.device))
        (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
        results.append((hidden.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    (found, grads), (expected, wanted) = results
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert grads.keys() == wanted.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(grad, wanted[name], rtol=1e-5, atol=1e-5 * float(wanted[name].abs().max()))


def test_products_of_many_rows_are_the_same(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The products that lay their weights out anew, forced upon few rows."""
    monkeypatch.setattr(trained_layers, "PACKED_ROWS", 1)
    for family in ("llama", "qwen2", "qwen3"):
        test_a_model_equals_its_own_modules(tiny_model, family)


def test_what_is_not_recognised_keeps_its_modules(tiny_model: Any) -> None:
    assert not has_fused_layers(tiny_model("gpt2").model)
    model = copy.deepcopy(tiny_model().model)
    model.base_model.layers[1].mlp.up_proj = nn.Sequential(model.base_model.layers[1].mlp.up_proj)
    assert not has_fused_layers(model)  # as an adapter would
    half = copy.deepcopy(tiny_model().model).bfloat16()
    assert not has_fused_layers(half)


def test_fewer_activations_are_kept_than_by_the_modules(tiny_model: Any) -> None:
    model = tiny_model().model
    tree = TokenTree.build([tuple(range(3, 60))])
    kept = []
    for forward in (training_forward, planned_forward):
        sizes: dict[int, int] = {}

        def keep(tensor: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            forward(model, tree.token_ids, tree.depth, TreePlan(tree, device=model.device))
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        kept.append(sum(sizes.values()) - weights)
    assert kept[0] < 0.5 * kept[1]
