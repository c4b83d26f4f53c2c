"""The check that two ways of computing the same log-probabilities agree, before anything is trained on one of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from groupwise.errors import EngineError
from groupwise.models.logprobs import ScoredSequence, loss_mask, padded_logprobs
from groupwise.training.step import LogprobsFunction

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.2}
"""Largest accepted difference in nats: far above what rounding gave on real models, far below what an error gives."""


def check_logprobs(model: PreTrainedModel, sequences: Sequence[ScoredSequence], *, logprobs: LogprobsFunction) -> float:
    """The largest difference in nats between the path in use and the padded one on these sequences.

    Raises:
        EngineError: if it is larger than rounding explains.
    """
    with torch.no_grad():
        used = logprobs(model, list(sequences), temperature=1.0)
        plain = padded_logprobs(model, list(sequences), temperature=1.0)
    mask = loss_mask(sequences, device=used.device)
    gap = (used - plain)[mask].abs().max().item() if bool(mask.any()) else 0.0
    tolerance = TOLERANCE.get(model.dtype, 1e-3)
    if not gap <= tolerance:
        raise EngineError(
            f"the token tree and the model's own attention disagree by {gap:.2g} nats (allowed: {tolerance:.2g}); "
            "training on it would be wrong.\n  Please report the model; model.attention_check = false skips this check."
        )
    return gap
