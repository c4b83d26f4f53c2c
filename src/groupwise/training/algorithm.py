"""The seam between the one loop and the algorithms: what to learn from, and the loss on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from groupwise.training.batch import Batch
from groupwise.training.step import LossFunction
from groupwise.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What an algorithm gathered for one step."""

    batch: Batch | None
    """None = nothing here has a gradient; the step updates nothing and says so."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    """Rollouts to record; empty where nothing was sampled."""
    advantages: tuple[tuple[float, ...], ...] = ()
    """advantages[g][i] belongs to groups[g].rollouts[i]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """All that makes an algorithm itself; loop.py does the rest."""

    collect: Callable[[int], Collected | None]
    """Step number from 0 -> what to learn from, or None when there is nothing left to learn from."""
    loss: LossFunction
    normalize: str
    """How objective.aggregate averages the per-token loss."""
    temperature: float
    """Log-probabilities are taken at the temperature that sampled."""
    min_kept_mass: float = 1.0
    """Smallest probability that the tokens which sampling kept can have; 1 = the whole vocabulary was sampled from."""
    needs_reference: bool = False
    """A frozen copy of the model at the start of the stage is forwarded beside it."""
    state: Callable[[], Mapping[str, object]] = dict
    """What a checkpoint must keep of the algorithm, as JSON."""
