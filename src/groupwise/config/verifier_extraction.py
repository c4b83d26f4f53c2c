"""[verifier] kind = "extraction": one JSON object with typed fields, compared with the task's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from .section import Many, Section, problem


class ExtractionFieldSection(Section):
    """What one field of the answer holds. Fields are named by path: vendor, buyer.city, tags[], lines[].price."""

    kind: Literal[
        "id", "text", "enum", "bool", "int", "decimal", "money", "quantity", "date", "datetime", "list", "object"
    ]
    """id = exact text, text = case and white space do not count, date = 2024-03-12, money = {amount, currency}, ..."""
    presence: Literal["required", "nullable", "optional"] = "required"
    """required = key and value, nullable = the key, maybe with null, optional = left out and null both mean none."""
    values: Many[str] = ()
    """Members of an enum, currencies of money, units of a quantity. Empty = any currency code, any unit."""
    minimum: float | None = None
    """Smallest number allowed, for int, decimal, money and quantity. Not set = no bound."""
    maximum: float | None = None
    """Largest number allowed. Not set = no bound."""
    places: int | None = Field(default=None, ge=0)
    """Most decimal places a number may have, 0 or more. Not set = any."""
    max_chars: int = Field(default=1000, ge=1)
    """Longest text allowed in characters, 1 or more."""
    ordered: bool = False
    """For a list: true = items count in their order, false = in any order, each as often as in the gold."""


class ExtractionVerifierSection(Section):
    """Reads one JSON object from a completion and compares its fields with the gold's, by value and by form."""

    kind: Literal["extraction"]
    """The kind of truth: extraction."""
    fields: dict[str, ExtractionFieldSection] = Field(default_factory=dict)
    """Every field of the answer by its path; other fields are wrong. Empty = taken from schema_file."""
    schema_file: str = ""
    """Path of a JSON Schema (2020-12) that the answer must fit too. Empty = none."""
    gold_column: str = Field(default="gold", min_length=1)
    """Column with the right object, as JSON text or as a table."""
    bait_column: str = ""
    """Column with wrong answers, such as spans as printed. A task where one earns 1 is unusable. Empty = none."""
    empty_gold: Literal["refuse", "allow"] = "refuse"
    """A gold without any value: refuse = the task is unusable, allow = an answer without values is right."""
    answer_in: Literal["auto", "text", "fence"] = "auto"
    """text = the whole completion, fence = the one fenced block, auto = the text, or a fence with nothing around it."""
    partial_cap: float = Field(default=0.0, ge=0, lt=1)
    """Most that a wrong answer can earn, 0 to below 1: it earns this times its field F1. 0 = nothing."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold does not earn 1: refuse = stop and list them, drop = go on without them."""

    @model_validator(mode="after")
    def _has_fields(self) -> ExtractionVerifierSection:
        if not self.fields and not self.schema_file:
            raise problem(
                "fields", "is empty and there is no schema_file, so nothing could be judged; declare the fields"
            )
        return self
