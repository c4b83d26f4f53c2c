"""One optimizer step: forward, loss and backward of each micro-batch, then clip and update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from groupwise.models.logprobs import ScoredSequence, ScoreFunction, TokenScores, loss_mask
from groupwise.models.reference import Reference
from groupwise.models.token_tree import count_nodes
from groupwise.objective import kl_estimate, logprob_gap, masked_sum, summarise_gap
from groupwise.training.batch import Batch, microbatches, padded


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRows:
    """What a loss function sees of one micro-batch: B rows, L the longest completion among them.

    Example:
        LossRows(policy_logprobs=..., advantages=tensor([1.0, -1.0]), mask=..., denominator=16.0)
    """

    policy_logprobs: Tensor
    """[B, L] float32, with gradient."""
    mask: Tensor
    """[B, L] bool: True = trained."""
    denominator: float
    """Counts the whole optimizer step."""
    advantages: Tensor | None = None
    """[B] or [B, L] float32."""
    ref_logprobs: Tensor | None = None
    """[B, L] float32 from the frozen reference; None where the algorithm needs none."""
    old_logprobs: Tensor | None = None
    """[B, L] float32; None = policy_logprobs without their gradient."""
    sampler_logprobs: Tensor | None = None
    """[B, L] float32 as the engine reported them; None where nothing was sampled."""
    weights: Tensor | None = None
    """[B] float32, what the whole loss of a row is multiplied by; None = 1."""
    entropies: Tensor | None = None
    """[B, L] float32, with gradient; only where the algorithm asked for them."""
    values: Tensor | None = None
    """[B, L] float32, with gradient, of a value head on the policy; None without one."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """The algorithm's own tensors, see Batch.extra."""
    units: Tensor | None = None
    """[B] int64, see Batch.units."""


LossFunction = Callable[[LossRows], tuple[Tensor, dict[str, Tensor]]]
"""Rows to a scalar, the sum of their losses divided by rows.denominator, and named numbers to report: [B, L] tensors as
means over the trained tokens of the whole step, 1-D tensors as means over their elements."""


@torch.no_grad()
def scores_of(
    model: nn.Module,
    sequences: Sequence[ScoredSequence],
    *,
    scores: ScoreFunction,
    temperature: float,
    tokens_per_microbatch: int,
) -> TokenScores:
    """The scores of all completions without gradient, micro-batch by micro-batch; [B, L] as one forward gives them."""
    mask = loss_mask(sequences)
    found: dict[str, Tensor] = {}
    for rows in microbatches(sequences, tokens_per_microbatch):
        part = scores(model, [sequences[r] for r in rows], temperature=temperature)  # type: ignore[arg-type]
        for name, values in part._asdict().items():
            if values is not None:
                whole = found.setdefault(name, torch.zeros(mask.shape))
                whole[torch.tensor(rows), : values.shape[1]] = values.cpu()
    return TokenScores(**found)


def optimizer_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    loss: LossFunction,
    *,
    scores: ScoreFunction,
    temperature: float,
    tokens_per_microbatch: int,
    max_grad_norm: float,
    reference: Reference | None = None,
    needs_entropy: bool = False,
    min_kept_mass: float = 1.0,
    before_update: Callable[[Mapping[str, float]], None] | None = None,
) -> dict[str, float]:
    """Updates the model in place and returns the step's metrics.

    before_update sees the metrics while the weights are still those that sampled; where it raises, they stay.
    min_kept_mass says what part of the gap to the sampler restricted sampling explains, see objective.logprob_gap.

    Raises:
        FloatingPointError: if the gradient is not finite; the weights are then unchanged.
    """
    optimizer.zero_grad(set_to_none=True)
    tally = _Tally(min_kept_mass=min_kept_mass)
    for rows in microbatches(batch.sequences, tokens_per_microbatch, batch.units):
        sequences = [batch.sequences[r] for r in rows]
        ref_logprobs = None
        if reference is not None:
            # first, because the reference may be the policy itself with its adapters off
            with torch.no_grad(), reference() as frozen:
                ref_logprobs = scores(frozen, sequences, temperature=temperature).logprobs
        found = scores(model, sequences, temperature=temperature, entropy=needs_entropy)  # type: ignore[arg-type]
        seen = _loss_rows(batch, rows, found, ref_logprobs)
        total, reported = loss(seen)
        total.backward()
        tally.add(total, seen, reported)
        tally.nodes += count_nodes([s.token_ids for s in sequences])
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    grad_norm = torch.nn.utils.clip_grad_norm_(trained, max_grad_norm).item()
    if not torch.isfinite(torch.tensor(grad_norm)):
        raise FloatingPointError(f"gradient norm is {grad_norm}")
    metrics = {
        **tally.metrics(),
        "grad_norm": grad_norm,
        "num_plain_tokens": sum(len(s.token_ids) for s in batch.sequences),
    }
    if before_update is not None:
        before_update(metrics)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # or they would lie beside the next rollouts' keys and values
    return metrics


