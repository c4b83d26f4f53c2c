"""What the machine lets this process use: cores, memory, disk. Reads the system only; needs no torch.

A container sees every core and all memory of its host and may still use a part of them only, so that each number is
the smallest of what the system has and what a control group allows.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HARDWARE_FILE = "hardware.json"
"""Name of the measured profile in the cache folder."""
UNLIMITED_V1 = 1 << 60
"""A first-version control group without a limit names a number near 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What control groups allow; None where they set no limit.

    Example:
        GroupLimits(cores=1.5, memory_bytes=4 << 30)
    """

    cores: float | None
    memory_bytes: int | None


def usable_cores() -> float:
    """Cores that this process may keep busy: those it may run on, and no more than its quota of CPU time."""
    quota = group_limits().cores
    return float(allowed_cores()) if quota is None else min(float(allowed_cores()), quota)


def allowed_cores() -> int:
    """Cores that this process may run on: all, unless its affinity says otherwise."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_memory_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def usable_memory_bytes() -> int:
    """Memory of the machine, or the smaller limit of a control group."""
    limit = group_limits().memory_bytes
    return physical_memory_bytes() if limit is None else min(physical_memory_bytes(), limit)


def resident_bytes() -> int:
    """Memory that this process holds now; where the system does not tell, the most it has held."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def processor_name() -> str:
    """The processor as the system names it, or an empty text."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def cache_folder() -> Path:
    """Where converted models and the measured profile lie."""
    return Path(platformdirs.user_cache_dir("groupwise"))


def hardware_file() -> Path:
    """Where `groupwise doctor --measure` keeps what it measured."""
    return cache_folder() / HARDWARE_FILE


def free_disk_bytes(folder: Path) -> int:
    """Free bytes of the disk that a folder lies on, or will lie on once it is made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def group_limits(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> GroupLimits:
    """The smallest limits of the control groups around this process, of either version.

    root is where control groups are mounted, membership the list of those that this process is in.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    cores: list[float] = []
    memory: list[int] = []
    for line in [*lines, "0::/"]:
        _, controllers, inner = [*line.split(":", 2), "", ""][:3]
        for name in controllers.split(","):
            for folder in _upwards(root / name, inner):
                cores += _quota(folder)
                memory += _memory(folder)
    return GroupLimits(cores=min(cores, default=None), memory_bytes=min(memory, default=None))


def _upwards(root: Path, inner: str) -> Iterator[Path]:
    """A group's folder and those of the groups around it. One that begins with ".." is outside of what is mounted."""
    folder = root if ".." in Path(inner).parts else root / inner.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _quota(folder: Path) -> list[float]:
    """Cores that a group may use, as a list of none or one."""
    second = _numbers(folder / "cpu.max")
    first = _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
    return [pair[0] / pair[1] for pair in (second, first) if len(pair) == 2 and min(pair) > 0]


def _memory(folder: Path) -> list[int]:
    """Bytes that a group may hold, as a list of none or one."""
    found = _numbers(folder / "memory.max") + _numbers(folder / "memory.limit_in_bytes")
    return [limit for limit in found if 0 < limit < UNLIMITED_V1]


def _numbers(file: Path) -> list[int]:
    """The whole numbers of a file; "max" and whatever else is left out."""
    try:
        words = file.read_text().split()
    except OSError:
        return []
    return [int(word) for word in words if word.lstrip("-").isdigit()]
