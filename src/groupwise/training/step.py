"""One optimizer step: forward, loss and backward of each micro-batch, then clip and update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from groupwise.models.logprobs import ScoredSequence, loss_mask
from groupwise.models.reference import Reference
from groupwise.models.token_tree import count_nodes
from groupwise.objective import aggregate, kl_estimate, logprob_gap, masked_sum, summarise_gap
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
    sampler_logprobs: Tensor | None = None
    """[B, L] float32 as the engine reported them; None where nothing was sampled."""


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
    reference: Reference | None = None,
    min_kept_mass: float = 1.0,
    before_update: Callable[[Mapping[str, float]], None] | None = None,
) -> dict[str, float]:
    """Updates the model in place and returns the step's metrics.

    before_update sees the metrics while the weights are still those that sampled; where it raises, they stay.
    min_kept_mass says what part of the gap to the sampler restricted sampling explains, see objective.logprob_gap.

    Raises:
        FloatingPointError: if the gradient is not finite; the weights are then unchanged.
    """
    device = model.device
    optimizer.zero_grad(set_to_none=True)
    sums: dict[str, float] = {"loss": 0.0}
    gaps: list[Tensor] = []
    tokens = nodes = 0
    for rows in microbatches(batch.sequences, tokens_per_microbatch):
        sequences = [batch.sequences[r] for r in rows]
        mask = loss_mask(sequences, device=device)
        ref_logprobs = None
        if reference is not None:
            # first, because the reference may be the policy itself with its adapters off
            with torch.no_grad(), reference() as frozen:
                ref_logprobs = logprobs(frozen, sequences, temperature=temperature)
        policy_logprobs = logprobs(model, sequences, temperature=temperature)
        sampler_logprobs = None
        if batch.sampler_logprobs is not None:
            sampler_logprobs = padded([batch.sampler_logprobs[r] for r in rows], mask)
        seen = LossRows(
            policy_logprobs=policy_logprobs,
            ref_logprobs=ref_logprobs,
            advantages=batch.advantages[torch.tensor(rows)].to(device),
            mask=mask,
            sampler_logprobs=sampler_logprobs,
        )
        per_token, reported = loss(seen)
        total = aggregate(per_token, mask, normalize=normalize, denominator=batch.denominator)
        total.backward()
        sums["loss"] += total.item()
        if sampler_logprobs is not None:
            detached = policy_logprobs.detach()
            reported |= {"kl_sampler_trainer": kl_estimate(sampler_logprobs, detached, estimator="k3")}
            gaps.append(logprob_gap(detached, sampler_logprobs, min_kept_mass=min_kept_mass)[mask].cpu())
        for name, values in reported.items():
            sums[name] = sums.get(name, 0.0) + masked_sum(values.detach(), mask).item()
        tokens += int(mask.sum())
        nodes += count_nodes([s.token_ids for s in sequences])
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm).item()
    if not torch.isfinite(torch.tensor(grad_norm)):
        raise FloatingPointError(f"gradient norm is {grad_norm}")
    means = {name: value / max(tokens, 1) for name, value in sums.items() if name != "loss"}
    metrics = {
        **means,
        **(gap_metrics(torch.cat(gaps)) if gaps else {}),
        "loss": sums["loss"],
        "grad_norm": grad_norm,
        "num_trained_tokens": tokens,
        "num_forward_nodes": nodes,
        "num_plain_tokens": sum(len(s.token_ids) for s in batch.sequences),
    }
    if before_update is not None:
        before_update(metrics)
    optimizer.step()
    return metrics


def gap_metrics(gap: Tensor) -> dict[str, float]:
    """The gap [tokens] to the sampler over a whole step: mean, 99th percentile and maximum, in nats.

    Before the update both describe the same weights, so that anything but rounding is an error of one of them.
    """
    mean, p99, largest = summarise_gap(gap)
    return {"logprob_gap_mean": mean, "logprob_gap_p99": p99, "logprob_gap_max": largest}
