"""What a diagnosis says: one finding, its evidence, and the one setting to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["problem", "warning"]
"""problem: the run, or a stage of it, was not worth its time; warning: it works, and could work better or break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a run.

    Example:
        Finding(name="outputs_cut", severity="problem", title="Most answers are cut at the token limit.",
                evidence="58 of 64 completions (91 %) ended at the limit of 20 tokens.",
                change="rollout.max_completion_tokens: now 20, try 40", stage="grpo", step=3)
    """

    name: str
    """Stays the same from version to version."""
    severity: Severity
    title: str
    """One sentence in plain words."""
    evidence: str
    """The numbers with their denominators."""
    change: str
    """The one setting to change: what it is now, and what to try."""
    stage: str = ""
    """Empty where it holds for the whole run."""
    step: int | None = None
    """The last step that was looked at; None where no single one was."""


def change_of(setting: str, now: Any, proposed: Any, *, stage: str = "") -> str:
    """`optim.lr of stage grpo: now 0.1, try 0.01`; a value of None reads "not set"."""
    of = f" of stage {stage}" if stage else ""
    proposed = float(f"{proposed:.2g}") if isinstance(proposed, float) else proposed
    return f"{setting}{of}: now {shown(now)}, try {shown(proposed)}"


def verifier_change(recipe: Mapping[str, Any], mended: str) -> str:
    """`verifier.path: now "reward.py:exact", try the same, stricter`: its file, where it has one."""
    verifier = recipe.get("verifier")
    section = verifier if isinstance(verifier, Mapping) else {}
    name = "path" if section.get("kind") == "function" and section.get("path") else "kind"
    return change_of(f"verifier.{name}", section.get(name), f"the same, {mended}")


def shown(value: Any) -> str:
    """A value as a person writes it: six significant digits, true and false, "not set" for None."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def percent(share: float) -> str:
    """0.084 -> "8.4 %"; one digit behind the point under 10 %."""
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 else f"{100 * share:.0f} %"
