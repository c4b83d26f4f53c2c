"""A recipe to plan for, without weights: a model of one layer, prompts of 4 tokens, a machine with round rates."""

from __future__ import annotations

import json
from pathlib import Path

from groupwise.config import Recipe, load_recipe
from groupwise.planning.hardware import Hardware, write_hardware

CONFIG: dict[str, object] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 2,
    "intermediate_size": 3,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 5,
    "tie_word_embeddings": True,
}
"""34 weights in the body (4 * 4 + 3 * 6), 10 in the LM head, 50 parameters with three norms of 2."""

SMOLLM2 = CONFIG | {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
}
"""The sizes of a model of 135 million parameters."""

ROUND = Hardware(
    name="round",
    memory_bytes=10**9,
    bytes_per_number=2,
    train_flops=10.0,
    prefill_flops=20.0,
    decode_flops=5.0,
    decode_bytes_per_s=4.0,
    update_bytes_per_s=2.0,
    process_bytes=7,
)

RECIPE = """\
name = "job"

[model]
name = "model"

[data]
demonstrations = "demonstrations.jsonl"
train = "train.jsonl"
heldout = "heldout.jsonl"
pairs = "pairs.jsonl"

[verifier]
kind = "math"

[rollout]
group_size = 2
prompts_per_step = 1
max_completion_tokens = 4

[evaluation]
samples_per_prompt = 1
greedy = false

[curation]
enabled = false
"""
SFT = """
[[stages]]
name = "sft"
steps = 10
algorithm = { name = "sft", tasks_per_step = 1 }
optim = { lr = 1e-2 }
"""
GRPO = """
[[stages]]
name = "grpo"
steps = 4
algorithm = { name = "grpo" }
optim = { lr = 1e-3 }
"""


def write_plan_job(
    folder: Path,
    *changes: tuple[str, str],
    stages: str = SFT + GRPO,
    hardware: Hardware = ROUND,
    config: dict[str, object] = CONFIG,
) -> Recipe:
    """Fills the folder and loads its recipe; every change (old, new) must find its place in the text.

    Without a tokenizer a token is 3.5 characters: prompts of 11 characters have 3 and one more for the beginning,
    answers of 7 characters 2 and the end token. No two prompts of a set begin alike.
    """
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    for name, letters in (("demonstrations", "cd"), ("train", "ab"), ("heldout", "x"), ("pairs", "mn")):
        rows = [
            {
                "prompt": f"{x}bcdefghijk",
                "completion": "1234567",
                "gold": "1",
                "chosen": "1234567",
                "rejected": "7654321",
            }
            for x in letters
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_hardware(folder / "round.json", hardware)
    text = RECIPE + stages
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "recipe.toml").write_text(text)
    return load_recipe(folder / "recipe.toml")
