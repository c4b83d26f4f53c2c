"""A random model of some 35,000 weights, made on the spot: for tests, examples and `groupwise demo --quick`.

It reads and writes bytes, so it needs no vocabulary file; it follows the chat template below; it has two end tokens
as chat models do. It knows nothing and is not meant to learn: it lets the whole machinery run in seconds without a
network. Its weights are drawn wider than a model is started from, so that its next-token distributions are
peaked and what a token attends to shows in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

Family = Literal["llama", "qwen2", "qwen3", "gpt2", "gemma2", "mistral_window"]

TURN_START, TURN_END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n{{ turn['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

MAX_POSITIONS = 4096
"""A byte is a token here, so that a prompt with a schema in it is a few thousand tokens long."""

WEIGHT_STD = 0.3
"""Standard deviation of the weights. The usual 0.02 would make every next token about equally likely."""


def save_tiny_model(folder: Path, *, family: Family = "llama", seed: int = 0) -> Path:
    """Writes a random 2-layer model and its byte tokenizer to the folder, for `load_model(str(folder))`.

    "gemma2" caps its logits and "mistral_window" attends to the last 4 tokens only: two that a token tree cannot serve.
    The same family and seed give the same weights; torch's global random state is left as it was.
    """
    tokenizer = byte_tokenizer()
    config = _config(family, tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    assert model.generation_config is not None
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each of the 256 bytes, then the start of a turn, its end (EOS) and the end of a text (padding)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=TEXT_END,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _config(family: Family, tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
    """2 layers, width 32, 4 heads of width 8; 2 key heads where the family groups its queries; no dropout."""
    ids: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": WEIGHT_STD,
    }
    if family == "gpt2":
        rates: dict[str, Any] = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
        return GPT2Config(n_layer=2, n_embd=32, n_head=4, n_positions=MAX_POSITIONS, **rates, **ids)
    grouped: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": MAX_POSITIONS,
        **ids,
    }
    configs: dict[Family, type[PreTrainedConfig]] = {
        "llama": LlamaConfig,
        "qwen2": Qwen2Config,
        "qwen3": Qwen3Config,
        "gemma2": Gemma2Config,
        "mistral_window": MistralConfig,
    }
    if family in ("gemma2", "mistral_window"):
        grouped["sliding_window"] = 4
    return configs[family](**grouped)
