"""Drawing the next token from logits: pure functions, one uniform number a row.

A softmax and torch.multinomial over a 49,152-token vocabulary take a third of a decode step on a CPU. One
exponential, one cumulative sum and a binary search draw from the same distribution for a tenth of that.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def uniforms(seed: int, stream: tuple[int, int], count: int) -> Tensor:
    """[count] float64 in [0, 1) for one completion; stream is (prompt number, completion number).

    Every completion has its own stream, so that neither batch size nor neighbours change what it samples.
    """
    return torch.from_numpy(
        np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, *stream)))).random(count)
    )


def draw(
    logits: Tensor, uniform: Tensor, *, temperature: float, top_p: float = 1.0, top_k: int = 0
) -> tuple[Tensor, Tensor]:
    """Token ids [R] and their log-probabilities [R] (nats) under the distribution they were drawn from.

    logits [R, V] float32; uniform [R] in [0, 1). temperature 0 takes the most likely token and reports its
    log-probability at temperature 1. top_p and top_k keep the most likely tokens and renormalise: the reported
    log-probabilities are those of the restricted distribution.
    """
    if temperature == 0:
        token_ids = logits.argmax(dim=-1)
        return token_ids, _at(logits, token_ids) - torch.logsumexp(logits, dim=-1)
    if temperature != 1.0:
        logits = logits / temperature
    if top_k > 0 or top_p < 1.0:
        logits = _restricted(logits, top_p=top_p, top_k=top_k)
    highest = logits.amax(dim=-1, keepdim=True)
    weights = torch.exp(logits - highest)
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[:, -1]
    wanted = (uniform.to(total) * total)[:, None]
    # right=True skips tokens of weight 0; the clamp covers a product that rounds up to the total itself.
    last_possible = _last_positive(weights)
    token_ids = torch.searchsorted(cumulative, wanted, right=True).squeeze(-1).minimum(last_possible)
    return token_ids, _at(logits, token_ids) - highest.squeeze(-1) - weights.sum(dim=-1).log()


def _at(logits: Tensor, token_ids: Tensor) -> Tensor:
    return logits.gather(-1, token_ids[:, None]).squeeze(-1)


def _last_positive(weights: Tensor) -> Tensor:
    """[R] index of the last token whose weight is above 0."""
    width = weights.shape[-1]
    return width - 1 - (weights > 0).to(torch.uint8).flip(-1).argmax(dim=-1)


def _restricted(logits: Tensor, *, top_p: float, top_k: int) -> Tensor:
    """logits with everything outside the top_k and then the top_p nucleus at -inf. The most likely token stays."""
    ordered, order = logits.sort(dim=-1, descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if top_k > 0:
        keep[:, top_k:] = False
    if top_p < 1.0:
        probabilities = torch.softmax(ordered.masked_fill(~keep, float("-inf")), dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        keep &= before < top_p
        keep[:, 0] = True
    kept = torch.zeros_like(keep).scatter(-1, order, keep)
    return logits.masked_fill(~kept, float("-inf"))
