"""The weights of a checkpoint back into the model that wrote it."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from groupwise.errors import EngineError
from groupwise.models.loading import LoadedModel
from groupwise.models.lora import ADAPTER, WEIGHTS_FILE, adapted_layers


def restore_weights(loaded: LoadedModel, folder: Path) -> None:
    """Gives the model the weights that a checkpoint of it holds, in place.

    With LoRA the adapters alone are read, from `adapter/`: the base is the one that is loaded, and the merged weights
    beside them would lose which part of a weight is trained.

    Raises:
        EngineError: if the folder is missing or incomplete, or was written by another model.
    """
    try:
        if adapted_layers(loaded.model):
            _restore_adapters(loaded, folder)
        else:
            saved = AutoModelForCausalLM.from_pretrained(folder, dtype=loaded.model.dtype, local_files_only=True)
            loaded.model.load_state_dict(saved.state_dict())
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        first = str(error).strip().split("\n")[0][:300]
        raise EngineError(
            f"the weights of the checkpoint {folder} cannot be put back.\n  {first}\n"
            "  Restore the folder, or restart from an earlier stage with --from-stage."
        ) from error


@torch.no_grad()
def _restore_adapters(loaded: LoadedModel, folder: Path) -> None:
    saved = load_file(folder / "adapter" / WEIGHTS_FILE)
    for name, layer in adapted_layers(loaded.model).items():
        for side, matrix in (("A", layer.lora_A), ("B", layer.lora_B)):
            matrix[ADAPTER].weight.copy_(saved[f"base_model.model.{name}.lora_{side}.weight"])
