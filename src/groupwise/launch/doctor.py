"""What `groupwise doctor` finds: versions, devices, threads, sandbox, disk, and what is missing.

torch is imported only when it is asked about, and its absence is a finding like any other. Nothing here uses the
network unless the hub is asked about.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from groupwise import bundled
from groupwise.errors import ConfigError
from groupwise.launch.findings import Diagnosis, Finding, Standing
from groupwise.launch.installed import package_findings
from groupwise.launch.machine import (
    allowed_cores,
    cache_folder,
    free_disk_bytes,
    group_limits,
    hardware_file,
    physical_memory_bytes,
    usable_cores,
    usable_memory_bytes,
)
from groupwise.planning.hardware import Hardware, read_hardware
from groupwise.sandbox.queries import PROBE, QueryStatus
from groupwise.sandbox.sqlite import SqliteSandbox

MODEL_DISK_BYTES = 2 * 10**9
"""Less free disk than this is worth a note: the demo's model alone takes 0.5 GB once it is converted."""
OLD_PROFILE_DAYS = 90
HUB_LIMIT_S = 5.0
MEASURE = "groupwise doctor --measure"


def diagnose(*, ask_hub: bool = False) -> Diagnosis:
    """Looks at everything; at the network only where ask_hub is true."""
    torch = _import_torch()
    sections = (
        package_findings(torch),
        _devices(torch),
        _threads(torch),
        _sandbox(),
        _storage(),
        _hub(ask_hub),
        _profile(),
    )
    return Diagnosis(findings=tuple(finding for section in sections for finding in section))


