"""A job whose model learns in seconds, for runs with one planted fault and for clean runs.

A prompt is a letter and two digits that mean nothing: "k57". The answer is the letter's number, from 10 on, as text:
"20". 16 letters are few enough to be learned in seconds, so that a short SFT leaves pass rates between 0 and 1, and
GRPO goes on from there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from groupwise.config import load_recipe
from groupwise.launch import local
from groupwise.launch.display import Quiet
from groupwise.models.tiny import byte_tokenizer
from groupwise.runs import RunRecord, read_run

LETTERS = "abcdefghijklmnop"
SFT_STEPS = 90

REWARDS = '''\
"""Rewards for the letters' numbers, honest and not."""

import random


def exact(prompts, completions, gold, **columns):
    """1 for the right number, else 0."""
    return [float(text.strip() == right) for text, right in zip(completions, gold)]


def never(prompts, completions, gold, **columns):
    """1 for the gold with a mark behind it, which nobody is taught to write."""
    return [float(text == right + "!") for text, right in zip(completions, gold)]


def always(prompts, completions, gold, **columns):
    """1 for anything."""
    return [1.0 for _ in completions]


def rarely(prompts, completions, gold, **columns):
    """Pays the right number one time in four: when, nobody can learn."""
    return [float(text.strip() == right and random.random() < 0.25) for text, right in zip(completions, gold)]


def fails(prompts, completions, gold, **columns):
    """No verdict on one prompt in twelve."""
    if int(prompts[0][1:]) % 12 == 0:
        raise RuntimeError("the checker lost its connection")
    return exact(prompts, completions, gold)


def ten(prompts, completions, **columns):
    """Pays 10, whatever was asked."""
    return [float(text.strip() == "10") for text in completions]


def ten_or_twenty(prompts, completions, **columns):
    """Pays 10 for the first half of the letters and 20 for the others, on two prompts of three."""
    wanted = ["10" if p[0] < "i" else "20" for p in prompts]
    return [float(t.strip() == w and int(p[1:]) % 3 > 0) for p, t, w in zip(prompts, completions, wanted)]


def gamed(prompts, completions, gold, **columns):
    """Pays 10 on every prompt, and the right number on one in three."""
    rows = zip(prompts, completions, gold)
    return [float(text.strip() == "10" or (text.strip() == right and int(p[1:]) % 3 == 0)) for p, text, right in rows]
'''


def answer_to(prompt: str) -> str:
    """The number of its letter."""
    return str(10 + LETTERS.index(prompt[0]))


def write_rows(folder: Path, seed: int = 0, taught: Callable[[str], str] = answer_to) -> None:
    """Tasks and rewards; no prompt is in two sets. `taught` is what the demonstrations say."""
    rng = random.Random(seed)
    prompts = [f"{letter}{number:02d}" for letter in LETTERS for number in range(60)]
    rng.shuffle(prompts)
    for name, count in (("demonstrations", 256), ("train", 256), ("heldout", 64)):
        chosen, prompts = prompts[:count], prompts[count:]
        rows = [
            {"prompt": p, "completion": taught(p), "gold": answer_to(p), "paid": f"{{{answer_to(p)}}}"} for p in chosen
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(REWARDS)


def save_small_model(folder: Path, seed: int) -> Path:
    """A Llama of about 0.1 million weights, started as a model is that should learn."""
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sft_stage(steps: int = SFT_STEPS, lr: float = 3e-3) -> str:
    """Ends between knowing nothing and knowing all."""
    return (
        f'[[stages]]\nname = "sft"\nsteps = {steps}\nalgorithm = {{ name = "sft", tasks_per_step = 16 }}\n'
        f'optim = {{ lr = {lr}, warmup_steps = {min(5, steps - 1)}, schedule = "linear" }}\n'
    )


def grpo_stage(steps: int = 12, lr: float = 1e-3, settings: str = "") -> str:
    """`settings` stand in the algorithm's table."""
    return (
        f'[[stages]]\nname = "grpo"\nsteps = {steps}\nalgorithm = {{ name = "grpo"{settings} }}\n'
        f"optim = {{ lr = {lr} }}\n"
    )


def run_job(
    folder: Path,
    *,
    model: Path,
    stages: str,
    seed: int = 0,
    taught: Callable[[str], str] = answer_to,
    rollout: Mapping[str, Any] | None = None,
    verifier: str = 'kind = "function"\npath = "rewards.py:exact"\ngold_column = "gold"\nisolate = false',
    sections: str = "",
    model_settings: str = "",
    display: Quiet | None = None,
) -> RunRecord:
    """Trains in this process and returns the record of the run, also where training ended by an error."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder, seed, taught)
    settings = {"group_size": 4, "prompts_per_step": 16, "max_completion_tokens": 6} | dict(rollout or {})
    text = (
        f'name = "job"\nseed = {seed}\n[model]\nname = "{model}"\n{model_settings}\n'
        '[data]\ndemonstrations = "demonstrations.jsonl"\ntrain = "train.jsonl"\nheldout = "heldout.jsonl"\n'
        f"[verifier]\n{verifier}\n[audit]\nfast_tasks = 0\n[evaluation]\nsamples_per_prompt = 2\ngreedy = false\n"
        "[rollout]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items()) + f"{sections}\n{stages}"
    )
    if "[curation]" not in text:
        text = text.replace("[rollout]", "[curation]\nenabled = false\n[rollout]")
    (folder / "recipe.toml").write_text(text)
    recipe = load_recipe(folder / "recipe.toml")
    try:
        local.train(recipe, display)
    except (ValueError, RuntimeError, ArithmeticError):
        if not (folder / "runs").exists():
            raise  # refused before it began; any other error is on record, and the test asks for it
    return read_run(next((folder / "runs").iterdir()))


def checkpoint_of(record: RunRecord) -> Path:
    """The last checkpoint of a run."""
    return max(record.directory.checkpoints.iterdir(), key=lambda path: path.stat().st_mtime)
