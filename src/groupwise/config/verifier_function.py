"""[verifier] kind = "function": a reward function written for TRL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from .section import Section, problem


class FunctionVerifierSection(Section):
    """Calls f(prompts, completions, **columns) -> list[float | None], sync or async, for one completion at a time."""

    kind: Literal["function"]
    """The kind of truth: function."""
    path: str = Field(pattern=r"^.+:[A-Za-z_][A-Za-z0-9_.]*$")
    """"module:function" or "file.py:function", looked up from the recipe's folder."""
    text_form: Literal["auto", "text", "messages"] = "auto"
    """text = strings, messages = lists of chat messages, auto = messages if the prompt is a conversation, as in TRL."""
    threshold: float | None = None
    """The smallest value that counts as solved, above reward_min, up to reward_max. Empty = reward_max."""
    reward_min: float = 0.0
    """The value that becomes reward 0, below reward_max. Smaller values are clamped to it."""
    reward_max: float = 1.0
    """The value that becomes reward 1. Larger values are clamped to it; those between are mapped linearly."""
    time_limit_s: float = Field(default=10.0, gt=0)
    """Seconds for one call, above 0. A later result is no result: the completion is unscored."""
    isolate: bool = True
    """true = in workers that can be killed, without network, files to write or new processes; false = in this one."""
    memory_limit_mb: int = Field(default=4096, ge=256)
    """Memory of one worker in megabytes, 256 or more. Without effect where isolate = false."""
    num_workers: int = Field(default=1, ge=1)
    """Calls at the same time, 1 or more. 1 = one after the other, as in TRL."""
    gold_column: str | None = None
    """Column with a completion that the function pays in full. Empty = tasks cannot be proved before training."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold is not solved: refuse = stop and list them, drop = go on without them."""

    @model_validator(mode="after")
    def _range_holds_threshold(self) -> FunctionVerifierSection:
        if self.reward_min >= self.reward_max:
            raise problem("reward_max", "must be above reward_min")
        if self.threshold is not None and not self.reward_min < self.threshold <= self.reward_max:
            raise problem("threshold", "must be above reward_min and at most reward_max")
        return self


def with_function_file(section: FunctionVerifierSection, moved: Callable[..., Section]) -> Section:
    """The section with the file of the function as moved(section, "path") names it.

    A module that is a file beside the recipe becomes that file. A module in a package stays a module: what it imports
    by a relative name needs the package.
    """
    source, _, name = section.path.rpartition(":")
    if "." in source and not source.endswith(".py"):
        return section
    file = source if source.endswith(".py") else f"{source}.py"
    found = moved(section.model_copy(update={"path": file}), "path").model_dump()["path"]
    return section if found == file else section.model_copy(update={"path": f"{found}:{name}"})