def _import_torch() -> Any:
    """The module, or the exception that its import ended in."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
        return error


def _devices(torch: Any) -> Iterator[Finding]:
    limits = group_limits()
    there = os.cpu_count() or 1
    parts = [f"{there} in the machine"]
    if allowed_cores() != there:
        parts.append(f"{allowed_cores()} allowed by the affinity of this process")
    if limits.cores is not None:
        parts.append(f"{limits.cores:g} allowed by a quota of its control group")
    yield Finding(section="devices", name="cores", value=f"{usable_cores():g} usable ({', '.join(parts)})")
    value = f"{_gigabytes(usable_memory_bytes())} usable"
    if limits.memory_bytes is not None and limits.memory_bytes < physical_memory_bytes():
        value += f" (limit of a control group; {_gigabytes(physical_memory_bytes())} in the machine)"
    yield Finding(section="devices", name="memory", value=value)
    if isinstance(torch, Exception):
        yield Finding(section="devices", name="GPU", value="not known without torch", standing=Standing.NOTE)
    elif torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(number)
            yield Finding(
                section="devices", name=f"GPU {number}", value=f"{card.name}, {_gigabytes(card.total_memory)}"
            )
    else:
        why = "torch sees none" if torch.version.cuda else "this torch is built for CPUs"
        yield Finding(section="devices", name="GPU", value=f"none ({why}); everything runs on the CPU")


def _threads(torch: Any) -> Iterator[Finding]:
    cores = usable_cores()
    if not isinstance(torch, Exception):
        yield _thread_count(torch.get_num_threads(), cores)
        one_dnn = torch.backends.mkldnn.is_available()
        yield Finding(
            section="threads",
            name="oneDNN",
            value="used for products on the CPU" if one_dnn else "not in this torch: products on the CPU are slower",
            standing=Standing.OK if one_dnn else Standing.NOTE,
        )
    yield _wait_policy(os.environ.get("OMP_WAIT_POLICY", "").lower(), os.environ.get("GOMP_SPINCOUNT", ""))
    busy = os.getloadavg()[0]
    is_busy = busy > max(0.5, cores / 4)
    yield Finding(
        section="threads",
        name="load",
        value=f"{busy:.1f} of {cores:g} cores busy over the last minute",
        standing=Standing.NOTE if is_busy else Standing.OK,
        remedy="Steps take longer beside other programs, and a measurement is too low." if is_busy else "",
    )


def _thread_count(threads: int, cores: float) -> Finding:
    wanted = max(1, int(cores))
    value = f"torch computes with {threads}, {cores:g} cores are usable"
    remedy = ""
    if threads > wanted:
        value += ": threads wait for one another, which costs far more than it gains"
        remedy = f"export OMP_NUM_THREADS={wanted}"
    elif threads < wanted and "OMP_NUM_THREADS" in os.environ:  # by itself torch takes one thread a physical core
        value += f": OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} leaves cores idle"
        remedy = "unset OMP_NUM_THREADS"
    standing = Standing.NOTE if remedy else Standing.OK
    return Finding(section="threads", name="number", value=value, standing=standing, remedy=remedy)


def _wait_policy(policy: str, spins: str) -> Finding:
    """How threads wait for the next piece of work; `groupwise` itself sets passive with 10000 turns."""
    value = f"OMP_WAIT_POLICY={policy or '(not set)'}, GOMP_SPINCOUNT={spins or '(not set)'}"
    slow = ""
    if policy == "active":
        slow = "threads that spin take the time of others on a busy machine (a forward was ten times slower)"
    elif policy == "passive" and not spins:
        slow = "threads that sleep at once make a decode step about two times slower"
    return Finding(
        section="threads",
        name="waiting",
        value=f"{value}: {slow}" if slow else value,
        standing=Standing.NOTE if slow else Standing.OK,
        remedy="unset OMP_WAIT_POLICY (groupwise then lets them spin briefly and sleep)" if slow else "",
    )


def _sandbox() -> Iterator[Finding]:
    yield Finding(section="sandbox", name="SQLite", value=sqlite3.sqlite_version)
    started = time.monotonic()
    sandbox = SqliteSandbox(num_workers=1)
    try:
        answer = sandbox.run(bundled.path("shop.sqlite"), PROBE, max_rows=1)
    finally:
        sandbox.close()
    if answer.status is QueryStatus.OK:
        value = f"a worker process started and answered in {1000 * (time.monotonic() - started):.0f} ms"
        yield Finding(section="sandbox", name="workers", value=value)
        return
    yield Finding(
        section="sandbox",
        name="workers",
        value=f"no worker process answers: {answer.status.value} {answer.message}",
        standing=Standing.PROBLEM,
        remedy=f"Let this user start processes: `{sys.executable} -c 'print(1)'` must work, and `ulimit -u` be high.",
    )


def _storage() -> Iterator[Finding]:
    folder = cache_folder()
    free = free_disk_bytes(folder)
    few = free < MODEL_DISK_BYTES
    yield Finding(
        section="disk",
        name="cache",
        value=f"{folder}, {_gigabytes(free)} free",
        standing=Standing.NOTE if few else Standing.OK,
        remedy="Free some disk, or point XDG_CACHE_HOME at a folder with room." if few else "",
    )


def _hub(ask: bool) -> Iterator[Finding]:
    if not ask:
        offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")
        value = "not asked" + ("; HF_HUB_OFFLINE keeps it from being used" if offline else " (--hub asks it)")
        yield Finding(section="hub", name="reachable", value=value)
        return
    try:
        from huggingface_hub.constants import ENDPOINT
    except ImportError:
        yield Finding(
            section="hub", name="reachable", value="not known without huggingface_hub", standing=Standing.NOTE
        )
        return
    yield hub_answer(ENDPOINT)


def hub_answer(address: str) -> Finding:
    """Whether a hub answers at all; what it answers does not matter."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=HUB_LIMIT_S):
            pass
    except urllib.error.HTTPError:
        pass  # it answered
    except (OSError, ValueError) as error:
        return Finding(
            section="hub",
            name="reachable",
            value=f"no: {address} ({error})",
            standing=Standing.NOTE,
            remedy="Give models as folders or .gguf files, or set HF_ENDPOINT to a mirror that this machine reaches.",
        )
    return Finding(section="hub", name="reachable", value=f"yes: {address}")


def _profile() -> Iterator[Finding]:
    path = hardware_file()
    if not path.is_file():
        yield _no_profile("this machine was not measured: plans need the name of a card")
        return
    try:
        hardware = read_hardware(path)
    except ConfigError as error:
        yield _no_profile(str(error).split("\n")[0])
        return
    days = (time.time() - path.stat().st_mtime) / 86400
    old = days > OLD_PROFILE_DAYS
    yield Finding(
        section="profile",
        name="measured",
        value=f"{_age(days)}: {hardware.name}, {_rates(hardware)} ({path})",
        standing=Standing.NOTE if old else Standing.OK,
        remedy=MEASURE if old else "",
    )


def _no_profile(value: str) -> Finding:
    return Finding(section="profile", name="measured", value=value, standing=Standing.NOTE, remedy=MEASURE)


def _rates(hardware: Hardware) -> str:
    return f"training at {hardware.train_flops / 1e9:.0f} GFLOP/s"


def _age(days: float) -> str:
    if days < 2:
        return f"{max(0, round(days * 24))} hours ago"
    return f"{days:.0f} days ago"


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
