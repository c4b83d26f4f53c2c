"""Tiny models with adapters that do something, for the tests of LoRA and of gradient checkpointing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from groupwise.models import LoadedModel, ScoredSequence
from groupwise.models.lora import add_lora

FAMILIES = ["llama", "qwen2", "qwen3", "gpt2"]

# Two prompts under one header; equal first tokens, lengths from 1 to 4.
SEQUENCES = [
    ScoredSequence(token_ids=(10, 11, 12, 20, 40, 41, 42), prompt_length=4),
    ScoredSequence(token_ids=(10, 11, 12, 20, 40, 41, 43, 44), prompt_length=4),
    ScoredSequence(token_ids=(10, 11, 12, 30, 40), prompt_length=4),
    ScoredSequence(token_ids=(10, 11, 12, 30, 41, 45), prompt_length=4),
]


def adapted(loaded: LoadedModel, *, move: bool = True, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A copy of the model with adapters; move=True draws B too, so that they change what the model computes."""
    model: Any = copy.deepcopy(loaded.model).to(dtype)
    add_lora(model, **{"rank": 4, "alpha": 8.0, "seed": 0, "source": loaded.source, **options})
    if move:
        move_adapters(model)
    return model


def move_adapters(model: Any, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def value_and_gradients(function: Callable[..., Tensor], model: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The log-probabilities, and the gradients of a sum that weights every cell differently."""
    model.zero_grad()
    found = function(model, SEQUENCES, temperature=0.9)
    weights = torch.linspace(-1.0, 2.0, found.numel()).view_as(found)
    (found * weights).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found.detach(), gradients


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], *, relative: float) -> None:
    """The gradients of the same parameters, each equal relative to the norm of all of them."""
    assert found.keys() == expected.keys()
    norm = torch.cat([g.flatten() for g in expected.values()]).norm()
    assert norm > 0.1
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= relative * norm, name


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor([[10, 11, 12, 20, 40], [10, 11, 12, 30, 7]])).logits
