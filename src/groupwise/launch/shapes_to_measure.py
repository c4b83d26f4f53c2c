"""The models that this machine can be measured with, and how much of a large one is enough."""

from __future__ import annotations

import dataclasses

from groupwise.errors import ConfigError
from groupwise.planning.model_shape import ModelShape

SHAPES: dict[str, ModelShape] = {
    "smollm2-135m": ModelShape(
        num_layers=30,
        hidden=576,
        intermediate=1536,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab=49152,
        tied_embeddings=True,
    ),
    "smollm2-360m": ModelShape(
        num_layers=32,
        hidden=960,
        intermediate=2560,
        num_heads=15,
        num_kv_heads=5,
        head_dim=64,
        vocab=49152,
        tied_embeddings=True,
    ),
    "qwen2.5-0.5b": ModelShape(
        num_layers=24,
        hidden=896,
        intermediate=4864,
        num_heads=14,
        num_kv_heads=2,
        head_dim=64,
        vocab=151936,
        tied_embeddings=True,
    ),
    "qwen3-0.6b": ModelShape(
        num_layers=28,
        hidden=1024,
        intermediate=3072,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        vocab=151936,
        tied_embeddings=True,
    ),
}
DEFAULT_SHAPE = "smollm2-135m"
"""The demo's model."""
QUICK_SHAPE = ModelShape(
    num_layers=2,
    hidden=32,
    intermediate=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab=259,
    tied_embeddings=True,
)

COPIES = 6
"""Weights, gradients and two moments are held while measuring, and activations beside them."""


def shape_to_time(shape: ModelShape, *, memory_bytes: int, bytes_per_number: int, most: int) -> ModelShape:
    """The shape itself, or as many of its layers as fit in memory and in `most` parameters, at least one.

    Raises:
        ConfigError: if not even one layer fits in memory.
    """
    plain = dataclasses.replace(shape, gated_mlp=True, head_norms=False, extra_params=0)  # as random_model builds it
    fitting = memory_bytes // (COPIES * bytes_per_number)
    one = dataclasses.replace(plain, num_layers=1)
    if one.num_params > fitting:
        raise ConfigError(
            f"this model's embeddings and one layer are {one.num_params:,} parameters; measuring holds {COPIES} copies "
            f"of them, and this machine lets us use {memory_bytes / 1e9:.1f} GB.\n"
            f"  Measure with a smaller one: --shape {DEFAULT_SHAPE}."
        )
    per_layer = (plain.num_params - one.num_params) / max(1, plain.num_layers - 1)
    room = min(fitting, most) - one.num_params
    layers = plain.num_layers if per_layer == 0 else 1 + int(max(0, room) / per_layer)
    return dataclasses.replace(plain, num_layers=min(plain.num_layers, layers))
