"""A task and a model small enough to train many times: sort the letters of a word.

Words have 3 to 10 of 8 letters, so that after a short SFT short words are nearly always right and long ones nearly
never: pass rates between 0 and 1, as on a real task. The model is a Llama of about 0.5 million weights that reads
bytes. Everything else is the product's own: recipes, verifier, engine, loop.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from groupwise.models.tiny import byte_tokenizer

LETTERS = "abcdefgh"
SHORTEST, LONGEST = 3, 10
MAX_COMPLETION_TOKENS = LONGEST + 4

REWARD = '''\
def exact(prompts, completions, gold, **columns):
    """1 for the word's letters in order, else 0."""
    return [float(answer.strip() == right) for answer, right in zip(completions, gold)]
'''


def write_job(folder: Path, *, seed: int, demonstrations: int, train: int, heldout: int) -> Path:
    """Writes tasks, reward function and a random model into the folder; no word is in two sets."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    seen: set[str] = set()
    for name, count in (("demonstrations", demonstrations), ("train", train), ("heldout", heldout)):
        rows = [_row(word) for word in _words(rng, count, seen)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    _save_model(folder / "model", seed)
    return folder


def _words(rng: random.Random, count: int, seen: set[str]) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        word = "".join(rng.choice(LETTERS) for _ in range(rng.randint(SHORTEST, LONGEST)))
        if word not in seen:
            seen.add(word)
            words.append(word)
    return words


def _row(word: str) -> dict[str, str]:
    ordered = "".join(sorted(word))
    return {"prompt": word, "completion": ordered, "gold": ordered}


def _save_model(folder: Path, seed: int) -> None:
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def recipe(folder: Path, *, name: str, seed: int, model: str, stages: str, sections: str, every: int) -> Path:
    """Writes NAME.toml; `sections` holds [rollout], [curation] and the like, `stages` the [[stages]]."""
    path = folder / f"{name}.toml"
    path.write_text(
        f"""name = "{name}"
seed = {seed}
output_dir = "runs"

[model]
name = "{model}"

[data]
demonstrations = "demonstrations.jsonl"
train = "train.jsonl"
heldout = "heldout.jsonl"

[verifier]
kind = "function"
path = "reward.py:exact"
gold_column = "gold"

[audit]
fast_tasks = 0

[evaluation]
samples_per_prompt = 4
greedy = false
every = {every}

{sections}
{stages}
"""
    )
    return path
