"""Gradient checkpointing (arXiv:1604.06174): keep each layer's input only, and compute the layer again going back.

transformers' layers can do this, but only in training mode, which would also turn dropout on, and while we train the
model stays in evaluation mode: what samples and what trains are one function. So the layers alone, not the modules in
them, are told that they train, for the time of a forward. The second computation happens outside that forward, after
the attention has been switched back, so it is given the attention that the first one had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from groupwise.errors import EngineError

Result = TypeVar("Result")


def with_gradient_checkpointing(forward: Callable[..., Result]) -> Callable[..., Result]:
    """The same function of (model, ...), such as tree_scores, in value and gradient, with fewer activations kept.

    Raises (the returned function):
        EngineError: if the model has no layers that can be computed again.
    """

    def checkpointed(model: PreTrainedModel, *arguments: Any, **options: Any) -> Result:
        with layers_recomputed(model):
            return forward(model, *arguments, **options)

    return checkpointed


@contextmanager
def layers_recomputed(model: PreTrainedModel) -> Iterator[None]:
    """Inside, a forward with gradient keeps of each layer its input only; afterwards the model is as it was.

    Raises:
        EngineError: if the model has no layers that can be computed again.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise EngineError(
            f"model.gradient_checkpointing: {type(model).__name__} has no layers that can be computed again.\n"
            "  Set it to false."
        )

    def recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
        attention = model.config._attn_implementation
        # nothing here is random, so the random state need not be kept for the second computation
        return checkpoint(
            function,
            *arguments,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=lambda: (nullcontext(), _attention_named(model, attention)),
        )

    before = [(layer.training, layer.gradient_checkpointing) for layer in layers]
    for layer in layers:
        layer.training, layer.gradient_checkpointing = True, True
        layer._gradient_checkpointing_func = recomputed  # type: ignore[assignment]
    try:
        yield
    finally:
        for layer, (training, checkpointing) in zip(layers, before, strict=True):
            layer.training, layer.gradient_checkpointing = training, checkpointing
            del layer._gradient_checkpointing_func


@contextmanager
def _attention_named(model: PreTrainedModel, name: str) -> Iterator[None]:
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before
