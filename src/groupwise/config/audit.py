"""[audit]: how hard the verifier is attacked before it pays anyone, and what it may let through."""

from __future__ import annotations

from pydantic import Field

from .section import Section


class AuditSection(Section):
    """Limits of `groupwise audit`, and of the fast audit with which `groupwise train` begins."""

    max_null_share: float = Field(default=0.05, ge=0, le=1)
    """Share of tasks on which an agent that does not look at the task may earn reward, 0 to 1. An agent that gives one
    gold answer to every task may also earn that answer's own share of the golds, and 0.02 more."""
    max_attack_share: float = Field(default=0.0, ge=0, le=1)
    """Share of tasks on which some attack may earn reward, 0 to 1; 0 = none may. Of a sample of tasks, the lower end of
    the 95 % interval counts."""
    max_unscored_share: float = Field(default=0.01, ge=0, le=1)
    """Share of judgements that the verifier may fail to make, 0 to 1."""
    tasks: int = Field(default=200, ge=1)
    """Tasks that are attacked, drawn with the recipe's seed, 1 or more. Golds are checked on all tasks."""
    fast_tasks: int = Field(default=24, ge=0)
    """Tasks that are attacked before training, 0 or more; 0 = training begins without an audit."""
    fast_seconds: float = Field(default=20.0, gt=0)
    """The audit before training attacks no further task after this time, above 0 seconds."""
