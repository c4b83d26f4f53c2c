"""[curation]: which prompts are worth the compute."""

from __future__ import annotations

from pydantic import Field, model_validator

from .section import Section, problem


class CurationSection(Section):
    """A prompt that is always or never solved gives no gradient; it is set aside with the reason, and tried again."""

    enabled: bool = True
    """false = train on every prompt, measured or not: the arm to compare with."""
    samples_per_prompt: int = Field(default=4, ge=0)
    """Completions sampled for each training task at first, to measure its pass rate; 0 = not measured."""
    max_samples_per_prompt: int = Field(default=16, ge=1)
    """Completions of a task whose pass rate is still open after that, samples_per_prompt or more."""
    num_prompts: int | None = Field(default=None, ge=1)
    """Measure, and then train on, only this many training tasks, drawn by the seed, 1 or more; None = all."""
    ledger: str | None = Field(default=None, min_length=1)
    """Counts that `groupwise curate` has measured, a file; None = measured before each grpo stage."""
    retire_confidence: float = Field(default=0.8, ge=0, lt=1)
    """A prompt is set aside once its pass rate is this surely too high or too low, from 0.5 to below 1; 0 = never."""
    solved_above: float = Field(default=0.95, gt=0, lt=1)
    """A pass rate from here up counts as always solved, between 0 and 1."""
    hopeless_below: float = Field(default=0.05, gt=0, lt=1)
    """A pass rate from here down counts as never solved, between 0 and 1."""
    probe_every: int = Field(default=10, ge=0)
    """Steps after which a prompt that was set aside is tried again; 0 = never."""
    max_empty_steps: int = Field(default=8, ge=1)
    """A stage ends, and says why, after this many steps in a row without any signal, 1 or more."""
    max_unscored_frac: float = Field(default=0.1, ge=0, le=1)
    """Stop where the verifier cannot judge more than this share of the completions, 0 to 1."""

    @model_validator(mode="after")
    def _settings_agree(self) -> CurationSection:
        if self.max_samples_per_prompt < self.samples_per_prompt:
            raise problem(
                "max_samples_per_prompt",
                "must be samples_per_prompt = {samples} or more; raise it, or measure with fewer samples",
                samples=self.samples_per_prompt,
            )
        if 0 < self.retire_confidence < 0.5:
            raise problem(
                "retire_confidence",
                "must be 0.5 or more, or a prompt could be both always and never solved; 0 sets nothing aside",
            )
        if self.hopeless_below >= self.solved_above:
            raise problem(
                "hopeless_below",
                "must be smaller than solved_above = {solved}: no rate is both too low and too high",
                solved=self.solved_above,
            )
        return self
