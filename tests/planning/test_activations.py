"""The kept bytes against what automatic differentiation really saves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plan_sizes import ONE_LAYER, SMOLLM2_135M
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from groupwise.errors import ConfigError
from groupwise.models.gradient_checkpointing import with_gradient_checkpointing
from groupwise.models.head_logprobs import TILE_ELEMENTS
from groupwise.models.logprobs import ScoredSequence, padded_logprobs, tree_logprobs
from groupwise.models.lora import add_lora
from groupwise.planning.activations import TILE_BYTES, kept_bytes, logits_bytes, uses_own_layers, working_bytes
from groupwise.planning.model_shape import from_config

PROMPT, GROUP, COMPLETION = 60, 4, 20
NUM_NODES = PROMPT + GROUP * COMPLETION
HEAD_ROWS = 1 + GROUP * (COMPLETION - 1)
RANK = 8


def _model(family: str, dtype: torch.dtype, *, is_adapted: bool) -> PreTrainedModel:
    config = {"llama": LlamaConfig, "qwen3": Qwen3Config}[family](
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=300,
        tie_word_embeddings=True,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.eval()
    if is_adapted:
        add_lora(model, rank=RANK, alpha=8.0, seed=0, source="none")
    return model


def _sequences() -> list[ScoredSequence]:
    prompt = tuple(range(PROMPT))
    return [
        ScoredSequence(token_ids=prompt + tuple(range(100 + row, 100 + row + COMPLETION)), prompt_length=PROMPT)
        for row in range(GROUP)
    ]


def _saved_bytes(model: PreTrainedModel, logprobs: Callable[..., torch.Tensor]) -> int:
    """Bytes of the storages that the backward pass will read, parameters aside, each counted once."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logprobs(model, _sequences(), temperature=1.0)
    return sum(t.untyped_storage().nbytes() for address, t in saved.items() if address not in parameters)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [None, RANK])
def test_kept_bytes_are_what_autograd_saves(family: str, dtype: torch.dtype, rank: int | None) -> None:
    model = _model(family, dtype, is_adapted=rank is not None)
    shape = from_config(model.config.to_dict())
    size = dtype.itemsize
    own = uses_own_layers(shape, bytes_per_number=size, lora_rank=rank, prefix_sharing=True)
    assert own == (dtype == torch.float32 and rank is None)
    planned = kept_bytes(shape, NUM_NODES, bytes_per_number=size, lora_rank=rank, own_layers=own, head_rows=HEAD_ROWS)
    assert planned == pytest.approx(_saved_bytes(model, tree_logprobs), rel=0.03)


@pytest.mark.parametrize("rank", [None, RANK])
def test_gradient_checkpointing_keeps_the_inputs_of_layers(rank: int | None) -> None:
    model = _model("llama", torch.float32, is_adapted=rank is not None)
    shape = from_config(model.config.to_dict())
    options = {"bytes_per_number": 4, "lora_rank": rank, "own_layers": rank is None}
    planned = kept_bytes(shape, NUM_NODES, gradient_checkpointing=True, head_rows=HEAD_ROWS, **options)
    saved = _saved_bytes(model, with_gradient_checkpointing(tree_logprobs))
    assert planned == pytest.approx(saved, rel=0.15)
    whole = kept_bytes(shape, NUM_NODES, head_rows=HEAD_ROWS, **options)
    assert planned < whole / 4


def test_the_padded_path_keeps_module_activations_and_one_copy_of_logits() -> None:
    model = _model("llama", torch.float32, is_adapted=False)
    shape = from_config(model.config.to_dict())
    tokens = GROUP * (PROMPT + COMPLETION)
    planned = kept_bytes(shape, tokens, bytes_per_number=4, head_rows=tokens) + logits_bytes(tokens, shape.vocab, 4)
    assert planned == pytest.approx(_saved_bytes(model, padded_logprobs), rel=0.1)


def test_published_sizes_of_logits() -> None:
    assert logits_bytes(2 * 256, 151_665, 2) == 155_304_960
    assert logits_bytes(2 * 256, 151_665, 4) == 310_609_920
    assert logits_bytes(20_480, 151_665, 4) / 2**30 == pytest.approx(11.57, abs=0.005)
    assert logits_bytes(8192, 151_936, 4) / 1e9 == pytest.approx(4.98, abs=0.005)


def test_the_tile_is_that_of_the_lm_head() -> None:
    assert TILE_BYTES == 3 * 4 * TILE_ELEMENTS
    assert working_bytes(ONE_LAYER, 10, bytes_per_number=4) == TILE_BYTES


@pytest.mark.parametrize(
    ("options", "nodes", "kept", "peak"),
    [
        ({"own_layers": True}, 3004, 339.6e6, 523.0e6),
        ({"lora_rank": 8}, 1000, 173.6e6, 192.5e6),
        ({"lora_rank": 8, "gradient_checkpointing": True}, 3004, 55.7e6, 212.9e6),
    ],
)
def test_measured_peaks(options: dict[str, int], nodes: int, kept: float, peak: float) -> None:
    """Resident memory of a process with the first 4 layers of SmolLM2-135M, 3,004 nodes in one sequence, or 680 + 10
    times 32: after the forward pass, and at most until the backward pass ended; gradients already there."""
    shape = from_config({**_config(), "num_hidden_layers": 4})
    is_long = nodes == 3004
    pairs = 3004 * 3005 / 2 if is_long else 680 * 681 / 2 + 10 * (32 * 680 + 32 * 33 / 2)
    rows = 4 if is_long else 311
    planned = kept_bytes(shape, nodes, bytes_per_number=4, head_rows=rows, **options) + 4 * pairs
    assert planned == pytest.approx(kept, rel=0.05)
    head_gradient = 0 if "lora_rank" in options else 4 * shape.head_params
    assert planned + head_gradient + working_bytes(shape, nodes, bytes_per_number=4, **options) == pytest.approx(
        peak, rel=0.05
    )


def _config() -> dict[str, object]:
    return {
        "model_type": "llama",
        "hidden_size": SMOLLM2_135M.hidden,
        "intermediate_size": SMOLLM2_135M.intermediate,
        "num_attention_heads": SMOLLM2_135M.num_heads,
        "num_key_value_heads": SMOLLM2_135M.num_kv_heads,
        "vocab_size": SMOLLM2_135M.vocab,
        "tie_word_embeddings": True,
    }


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="tokens = -1"):
        logits_bytes(-1, 5, 4)
    with pytest.raises(ConfigError, match="num_tokens"):
        kept_bytes(ONE_LAYER, float("nan"), bytes_per_number=4)
