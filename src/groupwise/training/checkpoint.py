"""Checkpoints: ordinary Hugging Face folders with one extra file of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from groupwise.errors import DataError
from groupwise.models.loading import LoadedModel
from groupwise.models.lora import adapted_layers, merged_state_dict, save_adapter

PARTIAL = ".partial"
"""End of the name of a folder that is being written, or removed; it is no checkpoint."""


def save_checkpoint(
    folder: Path, loaded: LoadedModel, state: Mapping[str, Any], *, save_beside: Callable[[Path], None] | None = None
) -> Path:
    """Writes a folder that AutoModelForCausalLM.from_pretrained opens, with `groupwise.json` beside the weights.

    With LoRA the weights are the base's with the adapters added in, and the adapters alone stand in `adapter/`, for
    PeftModel.from_pretrained and servers that hold one base model and several adapters. save_beside writes what else
    belongs into the folder. Written beside and renamed into place, so that a folder under its final name is complete.

    Raises:
        DataError: if the disk is full or the folder cannot be written.
    """
    try:
        return _save(folder, loaded, state, save_beside)
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own for a full disk
        raise DataError(
            f"the checkpoint {folder} cannot be written ({error}); make room there, or choose another output_dir"
        ) from error


def _save(
    folder: Path, loaded: LoadedModel, state: Mapping[str, Any], save_beside: Callable[[Path], None] | None
) -> Path:
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if adapted_layers(loaded.model):
        loaded.model.save_pretrained(partial, state_dict=merged_state_dict(loaded.model))
        save_adapter(partial / "adapter", loaded.model)
    else:
        loaded.model.save_pretrained(partial)
    loaded.tokenizer.save_pretrained(partial)
    if save_beside is not None:
        save_beside(partial)
    (partial / "groupwise.json").write_text(json.dumps(state, indent=1))
    if folder.exists():  # a folder half removed must not bear the name of a whole one
        old = folder.with_name(folder.name + ".old" + PARTIAL)
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        partial.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        partial.rename(folder)
    return folder
