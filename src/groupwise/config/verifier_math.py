"""[verifier] kind = "math": the value of the last declared answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import Section


class MathVerifierSection(Section):
    """Compares the last declared answer of a completion with the gold: numbers exactly, expressions with algebra."""

    kind: Literal["math"]
    """The kind of truth: math."""
    gold_column: str = Field(default="gold", min_length=1)
    """Column with the right answer: a number, or a text whose last #### line or box is the answer."""
    answer_in: Literal["auto", "boxed", "hash", "tag", "line", "text"] = "auto"
    r"""boxed = \boxed{}, hash = behind ####, tag = <answer></answer>, line = behind "Answer:", text = the whole
    completion, auto = boxed, hash or tag. The last one counts."""
    several_answers: Literal["last", "refuse"] = "last"
    """Different declared answers: last = the last counts, but side by side they are invalid; refuse = invalid."""
    percent: Literal["refuse", "ignore", "fraction"] = "refuse"
    """A percent sign on one side only: refuse = wrong, ignore = 50% is 50, fraction = 50% is 0.5."""
    rel_tolerance: float = Field(default=0.0, ge=0, lt=1)
    """Relative difference allowed where the gold is written with a decimal point, 0 to below 1. 0 = exact."""
    time_limit_s: float = Field(default=2.0, gt=0)
    """CPU seconds for comparing two expressions, above 0. A slower answer is invalid. Numbers need no time."""
    memory_limit_mb: int = Field(default=1024, ge=256)
    """Memory of one worker in megabytes, 256 or more."""
    num_workers: int = Field(default=2, ge=1)
    """Processes that compare expressions, 1 or more; none is started before the first expression."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold cannot be read: refuse = stop and list them, drop = go on without them."""
