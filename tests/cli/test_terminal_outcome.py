"""The end of a run: the command that is printed loads the policy, whatever else lies beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from groupwise.cli.terminal import Terminal
from groupwise.runs import RunDirectory, RunSummary


def test_a_reward_model_is_not_offered_as_the_trained_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = RunDirectory.create(tmp_path, "pipeline")
    for name in ("grpo-3", "reward-5"):
        (directory.checkpoints / name).mkdir(parents=True)
    (directory.checkpoints / "reward-5" / "reward_model.json").write_text("{}")
    os.utime(directory.checkpoints / "grpo-3", (1, 1))  # the older one
    Terminal().outcome(directory, RunSummary(stages=(), peak_memory_bytes=0, seeds={}, versions={}))
    shown = capsys.readouterr().out
    assert "grpo-3" in shown
    assert "reward-5" not in shown


def test_what_was_not_written_to_its_end_is_not_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = RunDirectory.create(tmp_path, "crashed")
    for name in ("grpo-3", "grpo-6.partial"):
        (directory.checkpoints / name).mkdir(parents=True)
    os.utime(directory.checkpoints / "grpo-3", (1, 1))
    Terminal().outcome(directory, RunSummary(stages=(), peak_memory_bytes=0, seeds={}, versions={}))
    assert "grpo-3'" in capsys.readouterr().out


def test_a_run_without_a_policy_of_its_own_offers_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = RunDirectory.create(tmp_path, "judge")
    (directory.checkpoints / "reward-5").mkdir(parents=True)
    (directory.checkpoints / "reward-5" / "reward_model.json").write_text("{}")
    Terminal().outcome(directory, RunSummary(stages=(), peak_memory_bytes=0, seeds={}, versions={}))
    assert "Load the trained model" not in capsys.readouterr().out
