"""The fused forward does the arithmetic of the model's own modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from groupwise.models.fused_forward import FusedForward, ModuleForward, packed, sampling_forward
from groupwise.models.token_tree import TokenTree
from groupwise.models.tree_attention import TreePlan

SEQUENCES = [(5, 7, 8, 9), (5, 7, 8, 10, 11), (5, 12), (6, 7)]


def states(model: Any, forward: Any) -> torch.Tensor:
    tree = TokenTree.build(SEQUENCES)
    plan = TreePlan(tree, device=model.device)
    with torch.inference_mode():
        return forward(tree.token_ids, tree.depth, plan)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_hidden_states_and_logits_equal_those_of_the_modules(tiny_model: Any, family: str) -> None:
    model = tiny_model(family).model
    fused, modules = sampling_forward(model, 8), ModuleForward(model)
    assert isinstance(fused, FusedForward)
    found, expected = states(model, fused), states(model, modules)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(fused.head(found), modules.head(expected), rtol=1e-4, atol=1e-4)


def test_another_architecture_keeps_its_own_modules(tiny_model: Any) -> None:
    assert isinstance(sampling_forward(tiny_model("gpt2").model, 8), ModuleForward)


def test_another_gate_keeps_the_modules(tiny_model: Any) -> None:
    model = copy.deepcopy(tiny_model().model)
    model.config.hidden_act = "gelu"
    assert isinstance(sampling_forward(model, 8), ModuleForward)


def test_a_new_forward_sees_new_weights(tiny_model: Any) -> None:
    model = copy.deepcopy(tiny_model().model)
    before = states(model, sampling_forward(model, 8))
    with torch.no_grad():
        model.base_model.layers[1].mlp.up_proj.weight.mul_(1.5)
    after = states(model, sampling_forward(model, 8))
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, states(model, ModuleForward(model)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_rows", [1, 7, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_layers_stand_side_by_side(num_rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(48, width, bias=bias) for width in (96, 32)]
    inputs = torch.randn(num_rows, 48)
    with torch.inference_mode():
        expected = torch.cat([layer(inputs) for layer in layers], dim=-1)
        torch.testing.assert_close(packed(layers, 64)(inputs), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(packed(layers[0], 64)(inputs), layers[0](inputs), rtol=1e-5, atol=1e-5)


def test_other_precisions_are_multiplied_as_usual() -> None:
    layer, inputs = nn.Linear(8, 4).double(), torch.randn(3, 8, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(packed(layer, 4)(inputs), layer(inputs))
