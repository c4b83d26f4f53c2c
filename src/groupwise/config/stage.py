"""[[stages]]: what is done to the model, one after the other. The algorithm is told by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from .algorithm_dpo import DpoSection
from .algorithm_grpo import GrpoSection
from .algorithm_ppo import PpoSection
from .algorithm_reward_model import RewardModelSection
from .section import Section, problem

NAME_PATTERN = r"^[A-Za-z0-9._-]+$"
BEST_OF_N_DEFAULTS = {"samples_per_prompt": 8, "max_per_prompt": 1, "prefer": "random"}
"""Settings of an sft stage that mean nothing where its demonstrations come from the data."""


class SftSection(Section):
    """Supervised fine-tuning on demonstrations: those of the data, or completions that the verifier judged right."""

    name: Literal["sft"]
    """sft."""
    tasks_per_step: int = Field(default=8, ge=1)
    """Demonstrations in one optimizer step, 1 or more."""
    source: Literal["demonstrations", "best_of_n"] = "demonstrations"
    """demonstrations = those of the data; best_of_n = right completions that the model samples of the training tasks
    when the stage begins (rejection-sampling fine-tuning). Several such stages in a row: each samples anew."""
    samples_per_prompt: int | None = Field(default=None, ge=1)
    """best_of_n: completions sampled of every training prompt, 1 or more; default 8."""
    max_per_prompt: int | None = Field(default=None, ge=1)
    """best_of_n: most demonstrations of one prompt, with different texts, 1 or more; default 1, so that easy prompts do
    not count for more."""
    prefer: Literal["random", "shortest"] | None = None
    """best_of_n: which of more right texts are taken: random = any, drawn with the seed, each text as likely as the
    others however often it was sampled; shortest = those of fewest tokens. Default random."""

    @model_validator(mode="before")
    @classmethod
    def _filled_for_best_of_n(cls, values: Any) -> Any:
        """The defaults that hold for best_of_n alone."""
        if isinstance(values, Mapping) and values.get("source") == "best_of_n":
            return {**BEST_OF_N_DEFAULTS, **values}
        return values

    @model_validator(mode="after")
    def _settings_of_the_source(self) -> SftSection:
        if self.source == "demonstrations":
            for name in BEST_OF_N_DEFAULTS:
                if getattr(self, name) is not None:
                    raise problem(
                        name, 'has no effect with source = "demonstrations"; remove it, or write source = "best_of_n"'
                    )
        elif (self.max_per_prompt or 0) > (self.samples_per_prompt or 0):
            raise problem(
                "max_per_prompt",
                "must be samples_per_prompt = {samples} or less: no prompt can give more",
                samples=self.samples_per_prompt,
            )
        return self


AlgorithmSection = Annotated[
    SftSection | GrpoSection | PpoSection | DpoSection | RewardModelSection, Field(discriminator="name")
]
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
    """One algorithm for so many steps, from the weights that the stage before it left.

    Iterated methods are several stages: grpo twice is iterative GRPO, because the reference of its KL is the model at
    the start of the stage; sft twice with source = "best_of_n" samples new demonstrations from what the first learned.
    """

    name: str = Field(pattern=NAME_PATTERN)
    """Unique in the recipe; letters, digits, - _ and . only; default = the algorithm's name."""
    steps: int = Field(ge=1)
    """Steps, 1 or more. A step learns from one collection: by one optimizer update, or by several where the algorithm
    says so."""
    algorithm: AlgorithmSection
    """The algorithm and its own settings."""
    optim: OptimSection
    """The optimizer."""
    checkpoint_every: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0 = only at the end of the stage."""

    @property
    def learns_from_rollouts(self) -> bool:
        """True where the stage samples the training tasks and has a verifier judge them. Not part of the TOML text."""
        return not isinstance(self.algorithm, SftSection | DpoSection | RewardModelSection)

    @property
    def selects_prompts(self) -> bool:
        """True where [curation] chooses the training tasks and sets some aside. Not part of the TOML text."""
        return self.algorithm.retire if isinstance(self.algorithm, PpoSection) else self.learns_from_rollouts

    @property
    def learns_from_pairs(self) -> bool:
        """True where the stage learns from data.pairs. Not part of the TOML text."""
        section = self.algorithm
        return isinstance(section, RewardModelSection) or (isinstance(section, DpoSection) and section.source == "data")

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
