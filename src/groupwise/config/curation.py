"""[curation]: which prompts are worth the compute."""

from __future__ import annotations

from pydantic import Field

from .section import Section


class CurationSection(Section):
    """A prompt that is always or never solved gives no gradient; it is set aside with the reason."""

    enabled: bool = True
    """false = train on every prompt."""
    samples_per_prompt: int = Field(default=4, ge=0)
    """Completions sampled for each training task before a grpo stage, to measure its pass rate; 0 = not measured."""
    num_prompts: int | None = Field(default=None, ge=1)
    """Measure, and then train on, only this many training tasks, drawn by the seed, 1 or more; None = all."""
    retire_after_visits: int = Field(default=2, ge=0)
    """Consecutive visits with all or none solved after which a prompt is set aside during training; 0 = never."""
    max_unscored_frac: float = Field(default=0.1, ge=0, le=1)
    """Stop where the verifier cannot judge more than this share of the completions, 0 to 1."""
