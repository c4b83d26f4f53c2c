"""The importance ratios of a whole step: mean, 99th percentile and maximum over all its trained tokens and updates.

    ratio = p(weights being trained) / p(weights that sampled), a token

By token whatever the loss compares: a sequence's ratio, as GSPO's, hides its tokens. A percentile of a step does not
follow from those of its micro-batches, so the ratios of all of them are kept until its end: 4 bytes a token and update.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from groupwise.objective import summarise_gap
from groupwise.training.step import LossFunction, LossRows


@dataclass(slots=True)
class RatioTail:
    """What one step's losses saw.

    Example:
        tail = RatioTail()
        optimizer_step(..., loss=tail.watching(loss))
        tail.metrics()        # {"ratio_mean": 1.002, "ratio_p99": 1.4, "ratio_max": 2.9}
    """

    _ratios: list[Tensor] = field(default_factory=list)
    _sampled: bool = False

    def watching(self, loss: LossFunction) -> LossFunction:
        """The same loss; the ratios of its rows are kept."""

        def watched(rows: LossRows) -> tuple[Tensor, dict[str, Tensor]]:
            if rows.sampler_logprobs is None:
                return loss(rows)
            self._sampled = True
            if rows.old_logprobs is not None:
                self._ratios.append((rows.policy_logprobs.detach() - rows.old_logprobs)[rows.mask].exp().cpu())
            return loss(rows)

        return watched

    def metrics(self) -> dict[str, float]:
        """ratio_mean, ratio_p99, ratio_max: exactly 1 where the weights that sampled are the ones being trained, none
        where nothing was sampled."""
        if not self._ratios:
            return dict.fromkeys(("ratio_mean", "ratio_p99", "ratio_max"), 1.0) if self._sampled else {}
        mean, p99, largest = summarise_gap(torch.cat(self._ratios))
        return {"ratio_mean": mean, "ratio_p99": p99, "ratio_max": largest}
