"""AdamW and its learning-rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimOptions:
    """The settings of config.OptimSection, under the same names."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    eps: float = 1e-8
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    tokens_per_microbatch: int = 4096


def build_optimizer(model: nn.Module, options: OptimOptions) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; weight decay acts on matrices only, not on norms and biases."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.lr, betas=options.betas, eps=options.eps, fused=True)


def learning_rate(options: OptimOptions, step: int, num_steps: int) -> float:
    """The rate of a step counted from 0: linear warm-up to lr, then the schedule; linear and cosine end near 0."""
    if step < options.warmup_steps:
        return options.lr * (step + 1) / options.warmup_steps
    done = (step - options.warmup_steps) / max(1, num_steps - options.warmup_steps)
    factor = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}
    return options.lr * factor[options.schedule]
