"""LoRA: train a low-rank change of each linear layer instead of its weight (arXiv:2106.09685).

    y = W x + (alpha / rank) B A x        W [out, in] frozen,  A [rank, in],  B [out, rank] = 0 at the start

The layers and the file format are peft's; the model stays the transformers model that it was, with adapted layers in
it. There is no dropout: what samples and what trains must be the same function. peft is imported on first use: full
training does without it.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from groupwise.errors import EngineError

ADAPTER = "default"
"""peft's name of the one adapter that a model has here."""
CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
"""The two files of an adapter's folder, by peft's convention."""


def add_lora(
    model: PreTrainedModel, *, rank: int, alpha: float, targets: Sequence[str] = (), seed: int, source: str
) -> None:
    """Freezes the model and puts an adapter on its linear layers, in place; the model's function does not change.

    targets are last parts of layer names, such as "q_proj"; none = every linear layer of the body. The LM head and the
    embedding are never adapted. A is drawn from `seed`; torch's global random state is left as it was. `source` is the
    base model's name for those who read the adapter later.

    Raises:
        EngineError: for a target that no linear layer of the body has.
    """
    from peft import LoraConfig, inject_adapter_in_model

    body: nn.Module = model.base_model
    linear = {name: layer for name, layer in body.named_modules() if isinstance(layer, nn.Linear | Conv1D)}
    known = sorted({name.rpartition(".")[2] for name in linear})
    if unknown := sorted(set(targets) - set(known)):
        raise EngineError(
            f"model.lora.targets: {type(model).__name__} has no linear layer {', '.join(unknown)} in its body.\n"
            f"  It has {', '.join(known)}. Name some of these, or leave targets out for all."
        )
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # annotated int, used as a number
        target_modules=sorted(targets) or known,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in linear.values()),
        base_model_name_or_path=source,
    )
    model.requires_grad_(False)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.float()  # small steps would be lost in half precision; A and B are small
    model.eval()  # the new layers begin in training mode


def is_adapted(layer: nn.Module) -> bool:
    """True for a layer that carries an adapter."""
    return hasattr(layer, "lora_A")


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """Every layer with an adapter, by its name in the model; empty where the model is trained as a whole."""
    return {name: module for name, module in model.named_modules() if is_adapted(module)}


@torch.no_grad()
def effective_weight(layer: Any) -> Tensor:
    """The weight that a linear layer acts with, in the layer's own layout and dtype: [out, in], or [in, out] in GPT-2.

    The adapter's product is added in float32 or finer. Without an adapter, or with adapters off: the weight itself.
    """
    weight: Tensor = layer.weight.detach()
    if not is_adapted(layer) or layer.disable_adapters:
        return weight
    exact = torch.promote_types(weight.dtype, torch.float32)
    change = layer.lora_B[ADAPTER].weight.to(exact) @ layer.lora_A[ADAPTER].weight.to(exact)
    change = layer.scaling[ADAPTER] * (change.T if isinstance(layer.get_base_layer(), Conv1D) else change)
    return (weight.to(exact) + change).to(weight.dtype)


def merged_state_dict(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state dict of a model without adapters that computes the same; the model is left as it is."""
    layers = adapted_layers(model)
    merged: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        layer, _, parameter = name.rpartition(".base_layer.")
        if layer and layer in layers:
            name = f"{layer}.{parameter}"
            tensor = effective_weight(layers[layer]) if parameter == "weight" else tensor
        merged[name] = tensor
    return merged


def save_adapter(folder: Path, model: PreTrainedModel) -> None:
    """Writes the adapter alone in peft's format: PeftModel.from_pretrained(base model, folder) opens it."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        f"base_model.model.{name}.lora_{side}.weight": matrix[ADAPTER].weight.detach().contiguous()
        for name, layer in adapted_layers(model).items()
        for side, matrix in (("A", layer.lora_A), ("B", layer.lora_B))
    }
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    configs: Mapping[str, Any] = model.peft_config
    config = copy.copy(configs[ADAPTER])
    config.inference_mode = True
    config.save_pretrained(folder)


def base_of_adapter(folder: Path) -> str | None:
    """The base model's name where a folder holds an adapter and no model, else None.

    Raises:
        EngineError: if the adapter does not name its base model.
    """
    if not (folder / CONFIG_FILE).is_file() or (folder / "config.json").is_file():
        return None
    base = json.loads((folder / CONFIG_FILE).read_text()).get("base_model_name_or_path")
    if not base:
        raise EngineError(
            f"model.name: the adapter in {folder} does not name its base model.\n"
            f"  Set base_model_name_or_path in its {CONFIG_FILE}, or give a folder with the merged weights."
        )
    return str(base)


def merge_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The base model with a saved adapter added into its weights; `model` itself is changed and must not be used on.

    Raises:
        EngineError: if the adapter does not fit the model.
    """
    from peft import PeftModel

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a renamed property
            warnings.filterwarnings("error", message=".*missing adapter keys", category=UserWarning)
            merged: Any = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError, UserWarning) as error:
        first = str(error).strip().split("\n")[0][:300]
        raise EngineError(f"model.name: the adapter in {folder} does not fit its base model.\n  {first}") from error
    return merged.requires_grad_(True)


@contextmanager
def adapters_off(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Inside, the model computes what it did without its adapters; no weight is copied or moved."""
    layers = list(adapted_layers(model).values())
    before = [layer._disable_adapters for layer in layers]
    try:
        # peft's enable_adapters() would also switch requires_grad, behind the optimizer's back
        for layer in layers:
            layer._disable_adapters = True
        yield model
    finally:
        for layer, was_off in zip(layers, before, strict=True):
            layer._disable_adapters = was_off


@contextmanager
def adapters_as(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """Inside, the adapters hold the given weights (see `adapter_weights`); afterwards their own again."""
    parameters = dict(model.named_parameters())
    own = {name: parameters[name].data for name in weights}
    try:
        for name, tensor in weights.items():
            parameters[name].data = tensor
        yield model
    finally:
        for name, tensor in own.items():
            parameters[name].data = tensor


def adapter_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """A copy of the A and B of every layer, by parameter name."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if ".lora_" in name}
