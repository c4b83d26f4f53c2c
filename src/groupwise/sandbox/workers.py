"""A pool of killable worker processes for work that may hang, eat memory or crash.

Differs from `multiprocessing.Pool` and `concurrent.futures`: a worker that passes its deadline is killed and replaced
without disturbing the others, workers never inherit the trainer's memory, results travel as JSON (never pickle), and
callers need no `__main__` guard. `call` may be used from any number of threads.

Read child.py for what happens on the other side of the pipe.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_LIMIT_S = 30.0  # a loaded machine may need seconds to start an interpreter
MAX_REPLY_BYTES = 64 * 1024 * 1024
REQUESTS_PER_WORKER = 20_000  # then a fresh one, so that no slow leak lasts
CPU_EXIT_SIGNALS = (signal.SIGPROF, signal.SIGXCPU)


class WorkerTimeout(Exception):
    """The work used up its CPU time; its worker was killed."""


class WorkerStarved(Exception):
    """The wall clock ran out although the work had used little CPU time: the machine is overloaded."""


class WorkerCrashed(Exception):
    """The worker died or answered nonsense."""


class WorkerUnavailable(Exception):
    """No worker can be started, or the pool is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """What one worker may use: WorkerLimits(memory_mb=1024, open_files=128)."""

    memory_mb: int = 1024
    """Address space. A worker itself needs about 40."""
    open_files: int = 128


@dataclass(slots=True)
class _Worker:
    """One place in the pool; its process comes and goes."""

    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    num_requests: int = 0
    cpu_s: float = 0.0
    """CPU time that the process had used when it last answered."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self.process, self.num_requests, self.cpu_s = process, 0, 0.0
        try:
            hello = _read_frame(process.stdout.fileno(), time.monotonic() + START_LIMIT_S)
        except (WorkerCrashed, TimeoutError) as error:
            why = str(error) or f"no answer in {START_LIMIT_S:g} s, as on a machine that is overloaded"
            raise WorkerUnavailable(f"a worker did not start: {why} ({self.command[0]})") from error
        if not hello.get("ready"):
            raise WorkerUnavailable(f"a worker did not start: {hello.get('message')}")

    def kill(self) -> None:
        """Ends the process and leaves its pipes to whoever is reading them."""
        process = self.process
        if process is not None and process.poll() is None:
            process.kill()

    def stop(self) -> int | None:
        """Kills the process, if any, and closes its pipes; returns its exit code."""
        with self.lock:
            process, self.process = self.process, None
        if process is None:
            return None
        code = process.poll()
        if code is None:
            process.kill()
        code = process.wait() if code is None else code
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return code


def _wait(fd: int, event: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(fd, event)
    if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _read_exactly(fd: int, size: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = os.read(fd, size - len(parts))
        except BlockingIOError:
            _wait(fd, select.POLLIN, deadline)
            continue
        except OSError as error:
            raise WorkerCrashed(str(error)) from error
        if not part:
            raise WorkerCrashed("the worker closed its pipe")
        parts += part
    return bytes(parts)


def _read_frame(fd: int, deadline: float) -> dict[str, Any]:
    (size,) = struct.unpack(">I", _read_exactly(fd, 4, deadline))
    if size > MAX_REPLY_BYTES:
        raise WorkerCrashed(f"a reply of {size} bytes; at most {MAX_REPLY_BYTES} are read")
    try:
        reply = json.loads(_read_exactly(fd, size, deadline))
    except (ValueError, RecursionError) as error:
        raise WorkerCrashed("the reply is not JSON") from error
    if not isinstance(reply, dict):
        raise WorkerCrashed("the reply is not a JSON object")
    return reply


def _write_frame(fd: int, request: Mapping[str, Any], deadline: float) -> None:
    body = json.dumps(request).encode()
    view = memoryview(struct.pack(">I", len(body)) + body)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            _wait(fd, select.POLLOUT, deadline)
        except OSError as error:
            raise WorkerCrashed("the worker closed its pipe") from error


def _cpu_seconds(pid: int) -> float | None:
    """CPU time of a running process, or None where the platform does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _stop_all(workers: list[_Worker], owner_pid: int) -> None:
    if os.getpid() == owner_pid:  # a forked copy of the pool must not kill its parent's workers
        for worker in workers:
            worker.stop()


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _reset_pools_after_fork() -> None:
    for pool in list(_pools):
        pool._reset()


