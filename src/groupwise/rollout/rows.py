"""One completion while it is being sampled: drawing its next token, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from groupwise.rollout.engine import Sampling
from groupwise.rollout.sampling import draw
from groupwise.types import Stop

SPARE_TOKENS = 4
"""Tokens decoded in front of those that can hold a stop text: the first of a window may be half a character."""


@dataclass(slots=True)
class Row:
    """One completion while it is being sampled."""

    prompt: int
    """Number of its prompt within the call."""
    uniform: list[float]
    """One number in [0, 1) for each token."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: Stop | None = None
    """None while it goes on."""


Report = Callable[[Sequence[Row]], None]
"""Told the rows under way, after each token of them: those that have begun and not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How the rows of one call are drawn, and what ends them."""

    sampling: Sampling
    end_token_ids: Collection[int]
    tokenizer: Any

    def next_tokens(self, logits: Tensor, rows: Sequence[Row]) -> Tensor:
        """Draws one token [R] for each row from logits [R, V]; rows that go on get it, and may end by it."""
        sampling = self.sampling
        numbers = [row.uniform[min(len(row.token_ids), sampling.max_tokens - 1)] for row in rows]
        token_ids, logprobs = draw(
            logits.float(),
            torch.tensor(numbers, dtype=torch.float64, device=logits.device),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        for row, token_id, logprob in zip(rows, token_ids.tolist(), logprobs.tolist(), strict=True):
            if row.stop is None:
                row.token_ids.append(token_id)
                row.logprobs.append(logprob)
                row.stop = self._stop_of(row)
        return token_ids

    def _stop_of(self, row: Row) -> Stop | None:
        if row.token_ids[-1] in self.end_token_ids or self._ends_in_stop_text(row.token_ids):
            return Stop.END
        return Stop.LENGTH if len(row.token_ids) == self.sampling.max_tokens else None

    def _ends_in_stop_text(self, token_ids: Sequence[int]) -> bool:
        """True where the newest token completed a stop text. A token holds at least one byte of text."""
        if not self.sampling.stop:
            return False
        window = max(len(stop.encode()) for stop in self.sampling.stop) + SPARE_TOKENS
        text = self.tokenizer.decode(token_ids[-window:])
        return any(stop in text for stop in self.sampling.stop)

    def text(self, row: Row) -> str:
        """What a verifier sees: without special tokens, cut before the first stop text."""
        text: str = self.tokenizer.decode(row.token_ids, skip_special_tokens=True)
        for stop in self.sampling.stop:
            text = text.partition(stop)[0]
        return text
