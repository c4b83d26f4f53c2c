"""[evaluation]: how the held-out tasks are measured."""

from __future__ import annotations

from pydantic import Field, model_validator

from .section import Section, problem


class EvaluationSection(Section):
    """Measured before the first stage, after every stage, and every so many steps.

    Sampled completions are drawn from all tokens at a temperature of their own, whatever [rollout] says, with its
    max_completion_tokens and stop texts.
    """

    samples_per_prompt: int = Field(default=4, ge=0)
    """Sampled completions for each held-out task (pass@k goes up to this k); 0 = none."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the sampled completions, above 0; 1 = the model's own distribution. Training has rollout.temperature."""
    greedy: bool = True
    """Also measure one completion with the most likely token at every place."""
    every: int = Field(default=0, ge=0)
    """Steps between evaluations inside a stage; 0 = only before, between and after stages."""
    num_prompts: int | None = Field(default=None, ge=1)
    """Use only this many held-out tasks, 1 or more, the same ones each time; None = all."""
    success_reward: float | None = Field(default=None, gt=0, le=1)
    """A held-out completion counts as solved from this reward on, above 0 and at most 1; None = where the verifier's
    outcome says so. Training goes by the outcome either way."""
    base: bool = True
    """Measure the model before the first stage, too; false = it was measured elsewhere."""

    @model_validator(mode="after")
    def _measures_something(self) -> EvaluationSection:
        if self.samples_per_prompt == 0 and not self.greedy:
            raise problem("samples_per_prompt", "with greedy = false measures nothing; set one of the two")
        return self
