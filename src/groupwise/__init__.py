"""Groupwise: post-training of language models for tasks whose answers can be checked.

    from groupwise import load_recipe, resume, train
    directory, summary = train(load_recipe("recipe.toml"))
    directory, summary = resume(directory.path)              # goes on with a run that was stopped

Records come from here as well. `load_recipe`, `train`, `resume` and `evaluate` are imported on first use: the first
needs pydantic, the others torch, and a verifier neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupwise.errors import ConfigError, DataError, EngineError, GroupwiseError, VerifierError
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict, Verifier

if TYPE_CHECKING:
    from groupwise.config import load_recipe
    from groupwise.launch.evaluate import evaluate
    from groupwise.launch.local import resume, train

__all__ = [
    "Completion",
    "ConfigError",
    "DataError",
    "EngineError",
    "Group",
    "GroupwiseError",
    "Prompt",
    "Rollout",
    "Status",
    "Stop",
    "Task",
    "Verdict",
    "Verifier",
    "VerifierError",
    "evaluate",
    "load_recipe",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """`load_recipe`, `train`, `resume` and `evaluate`, imported on first use."""
    if name == "load_recipe":
        from groupwise.config import load_recipe

        return load_recipe
    if name == "evaluate":
        from groupwise.launch.evaluate import evaluate

        return evaluate
    if name not in ("resume", "train"):
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    from groupwise.launch import local

    return getattr(local, name)
