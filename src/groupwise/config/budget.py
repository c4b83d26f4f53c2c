"""[budget]: how much a run may spend on learning, whatever the number of steps."""

from __future__ import annotations

from pydantic import Field, model_validator

from .section import Section, problem


class BudgetSection(Section):
    """One limit for all stages together. The step under way when it is reached is finished, then training ends with a
    checkpoint and the held-out evaluation; later stages are left out.

    Everything that learning needs is counted, also what is sampled before a stage: pass rates, demonstrations of
    best_of_n, pairs of dpo. Held-out evaluations are not.
    """

    rollout_tokens: int | None = Field(default=None, ge=1)
    """Tokens of sampled completions, 1 or more. A stage that samples nothing is not limited by it."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall-clock time of the stages without their evaluations and checkpoints, above 0."""
    flops: float | None = Field(default=None, gt=0)
    """Floating-point operations of the matrix products and of attention in every forward and backward pass, counted
    from the tokens of each, above 0; see launch/spending.py."""

    @model_validator(mode="after")
    def _one_limit(self) -> BudgetSection:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise problem("", "needs exactly one of rollout_tokens, seconds and flops; {num} are given", num=len(given))
        return self

    @property
    def unit(self) -> str:
        """rollout_tokens, seconds or flops. Not part of the TOML text."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def limit(self) -> float:
        """How much of it. Not part of the TOML text."""
        return float(getattr(self, self.unit))
