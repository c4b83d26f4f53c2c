"""Log-probabilities of a frozen model on disk, so that a second run on the same pairs does not compute them again.

A file is named by a hash of everything that they depend on: every weight, its number format and kind of device, and the
token ids. A changed model, file or chat template therefore has another name, and nothing is ever out of date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import platformdirs
import safetensors
import torch
from safetensors.torch import save
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models import ScoredSequence
from groupwise.runs import write_atomic

_FORMAT = "1"
"""Part of every name: raised when the contents of a file change their meaning."""


def cached_logprobs(key: str, shape: tuple[int, ...], compute: Callable[[], Tensor]) -> tuple[Tensor, str]:
    """The float32 tensor stored under the key, or what `compute` gives, which is then stored; and a note for the user.

    A damaged file is computed again and replaced; where the folder cannot be written, nothing is stored.
    """
    path = Path(platformdirs.user_cache_dir("groupwise")) / "reference-logprobs" / f"{key}.safetensors"
    note = "computed"
    if path.exists():
        stored = _read(path, key, shape)
        if stored is not None:
            return stored, f"from {path}"
        note = f"computed again: {path} is damaged"
    values = compute().to("cpu", torch.float32).contiguous()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, save({"logprobs": values}, metadata={"key": key, "sha256": _digest(values)}))
    except OSError as error:
        return values, f"{note}, and not kept: {path} cannot be written ({error.strerror})"
    return values, note


def reference_key(model: PreTrainedModel, sequences: Sequence[ScoredSequence]) -> str:
    """A hash of the model's weights and of the sequences, in this order and with these prompts."""
    digest = hashlib.sha256(f"{_FORMAT} {type(model).__name__} {model.device.type}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).cpu().numpy().data)
    for sequence in sequences:
        digest.update(f"{sequence.prompt_length} {sequence.token_ids}".encode())
    return digest.hexdigest()[:40]


def _read(path: Path, key: str, shape: tuple[int, ...]) -> Tensor | None:
    """The stored tensor, or None where the file is not what was written."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            values: Tensor = file.get_tensor("logprobs")
    except (OSError, ValueError, safetensors.SafetensorError):
        return None
    intact = about.get("key") == key and about.get("sha256") == _digest(values)
    return values if intact and tuple(values.shape) == shape else None


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()
