from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.runs import RunDirectory, write_atomic

NOON = datetime(2026, 9, 1, 12, 0, 5)


def test_a_run_folder_is_named_after_the_run_and_the_time(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "deep" / "runs", "shop-sql", now=NOON)
    assert run.path == tmp_path / "deep" / "runs" / "shop-sql-20260901-120005"
    assert sorted(p.name for p in run.path.iterdir()) == ["checkpoints", "rollouts"]
    assert RunDirectory.open(run.path) == run


def test_runs_of_the_same_second_get_their_own_folders(tmp_path: Path) -> None:
    names = [RunDirectory.create(tmp_path, "r", now=NOON).path.name for _ in range(3)]
    assert names == ["r-20260901-120005", "r-20260901-120005-2", "r-20260901-120005-3"]


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "a b", "a\n"])
def test_a_name_that_is_no_folder_name_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a run folder"):
        RunDirectory.create(tmp_path / "runs", name)
    assert list(tmp_path.iterdir()) == []


def test_an_output_dir_that_is_a_file_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(ConfigError, match="output_dir"):
        RunDirectory.create(tmp_path / "runs", "r")


def test_opening_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run folder"):
        RunDirectory.open(tmp_path)


def test_rollout_files_sort_by_step_and_a_stage_name_cannot_leave_the_folder() -> None:
    run = RunDirectory(Path("r"))
    assert run.rollouts_of("grpo", 9).name < run.rollouts_of("grpo", 10).name
    assert run.rollouts_of("../x", 1).parent == run.rollouts


def test_write_atomic_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomic(path, "a long first text")
    write_atomic(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_atomic(path, "old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
