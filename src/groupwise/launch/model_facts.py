"""What planning needs to know of a model and its tokenizer, read from their files; weights and torch stay out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import Recipe
from groupwise.config.model_files import gguf_folder, packaged_file
from groupwise.errors import EngineError
from groupwise.launch.gguf_header import read_header
from groupwise.planning.model_shape import ModelShape, from_config

_ADAPTER = "adapter_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model as a plan sees it.

    Example:
        model_facts(recipe).shape.num_params     # 134_515_008
    """

    shape: ModelShape
    count_tokens: Callable[[str], int] | None
    """Tokens of a text, without special tokens; None where the tokenizer's file is not at hand."""


def model_facts(recipe: Recipe) -> ModelFacts:
    """The facts of the recipe's model; a hub id needs its two small files, from the cache or the network.

    Raises:
        EngineError: if nothing readable stands under the model's name.
        ConfigError: for a model that planning does not describe, such as a mixture of experts.
    """
    name = recipe.model.name
    if (recipe.folder / name).exists() or name.startswith("."):
        name = str(recipe.resolve(name))
    if name.startswith("package:"):
        name = str(packaged_file(name))
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        folder = gguf_folder(path)
        return (
            _of_folder(folder)
            if (folder / "config.json").is_file()
            else ModelFacts(shape=_gguf_shape(path), count_tokens=None)
        )
    if path.is_dir():
        return _of_folder(path)
    return _of_hub(name, recipe.model.revision)


def _of_folder(folder: Path) -> ModelFacts:
    if not (folder / "config.json").is_file() and (folder / _ADAPTER).is_file():
        base = _read_json(folder / _ADAPTER).get("base_model_name_or_path")
        if not isinstance(base, str) or not base or Path(base) == folder:
            raise EngineError(
                f"model.name: {folder / _ADAPTER} does not say which model it adapts (base_model_name_or_path).\n"
                "  Give the folder of a whole model, or name the base in that file."
            )
        return _of_folder(Path(base)) if Path(base).is_dir() else _of_hub(base, None)
    return ModelFacts(
        shape=from_config(_read_json(folder / "config.json")), count_tokens=_counter(folder / "tokenizer.json")
    )


def _of_hub(name: str, revision: str | None) -> ModelFacts:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        config = Path(hf_hub_download(name, "config.json", revision=revision))
    except (OSError, HfHubHTTPError, HFValidationError, ValueError) as error:
        raise EngineError(
            f"model.name = {name!r}: its config.json cannot be read.\n  {f'{error!r:.300}'}\n"
            "  Give a hub id (needs a network the first time), a folder, or a .gguf file."
        ) from error
    try:
        tokenizer = Path(hf_hub_download(name, "tokenizer.json", revision=revision))
    except (OSError, HfHubHTTPError, ValueError):
        return ModelFacts(shape=from_config(_read_json(config)), count_tokens=None)
    return ModelFacts(shape=from_config(_read_json(config)), count_tokens=_counter(tokenizer))


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"model.name: {path} cannot be read as JSON ({error}).") from error
    if not isinstance(values, dict):
        raise EngineError(f"model.name: {path} holds no JSON object.")
    return values


def _counter(path: Path) -> Callable[[str], int] | None:
    if not path.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise EngineError(f"model.name: the tokenizer {path} cannot be read ({error}).") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _gguf_shape(path: Path) -> ModelShape:
    """From the file's header, sizes and names of its tensors included; their values are not read."""
    try:
        header = read_header(path)
        kind = str(header.settings["general.architecture"])

        def size(key: str, default: int | None = None) -> int:
            value = header.settings.get(f"{kind}.{key}", default)
            if value is None:
                raise KeyError(f"{kind}.{key}")
            return int(value)

        hidden, heads = size("embedding_length"), size("attention.head_count")
        num_experts = size("expert_count", 0)
        shape = ModelShape(
            num_layers=size("block_count"),
            hidden=hidden,
            intermediate=size("feed_forward_length"),
            num_heads=heads,
            num_kv_heads=size("attention.head_count_kv", heads),
            head_dim=size("attention.key_length", hidden // heads),
            vocab=int(header.settings["tokenizer.ggml.tokens"]),
            tied_embeddings="output.weight" not in header.tensors,
            gated_mlp="blk.0.ffn_gate.weight" in header.tensors,
            head_norms="blk.0.attn_q_norm.weight" in header.tensors,
        )
    except (KeyError, ValueError, OSError) as error:
        raise EngineError(f"model.name: the header of {path} cannot be read ({error!r}).") from error
    if num_experts:
        raise EngineError(
            f"model.name: {path} is a mixture of {num_experts} experts; only dense models can be planned.\n"
            "  Give the folder or the file of a dense model."
        )
    stored = sum(header.tensors.values())
    return dataclasses.replace(shape, extra_params=max(0, stored - shape.num_params))
