"""A whole job in one folder that trains in seconds: a tiny model, a small database, ten tasks and a recipe."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from groupwise.models.tiny import save_tiny_model

GOLD = "SELECT a FROM t"

RECIPE = """\
name = "job"
seed = 7

[model]
name = "model"

[data]
demonstrations = "demonstrations.jsonl"
train = "train.jsonl"
heldout = "heldout.jsonl"

[verifier]
kind = "sql"
snapshots = ["one.sqlite", "two.sqlite"]
num_workers = 1

[rollout]
group_size = 4
prompts_per_step = 2
max_completion_tokens = 20

[evaluation]
samples_per_prompt = 2

[curation]
enabled = false

[[stages]]
name = "sft"
steps = 10
algorithm = { name = "sft", tasks_per_step = 3 }
optim = { lr = 1e-2 }

[[stages]]
name = "grpo"
steps = 2
algorithm = { name = "grpo" }
optim = { lr = 1e-3 }
"""


def write_job(folder: Path, change: Callable[[str], str] = lambda text: text) -> Path:
    """Fills the folder and returns the recipe's path; `change` edits the recipe's text."""
    save_tiny_model(folder / "model")
    for name, values in (("one", (3, 1)), ("two", (5, 8, 2))):
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE t (a INTEGER)")
            connection.executemany("INSERT INTO t VALUES (?)", [(v,) for v in values])
    for name, letters in (("demonstrations", "bcde"), ("train", "fghi"), ("heldout", "jkl")):
        rows = [{"prompt": f"all of a, {x}?", "gold": GOLD, "completion": GOLD} for x in letters]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = folder / "recipe.toml"
    recipe.write_text(change(RECIPE))
    return recipe


def replaced(old: str, new: str) -> Callable[[str], str]:
    """A change of the recipe's text that must find its place."""

    def change(text: str) -> str:
        assert old in text, old
        return text.replace(old, new)

    return change


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
