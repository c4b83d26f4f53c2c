"""[verifier] kind = "tools": calls, their arguments, what they do to the tables of a task, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from .section import Section


class ToolsVerifierSection(Section):
    """Reads the tool calls of a completion, checks and simulates them, and compares them with the task's."""

    kind: Literal["tools"]
    """The kind of truth: tools."""
    columns: Mapping[str, str] = Field(default_factory=dict)
    """Task columns with other names, as {calls = "ground_truth"}. Empty = tools, calls, no_call, answer, state, ..."""
    world: str = ""
    """Path of a JSON file with what all tasks share: tools, state, effects, volatile, forbidden. Empty = no file."""
    functions: str = ""
    """Path of a Python file with one function a tool, run in a worker where a task has no effects. Empty = no file."""
    call_form: Literal["auto", "tags", "json"] = "auto"
    """Where calls stand: tags = <tool_call>...</tool_call>, json = the whole text, auto = json if the text is JSON."""
    responses: Literal["refuse", "check"] = "refuse"
    """<tool_response> in a completion: refuse = invalid, check = must equal what the simulation returned."""
    match: Literal["auto", "exact", "writes"] = "auto"
    """exact = the same calls in any order, writes = the same changes, reads are free, auto = writes if simulated."""
    max_calls: int = Field(default=32, ge=1, le=256)
    """Calls in one completion, 1 to 256. More are invalid. A task's max_calls column may be lower."""
    max_failed_calls: int = Field(default=0, ge=0)
    """Calls that the schema or the simulation may refuse, 0 or more. They change nothing. 0 = none may fail."""
    time_limit_s: float = Field(default=2.0, gt=0)
    """CPU seconds for the functions or one schema pattern, above 0. Slower is invalid."""
    partial_cap: float = Field(default=0.0, ge=0, lt=1)
    """Most that a wrong answer can earn, 0 to below 1, for the share of calls or steps it has right. 0 = nothing."""
    unusable_gold: Literal["refuse", "drop"] = "refuse"
    """What happens to tasks whose gold does not earn 1: refuse = stop and list them, drop = go on without them."""
