"""Log-probabilities of given tokens, and entropies, without a [positions, vocabulary] matrix.

    logprob(n) = h . W[token n] - logsumexp(h W^T),      h = hidden[rows[n]] / temperature
    entropy(r) = logsumexp(l) - sum_v softmax(l)_v l_v,   l = hidden[r] W^T / temperature

The vocabulary is taken in tiles that fit in the cache: each tile's logits are made, folded into running sums, and
dropped. The backward pass makes them again, because keeping them would be the matrix that is to be avoided. All of it
in float32, whatever the dtype of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

TILE_ELEMENTS = 1 << 21
"""Logits that exist at once: 2 million float32 are 8 MB."""


def selected_logprobs(hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: Tensor, token_ids: Tensor) -> Tensor:
    """[N] float32 log softmax(hidden W^T + bias)[rows[n], token_ids[n]], in nats.

    hidden [R, D] (already divided by the temperature), weight [V, D], bias [V] or None, rows and token_ids [N] int64.
    Several tokens may be read from one row, as where completions part.
    """
    logprobs, _ = _SelectedLogprobs.apply(hidden, weight, bias, rows, token_ids, False)
    return logprobs


def selected_logprobs_and_entropies(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: Tensor, token_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """selected_logprobs [N], and the entropy [R] of each row's whole distribution, float32 nats, both with gradient."""
    logprobs, entropies = _SelectedLogprobs.apply(hidden, weight, bias, rows, token_ids, True)
    return logprobs, entropies


class _SelectedLogprobs(torch.autograd.Function):
    """d logprob / d logits = (1 at the token, else 0) - p;   d entropy / d logits = -p (log p + entropy)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rows: Tensor,
        token_ids: Tensor,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor | None]:
        total = hidden.new_full((hidden.shape[0],), float("-inf"), dtype=torch.float32)
        mean_logit = torch.zeros_like(total) if with_entropy else None
        for tile in _tiles(hidden, weight):
            logits = _logits(hidden, weight, bias, tile)
            of_tile = logits.logsumexp(dim=-1)
            joined = torch.logaddexp(total, of_tile)
            if mean_logit is not None:
                in_tile = (logits * (logits - joined[:, None]).exp_()).sum(dim=-1)
                mean_logit = mean_logit * (total - joined).exp() + in_tile
            total = joined
        entropies = None if mean_logit is None else total - mean_logit
        ctx.save_for_backward(hidden, weight, bias, rows, token_ids, total, entropies)
        selected = (hidden[rows].float() * weight[token_ids].float()).sum(dim=-1)
        if bias is not None:
            selected += bias[token_ids].float()
        return selected - total[rows], entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, rows, token_ids, total, entropies = ctx.saved_tensors
        grad, grad_entropy = gradients
        assert grad is not None, "autograd gives zeros where nothing came back"
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.zeros_like(hidden, dtype=torch.float32) if wants_hidden else None
        grad_weight = torch.empty_like(weight) if wants_weight else None
        grad_bias = torch.empty_like(bias) if wants_bias else None
        of_row = grad.new_zeros(hidden.shape[0], 1).index_add_(0, rows, grad[:, None]).neg_()
        for tile in _tiles(hidden, weight):
            grad_logits = _logits(hidden, weight, bias, tile).sub_(total[:, None])
            if entropies is None or grad_entropy is None:
                grad_logits = grad_logits.exp_().mul_(of_row)
            else:
                of_logit = of_row - grad_entropy[:, None] * (grad_logits + entropies[:, None])
                grad_logits = grad_logits.exp_().mul_(of_logit)
            if grad_bias is not None:
                grad_bias[tile] = grad_logits.sum(dim=0)
            grad_logits = grad_logits.to(weight.dtype)
            if grad_hidden is not None:
                grad_hidden += grad_logits @ weight[tile]
            if grad_weight is not None:
                torch.mm(grad_logits.t(), hidden, out=grad_weight[tile])
        if grad_hidden is not None:
            grad_hidden.index_add_(0, rows, grad[:, None] * weight[token_ids].float())
            grad_hidden = grad_hidden.to(hidden.dtype)
        if grad_weight is not None:
            grad_weight.index_add_(0, token_ids, (grad[:, None] * hidden[rows].float()).to(weight.dtype))
        if grad_bias is not None:
            grad_bias.index_add_(0, token_ids, grad.to(bias.dtype))
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _tiles(hidden: Tensor, weight: Tensor) -> Iterator[slice]:
    """Ranges of the vocabulary whose logits for all rows are at most TILE_ELEMENTS numbers, at least one token each."""
    width = max(1, TILE_ELEMENTS // max(1, hidden.shape[0]))
    for start in range(0, weight.shape[0], width):
        yield slice(start, min(start + width, weight.shape[0]))


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, tile: slice) -> Tensor:
    """[R, tile] float32, a new tensor."""
    logits = hidden @ weight[tile].t()
    return logits.float() if bias is None else logits.float() + bias[tile].float()
