"""[[stages]] with algorithm.name = "dpo": learn from pairs of completions, one of them better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from .section import Section, problem

SAMPLED_DEFAULTS = {"samples_per_prompt": 8, "max_per_prompt": 2}
"""Settings that mean nothing where the pairs come from the data."""


class DpoSection(Section):
    """Direct preference optimisation on pairs. The defaults are DPO as published; each option names a variant."""

    name: Literal["dpo"]
    """dpo."""
    pairs_per_step: int = Field(default=8, ge=1)
    """Pairs in one optimizer step, 1 or more; 64 in the paper."""
    source: Literal["data", "sampled"] = "data"
    """data = data.pairs; sampled = when the stage begins the model answers the training tasks, and the verifier makes
    pairs of the right and wrong answers of a prompt. Several such stages in a row: each samples anew."""
    samples_per_prompt: int | None = Field(default=None, ge=2)
    """sampled: completions of every training prompt, 2 or more; default 8."""
    max_per_prompt: int | None = Field(default=None, ge=1)
    """sampled: most pairs of one prompt, those of nearest length first, 1 or more; default 2."""
    loss: Literal["sigmoid", "robust", "ipo", "hinge"] = "sigmoid"
    """sigmoid = DPO; robust = unbiased where a share label_smoothing of the pairs is the wrong way round; ipo = a
    squared distance to the margin 1 / (2 beta), which ends the push; hinge = SLiC."""
    beta: float = Field(default=0.1, gt=0)
    """How strongly the reference holds the model, above 0. Usual are 0.1; with length_normalize 5; without a reference
    2 to 2.5."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of pairs believed to be the wrong way round, 0 or more, under 0.5; for sigmoid (conservative DPO) and
    robust."""
    length_normalize: bool | None = None
    """Compare means over the tokens in place of sums, so that length decides nothing by itself; None = for ipo, as its
    authors advise, and not for the others."""
    reference_free: bool = False
    """Leave out the reference, the model at the start of the stage (SimPO, together with length_normalize)."""
    margin: float = Field(default=0.0, ge=0)
    """What beta times the difference must reach beyond 0, 0 or more; 0.3 to 0.5 times beta in SimPO. Not for ipo."""
    nll_coef: float = Field(default=0.0, ge=0)
    """Weight of the mean negative log-likelihood of the chosen completion, 0 or more; 1 in iterative RPO. It stops the
    likelihood of both sides from falling together."""

    @property
    def normalizes_length(self) -> bool:
        """Whether means over tokens are compared. Not part of the TOML text."""
        return self.loss == "ipo" if self.length_normalize is None else self.length_normalize

    @model_validator(mode="before")
    @classmethod
    def _filled_for_sampled(cls, values: Any) -> Any:
        """The defaults that hold for sampled alone."""
        if isinstance(values, Mapping) and values.get("source") == "sampled":
            return {**SAMPLED_DEFAULTS, **values}
        return values

    @model_validator(mode="after")
    def _settings_of_the_source(self) -> DpoSection:
        if self.source == "data":
            for name in SAMPLED_DEFAULTS:
                if getattr(self, name) is not None:
                    raise problem(name, 'has no effect with source = "data"; remove it, or write source = "sampled"')
        return self

    @model_validator(mode="after")
    def _options_of_the_loss(self) -> DpoSection:
        if self.label_smoothing and self.loss in ("ipo", "hinge"):
            raise problem(
                "label_smoothing", "is not part of loss = {loss}; remove it, or use sigmoid or robust", loss=self.loss
            )
        if self.loss == "robust" and not self.label_smoothing:
            raise problem(
                "label_smoothing", "is 0, with which loss = robust is sigmoid; give the share, or use sigmoid"
            )
        if self.margin and self.loss == "ipo":
            raise problem("margin", "is not part of loss = ipo, whose target is 1 / (2 beta); remove it, or use beta")
        return self
