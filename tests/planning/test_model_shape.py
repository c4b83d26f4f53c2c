"""Parameters of a shape against published counts and against models that transformers builds."""

from __future__ import annotations

import pytest
from plan_sizes import LLAMA2_7B, ONE_LAYER, QWEN3_0_6B, QWEN25_7B, SMOLLM2_135M

from groupwise.errors import ConfigError
from groupwise.planning.model_shape import ModelShape, from_config


def test_parameters_by_hand() -> None:
    # q, k, v, o: 2 x 2 each = 16; gate, up, down: 2 x 3 each = 18
    assert ONE_LAYER.body_matmul_params == 34
    assert ONE_LAYER.head_params == 10
    assert ONE_LAYER.matmul_params == 44
    assert ONE_LAYER.num_params == 44 + 3 * 2  # the tied head is the embedding
    # rank 2: q k v o 2 * (2 + 2) each, three MLP matrices 2 * (2 + 3) each
    assert ONE_LAYER.lora_params(2) == 4 * 8 + 3 * 10


def test_published_parameter_counts() -> None:
    assert SMOLLM2_135M.num_params == 134_515_008
    assert LLAMA2_7B.num_params == 6_738_415_616
    assert QWEN25_7B.num_params == 7_615_616_512
    assert QWEN3_0_6B.num_params == 596_049_920


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2", "gemma2"])
def test_the_shape_of_a_config_has_the_model_s_parameters(tiny_model, family: str) -> None:
    model = tiny_model(family).model
    shape = from_config(model.config.to_dict())
    assert shape.num_params == sum(p.numel() for p in model.parameters())


def test_untied_and_nested_configs() -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}
    text = {**sizes, "vocab_size": 10, "model_type": "llama", "num_key_value_heads": 2}
    plain = from_config(text)
    assert (plain.tied_embeddings, plain.num_kv_heads, plain.head_dim) == (False, 2, 2)
    assert from_config({"model_type": "some_vl", "text_config": text}) == plain
    assert from_config({"model_type": "x", "tie_word_embeddings": True, "text_config": text}).tied_embeddings
    assert from_config({**text, "num_key_value_heads": None}).num_kv_heads == 4


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match="mixture of experts"):
        from_config({"model_type": "qwen3_moe", "num_experts": 128})
    with pytest.raises(ConfigError, match=r"hidden_size or n_embd = None"):
        from_config({"model_type": "llama"})
    sizes = {"num_layers": 1, "hidden": 8, "intermediate": 8, "head_dim": 2, "vocab": 5, "tied_embeddings": True}
    with pytest.raises(ConfigError, match="divisor of num_heads = 4"):
        ModelShape(num_heads=4, num_kv_heads=3, **sizes)
    with pytest.raises(ConfigError, match=r"vocab = 0"):
        ModelShape(num_heads=4, num_kv_heads=2, **{**sizes, "vocab": 0})
    with pytest.raises(ConfigError, match="num_layers = True"):
        ModelShape(num_heads=4, num_kv_heads=2, **{**sizes, "num_layers": True})
    with pytest.raises(ConfigError, match="lora_rank = 0"):
        ONE_LAYER.lora_params(0)
