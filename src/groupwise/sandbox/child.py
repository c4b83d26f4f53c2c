"""The process that untrusted work runs in. Started as a plain script, `python -I -S child.py SETTINGS`.

It imports the standard library only and nothing of this package, so a worker starts in tens of milliseconds and holds
no memory of the trainer. It takes its limits, then answers requests one at a time:

    parent -> child    4-byte big-endian length, JSON object
    child  -> parent   the same; never pickle, because this side has touched untrusted input; "retire": True in a
                       handler's reply asks for a fresh process

The work itself is a second script, the handler, with one function `start(settings) -> handle(request) -> reply`.
A worker ends itself when the parent is gone, when it has used the CPU time of its request, or when memory ran out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

CPU_GRACE_S = 0.1  # past the handler's own deadline: only a handler stuck inside one C call gets here
PARENT_CHECK_S = 5.0  # a forked sibling may hold our pipe open, so end-of-file alone does not prove a dead parent

Handle = Callable[[dict[str, Any]], dict[str, Any]]


def take_limits(memory_mb: int, open_files: int) -> None:
    """Bounds this process for good: address space, written bytes (none), open files, children, core dumps."""
    wanted = {
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_AS: memory_mb * 1024 * 1024,
    }
    for limit, value in wanted.items():
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):
            continue  # a platform that refuses one limit still has the others, and the parent's deadline


def leave_the_world() -> None:
    """An empty working folder that no longer exists, and, where the kernel allows it, no network."""
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"groupwise-{os.urandom(8).hex()}")
    os.mkdir(folder, 0o700)
    os.chdir(folder)
    os.rmdir(folder)  # nothing can be created in a removed folder, and nothing is left to clean up
    if sys.platform != "linux":
        return
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        set_no_new_privs, new_network, new_user = 38, 0x40000000, 0x10000000
        libc.prctl(set_no_new_privs, 1, 0, 0, 0)
        if libc.unshare(new_network) != 0:
            libc.unshare(new_user | new_network)
    except (ImportError, OSError, AttributeError):
        return


def load_handler(path: str, settings: dict[str, Any]) -> Handle:
    """The `handle` function of the handler script at `path`."""
    spec = importlib.util.spec_from_file_location("handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handle: Handle = module.start(settings)
    return handle


def read_exactly(fd: int, size: int) -> bytes | None:
    """`size` bytes, or None when the parent closed the pipe or died."""
    parts: list[bytes] = []
    parent = os.getppid()
    while size > 0:
        ready, _, _ = select.select([fd], [], [], PARENT_CHECK_S)
        if not ready:
            if os.getppid() != parent:
                return None
            continue
        part = os.read(fd, min(size, 1 << 16))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send(fd: int, reply: dict[str, Any]) -> None:
    """Writes one frame."""
    body = json.dumps(reply).encode()
    view = memoryview(struct.pack(">I", len(body)) + body)
    while view:
        view = view[os.write(fd, view) :]


def arm(cpu_limit_s: float) -> None:
    """The kernel ends this process after so much more CPU time, even inside one long C call. 0 disarms."""
    if cpu_limit_s <= 0:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return
    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s + CPU_GRACE_S)
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + cpu_limit_s) + 3
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def serve(requests: int, replies: int, handle: Handle) -> None:
    """Answers until the parent goes away or the process is no longer to be trusted."""
    while True:
        head = read_exactly(requests, 4)
        body = read_exactly(requests, struct.unpack(">I", head)[0]) if head is not None else None
        if body is None:
            return
        request = json.loads(body)
        retire = False
        arm(float(request["cpu_limit_s"]))
        try:
            reply = handle(request)
            retire = bool(reply.pop("retire", False))
        except MemoryError:
            reply, retire = {"status": "memory"}, True
        except Exception as error:  # the process boundary: whatever broke is told to the parent
            reply, retire = {"status": "handler_error", "message": f"{type(error).__name__}: {error}"}, True
        arm(0)
        send(replies, {**reply, "retire": retire, "cpu_s": time.process_time()})
        if retire:
            return


def main() -> None:
    """Sets the process up, says that it is ready, serves."""
    settings = json.loads(sys.argv[1])
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)  # a stray print must not become part of a frame
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        handle = load_handler(settings["handler"], settings["handler_settings"])
        leave_the_world()
        take_limits(settings["memory_mb"], settings["open_files"])
    except Exception as error:  # the process boundary
        send(replies, {"ready": False, "message": f"{type(error).__name__}: {error}"})
        return
    send(replies, {"ready": True})
    serve(requests, replies, handle)


if __name__ == "__main__":
    main()
