"""[monitor]: a second opinion on held-out completions, and the audit's attacks looked for in real ones."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .section import Section
from .verifier import VerifierSection

_WITHOUT_A_SAY = frozenset(
    {"unusable_gold", "num_workers", "memory_limit_mb", "time_limit_s", "tokens_per_forward", "device", "isolate"}
)
"""Settings of a verifier that decide when and where it runs, not what is right."""


class MonitorSection(Section):
    """Watched after every held-out evaluation; training never sees it."""

    held_back: VerifierSection | None = None
    """A second grader, with the settings of a [verifier]: stricter settings, more snapshots, a reward model, a judge.
    None = there is none."""
    max_gap: float = Field(default=0.05, ge=0, lt=1)
    """Share of the held-out completions that may be paid beyond what held_back pays, 0 or more and under 1. The alarm
    needs the 99 % interval of the gap above it; raise it where the two graders are known to differ."""
    time_limit_s: float = Field(default=60.0, gt=0)
    """Seconds that held_back may take after one evaluation, above 0. What is not judged by then counts as unscored."""
    attacks: bool = True
    """true = paid completions are compared with the audit's attacks on their task, which takes under 1 % of the time;
    false = they are not."""


def decides_alike(first: Section, second: Section) -> bool:
    """True where two verifier sections can only give the same verdicts, so that one could show nothing about the other.

    Their limits of time and memory do not count, and neither does the order of snapshots.
    """
    return _deciding(first.model_dump()) == _deciding(second.model_dump())


def _deciding(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _deciding(inner, key) for key, inner in value.items() if key not in _WITHOUT_A_SAY}
    if isinstance(value, tuple | list):
        return sorted(set(map(str, value))) if name == "snapshots" else [_deciding(inner) for inner in value]
    return value
