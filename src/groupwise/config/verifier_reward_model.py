"""[verifier] kind = "reward_model": a model that was trained to score completions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from .section import Section, problem


class RewardModelVerifierSection(Section):
    """Reads the prompt and the completion with the reward model's own tokenizer. The score, relative to those of
    held-out pairs, is squeezed to 0 to 1: sigmoid((score - mean) / std). An opinion, not a proof: what a policy finds
    that pleases the model is paid, right or not."""

    kind: Literal["reward_model"]
    """The kind of truth: reward_model."""
    path: str = Field(min_length=1)
    """Folder of the model: a checkpoint of a reward_model stage, or a sequence classification model with one label."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """The smallest squeezed score that counts as solved, above 0, under 1; 0.5 = as good as a mean held-out answer."""
    pays: Literal["score", "outcome"] = "score"
    """score = the squeezed score is the reward, so that no answer earns 1; outcome = 1 where solved, else 0."""
    mean: float | None = None
    """The score that becomes 0.5; None = what the folder says, or 0."""
    std: float | None = Field(default=None, gt=0)
    """How much more makes it 0.73, above 0; None = what the folder says, or 1."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Prompt and completion together, in the reward model's tokens, 1 or more; a longer completion is invalid. None =
    as many as the model has positions."""
    tokens_per_forward: int = Field(default=8192, ge=1)
    """Tokens of a group that are scored at once, 1 or more; bounds the memory."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """Where it runs, as model.device: auto = the first GPU where there is one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of its weights; auto = bfloat16 on a GPU, float32 on a CPU. Scores in bfloat16 have two digits."""
    gold_column: str | None = None
    """Column with a completion that must be solved. Needs pays = "outcome". None = tasks cannot be proved."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold is not solved: refuse = stop and list them, drop = go on without them."""

    @model_validator(mode="after")
    def _gold_can_earn_one(self) -> RewardModelVerifierSection:
        if self.gold_column is not None and self.pays == "score":
            raise problem(
                "gold_column", 'needs pays = "outcome": no completion earns 1 from a score, so no gold could be proved'
            )
        return self
