"""Numbers of a run for dashboards: a tracker is handed rows of numbers, and nothing it does can hold training up.

    training --> RecorderGroup --> FileRecorder                     in the caller's time, first
                              \\--> BackgroundTracker --> queue --> thread --> Tracker (TensorBoard, W&B, trackio)

A tracker is somebody else's program: it may raise, wait for a network, or be slower than the training. So each has a
thread and a bounded queue of its own. What does not fit is dropped and counted; the first loss is logged, later ones
are only counted. The files of the run folder stay complete whatever happens here.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from groupwise.runs.directory import RunDirectory
from groupwise.types import Group, Recorder

_logger = logging.getLogger(__name__)

QUEUE_SIZE = 1000
"""Rows that may wait for a tracker: hours of steps, and a few MB at most."""
SETTINGS = frozenset({"max_completion_tokens", "samples_per_prompt", "seed", "temperature", "top_p"})
"""Of an evaluation event: what was chosen and not measured. As curves they would be flat lines."""
CLOSE_SECONDS = 10.0
"""How long the end of a run waits for all trackers together to take what is queued."""


class Tracker(Protocol):
    """A place for numbers. It is used from one thread, and may raise and block.

    Example:
        tracker.log(41, {"grpo/pass_rate": 0.62, "grpo/step": 1.0})
    """

    def log(self, x: int, values: Mapping[str, float]) -> None:
        """Numbers at a place x of the axis; x never falls, finite numbers only."""
        ...

    def close(self) -> None:
        """Nothing comes after this."""
        ...


@runtime_checkable
class ClosingRecorder(Recorder, Protocol):
    """A recorder that holds something until the run ends."""

    def close(self) -> None:
        """Write what is waiting and let go. It never raises, and a second call does nothing."""
        ...


class RecorderGroup:
    """Tells several recorders; the first one, the run's own files, before the others.

    One of the others that raises is told no more, with one line in the log.

    Example:
        recorder = RecorderGroup(FileRecorder(directory), [BackgroundTracker("tensorboard", open_tracker)])
    """

    def __init__(self, first: Recorder, others: Sequence[Recorder] = ()) -> None:
        self.first = first
        self.others = list(others)

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See Recorder."""
        self._tell(lambda recorder: recorder.metrics(stage, step, values))

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """See Recorder."""
        self._tell(lambda recorder: recorder.rollouts(stage, step, groups, advantages, left_out=left_out))

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """See Recorder."""
        self._tell(lambda recorder: recorder.event(name, payload))

    def close(self) -> None:
        """Closes those that need it; trackers finish side by side and share CLOSE_SECONDS."""
        trackers = [recorder for recorder in self.others if isinstance(recorder, BackgroundTracker)]
        for tracker in trackers:
            tracker.end()
        deadline = time.monotonic() + CLOSE_SECONDS
        for recorder in [self.first, *self.others]:
            if isinstance(recorder, BackgroundTracker):
                recorder.close(max(0.0, deadline - time.monotonic()))
            elif isinstance(recorder, ClosingRecorder):
                recorder.close()

    def _tell(self, say: Callable[[Recorder], None]) -> None:
        say(self.first)
        for recorder in list(self.others):
            try:
                say(recorder)
            except Exception as error:  # whatever an observer does wrong, training goes on
                self.others.remove(recorder)
                _logger.warning(
                    "%s failed and is told no more in this run (%s: %s); training goes on",
                    type(recorder).__name__,
                    type(error).__name__,
                    error,
                )


class BackgroundTracker:
    """A `Recorder` that hands numbers to a tracker in a thread of its own; no call waits or raises.

    Names are grouped by what they belong to: grpo/pass_rate, evaluation/pass_rate. The axis x counts the rows of the
    run's metrics over all stages and restarts; the step inside the stage is grpo/step. Of an event only its plain
    numbers are handed on, at the x of the row before it. Texts are not: prompts and completions stay in the run folder.

    Example:
        tracker = BackgroundTracker("wandb", lambda: connect(project), rows_before=rows_written(directory))
        tracker.metrics("grpo", 1, {"pass_rate": 0.5})     # {"grpo/pass_rate": 0.5, "grpo/step": 1} at x = 1
        tracker.close()
    """

    def __init__(
        self, name: str, open_tracker: Callable[[], Tracker], *, rows_before: int = 0, queue_size: int = QUEUE_SIZE
    ) -> None:
        """open_tracker is called in the thread, once there is something to hand over; rows_before is where x begins."""
        self.name = name
        self.num_dropped = 0
        """Rows that the tracker did not get: it was slower than training, or it failed."""
        self._open = open_tracker
        self._queue_size = queue_size
        self._queue: queue.SimpleQueue[tuple[int, dict[str, float]] | None] = queue.SimpleQueue()
        self._x = rows_before
        self._last: tuple[str, int] | None = None
        self._has_ended = False
        self._has_failed = False
        self._warned = threading.Lock()
        self._thread: threading.Thread | None = None

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Queue the row; a second row of the same step has the same x."""
        if (stage, step) != self._last:
            self._x += 1
            self._last = (stage, step)
        self._put(_numbers(stage, values) | {f"{stage}/step": float(step)})

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Nothing: texts stay in the run folder."""

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """Queue the plain numbers of the event; one without any is passed over."""
        self._put(_numbers(name, {key: value for key, value in payload.items() if key not in SETTINGS}))

    def end(self) -> None:
        """Nothing more is taken; the thread finishes what is queued."""
        if not self._has_ended:
            self._has_ended = True
            self._queue.put(None)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until the tracker has what is queued, at most so long. What it still has not taken is lost to it."""
        self.end()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(seconds)
        if thread.is_alive():
            self._lost(self._queue.qsize(), f"it did not finish within the {CLOSE_SECONDS:.0f} s that a run waits")

    def _put(self, row: dict[str, float]) -> None:
        if not row or self._has_ended:
            return
        if self._has_failed:
            self.num_dropped += 1
        elif self._queue.qsize() >= self._queue_size:
            self._lost(1, "it is slower than training, or waits for something")
        else:
            self._queue.put((self._x, row))
            if self._thread is None:  # a daemon: a tracker that hangs must not keep the process alive
                self._thread = threading.Thread(target=self._work, name=f"tracker {self.name}", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        try:
            tracker = self._open()
        except BaseException as error:  # an exit that the tracker asks for is its own
            self._has_failed = True
            self._lost(max(1, self._queue.qsize()), f"it could not be opened: {type(error).__name__}: {error}")
            return
        while (item := self._queue.get()) is not None:
            try:
                tracker.log(*item)
            except BaseException as error:
                self._lost(1, f"{type(error).__name__}: {error}")
        try:
            tracker.close()
        except BaseException as error:
            self._lost(0, f"it could not be closed: {type(error).__name__}: {error}")

    def _lost(self, num: int, why: str) -> None:
        self.num_dropped += num
        if self._warned.acquire(blocking=False):  # never released: the first loss is the one that is told
            _logger.warning(
                "%s does not get every number of this run (%s); training goes on, metrics.jsonl has them all, and "
                "further losses are only counted",
                self.name,
                why,
            )


def rows_written(directory: RunDirectory) -> int:
    """Rows of metrics that a run has written so far, those that a restart has set aside included."""
    files = [directory.metrics, *directory.path.glob(f"abandoned-*/{directory.metrics.name}")]
    return sum(path.read_bytes().count(b"\n") for path in files if path.is_file())


def _numbers(group: str, values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the values, by grouped name."""
    return {
        f"{group}/{name}": float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
