"""The benchmark of recording: the step it makes up has the sizes it names, and the share of a run is right by hand."""

from __future__ import annotations

import json
from pathlib import Path

import logging_cost
import pytest

from groupwise.runs import FileRecorder, RunDirectory, read_run


def test_a_step_has_the_sizes_that_are_named() -> None:
    groups = logging_cost.one_step(3)
    assert [len(group.rollouts) for group in groups] == [8] * 8
    assert {len(group.prompt.token_ids) for group in groups} == {340}
    assert {len(rollout.completion.token_ids) for group in groups for rollout in group.rollouts} == {30}


def test_every_step_is_on_record(tmp_path: Path) -> None:
    cost = logging_cost.bundled_cost(tmp_path, steps=2, tensorboard=False)
    assert cost.waited > 0
    (run,) = tmp_path.iterdir()
    assert [len(read_run(run).rollouts("grpo", step)) for step in (1, 2)] == [64, 64]


def test_the_share_of_a_run_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create(tmp_path, "r")
    for step, (record, whole) in enumerate(((0.01, 2.0), (0.03, 6.0)), start=1):
        FileRecorder(run).metrics("grpo", step, {"seconds_record": record, "seconds_step": whole})
    assert logging_cost.recorded_share(run.path) == pytest.approx((0.02, 4.0, 0.005))  # (0.01 + 0.03) / (2 + 6)
    logging_cost.main(["--run", str(run.path)])
    assert "0.50%" in "".join(capsys.readouterr())


def test_a_run_without_the_numbers_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "r")
    run.metrics.write_text(json.dumps({"stage": "grpo", "step": 1}) + "\n")
    with pytest.raises(SystemExit, match="no seconds_record"):
        logging_cost.recorded_share(run.path)
