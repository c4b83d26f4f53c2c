"""What control groups allow, read from folders that look like the system's."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.launch import machine
from groupwise.launch.machine import free_disk_bytes, group_limits, resident_bytes, usable_cores, usable_memory_bytes


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def membership(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "membership"
    path.write_text(text)
    return path


def test_the_smallest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(root / "jobs" / "one", cpu__max="max 100000\n", memory__max="max\n")
    write(root / "jobs", cpu__max="150000 100000\n", memory__max="3000000\n")
    write(root, cpu__max="400000 100000\n", memory__max="9000000\n")
    limits = group_limits(root, membership(tmp_path, "0::/jobs/one\n"))
    assert limits.cores == 1.5  # 150000 of every 100000 microseconds
    assert limits.memory_bytes == 3_000_000


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(root / "cpu,cpuacct")  # the folder of a pair of controllers; each has a link of its own name
    write(root / "cpu" / "box", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    write(root / "memory" / "box", memory__limit_in_bytes="2000000\n")
    write(root / "memory", memory__limit_in_bytes="9223372036854771712\n")
    limits = group_limits(root, membership(tmp_path, "4:cpu,cpuacct:/box\n7:memory:/box\n"))
    assert limits.cores == 0.5
    assert limits.memory_bytes == 2_000_000


@pytest.mark.parametrize("quota", ["-1", "0"])
def test_no_limit_is_none(tmp_path: Path, quota: str) -> None:
    root = tmp_path / "cgroup"
    write(root / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    write(root / "memory", memory__limit_in_bytes="9223372036854771712")
    limits = group_limits(root, membership(tmp_path, "4:cpu:/\n7:memory:/\n"))
    assert limits.cores is None
    assert limits.memory_bytes is None
    limits = group_limits(tmp_path / "none", tmp_path / "none")
    assert limits.cores is None
    assert limits.memory_bytes is None


def test_a_group_of_another_namespace_does_not_lead_out_of_the_mount(tmp_path: Path) -> None:
    write(tmp_path, cpu__max="100000 100000")
    root = tmp_path / "cgroup"
    write(root, cpu__max="200000 100000")
    assert group_limits(root, membership(tmp_path, "0::/../..\n")).cores == 2.0


def test_a_quota_lowers_the_usable_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = machine.GroupLimits(cores=0.5, memory_bytes=1000)
    monkeypatch.setattr(machine, "group_limits", lambda: limits)
    assert usable_cores() == 0.5
    assert usable_memory_bytes() == 1000
    monkeypatch.setattr(machine, "group_limits", lambda: machine.GroupLimits(cores=1e6, memory_bytes=None))
    assert usable_cores() == machine.allowed_cores()
    assert usable_memory_bytes() == machine.physical_memory_bytes()


def test_this_process_holds_some_memory_and_no_more_than_the_machine_has() -> None:
    assert 1_000_000 < resident_bytes() < machine.physical_memory_bytes()


def test_free_disk_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert free_disk_bytes(tmp_path / "a" / "b") > 0