os.register_at_fork(after_in_child=_reset_pools_after_fork)


class WorkerPool:
    """Runs requests for one handler script in `num_workers` processes, started when first needed.

    Example:
        pool = WorkerPool(Path("sqlite_process.py"), num_workers=2)
        pool.call({"sql": "SELECT 1", ...}, cpu_limit_s=2.0)
    """

    def __init__(
        self,
        handler: Path,
        *,
        num_workers: int = 2,
        limits: WorkerLimits | None = None,
        handler_settings: Mapping[str, Any] | None = None,
    ) -> None:
        assert num_workers >= 1, "a pool needs a worker"
        limits = limits or WorkerLimits()
        settings = {
            "handler": str(handler),
            "handler_settings": dict(handler_settings or {}),
            "memory_mb": limits.memory_mb,
            "open_files": limits.open_files,
        }
        child = Path(__file__).with_name("child.py")
        # -I -S: neither the caller's folder, nor PYTHONPATH, nor installed packages can put code into a worker
        self._command = [sys.executable, "-I", "-S", str(child), json.dumps(settings)]
        self._num_workers = num_workers
        self._closed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._workers = [_Worker(self._command) for _ in range(self._num_workers)]
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()  # last used first: its caches are warm
        for worker in self._workers:
            self._idle.put(worker)
        self._finalizer = weakref.finalize(self, _stop_all, self._workers, os.getpid())

    def call(self, request: Mapping[str, Any], *, cpu_limit_s: float, wall_limit_s: float | None = None) -> dict:
        """The handler's reply to `request`.

        cpu_limit_s bounds the CPU time of the work, so that a busy machine changes no verdict. wall_limit_s (default:
        cpu_limit_s + 1) is when the worker is killed whatever it does; waiting for a free worker does not count.

        Raises:
            WorkerTimeout: the work used its CPU time, or sat still until the wall limit where CPU time is unknown.
            WorkerStarved: the wall limit passed although the work had not yet used half of its CPU time.
            WorkerCrashed: the worker died.
            WorkerUnavailable: no worker can be started, or the pool is closed.
        """
        idle = self._idle
        worker = idle.get()
        try:
            return self._call(worker, {**request, "cpu_limit_s": cpu_limit_s}, cpu_limit_s, wall_limit_s)
        finally:
            idle.put(worker)

    def _call(
        self, worker: _Worker, request: Mapping[str, Any], cpu_limit_s: float, wall_limit_s: float | None
    ) -> dict[str, Any]:
        if self._closed:
            raise WorkerUnavailable("the worker pool is closed")
        healthy = False
        try:
            if worker.process is not None and worker.process.poll() is not None:
                worker.stop()  # it died between two requests: nobody's fault
            if worker.process is None:
                worker.start()
            process = worker.process
            if process is None or process.stdin is None or process.stdout is None:
                raise WorkerUnavailable("the worker pool is closed")
            deadline = time.monotonic() + (cpu_limit_s + 1.0 if wall_limit_s is None else wall_limit_s)
            try:
                _write_frame(process.stdin.fileno(), request, deadline)
                reply = _read_frame(process.stdout.fileno(), deadline)
            except TimeoutError:
                cpu_s = _cpu_seconds(process.pid)
                if cpu_s is not None and cpu_s - worker.cpu_s < cpu_limit_s / 2:
                    used = max(0.0, cpu_s - worker.cpu_s)
                    raise WorkerStarved(f"only {used:.2f} s of CPU time until the deadline") from None
                raise WorkerTimeout(f"more than {cpu_limit_s} s") from None
            except WorkerCrashed:
                code = worker.stop()
                if code is not None and -code in CPU_EXIT_SIGNALS:
                    raise WorkerTimeout(f"more than {cpu_limit_s} s of CPU time") from None
                raise
            worker.num_requests += 1
            worker.cpu_s = float(reply.pop("cpu_s", 0.0))
            healthy = not reply.pop("retire", False) and worker.num_requests < REQUESTS_PER_WORKER
            return reply
        finally:
            if not healthy:
                worker.stop()

    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    def close(self) -> None:
        """Kills the workers. Calls in flight fail with WorkerCrashed or WorkerUnavailable; closing twice is fine."""
        self._closed = True
        for worker in self._workers:
            worker.kill()
        places = [self._idle.get() for _ in self._workers]  # calls in flight end at once: their process is gone
        for worker in places:
            worker.stop()
            self._idle.put(worker)
