"""Whole runs of methods that need more than GRPO does: a reference while sampling, several updates."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from groupwise.cli import main as command_line
from groupwise.config import load_recipe
from groupwise.launch import local
from groupwise.launch.assemble_grpo import grpo_options
from groupwise.runs import read_metrics
from groupwise.training.algorithm import Updates
from groupwise.training.group_rewards import OverlongPenalty
from tiny_job import replaced, write_job

VARIABLES = {
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def rows_of(folder: Path, settings: str) -> list[dict[str, float]]:
    def change(text: str) -> str:
        text = replaced('{ name = "grpo" }', f'{{ name = "grpo", {settings} }}')(text)
        return replaced("steps = 10", "steps = 20")(replaced("lr = 1e-2", "lr = 3e-2")(text))

    directory, _ = local.train(load_recipe(write_job(folder, change)))
    return [row for row in read_metrics(directory.metrics) if row["stage"] == "grpo"]


def test_the_kl_in_the_reward_is_measured_against_the_start_of_the_stage(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 'preset = "rloo"')
    assert abs(rows[0]["kl_in_reward"]) < 1e-3  # the reference is the policy, but for rounding
    assert all(math.isfinite(row["kl_in_reward"]) and "kl_to_ref" not in row for row in rows)


def test_dapo_with_several_updates(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 'preset = "dapo", loss = { epochs = 2, minibatches = 2 }')
    assert rows[0]["policy_version"] == 20 + 4
    assert {"ratio", "ratio_tail_frac", "clipped_low", "clipped_high", "overlong_penalty", "entropy"} <= set(rows[0])


def test_the_sections_reach_the_options(tmp_path: Path) -> None:
    settings = (
        'preset = "dapo", importance_cap = 5.0, advantage = { overlong_share = 0.2, std = "sample", eps = 0.0, '
        "skip_dead_groups = false }, loss = { epochs = 2, minibatches = 3, dual_clip = 3.0, entropy_coef = 0.5, "
        'report_entropy = false, importance_level = "sequence", importance_floor = 0.5 }'
    )
    path = write_job(tmp_path, replaced('{ name = "grpo" }', f'{{ name = "grpo", {settings} }}'))
    recipe = load_recipe(path)
    options = grpo_options(recipe, recipe.stages[1].algorithm, None)  # type: ignore[arg-type]
    assert options.overlong_penalty == OverlongPenalty(weight=0.5, buffer_tokens=4, max_tokens=20)
    assert options.updates == Updates(epochs=2, minibatches=3)
    assert (options.clip_high, options.dual_clip, options.entropy_coef, options.report_entropy) == (0.28, 3, 0.5, False)
    assert (options.importance_cap, options.importance_level, options.importance_floor) == (5.0, "sequence", 0.5)
    assert (options.std, options.eps, options.skip_dead_groups, options.mask_truncated) == ("sample", 0.0, False, False)


def test_a_contradiction_ends_with_code_2_and_both_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = '{ name = "grpo", preset = "gspo", normalize = "token" }'
    path = write_job(tmp_path, replaced('{ name = "grpo" }', settings))
    for name, value in VARIABLES.items():  # what main() sets must not stay set for other tests
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["groupwise", "train", str(path)])
    with pytest.raises(SystemExit) as stop:
        command_line.main()
    assert stop.value.code == 2
    assert (
        'normalize = "token" contradicts preset = "gspo", which sets normalize = "sequence"' in capfd.readouterr().err
    )
