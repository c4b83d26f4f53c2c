"""Groupwise: GRPO post-training of language models for tasks whose answers can be checked.

    from groupwise import load_recipe, train
    directory, summary = train(load_recipe("recipe.toml"))

Records come from here as well. `train` and `evaluate` are imported on first use, because they need torch and the rest
does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupwise.config import load_recipe
from groupwise.errors import ConfigError, DataError, EngineError, GroupwiseError, VerifierError
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Stop, Task, Verdict, Verifier

if TYPE_CHECKING:
    from groupwise.launch.local import evaluate, train

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
    "train",
]


def __getattr__(name: str) -> Any:
    """`train` and `evaluate`, imported on first use."""
    if name not in ("evaluate", "train"):
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    from groupwise.launch import local

    return getattr(local, name)
