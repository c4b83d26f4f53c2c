"""How much memory the process has held, as a number of every step."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The most that this process has held so far: allocated on the GPU where there is one, else resident in the host.

    The peak and not what is held now: a step is most likely to run out of memory in its middle, between two looks.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    try:
        # ru_maxrss of a child process begins with what its parent held
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
