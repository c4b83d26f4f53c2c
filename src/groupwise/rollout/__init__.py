"""Sampling completions and having them judged."""

from groupwise.rollout.collect import collect_groups
from groupwise.rollout.engine import Engine, Sampling
from groupwise.rollout.torch_engine import TorchEngine

__all__ = ["Engine", "Sampling", "TorchEngine", "collect_groups"]
