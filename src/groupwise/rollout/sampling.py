"""Drawing the next token from logits: pure functions, one uniform number a row.

torch.multinomial and even a cumulative sum over a 49,152-token vocabulary cost several passes a step. Here one
exponential gives the weights, and the token is found in two steps: sums of blocks of the vocabulary choose the block,
and a cumulative sum inside it chooses the token. That is the same distribution.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BLOCK = 256
"""Vocabulary entries of one block; near the root of a usual vocabulary, so that both steps are short."""
CANDIDATES = 1024
"""Most likely tokens in which a nucleus is looked for before the whole vocabulary is sorted."""


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
        highest, token_ids = logits.max(dim=-1)
        return token_ids, highest - torch.logsumexp(logits, dim=-1)
    if top_k > 0 or top_p < 1.0:
        logits = _restricted(logits, temperature=temperature, top_p=top_p, top_k=top_k)
    rows, width = logits.shape
    num_blocks = -(-width // BLOCK)
    weights = logits.new_empty((rows, num_blocks * BLOCK))
    weights[:, width:] = float("-inf")
    highest = logits.amax(dim=-1, keepdim=True)
    torch.sub(logits, highest, out=weights[:, :width])
    if temperature != 1.0:
        weights /= temperature
    blocks = weights.exp_().view(rows, num_blocks, BLOCK)
    block_sums = blocks.sum(dim=-1).double()
    total = block_sums.sum(dim=-1)
    wanted = (uniform.to(total) * total)[:, None]
    block, before = _find(block_sums, wanted)
    inside = blocks[torch.arange(rows, device=logits.device), block.squeeze(-1)].double()
    place, _ = _find(inside, wanted - before)
    token_ids = (block * BLOCK + place).squeeze(-1)
    above = (logits.gather(-1, token_ids[:, None]) - highest).squeeze(-1) / temperature
    return token_ids, above - total.log().to(above.dtype)


def _find(weights: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The place [R, 1] in which the running sum of weights [R, n] passes wanted [R, 1], and the sum before it.

    Never a place of weight 0: right=True skips those in front, the clamp those at the end, which a sum that rounds up
    would reach.
    """
    cumulative = weights.cumsum(dim=-1)
    places = torch.arange(weights.shape[-1], device=weights.device)
    last_possible = torch.where(weights > 0, places, -1).amax(dim=-1, keepdim=True)
    place = torch.searchsorted(cumulative, wanted, right=True).minimum(last_possible)
    return place, cumulative.gather(-1, place) - weights.gather(-1, place)


def _restricted(logits: Tensor, *, temperature: float, top_p: float, top_k: int) -> Tensor:
    """logits with everything outside the top_k and then the top_p nucleus at -inf. The most likely token stays."""
    width = logits.shape[-1]
    scaled = logits / temperature
    num_kept = min(top_k, width) if top_k > 0 else width
    total = None if top_k > 0 else torch.logsumexp(scaled, dim=-1, keepdim=True)
    # Without top_k the nucleus is nearly always among few tokens; sorting all of them costs ten times more.
    num_candidates = num_kept if top_k > 0 else min(CANDIDATES, width)
    while True:
        ordered, order = scaled.topk(num_candidates, dim=-1)
        probabilities = torch.exp(ordered - (ordered.logsumexp(dim=-1, keepdim=True) if total is None else total))
        keep = probabilities.cumsum(dim=-1) - probabilities < top_p if top_p < 1.0 else ordered == ordered
        keep[:, 0] = True
        if num_candidates == num_kept or not keep[:, -1].any():
            break
        num_candidates = num_kept
    rest = torch.full_like(logits, float("-inf"))
    return rest.scatter(-1, order, logits.gather(-1, order).masked_fill(~keep, float("-inf")))
