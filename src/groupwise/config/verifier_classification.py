"""[verifier] of kind classification: one label of a closed set, and a rationale that supports it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from .section import Many, Section, problem


class JudgeSection(Section):
    """An LLM judge behind an OpenAI-compatible endpoint, asked last; it can take a reward away, never give one."""

    url: str = Field(pattern=r"^https?://[^/]+")
    """The endpoint up to its version, such as http://localhost:8000/v1. Inputs and rationales are sent there."""
    model: str = Field(min_length=1)
    """Name of the model at the endpoint."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the API key; a variable that is not set sends none."""
    time_limit_s: float = Field(default=30.0, gt=0)
    """Seconds for one attempt, above 0."""
    num_retries: int = Field(default=2, ge=0, le=10)
    """Further attempts after a failure that may pass, 0..10. Then the completion is unscored."""
    cache: str = Field(default="judge_replies.sqlite", min_length=1)
    """File that keeps every reply, beside the recipe. Delete it to ask again."""


class ClassificationVerifierSection(Section):
    """Compares the label with the task's, and takes the reward away where the rationale does not argue for it."""

    kind: Literal["classification"]
    """The kind of truth: classification."""
    labels: Many[str] = ()
    """The closed set, 2 or more. Empty = each task brings its own list in labels_column."""
    label_column: str = Field(default="label", min_length=1)
    """Column with the right label."""
    labels_column: str = Field(default="labels", min_length=1)
    """Column with the list of labels to choose from; read where labels is empty."""
    input_columns: Many[str] = ()
    """Columns with the text to classify: quotes must stand in it, and it must not be copied. Empty = the prompt."""
    rationale_column: str = Field(default="rationale", min_length=1)
    """Column with a human rationale or a list of them. It proves the task; judging does not need it."""
    answer_in: Literal["auto", "json", "text"] = "auto"
    """Form of an answer: json = an object with label and rationale, text = a last line "Label: ...", auto = either."""
    rationale: Literal["required", "off"] = "required"
    """required = the rationale must support the label, off = the label alone is judged."""
    rationale_examples: str = ""
    """JSONL file of labelled rationales that trains the rationale-to-label model, or its saved .json. Empty = none."""
    contradicts_at: float = Field(default=0.9, ge=0.5, le=1)
    """Probability of another label, 0.5..1, at which that model takes the reward away. Lower is stricter."""
    max_rationale_words: int = Field(default=200, ge=1)
    """Words a rationale may have, 1 or more; a longer one earns nothing."""
    judge: JudgeSection | None = None
    """An LLM judge for what passes all else, [verifier.judge]. None = nobody is asked."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks without a usable label or rationale: refuse = stop and list them, drop = go on without."""

    @model_validator(mode="after")
    def _fits_together(self) -> ClassificationVerifierSection:
        if len(self.labels) == 1:
            raise problem("labels", "need two names or more; leave the key out where each task brings its own")
        if self.rationale_examples and not self.labels:
            raise problem("rationale_examples", "need labels as well: the model is trained for one set of labels")
        return self
