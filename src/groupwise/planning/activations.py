"""Bytes that forward and backward hold beside weights and gradients: what our training code keeps for a token.

Read off the code and checked against it (tests count the tensors that automatic differentiation saves). Numbers a token
and decoder layer, with D = hidden, F = intermediate, Q = query width, K = key width, r = rank of the adapters:

    models/trained_layers.py (float32, all weights trained)    2 D + 3 Q + 2 K + 2 F
    the model's own modules, float32                           6 D + 3 Q + 2 K + 4 F
                             bf16                              8 D + 3 Q + 2 K + 4 F      norms work in float32
    adapters on them,        float32                           4 D + 3 Q + 2 K + 4 F + 7 r
                             bf16                             14 D + 4 Q + 2 K + 5 F + 14 r   each casts its input

Attention keeps queries, keys, values and its result twice (by head and by token), never scores. Norms of heads add
multiples of Q + K. With gradient checkpointing a layer keeps D, and one layer at a time is whole.
"""

from __future__ import annotations

import math

from groupwise.planning.bounds import require_count, require_number
from groupwise.planning.model_shape import ModelShape

TILE_BYTES = 3 * 4 * (1 << 21)
"""The LM head's tile of 2^21 float32 logits, three times: logits, their exponentials, what a product returns."""
LOGIT_COPIES = 3
"""Float32 numbers a logit where logits are kept: going back, log-probabilities and two gradients; going forward, the
logits, the scaled logits and the log-probabilities."""


def logits_bytes(tokens: int, vocab: int, bytes_per_number: int) -> int:
    """One copy of the logits of so many positions. It does not depend on the size of the model.

    Example:
        logits_bytes(512, 151_665, 2)     # 155,304,960: 2 x 256 positions in bf16; float32 is twice that

    Raises:
        ConfigError: for a negative number.
    """
    for name, value in (("tokens", tokens), ("vocab", vocab), ("bytes_per_number", bytes_per_number)):
        require_count(name, value, least=0)
    return tokens * vocab * bytes_per_number


def layer_numbers(shape: ModelShape, *, bytes_per_number: int, lora_rank: int | None, own_layers: bool) -> int:
    """Numbers that one decoder layer keeps for a token; see the module. own_layers: trained_layers.py is used."""
    hidden, inner, query, key = shape.hidden, shape.intermediate, shape.query_width, shape.key_width
    is_half = bytes_per_number == 2
    head_norms = (query + key) if shape.head_norms else 0
    if lora_rank is not None:
        if is_half:
            return 14 * hidden + 4 * query + 2 * key + 5 * inner + 14 * lora_rank + 2 * head_norms
        return 4 * hidden + 3 * query + 2 * key + 4 * inner + 7 * lora_rank + head_norms
    if own_layers:
        return 2 * hidden + 3 * query + 2 * key + 2 * inner + 2 * head_norms
    norms, of_heads = (8, 3) if is_half else (6, 2)
    return norms * hidden + 3 * query + 2 * key + 4 * inner + of_heads * head_norms


def uses_own_layers(shape: ModelShape, *, bytes_per_number: int, lora_rank: int | None, prefix_sharing: bool) -> bool:
    """True where models/trained_layers.py runs: Llama-like, float32, all weights trained, as a token tree."""
    return shape.gated_mlp and bytes_per_number == 4 and lora_rank is None and prefix_sharing


def kept_bytes(
    shape: ModelShape,
    num_tokens: float,
    *,
    bytes_per_number: int,
    lora_rank: int | None = None,
    gradient_checkpointing: bool = False,
    own_layers: bool = False,
    head_rows: float = 0.0,
) -> int:
    """Bytes that are kept between the forward and the backward pass of one micro-batch, logits aside.

    Behind the layers the last norm keeps two rows of D (three numbers' worth in half precision, which it leaves), and
    the LM head its inputs; rotary angles are kept once.

    Raises:
        ConfigError: for a negative number of tokens.
    """
    require_number("num_tokens", num_tokens, advice="Give the tokens of a micro-batch.")
    numbers = layer_numbers(shape, bytes_per_number=bytes_per_number, lora_rank=lora_rank, own_layers=own_layers)
    of_layers = shape.num_layers * (shape.hidden if gradient_checkpointing else numbers)
    last_norm = (1 if lora_rank is not None else 2) * shape.hidden * 4
    of_token = of_layers * bytes_per_number + last_norm + 2 * shape.head_dim * bytes_per_number
    return math.ceil(num_tokens * of_token + head_rows * shape.hidden * bytes_per_number)


def working_bytes(
    shape: ModelShape,
    num_tokens: float,
    *,
    bytes_per_number: int,
    lora_rank: int | None = None,
    gradient_checkpointing: bool = False,
    own_layers: bool = False,
) -> int:
    """Bytes that come and go on top of those kept: the gradients inside one layer (4 F our own, 2 F otherwise) and,
    with gradient checkpointing, that layer's activations; or the LM head's tile where that is larger."""
    numbers = (4 if own_layers else 2) * shape.intermediate
    if gradient_checkpointing:
        numbers += layer_numbers(shape, bytes_per_number=bytes_per_number, lora_rank=lora_rank, own_layers=own_layers)
    return max(TILE_BYTES, math.ceil(num_tokens * numbers * bytes_per_number))
