"""What networks hold, by hand: a trained model, a companion of the same size, a frozen copy, and shared weights."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn

from groupwise.training.algorithm import Algorithm, Companion
from groupwise.training.memory import held_bytes
from groupwise.training.optim import OptimOptions
from groupwise.training.updates import Learner

NUM = 6 * 4 * 4
"""Bytes of a 6 x 4 matrix in float32."""
STEP = 4
"""Bytes of the step counter that AdamW keeps of each tensor."""


def network() -> nn.Linear:
    return nn.Linear(4, 6, bias=False)


def learner(model: nn.Module, *, companions: tuple[Companion, ...] = (), **algorithm: object) -> Learner:
    found = Learner.of(
        Algorithm(collect=lambda _: None, loss=None, temperature=1.0, companions=companions, **algorithm),  # type: ignore[arg-type]
        model,
        OptimOptions(lr=1e-3),
        num_steps=1,
        scores=None,  # type: ignore[arg-type]
        reference=None,
    )
    for net, optimizer in zip(
        (model, *(c.model for c in companions)), (found.optimizer, *found.companion_optimizers), strict=True
    ):
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    return found


def test_a_trained_network_holds_weights_gradients_and_two_moments() -> None:
    assert held_bytes(learner(network())) == {
        "policy": {"parameters": NUM, "gradients": NUM, "optimizer": 2 * NUM + STEP}
    }


def test_a_critic_doubles_what_is_trained_and_a_reference_adds_weights_alone() -> None:
    critic = Companion(
        name="critic",
        model=network(),
        optim=OptimOptions(lr=1e-3),
        batch_of=lambda batch: batch,
        scores=None,  # type: ignore[arg-type]
        loss=None,  # type: ignore[arg-type]
    )
    frozen = network().requires_grad_(False)
    held = held_bytes(learner(network(), companions=(critic,), frozen={"reference": lambda: nullcontext(frozen)}))
    assert list(held) == ["policy", "critic", "reference"]
    assert held["critic"] == held["policy"]
    assert held["reference"] == {"parameters": NUM}


def test_what_is_shared_counts_once() -> None:
    model = network()
    held = held_bytes(learner(model, frozen={"reference": lambda: nullcontext(model)}))
    assert list(held) == ["policy"]
