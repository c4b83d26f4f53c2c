"""A tiny model written as a GGUF file, the way llama.cpp lays a Llama out, and read back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from torch import Tensor

from groupwise.models import LoadedModel, load_model

TinyModel = Callable[..., LoadedModel]

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: Tensor, num_heads: int) -> Tensor:
    """Rows in llama.cpp's order: rotary pairs stand side by side, not half a head apart."""
    return weight.view(num_heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(path: Path, loaded: LoadedModel) -> Path:
    config, weights = loaded.model.config, loaded.model.state_dict()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    # A GGUF file needs a merge, and a merge its token: "ab" takes the place of the last special token.
    tokens = [*loaded.tokenizer.convert_ids_to_tokens(range(config.vocab_size - 1)), "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(256)
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"].numpy())
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"].numpy())
    writer.add_tensor("output.weight", weights["lm_head.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for name, theirs in NAMES.items():
            weight = weights[f"model.layers.{layer}.{name}.weight"]
            if theirs == "attn_q":
                weight = interleaved(weight, config.num_attention_heads)
            if theirs == "attn_k":
                weight = interleaved(weight, config.num_key_value_heads)
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_becomes_a_folder_once(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(cache))
    original = tiny_model("llama")
    file = write_gguf(tmp_path / "tiny.gguf", original)
    loaded = load_model(str(file), device="cpu")
    assert Path(loaded.source).parent == cache / "models"
    assert [path.name for path in (cache / "models").iterdir()] == [Path(loaded.source).name]  # nothing half written
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(ids).logits, original.model(ids).logits, atol=1e-5, rtol=0)
    assert loaded.end_token_ids == (256,)
    written = (Path(loaded.source) / "config.json").stat().st_mtime_ns
    assert load_model(str(file), device="cpu").source == loaded.source
    assert (Path(loaded.source) / "config.json").stat().st_mtime_ns == written
    text = "SELECT 1"
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(text)) == text
