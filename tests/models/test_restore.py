"""A checkpoint back into the model that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from groupwise.errors import EngineError
from groupwise.models import LoadedModel, load_model
from groupwise.models.lora import add_lora
from groupwise.models.restore import restore_weights
from groupwise.models.tiny import save_tiny_model
from groupwise.training.checkpoint import save_checkpoint


def loaded(folder: Path, *, lora: bool, dtype: str = "float32") -> LoadedModel:
    if not (folder / "base").exists():
        save_tiny_model(folder / "base")
    found = load_model(str(folder / "base"), dtype=dtype)
    if lora:
        add_lora(found.model, rank=2, alpha=4.0, seed=0, source="base")
    return found


def changed(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype), alpha=0.1)


@pytest.mark.parametrize(("lora", "dtype"), [(False, "float32"), (False, "bfloat16"), (True, "float32")])
def test_every_tensor_comes_back_exactly(tmp_path: Path, lora: bool, dtype: str) -> None:
    trained = loaded(tmp_path, lora=lora, dtype=dtype)
    changed(trained.model)
    save_checkpoint(tmp_path / "checkpoint", trained, {})
    fresh = loaded(tmp_path, lora=lora, dtype=dtype)
    wanted, before = trained.model.state_dict(), fresh.model.state_dict()
    assert any(not torch.equal(before[name], tensor) for name, tensor in wanted.items())
    parameters = [(name, p.data_ptr(), p.requires_grad) for name, p in fresh.model.named_parameters()]
    restore_weights(fresh, tmp_path / "checkpoint")
    found = fresh.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    # in place: optimizer, engine and adapters hold these very parameters
    assert [(name, p.data_ptr(), p.requires_grad) for name, p in fresh.model.named_parameters()] == parameters


@pytest.mark.parametrize("lora", [False, True])
def test_a_folder_that_is_gone_or_incomplete_or_of_another_model_is_refused(tmp_path: Path, lora: bool) -> None:
    model = loaded(tmp_path, lora=lora)
    with pytest.raises(EngineError, match="cannot be put back"):
        restore_weights(model, tmp_path / "none")
    save_checkpoint(tmp_path / "checkpoint", model, {})
    weights = tmp_path / "checkpoint" / ("adapter/adapter_model.safetensors" if lora else "model.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(EngineError, match="cannot be put back"):
        restore_weights(model, tmp_path / "checkpoint")
