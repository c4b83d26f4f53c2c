"""The sizes of a decoder-only transformer: all that planning needs to know of a model, without loading it.

layer   q [hidden, heads * head_dim], k and v [hidden, kv heads * head_dim], o [heads * head_dim, hidden];
        an MLP of three matrices [hidden, intermediate] (two where it is not gated); two norms
model   embedding [vocab, hidden], layers, a last norm, LM head [vocab, hidden] (the embedding itself where tied)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.errors import ConfigError
from groupwise.planning.bounds import require, require_count

_TIED_UNLESS_SAID = frozenset({"gpt2", "gemma", "gemma2", "gemma3", "gemma3_text", "smollm3", "starcoder2", "cohere"})
"""Families whose config.json leaves tie_word_embeddings out because true is their default; false is the others'."""
_SPARSE_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Keys by which a config says that a token passes only some of the MLP weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model.

    Example (SmolLM2-135M, 134,515,008 parameters):
        ModelShape(num_layers=30, hidden=576, intermediate=1536, num_heads=9, num_kv_heads=3, head_dim=64,
                   vocab=49152, tied_embeddings=True)

    Raises:
        ConfigError: for a size below 1, or heads that cannot share their keys evenly.
    """

    num_layers: int
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width inside the MLP."""
    num_heads: int
    num_kv_heads: int
    """Heads of keys and values; each serves num_heads / num_kv_heads query heads."""
    head_dim: int
    vocab: int
    tied_embeddings: bool
    """True: the LM head is the input embedding, counted once."""
    gated_mlp: bool = True
    """True: three MLP matrices (gate, up, down); False: two."""
    head_norms: bool = False
    """True: queries and keys are normed head by head before they are rotated (Qwen3)."""
    extra_params: int = 0
    """Parameters besides the matrices and the norms: biases, learned positions, further norms. They are stored and
    updated, and cost no product worth counting."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "hidden", "intermediate", "num_heads", "num_kv_heads", "head_dim", "vocab"):
            require_count(f"ModelShape.{name}", getattr(self, name), advice="Take the sizes from the model's config.")
        require_count("ModelShape.extra_params", self.extra_params, least=0)
        require(
            self.num_heads % self.num_kv_heads == 0,
            "ModelShape.num_kv_heads",
            self.num_kv_heads,
            f"a divisor of num_heads = {self.num_heads}",
            "Take both from the model's config.",
        )

    @property
    def query_width(self) -> int:
        """Numbers in a token's queries: num_heads * head_dim."""
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Numbers in a token's keys, and as many in its values: num_kv_heads * head_dim."""
        return self.num_kv_heads * self.head_dim

    @property
    def layer_matrices(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the linear layers of one decoder layer: q, k, v, o, then the MLP."""
        up = ((self.hidden, self.intermediate),) * (2 if self.gated_mlp else 1)
        return (
            (self.hidden, self.query_width),
            (self.hidden, self.key_width),
            (self.hidden, self.key_width),
            (self.query_width, self.hidden),
            *up,
            (self.intermediate, self.hidden),
        )

    @property
    def body_matmul_params(self) -> int:
        """Weights in the linear layers of all decoder layers, without the LM head."""
        return self.num_layers * sum(inputs * outputs for inputs, outputs in self.layer_matrices)

    @property
    def head_params(self) -> int:
        """Weights in the LM head, whether tied or not."""
        return self.vocab * self.hidden

    @property
    def matmul_params(self) -> int:
        """Weights that a token is multiplied with: linear layers and LM head, not the input embedding."""
        return self.body_matmul_params + self.head_params

    @property
    def num_params(self) -> int:
        """Parameters stored: a tied LM head once, norms and extra_params included."""
        norms = (2 * self.num_layers + 1) * self.hidden + 2 * self.num_layers * self.head_dim * self.head_norms
        embeddings = self.head_params * (1 if self.tied_embeddings else 2)
        return self.body_matmul_params + embeddings + norms + self.extra_params

    def lora_params(self, rank: int) -> int:
        """Adapter weights with every linear layer of the body adapted: rank * (inputs + outputs) each.

        Raises:
            ConfigError: if rank < 1.
        """
        require_count(
            "lora_rank", rank, advice="Give the rank of the adapters, such as 16, or None to train all weights."
        )
        return self.num_layers * rank * sum(inputs + outputs for inputs, outputs in self.layer_matrices)


def from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a Hugging Face config.json describes: json.loads of the file.

    Reads the names of Llama-like models and those of GPT-2; of a model with several parts the text part. The biases of
    Qwen2's attention, GPT-2's biases and positions and Gemma's further norms are in extra_params; other families may
    have a few parameters more (far below 1 %).

    Raises:
        ConfigError: where a size is missing, or for mixtures of experts, whose cost this does not describe.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping) and "hidden_size" not in config:
        config = {"tie_word_embeddings": config.get("tie_word_embeddings", text.get("tie_word_embeddings")), **text}
    kind = str(config.get("model_type", ""))
    for key in _SPARSE_KEYS:
        if config.get(key):
            raise ConfigError(
                f"config.json: {key} = {config[key]} makes {kind or 'this'} a mixture of experts; only dense models "
                "can be planned.\n  Give a ModelShape with the sizes of one token's path."
            )
    hidden, heads = _size(config, "hidden_size", "n_embd"), _size(config, "num_attention_heads", "n_head")
    is_gpt2 = kind == "gpt2"
    intermediate = config.get("n_inner") or 4 * hidden if is_gpt2 else _size(config, "intermediate_size")
    tied = config.get("tie_word_embeddings")
    shape = ModelShape(
        num_layers=_size(config, "num_hidden_layers", "n_layer"),
        hidden=hidden,
        intermediate=intermediate,
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        vocab=_size(config, "vocab_size"),
        tied_embeddings=kind in _TIED_UNLESS_SAID if tied is None else bool(tied),
        gated_mlp=not is_gpt2,
        head_norms=kind in ("qwen3", "gemma3_text"),
    )
    return _with_extra_params(shape, kind, config)


def _size(config: Mapping[str, Any], *names: str) -> int:
    value = next((config[name] for name in names if config.get(name) is not None), None)
    require(
        isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        f"config.json: {' or '.join(names)}",
        value,
        "a whole number >= 1",
        "Give the config.json of a decoder-only language model, or a ModelShape.",
    )
    assert isinstance(value, int)
    return value


def _with_extra_params(shape: ModelShape, kind: str, config: Mapping[str, Any]) -> ModelShape:
    """The shape with the parameters that matrices and plain norms leave out, for the families that we know."""
    per_layer = 0
    whole = 0
    if kind == "gpt2":  # every linear layer and every norm has a bias; positions are learned; a norm has a bias too
        per_layer = sum(outputs for _, outputs in shape.layer_matrices) + 2 * shape.hidden
        whole = shape.hidden + _size(config, "n_positions", "max_position_embeddings") * shape.hidden
    elif kind == "qwen2" or config.get("attention_bias"):
        per_layer = shape.query_width + 2 * shape.key_width
        per_layer += shape.hidden if config.get("attention_bias") and kind == "llama" else 0
    if kind in ("gemma2", "gemma3_text"):  # norms behind attention and MLP too
        per_layer += 2 * shape.hidden
    return dataclasses.replace(shape, extra_params=shape.num_layers * per_layer + whole)
