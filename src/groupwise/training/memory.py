"""What the networks of a stage hold, counted tensor by tensor: weights, gradients and optimizer states.

Gradients are freed by their update, and counted as they were before it, which is when all of it is held at once: each
as large as its weight. Activations, keys and values, logits and everything outside torch are no part of it: they are
what a measured peak has beyond this sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor, nn
from torch.optim import Optimizer

from groupwise.training.updates import Learner

POLICY = "policy"
REFERENCE = "reference"
PARTS = ("parameters", "gradients", "optimizer")


def held_bytes(learner: Learner) -> dict[str, dict[str, int]]:
    """Bytes by network and part: {"policy": {"parameters": 4, "gradients": 4, "optimizer": 8}, "reference": ...}.

    The policy comes first, then companions such as a critic, then frozen networks. Memory that two networks share
    counts for the first of them, so that the numbers add up: a reference that is the policy with its adapters off has
    no bytes of its own and is left out.
    """
    algorithm, seen = learner.algorithm, set[int]()
    held = {POLICY: _trained(nn.ModuleList([learner.model, *algorithm.heads]), learner.optimizer, seen)}
    for companion, optimizer in zip(algorithm.companions, learner.companion_optimizers, strict=True):
        held[companion.name] = _trained(companion.model, optimizer, seen)
    frozen = dict(algorithm.frozen)
    if learner.reference is not None:
        frozen.setdefault(REFERENCE, learner.reference)
    for name, network in frozen.items():
        with network() as model:
            num_bytes = _bytes(_weights(model), seen)
        if num_bytes:
            held[name] = {"parameters": num_bytes}
    return held


def _trained(model: nn.Module, optimizer: Optimizer, seen: set[int]) -> dict[str, int]:
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    states = (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
    gradients = sum(p.nbytes for p in trained if p in optimizer.state)  # AdamW keeps moments of those that had one
    return dict(zip(PARTS, (_bytes(_weights(model), seen), gradients, _bytes(states, seen)), strict=True))


def _weights(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _bytes(tensors: Iterable[Tensor], seen: set[int]) -> int:
    """Of the memory behind these tensors that is not in `seen`, which it is then added to."""
    total = 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total
