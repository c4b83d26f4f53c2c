"""The seam between the one loop and the algorithms: what to learn from, and the loss on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from groupwise.models.logprobs import ScoreFunction
from groupwise.models.reference import Reference
from groupwise.training.batch import Batch
from groupwise.training.optim import OptimOptions
from groupwise.training.step import LossFunction
from groupwise.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What an algorithm gathered for one step."""

    batch: Batch | None
    """None = nothing here has a gradient: no step is made of it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    """Rollouts to record; empty where nothing was sampled."""
    advantages: tuple[tuple[float, ...], ...] = ()
    """advantages[g][i] belongs to groups[g].rollouts[i]."""
    left_out: tuple[tuple[str, ...], ...] | None = None
    """left_out[g][i]: why groups[g].rollouts[i] has no place in the loss, see Recorder.rollouts; empty where it has.
    None = nothing was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """How often one collected batch is used: Updates(epochs=2, minibatches=4) makes 8 optimizer steps of it."""

    epochs: int = 1
    """Passes over the batch."""
    minibatches: int = 1
    """Parts that each pass is cut into, at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Another network that learns from the same collections, such as PPO's critic.

    It is updated after the policy, on every part of the batch that the policy was updated on.
    """

    name: str
    """Stands before the names of its metrics."""
    model: nn.Module
    optim: OptimOptions
    batch_of: Callable[[Batch], Batch]
    """The policy's batch as this network sees it: its own denominator, and what its loss reads in `extra`."""
    scores: ScoreFunction
    loss: LossFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """All that makes an algorithm itself; loop.py does the rest."""

    collect: Callable[[int], Collected | None]
    """Number of the collection in the stage, from 0 -> what to learn from, or None when there is nothing left to learn
    from. It is the number of the step, from 0, until a collection gives no batch: that one is no step."""
    loss: LossFunction
    temperature: float
    """Log-probabilities are taken at the temperature that sampled."""
    min_kept_mass: float = 1.0
    """Smallest probability that the tokens which sampling kept can have; 1 = the whole vocabulary was sampled from."""
    needs_reference: bool = False
    """A frozen copy of the model at the start of the stage is forwarded beside it."""
    needs_entropy: bool = False
    """The loss reads LossRows.entropies, or they are to be reported."""
    updates: Updates = Updates()
    """With more than one update the log-probabilities of the weights that sampled are computed before the first."""
    companions: tuple[Companion, ...] = ()
    scores: ScoreFunction | None = None
    """In place of the stage's own, where the loss reads more than that gives, such as values."""
    heads: tuple[nn.Module, ...] = ()
    """What `scores` puts on the model. They learn with it, in its optimizer; `save` writes them, its checkpoint does
    not."""
    frozen: Mapping[str, Reference] = field(default_factory=dict)
    """Networks that `collect` forwards and nobody trains, by name; memory is counted with them."""
    state: Callable[[], Mapping[str, object]] = dict
    """What a checkpoint must keep of the algorithm, as JSON."""
    save: Callable[[Path], None] | None = None
    """Writes what else belongs into a checkpoint's folder, such as a critic."""
