"""Turning rollouts and demonstrations into better weights: one loop, one short file an algorithm."""

from groupwise.training.evaluate import Evaluation, evaluate_tasks
from groupwise.training.grpo import grpo
from groupwise.training.grpo_options import GrpoOptions
from groupwise.training.loop import StageOptions, StageOutcome, run_stage
from groupwise.training.optim import OptimOptions
from groupwise.training.sft import sft

__all__ = [
    "Evaluation",
    "GrpoOptions",
    "OptimOptions",
    "StageOptions",
    "StageOutcome",
    "evaluate_tasks",
    "grpo",
    "run_stage",
    "sft",
]
