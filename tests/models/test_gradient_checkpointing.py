"""Layers computed again: the same gradients from fewer kept activations, on a model in evaluation mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from adapted import FAMILIES, SEQUENCES, adapted, assert_close, value_and_gradients
from torch import Tensor, nn

from groupwise.errors import EngineError
from groupwise.models import LoadedModel, ScoredSequence, padded_logprobs, tree_logprobs
from groupwise.models.gradient_checkpointing import layers_recomputed, with_gradient_checkpointing

TinyModel = Callable[..., LoadedModel]


def kept_bytes(run: Callable[[], Tensor], model: nn.Module) -> int:
    """Bytes of the tensors that the backward pass of run() keeps, each storage once, weights left out."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    sizes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del result
    return sizes


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("logprobs", [tree_logprobs, padded_logprobs])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradients_are_the_same(tiny_model: TinyModel, family: str, logprobs: Any, lora: bool) -> None:
    model = adapted(tiny_model(family)) if lora else copy.deepcopy(tiny_model(family).model)
    expected, expected_gradients = value_and_gradients(logprobs, model)
    found, gradients = value_and_gradients(with_gradient_checkpointing(logprobs), model)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert_close(gradients, expected_gradients, relative=1e-6)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_fewer_activations_are_kept(tiny_model: TinyModel, family: str, lora: bool) -> None:
    model = adapted(tiny_model(family)) if lora else tiny_model(family).model
    prompt = tuple(range(10, 210))
    rows = [ScoredSequence(token_ids=(*prompt, first, 5), prompt_length=len(prompt)) for first in (3, 4)]
    plain = kept_bytes(lambda: tree_logprobs(model, rows, temperature=1.0), model)
    fewer = kept_bytes(lambda: with_gradient_checkpointing(tree_logprobs)(model, rows, temperature=1.0), model)
    assert fewer < plain / 3


def test_each_layer_runs_again_going_back_with_the_same_attention(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model())  # runs through transformers' own modules, which look the attention up by its name
    seen: list[str] = []
    for layer in model.base_model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: seen.append(model.config._attn_implementation))
    own = model.config._attn_implementation
    found = with_gradient_checkpointing(tree_logprobs)(model, SEQUENCES, temperature=1.0)
    assert (len(seen), model.config._attn_implementation) == (2, own)
    found.sum().backward()
    assert seen == ["groupwise"] * 4
    assert model.config._attn_implementation == own


def test_no_dropout_acts_and_the_model_is_left_as_it_was(tiny_model: TinyModel) -> None:
    model: Any = copy.deepcopy(tiny_model("gpt2").model)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    expected = tree_logprobs(model, SEQUENCES, temperature=1.0)
    modules = [(name, module.training) for name, module in model.named_modules()]
    found = with_gradient_checkpointing(tree_logprobs)(model, SEQUENCES, temperature=1.0)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert [(name, module.training) for name, module in model.named_modules()] == modules
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def test_without_a_gradient_nothing_is_computed_again(tiny_model: TinyModel) -> None:
    model = tiny_model().model
    with torch.no_grad():
        found = with_gradient_checkpointing(tree_logprobs)(model, SEQUENCES, temperature=1.0)
        assert torch.equal(found, tree_logprobs(model, SEQUENCES, temperature=1.0))


def test_a_model_without_such_layers_is_refused() -> None:
    model: Any = nn.Linear(2, 2)
    with (
        pytest.raises(EngineError, match=r"model\.gradient_checkpointing: Linear has no layers"),
        layers_recomputed(model),
    ):
        pass
