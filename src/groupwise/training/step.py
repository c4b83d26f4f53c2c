"""One optimizer step: forward, loss and backward of each micro-batch, then clip and update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models.logprobs import ScoredSequence, loss_mask
from groupwise.models.token_tree import count_nodes
from groupwise.objective import aggregate, kl_estimate, masked_sum
from groupwise.training.batch import Batch, microbatches, padded


class LogprobsFunction(Protocol):
    """tree_logprobs or padded_logprobs."""

    def __call__(self, model: PreTrainedModel, sequences: list[ScoredSequence], *, temperature: float) -> Tensor:
        """[B, L] log-probabilities of the completions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRows:
    """What a loss function sees of one micro-batch.

    Example:
        LossRows(policy_logprobs=..., ref_logprobs=None, advantages=tensor([1.0, -1.0]), mask=...)
    """

    policy_logprobs: Tensor
    """[B, L] float32, with gradient."""
    ref_logprobs: Tensor | None
    """[B, L] float32 from the frozen reference; None where the algorithm needs none."""
    advantages: Tensor
    """[B] float32."""
    mask: Tensor
    """[B, L] bool: True = trained."""


LossFunction = Callable[[LossRows], tuple[Tensor, dict[str, Tensor]]]
"""Rows to the per-token loss [B, L] and named per-token numbers [B, L] to report as means over trained tokens."""


def optimizer_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    loss: LossFunction,
    *,
    normalize: str,
    logprobs: LogprobsFunction,
    temperature: float,
    tokens_per_microbatch: int,
    max_grad_norm: float,
    reference: PreTrainedModel | None = None,
) -> dict[str, float]:
    """Updates the model in place and returns the step's metrics.

    Raises:
        FloatingPointError: if the gradient is not finite; the weights are then unchanged.
    """
    device = model.device
    optimizer.zero_grad(set_to_none=True)
    sums: dict[str, float] = {"loss": 0.0}
    tokens = nodes = 0
    for rows in microbatches(batch.sequences, tokens_per_microbatch):
        sequences = [batch.sequences[r] for r in rows]
        mask = loss_mask(sequences, device=device)
        policy_logprobs = logprobs(model, sequences, temperature=temperature)
        ref_logprobs = None
        if reference is not None:
            with torch.no_grad():
                ref_logprobs = logprobs(reference, sequences, temperature=temperature)
        advantages = batch.advantages[torch.tensor(rows)].to(device)
        seen = LossRows(policy_logprobs=policy_logprobs, ref_logprobs=ref_logprobs, advantages=advantages, mask=mask)
        per_token, reported = loss(seen)
        total = aggregate(per_token, mask, normalize=normalize, denominator=batch.denominator)
        total.backward()
        sums["loss"] += total.item()
        if batch.sampler_logprobs is not None:
            sampler = padded([batch.sampler_logprobs[r] for r in rows], mask)
            reported |= mismatch(policy_logprobs.detach(), sampler)
        for name, values in reported.items():
            sums[name] = sums.get(name, 0.0) + masked_sum(values.detach(), mask).item()
        tokens += int(mask.sum())
        nodes += count_nodes([s.token_ids for s in sequences])
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm).item()
    if not torch.isfinite(torch.tensor(grad_norm)):
        raise FloatingPointError(f"gradient norm is {grad_norm}")
    optimizer.step()
    means = {name: value / max(tokens, 1) for name, value in sums.items() if name != "loss"}
    return {
        **means,
        "loss": sums["loss"],
        "grad_norm": grad_norm,
        "num_trained_tokens": tokens,
        "num_forward_nodes": nodes,
        "num_plain_tokens": sum(len(s.token_ids) for s in batch.sequences),
    }


def mismatch(policy_logprobs: Tensor, sampler_logprobs: Tensor) -> dict[str, Tensor]:
    """[B, L] each: the k3 estimate of KL(sampler || trainer) and the absolute difference of their log-probabilities.

    Before the update both describe the same weights, so that anything but rounding is an error of one of them.
    """
    return {
        "kl_sampler_trainer": kl_estimate(sampler_logprobs, policy_logprobs, estimator="k3"),
        "logprob_gap": (policy_logprobs - sampler_logprobs).abs(),
    }
