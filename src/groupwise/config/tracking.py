"""[tracking]: where else a run's numbers go."""

from __future__ import annotations

from pydantic import Field

from .section import Section


class TrackingSection(Section):
    """Besides the files of the run folder, which are always written. Each needs a package of its own.

    Trackers are told the recipe, the metrics of every step and the short facts of an event, never a task's prompt or a
    completion. One that fails, or is slower than training, loses rows and never holds a step up.
    """

    tensorboard: bool = False
    """Write TensorBoard files into the folder tensorboard/ of the run."""
    wandb: str | None = Field(default=None, min_length=1)
    """Weights & Biases project that the run is sent to; None = it is not."""
    trackio: str | None = Field(default=None, min_length=1)
    """Trackio project that the run is written to; None = it is not."""
