"""How far a step moved the weights: the norm of the change, and the share of weights whose stored value changed.

The share shows what no loss curve does: an update smaller than the spacing of the number format near a weight is lost
in rounding. bfloat16 keeps 8 significant bits, so that a weight of 0.02 moves by 6e-5 or not at all, and AdamW at a
rate of 1e-6 leaves almost all of them as they are. In float32 nearly every weight that has a gradient moves.

Up to EXACT_UP_TO trained weights all are compared. Of more, the same SAMPLED positions, drawn once by a fixed seed,
are: each tensor gets its share of them, LEAST or more, and what is found there stands for the whole tensor,

    norm^2 = sum over tensors of n / k sum over its k positions of change^2           n = weights of the tensor
    share  = sum over tensors of n / k (positions that changed) / all weights

Both are unbiased (the square of the norm is). The standard error of the share is at most 0.5 / sqrt(SAMPLED) = 0.002;
that of the norm is below 1 % where changes are of one size, as AdamW's are, and more where a few weights move alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

EXACT_UP_TO = 1 << 18
"""Trained weights up to which all are compared: a copy of 1 MB in float32."""
SAMPLED = 1 << 16
"""Positions that are compared where there are more; 1 MB with what is kept of them."""
LEAST = 16
"""Positions of a small tensor, such as a norm's, in a sample."""
SEED = 20


class WeightChange:
    """The trained weights of one optimizer as they were when last looked at.

    Example:
        change = WeightChange(optimizer)
        optimizer.step()
        change.metrics()      # {"update_norm": 0.013, "weights_moved_frac": 0.998}
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._tensors = tuple(p.detach() for group in optimizer.param_groups for p in group["params"])
        self._total = sum(t.numel() for t in self._tensors)
        self._positions: tuple[Tensor, ...] | None = None  # of each tensor, flattened; None = all of all
        self._stands_for: Tensor | float = 1.0  # how many weights each of them stands for
        if self._total > EXACT_UP_TO:
            self._positions = tuple(_positions(self._tensors, self._total))
            scales = [t.numel() / p.numel() for t, p in zip(self._tensors, self._positions, strict=True)]
            counts = torch.tensor([p.numel() for p in self._positions])
            device = self._positions[0].device
            self._stands_for = torch.tensor(scales).repeat_interleave(counts).to(device)
        self._before = self._look()

    @torch.no_grad()
    def metrics(self) -> dict[str, float]:
        """Of what happened since the last call: update_norm, and weights_moved_frac from 0 to 1."""
        after, before = self._look(), self._before
        self._before = after
        change = after.float() - before.float()
        squares = (change * change * self._stands_for).sum(dtype=torch.float64)
        moved = ((after != before) * self._stands_for).sum(dtype=torch.float64)
        return {"update_norm": squares.sqrt().item(), "weights_moved_frac": moved.item() / self._total}

    def _look(self) -> Tensor:
        """[positions] the weights now, a copy; tensors of different formats in one that holds them all exactly."""
        flat: Iterable[Tensor] = (t.flatten() for t in self._tensors)
        if self._positions is not None:
            flat = (t[p] for t, p in zip(flat, self._positions, strict=True))
        return torch.cat(list(flat))


def _positions(tensors: Iterable[Tensor], total: int) -> Iterator[Tensor]:
    """For each tensor its share of SAMPLED random positions, with repetition; all where it has fewer."""
    generator = torch.Generator().manual_seed(SEED)
    for tensor in tensors:
        number = max(LEAST, round(SAMPLED * tensor.numel() / total))
        if number >= tensor.numel():
            yield torch.arange(tensor.numel(), device=tensor.device)
        else:
            yield torch.randint(tensor.numel(), (number,), generator=generator).sort().values.to(tensor.device)
