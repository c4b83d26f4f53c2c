"""What a checkpoint holds of a model with adapters. Full training: test_loop.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from groupwise.errors import DataError
from groupwise.models import LoadedModel, load_model
from groupwise.models.lora import add_lora
from groupwise.training.checkpoint import PARTIAL, save_checkpoint


@pytest.fixture
def trained(tiny_model: object, tmp_path: Path) -> LoadedModel:
    loaded = load_model(tiny_model("llama").source, device="cpu")  # type: ignore[operator]
    add_lora(loaded.model, rank=4, alpha=8.0, seed=0, source=loaded.source)
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if ".lora_B." in name:
                parameter.fill_(0.05)
    return loaded


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[5, 6, 7, 8]])).logits


def test_the_folder_is_a_plain_model_and_the_adapter_lies_below_it(trained: LoadedModel, tmp_path: Path) -> None:
    before = logits(trained.model)
    folder = save_checkpoint(tmp_path / "stage-1", trained, {"step": 1})
    assert torch.equal(logits(trained.model), before)
    assert {p.name for p in folder.iterdir()} >= {"config.json", "model.safetensors", "groupwise.json", "adapter"}
    assert {p.name for p in (folder / "adapter").iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    opened = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.testing.assert_close(logits(opened), before, atol=1e-4, rtol=1e-5)
    for source in (folder, folder / "adapter"):
        torch.testing.assert_close(logits(load_model(str(source), device="cpu").model), before, atol=1e-4, rtol=1e-5)


def test_what_else_belongs_to_it_is_written_before_the_folder_has_its_name(tiny_model: object, tmp_path: Path) -> None:
    loaded = tiny_model("llama")  # type: ignore[operator]
    seen: list[bool] = []

    def beside(folder: Path) -> None:
        seen.append((tmp_path / "stage-1").exists())
        assert (folder / "model.safetensors").is_file()
        (folder / "critic").mkdir()
        (folder / "critic" / "head.txt").write_text("0.5")

    folder = save_checkpoint(tmp_path / "stage-1", loaded, {"step": 1}, save_beside=beside)
    assert seen == [False]
    assert (folder / "critic" / "head.txt").read_text() == "0.5"
    assert (folder / "groupwise.json").is_file()


def test_where_that_fails_there_is_no_folder_under_the_final_name(tiny_model: object, tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        raise OSError("no space left")

    with pytest.raises(DataError, match=r"stage-1 cannot be written \(no space left\); make room there"):
        save_checkpoint(tmp_path / "stage-1", tiny_model("llama"), {}, save_beside=broken)  # type: ignore[operator]
    assert not (tmp_path / "stage-1").exists()


def test_a_model_trained_as_a_whole_has_no_adapter_folder(tiny_model: object, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "stage-1", tiny_model("llama"), {})  # type: ignore[operator]
    assert not (folder / "adapter").exists()


def test_a_folder_is_replaced_whole_and_a_half_removed_one_never_bears_its_name(
    tiny_model: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tiny_model("llama")  # type: ignore[operator]
    folder = save_checkpoint(tmp_path / "stage-1", loaded, {"step": 1})
    removed: list[str] = []
    remove = shutil.rmtree

    def watched(path: Path, **options: Any) -> None:
        removed.append(Path(path).name)
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    save_checkpoint(folder, loaded, {"step": 2})
    assert removed
    assert all(name.endswith(PARTIAL) for name in removed)
    assert json.loads((folder / "groupwise.json").read_text()) == {"step": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["stage-1"]
