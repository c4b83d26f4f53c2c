"""Who is told what happens in a run: the files of its folder, and whoever else asked for it."""

from __future__ import annotations

import netrc
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from groupwise.config import Recipe
from groupwise.errors import ConfigError
from groupwise.launch.cost import with_costs
from groupwise.runs import FileRecorder, RunDirectory, text_digest
from groupwise.runs.recorder import GoldOf
from groupwise.runs.trackers import BackgroundTracker, ClosingRecorder, RecorderGroup, Tracker, rows_written
from groupwise.types import Recorder

TENSORBOARD_FOLDER = "tensorboard"
"""In the run folder: what `tensorboard --logdir` is given."""
_FLUSH_SECONDS = 10
"""TensorBoard sees a row at the latest so long after it was written."""
_WANDB_KEYS = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE")


def check_trackers(recipe: Recipe) -> None:
    """Refuses what [tracking] asks for and this machine cannot do; call it before anything slow.

    Raises:
        ConfigError: a package is missing, or Weights & Biases has no key, for which it would stop and ask.
    """
    tracking = recipe.tracking
    asked = {"tensorboard": tracking.tensorboard, "wandb": tracking.wandb, "trackio": tracking.trackio}
    for name, value in asked.items():
        if value and not _is_installed(name):
            raise ConfigError(
                f"tracking.{name} needs the package {name}, which is not installed.\n"
                f'  Run:  python -m pip install "groupwise[{name}]"  or leave tracking.{name} out.'
            )
    if tracking.wandb is not None and not _has_wandb_key():
        raise ConfigError(
            f"tracking.wandb = {tracking.wandb!r}, and no key for Weights & Biases is found on this machine.\n"
            "  Run:  wandb login  or set the environment variable WANDB_API_KEY; WANDB_MODE=offline keeps the run on "
            "this machine, WANDB_MODE=online if you are logged in some other way."
        )


def build_recorder(
    recipe: Recipe, directory: RunDirectory, *, observers: Sequence[Recorder] = (), gold_of: GoldOf | None = None
) -> Recorder:
    """The recorder of a run: its files first, then the observers, then the trackers that the recipe asks for.

    An observer is told in the training process; one that raises is told no more. Trackers work in threads of their own,
    see runs/trackers.py. Nothing is opened before the first number comes. Call `close_recorder` when the run ends.
    """
    rows = rows_written(directory)
    trackers = [
        BackgroundTracker(name, open_tracker, rows_before=rows)
        for name, open_tracker in _trackers(recipe, directory).items()
    ]
    return with_costs(RecorderGroup(FileRecorder(directory, gold_of), [*observers, *trackers]), directory)


def close_recorder(recorder: Recorder) -> None:
    """Gives trackers a few seconds to take what is queued. It never raises, and a second call does nothing."""
    if isinstance(recorder, ClosingRecorder):
        recorder.close()


def _trackers(recipe: Recipe, directory: RunDirectory) -> Mapping[str, Callable[[], Tracker]]:
    tracking = recipe.tracking
    name = directory.path.resolve().name
    settings = recipe.model_dump(mode="json")
    found: dict[str, Callable[[], Tracker]] = {}
    if tracking.tensorboard:
        found["TensorBoard"] = lambda: _tensorboard(directory.path / TENSORBOARD_FOLDER)
    if tracking.wandb is not None:
        # the folder's name alone would join runs that two machines began in one second
        place = text_digest(f"{platform.node()} {directory.path.resolve()}")[:6]
        found["Weights & Biases"] = lambda: _logged_run(
            "wandb", tracking.wandb, name, settings, id=f"{name}-{place}", dir=str(directory.path)
        )
    if tracking.trackio is not None:
        found["trackio"] = lambda: _logged_run("trackio", tracking.trackio, name, settings)
    return found


@dataclass(frozen=True, slots=True)
class _ScalarFiles:
    """A tracker that writes TensorBoard's files."""

    writer: Any

    def log(self, x: int, values: Mapping[str, float]) -> None:
        """See Tracker."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, x)

    def close(self) -> None:
        """See Tracker."""
        self.writer.close()


@dataclass(frozen=True, slots=True)
class _LoggedRun:
    """A tracker that speaks to a run object of wandb or trackio, whose names are the same."""

    run: Any

    def log(self, x: int, values: Mapping[str, float]) -> None:
        """See Tracker."""
        self.run.log(dict(values), step=x)

    def close(self) -> None:
        """See Tracker."""
        self.run.finish()


def _tensorboard(folder: Path) -> Tracker:
    from torch.utils.tensorboard import SummaryWriter

    return _ScalarFiles(SummaryWriter(str(folder), flush_secs=_FLUSH_SECONDS))


def _logged_run(package: str, project: str | None, name: str, settings: Mapping[str, Any], **options: str) -> Tracker:
    """A restarted run goes on where its first process ended: resume = "allow"."""
    start = import_module(package).init
    return _LoggedRun(start(project=project, name=name, config=dict(settings), resume="allow", **options))


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder of that name, such as ./wandb, has no origin


def _has_wandb_key() -> bool:
    if any(os.environ.get(name) for name in _WANDB_KEYS):
        return True
    places = [os.environ.get("NETRC"), *(Path.home() / name for name in (".netrc", "_netrc"))]
    for place in places:
        try:
            hosts = netrc.netrc(str(place)).hosts if place else {}
        except (OSError, netrc.NetrcParseError):
            continue
        if any("wandb" in host for host in hosts):
            return True
    return False
