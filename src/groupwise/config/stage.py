"""[[stages]]: what is done to the model, one after the other. The algorithm is told by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from .section import Section, problem

NAME_PATTERN = r"^[A-Za-z0-9._-]+$"


class SftSection(Section):
    """Supervised fine-tuning on demonstrations."""

    name: Literal["sft"]
    """sft."""
    tasks_per_step: int = Field(default=8, ge=1)
    """Demonstrations in one optimizer step, 1 or more."""


class LengthPenaltySection(Section):
    """Right answers earn less the longer they are; wrong ones keep what they have, so a group without a right answer is
    left as it is."""

    strength: float = Field(gt=0, lt=1)
    """What an answer of rollout.max_completion_tokens loses of its reward, above 0, under 1."""
    free_tokens: int = Field(ge=0)
    """Tokens that cost nothing, 0 or more, fewer than rollout.max_completion_tokens; beyond them it grows evenly."""


class GrpoSection(Section):
    """Group relative policy optimisation. The defaults are GRPO as published; each option names one known variant."""

    name: Literal["grpo"]
    """grpo."""
    scale: Literal["std", "none", "batch_std"] = "std"
    """What divides a centred reward: its group's std (GRPO), nothing (Dr. GRPO), or the std of the whole step."""
    std: Literal["population", "sample"] = "population"
    """population = divide by G, sample = divide by G - 1. Without effect where scale = "none"."""
    normalize: Literal["sequence", "token", "constant"] = "sequence"
    """Denominator of the loss: sequence = mean of each completion first (GRPO), token = all trained tokens (DAPO),
    constant = completions x rollout.max_completion_tokens (Dr. GRPO)."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio is clipped below at 1 - clip_low; above 0, under 1. With one update a batch the ratio is always 1."""
    clip_high: float | None = Field(default=None, gt=0)
    """The ratio is clipped above at 1 + clip_high, above 0; None = the same as clip_low."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the model at the start of the stage, 0 or more; 0 = no KL and no reference model."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL. Without effect where beta = 0."""
    eps: float = Field(default=1e-6, ge=0)
    """Added to the std before the division, 0 or more."""
    importance_cap: float | None = Field(default=None, ge=1)
    """A number, 1 or more, such as 2: each token's loss is weighted by min(p trainer / p sampler, importance_cap), a
    constant. Needed with rollout.top_p or rollout.top_k, which leave tokens out; otherwise the weight is 1 up to
    rounding. None = no weight."""
    skip_dead_groups: bool = True
    """Spend no forward and backward pass on groups without a gradient (all or none solved)."""
    max_unscored_frac: float = Field(default=0.1, ge=0, le=1)
    """Stop where the verifier cannot judge more than this share of a step's completions, 0 to 1."""
    length_penalty: LengthPenaltySection | None = None
    """What long right answers lose; None = nothing. Dead groups are still told by their outcomes."""


AlgorithmSection = Annotated[SftSection | GrpoSection, Field(discriminator="name")]
"""Every algorithm, told apart by `name`."""


class OptimSection(Section):
    """AdamW and its learning rate."""

    lr: float = Field(gt=0)
    """Largest learning rate, above 0. There is no default: it depends on the model and on the algorithm."""
    betas: tuple[float, float] = Field(default=(0.9, 0.99), strict=False)
    """Decay of the two moments, each 0 or more and under 1."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, 0 or more; 0 = none."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment, above 0."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients with a larger norm are scaled down to it, above 0."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from 0; 0 = starts at lr."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes on after the warm-up; linear and cosine end at 0."""
    tokens_per_microbatch: int = Field(default=4096, ge=1)
    """Nodes of the token tree in one forward pass, 1 or more; bounds the memory, changes no gradient."""

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise problem("", "is out of range; allowed: two numbers, each 0 or more and under 1")
        return betas


class StageSection(Section):
    """One algorithm for so many steps."""

    name: str = Field(pattern=NAME_PATTERN)
    """Unique in the recipe; letters, digits, - _ and . only; default = the algorithm's name."""
    steps: int = Field(ge=1)
    """Optimizer steps, 1 or more."""
    algorithm: AlgorithmSection
    """The algorithm and its own settings."""
    optim: OptimSection
    """The optimizer."""
    checkpoint_every: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0 = only at the end of the stage."""

    @model_validator(mode="before")
    @classmethod
    def _named_after_its_algorithm(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "name" in values:
            return values
        algorithm = values.get("algorithm")
        name = algorithm.get("name") if isinstance(algorithm, Mapping) else getattr(algorithm, "name", None)
        # an unusable algorithm name is reported where it stands, not a second time as the stage's name
        return {**values, "name": name if isinstance(name, str) and re.match(NAME_PATTERN, name) else "unnamed"}

    @model_validator(mode="after")
    def _reaches_its_learning_rate(self) -> StageSection:
        if self.optim.warmup_steps >= self.steps:
            raise problem(
                "optim.warmup_steps", "must be smaller than steps = {steps}, or lr is never reached", steps=self.steps
            )
        return self
