"""Two ways to run a reward function with a time limit: in a worker that can be killed, or in a thread that cannot."""

from __future__ import annotations

import base64
import copy
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from groupwise.sandbox.workers import (
    WorkerCrashed,
    WorkerLimits,
    WorkerPool,
    WorkerStarved,
    WorkerTimeout,
    WorkerUnavailable,
)
from groupwise.verifiers.function_call import CALL_FAULTS, CallFailed, call_function, load_function

CONFINED = "set isolate = false if the function needs a network, files to write, processes or threads"


class Runner(Protocol):
    """Calls one function; from any number of threads."""

    def call(self, prompt: Any, completion: Any, columns: Mapping[str, Any]) -> float:
        """The function's number.

        Raises:
            CallFailed: with one of CALL_FAULTS, timeout, crash, worker_failed or closed.
        """
        ...

    def close(self) -> None:
        """Ends what can be ended; safe to call twice."""
        ...


class IsolatedRunner:
    """Runs the function in worker processes: no network, no written files, bounded memory, killed when late."""

    def __init__(
        self, place: str, folder: Path, *, time_limit_s: float, memory_limit_mb: int, num_workers: int
    ) -> None:
        self._time_limit_s = time_limit_s
        self._pool = WorkerPool(
            Path(__file__).with_name("function_call.py"),
            num_workers=num_workers,
            limits=WorkerLimits(memory_mb=memory_limit_mb, open_files=256),
            handler_settings={"place": place, "folder": str(folder), "path": [entry for entry in sys.path if entry]},
        )

    def call(self, prompt: Any, completion: Any, columns: Mapping[str, Any]) -> float:
        """See Runner.call."""
        try:
            body = pickle.dumps({"prompt": prompt, "completion": completion, "columns": dict(columns)})
        except Exception as error:  # an object of the data set that cannot travel
            raise CallFailed("load_failed", f"the task's columns cannot be sent to a worker: {error}") from error
        request = {"call": base64.b64encode(body).decode()}
        try:
            reply = self._pool.call(request, cpu_limit_s=self._time_limit_s, wall_limit_s=self._time_limit_s)
        except (WorkerTimeout, WorkerStarved) as error:
            raise CallFailed("timeout", f"no result within {self._time_limit_s} s ({CONFINED})") from error
        except WorkerCrashed as error:
            raise CallFailed("crash", f"the function ended its worker: {error}") from error
        except WorkerUnavailable as error:
            raise CallFailed("worker_failed", str(error)) from error
        if reply.get("status") == "ok" and isinstance(reply.get("value"), (int, float)):
            return float(reply["value"])
        word, message = str(reply.get("status")), str(reply.get("message", ""))
        if word not in CALL_FAULTS:
            raise CallFailed("crash", f"the worker answered {word}: {message}")
        raise CallFailed(word, f"{message} ({CONFINED})" if word in ("function_raised", "memory") else message)

    def close(self) -> None:
        """Kills the workers."""
        self._pool.close()


class ThreadRunner:
    """Runs the function in this process, at most `num_workers` calls at a time, each in a thread of its own.

    A call that is late is given up but cannot be ended: it keeps its place until it returns. When all places are held
    by late calls, further calls fail at once.
    """

    def __init__(
        self, function: Callable[..., Any] | str, folder: Path, *, time_limit_s: float, num_workers: int
    ) -> None:
        self._function = function
        self._folder = folder
        self._time_limit_s = time_limit_s
        self._num_places = num_workers
        self._num_running = 0
        self._num_late = 0
        self._closed = False
        self._changed = threading.Condition()
        self._loading = threading.Lock()

    def call(self, prompt: Any, completion: Any, columns: Mapping[str, Any]) -> float:
        """See Runner.call."""
        if self._closed:
            raise CallFailed("closed", "the verifier is closed")
        function = self._loaded()
        arguments = copy.deepcopy((prompt, completion, dict(columns)))  # a function that edits them edits its own
        with self._changed:
            self._changed.wait_for(lambda: self._num_running < self._num_places or self._num_late >= self._num_places)
            if self._num_running >= self._num_places:
                raise CallFailed("timeout", f"{self._num_late} earlier calls are late and still hold every place")
            self._num_running += 1
        call = _Call(function, arguments, self._finished)
        call.thread.start()
        if not call.done.wait(self._time_limit_s):
            with self._changed:
                if not call.done.is_set():
                    call.late = True
                    self._num_late += 1
                    self._changed.notify_all()
            if call.late:
                raise CallFailed("timeout", f"no result within {self._time_limit_s} s; set isolate = true to end it")
        if isinstance(call.outcome, CallFailed):
            raise call.outcome
        return call.outcome

    def _finished(self, call: _Call) -> None:
        with self._changed:
            call.done.set()
            self._num_running -= 1
            self._num_late -= call.late
            self._changed.notify_all()

    def _loaded(self) -> Callable[..., Any]:
        with self._loading:
            if isinstance(self._function, str):
                self._function = load_function(self._function, self._folder)
            return self._function

    def close(self) -> None:
        """Refuses further calls."""
        self._closed = True


class _Call:
    """One call in a thread of its own, which does not keep the process alive."""

    def __init__(self, function: Callable[..., Any], arguments: Any, finished: Callable[[_Call], None]) -> None:
        self.done = threading.Event()
        self.late = False
        self.outcome: float | CallFailed = CallFailed("crash", "the call ended without a result")

        def work() -> None:
            try:
                self.outcome = call_function(function, *arguments)
            except CallFailed as failed:
                self.outcome = failed
            except BaseException as error:  # the process boundary of user code, in a thread
                self.outcome = CallFailed("function_raised", f"{type(error).__name__}: {error}"[:500])
            finally:
                finished(self)

        self.thread = threading.Thread(target=work, name="reward-function", daemon=True)
