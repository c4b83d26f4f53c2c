"""[rollout]: how many completions are sampled, and from which distribution."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from .section import Many, Section, problem


class AllocationSection(Section):
    """Prompts whose outcome is open get more rollouts, others fewer; a step samples as many as without, and every
    prompt counts the same. Best with algorithm.scale = "none" or "batch_std": a group's own std depends on its size."""

    min_group_size: int = Field(default=4, ge=2, le=256)
    """Fewest rollouts of a prompt, 2 or more, at most rollout.group_size."""
    max_group_size: int = Field(default=32, ge=2, le=256)
    """Most rollouts of a prompt, at least rollout.group_size, at most 256."""


class RolloutSection(Section):
    """One step samples prompts_per_step x group_size completions; nothing else has to divide anything."""

    group_size: int = Field(default=8, ge=2, le=256)
    """Rollouts per prompt (G), 2 to 256. Larger groups waste fewer prompts."""
    prompts_per_step: int = Field(default=8, ge=1)
    """Different prompts in one optimizer step, 1 or more; with extra_rounds, live ones."""
    extra_rounds: int = Field(default=0, ge=0)
    """Times that a step samples more prompts in place of those that were all or none solved (DAPO's dynamic sampling),
    until prompts_per_step others are there. What was replaced is recorded, and not learned from; 0 = nothing is."""
    allocation: AllocationSection | None = None
    """Different group sizes, group_size on average, by what is known of each prompt; None = group_size for each."""
    temperature: float = Field(default=1.0, gt=0)
    """Divides the logits before sampling, above 0; 1 = the model's own distribution."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the most likely tokens that together have this probability, above 0, at most 1; 1 = from all.
    Under 1, a GRPO stage needs algorithm.importance_cap."""
    top_k: int = Field(default=0, ge=0)
    """Sample from this many most likely tokens; 0 = from all. Above 0, as with top_p under 1."""
    max_completion_tokens: int = Field(default=128, ge=1)
    """A completion is cut here, in tokens, 1 or more; cut completions are counted."""
    stop: Many[str] = ()
    """Texts that end a completion; empty = only the model's end tokens do."""
    max_rows: int = Field(default=256, ge=1)
    """Completions decoded at once, 1 or more; bounds the memory, not the step."""
    cache_gb: float = Field(default=4.0, gt=0)
    """Memory for keys and values while sampling, in 10^9 bytes, above 0. Completions that do not fit wait for others to
    end; 4 holds about 250 completions of 256 tokens of a 135M model in float32."""

    @property
    def is_restricted(self) -> bool:
        """True where some tokens are never sampled. Not part of the TOML text."""
        return self.top_p < 1 or self.top_k > 0

    @field_validator("group_size", mode="before")
    @classmethod
    def _more_than_one(cls, group_size: Any) -> Any:
        if group_size == 1 and group_size is not True:
            raise problem("", "is not possible: a rollout cannot be its own baseline; allowed: 2 to 256")
        return group_size

    @field_validator("temperature", mode="before")
    @classmethod
    def _not_greedy(cls, temperature: Any) -> Any:
        if temperature == 0 and temperature is not False:
            raise problem("", "is not possible: every rollout of a group would be the same; allowed: above 0")
        return temperature

    @model_validator(mode="after")
    def _sizes_lie_around_the_mean(self) -> RolloutSection:
        if self.allocation is None:
            return self
        if self.allocation.min_group_size > self.group_size:
            raise problem(
                "allocation.min_group_size",
                "must be group_size = {size} or less: that is the mean over the prompts",
                size=self.group_size,
            )
        if self.allocation.max_group_size < self.group_size:
            raise problem(
                "allocation.max_group_size",
                "must be group_size = {size} or more: that is the mean over the prompts",
                size=self.group_size,
            )
        return self

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise problem("", "holds an empty text, which would end every completion at once")
        return stop
