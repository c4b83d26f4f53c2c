"""[[stages]] with algorithm.name = "reward_model": train a model that scores completions, from pairs of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import Section


class RewardModelSection(Section):
    """A reward model from data.pairs (Bradley-Terry). It starts as a copy of the current policy without its LM head;
    the policy itself goes on unchanged to the next stage. [verifier] kind = "reward_model" reads what it writes."""

    name: Literal["reward_model"]
    """reward_model."""
    pairs_per_step: int = Field(default=8, ge=1)
    """Pairs in one optimizer step, 1 or more; 64 is usual. So is one pass over the pairs: steps = number of pairs that
    are trained on / pairs_per_step."""
    heldout_frac: float = Field(default=0.1, gt=0, lt=1)
    """Share of the prompts whose pairs measure the model and are never trained on, above 0, under 1."""
    margin: float = Field(default=0.0, ge=0)
    """By how much the better side's score must be the higher one before the push weakens, 0 or more; 0 = none."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of pairs believed to be the wrong way round, 0 or more, under 0.5."""
    center_coef: float = Field(default=0.0, ge=0)
    """Weight of (score + score)^2, which keeps scores around 0, 0 or more; 0.01 is usual where it is used. 0 = none."""