def _loss_rows(batch: Batch, rows: Sequence[int], found: TokenScores, ref_logprobs: Tensor | None) -> LossRows:
    """The part of the batch that these rows are, beside what the model says of them."""
    sequences = [batch.sequences[r] for r in rows]
    device = found.logprobs.device
    mask = loss_mask(sequences, device=device)
    index = torch.tensor(rows)

    def part(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        values = values[index]
        return (values if values.dim() == 1 else values[:, : mask.shape[1]]).to(device)

    sampler = batch.sampler_logprobs
    return LossRows(
        policy_logprobs=found.logprobs,
        mask=mask,
        denominator=batch.denominator,
        advantages=part(batch.advantages),
        ref_logprobs=ref_logprobs,
        old_logprobs=part(batch.old_logprobs),
        sampler_logprobs=None if sampler is None else padded([sampler[r] for r in rows], mask),
        weights=part(batch.weights),
        entropies=found.entropies,
        values=found.values,
        extra={name: part(values) for name, values in batch.extra.items()},  # type: ignore[misc]
        units=None if batch.units is None else torch.tensor([batch.units[r] for r in rows], device=device),
    )


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Sums over the micro-batches of a step."""

    min_kept_mass: float
    loss: float = 0.0
    tokens: int = 0
    nodes: int = 0
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By reported name: the sum, and over how many numbers."""
    gaps: list[Tensor] = field(default_factory=list)

    def add(self, total: Tensor, rows: LossRows, reported: dict[str, Tensor]) -> None:
        """One micro-batch."""
        self.loss += total.item()
        num_tokens = int(rows.mask.sum())
        self.tokens += num_tokens
        if rows.sampler_logprobs is not None:
            old = rows.policy_logprobs.detach() if rows.old_logprobs is None else rows.old_logprobs
            reported |= {"kl_sampler_trainer": kl_estimate(rows.sampler_logprobs, old, estimator="k3")}
            gap = logprob_gap(old, rows.sampler_logprobs, min_kept_mass=self.min_kept_mass)
            self.gaps.append(gap[rows.mask].cpu())
        if rows.entropies is not None:
            reported |= {"entropy": rows.entropies}
        for name, values in reported.items():
            by_token = values.dim() == 2
            added = masked_sum(values.detach(), rows.mask) if by_token else values.detach().sum()
            before, count = self.sums.get(name, (0.0, 0))
            self.sums[name] = (before + added.item(), count + (num_tokens if by_token else values.numel()))

    def metrics(self) -> dict[str, float]:
        """The step's numbers so far."""
        return {
            **{name: value / max(count, 1) for name, (value, count) in self.sums.items()},
            **(gap_metrics(torch.cat(self.gaps)) if self.gaps else {}),
            "loss": self.loss,
            "num_trained_tokens": self.tokens,
            "num_forward_nodes": self.nodes,
        }


def gap_metrics(gap: Tensor) -> dict[str, float]:
    """The gap [tokens] to the sampler over a whole step: mean, 99th percentile and maximum, in nats.

    Before the update both describe the same weights, so that anything but rounding is an error of one of them.
    """
    mean, p99, largest = summarise_gap(gap)
    return {"logprob_gap_mean": mean, "logprob_gap_p99": p99, "logprob_gap_max": largest}
