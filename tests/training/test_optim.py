"""AdamW's two groups and the learning rate of each step."""

from __future__ import annotations

import pytest
from training_cases import small_llama

from groupwise.training.optim import OptimOptions, build_optimizer, learning_rate


def rates(num_steps: int, **options: object) -> list[float]:
    return [learning_rate(OptimOptions(lr=1.0, **options), step, num_steps) for step in range(num_steps)]  # type: ignore[arg-type]


def test_the_schedules_by_hand() -> None:
    assert rates(3) == [1, 1, 1]
    assert rates(4, schedule="linear") == pytest.approx([1, 0.75, 0.5, 0.25])
    # (1 + cos(pi s / 4)) / 2
    assert rates(4, schedule="cosine") == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_the_warm_up_rises_to_the_full_rate_before_the_schedule_begins() -> None:
    assert rates(6, warmup_steps=2) == pytest.approx([0.5, 1, 1, 1, 1, 1])
    assert rates(6, warmup_steps=2, schedule="linear") == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])


def test_weight_decay_acts_on_matrices_only() -> None:
    model = small_llama()
    model.lm_head.weight.requires_grad_(False)
    optimizer = build_optimizer(model, OptimOptions(lr=0.1, weight_decay=0.3))
    matrices, vectors = optimizer.param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.3, 0.0)
    assert all(p.dim() == 2 for p in matrices["params"])
    assert all(p.dim() == 1 for p in vectors["params"])
    assert vectors["params"]
    assert len(matrices["params"]) + len(vectors["params"]) == len(list(model.parameters())) - 1
