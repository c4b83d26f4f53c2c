"""Every second of a stage belongs to one phase of one step, to an evaluation, or to a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_cases import FakeEngine, ListRecorder, SaysYes, said, small_llama, small_policy, tasks_and_prompts

from groupwise.curation import PromptLedger
from groupwise.models import tree_scores
from groupwise.models.logprobs import ScoredSequence, loss_mask
from groupwise.rollout import Sampling
from groupwise.training import GrpoOptions, OptimOptions, StageOptions, grpo, loop, phases, run_stage
from groupwise.training.algorithm import Updates
from groupwise.training.grpo import StepSampling
from groupwise.training.phases import PhaseClock
from groupwise.types import Completion, Group, Task, Verdict

PHASES = ("generate", "judge", "score", "train", "sync", "record", "other")


class Clock:
    """Stands still unless something says how long it takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def takes(self, seconds: float) -> None:
        self.now += seconds


def test_a_lap_is_what_is_left_of_it_after_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Clock(monkeypatch)
    clock = PhaseClock()
    time.takes(3.5)
    clock.lap("other", inside={"seconds_generate": 3.0, "seconds_judge": 0.25, "pass_rate": 0.5})
    time.takes(2.0)
    clock.lap("train")
    time.takes(7.0)
    assert clock.skip() == 7.0
    time.takes(0.5)
    expected = {"seconds_generate": 3.0, "seconds_judge": 0.25, "seconds_other": 0.25, "seconds_train": 2.5}
    assert clock.row("train") == {**expected, "seconds_step": 6.0}
    time.takes(1.0)
    clock.lap("record")
    assert clock.row("train") == {"seconds_record": 1.0, "seconds_train": 0.0, "seconds_step": 1.0}


class SlowEngine(FakeEngine):
    def __init__(self, time: Clock) -> None:
        super().__init__(lambda p, c: said("yes" if c == 0 else "no", 5 + c, 1))
        self.time = time

    def generate(self, *arguments: Any, **named: Any) -> list[list[Completion]]:
        self.time.takes(8.0)
        return super().generate(*arguments, **named)


class SlowVerifier(SaysYes):
    """Judges a whole collection at once."""

    def __init__(self, time: Clock) -> None:
        self.time = time

    def judge_many(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        self.time.takes(4.0)
        return [self.judge(task, text) for task, text in pairs]


class SlowRecorder(ListRecorder):
    def __init__(self, time: Clock) -> None:
        super().__init__()
        self.time = time

    def rollouts(self, stage: str, step: int, groups: Sequence[Group], *rest: Any, **named: Any) -> None:
        super().rollouts(stage, step, groups, *rest, **named)
        self.time.takes(0.5)

    def metrics(self, *arguments: Any) -> None:
        super().metrics(*arguments)
        self.time.takes(0.25)


def test_steps_evaluations_and_checkpoints_are_the_whole_time_of_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four collections, the second of which is no step. A step makes two updates, so that the old policy is scored."""
    time = Clock(monkeypatch)
    tasks, prompts = tasks_and_prompts(4)
    model = small_policy()

    def scores(of: Any, sequences: Sequence[ScoredSequence], **named: Any) -> Any:
        time.takes(16.0)
        return tree_scores(of, sequences, **named)

    def reference_logprobs(sequences: Sequence[ScoredSequence]) -> Any:
        time.takes(32.0)
        return tree_scores(small_llama(), list(sequences), temperature=1.0).logprobs.detach() * loss_mask(sequences)

    def save(*arguments: Any, **named: Any) -> Path:
        time.takes(64.0)
        return tmp_path

    monkeypatch.setattr(loop, "save_checkpoint", save)
    algorithm = grpo(
        GrpoOptions(beta=0.01, kl_in_reward=True, updates=Updates(epochs=2), advantage="leave_one_out"),
        engine=SlowEngine(time),
        verifier=SlowVerifier(time),
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([t.id for t in tasks], seed=0, rule=None),
        step_sampling=StepSampling(prompts_per_step=2, group_size=3),
        sampling=Sampling(max_tokens=8),
        seed=0,
        reference_logprobs=reference_logprobs,
    )

    def collect(number: int) -> Any:
        found = algorithm.collect(number)
        assert found is not None
        time.takes(2.0)
        return replace(found, batch=None) if number == 1 else found

    recorder = SlowRecorder(time)
    began = time.now
    run_stage(
        StageOptions(name="s", num_steps=3, optim=OptimOptions(lr=1e-3), checkpoints=tmp_path, checkpoint_every=2),
        replace(algorithm, collect=collect),
        model,
        scores=scores,
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: time.takes(1.0),
        on_step=lambda step, metrics: time.takes(128.0),
        on_empty=lambda number, metrics: time.takes(256.0),
        should_stop=lambda: False,
    )
    # 2 updates of one micro-batch each, and one forward without gradient; the reference's forward is told, too
    step = {"generate": 8.0, "judge": 4.0, "score": 32.0 + 16.0, "train": 32.0, "sync": 1.0, "other": 2.0}
    empty = {"generate": 8.0, "judge": 4.0, "score": 32.0, "other": 2.0}
    expected = [
        step | {"record": 0.5},  # its own rollouts
        empty | {"record": 0.25 + 0.5},  # and the row before
        step | {"record": 0.25 + 0.5},
        step | {"record": 0.25 + 0.5},
    ]
    found = [{name: row[f"seconds_{name}"] for name in PHASES if f"seconds_{name}" in row} for row in recorder.rows]
    assert found == expected
    assert [row["seconds_step"] for row in recorder.rows] == [sum(row.values()) for row in expected]
    checkpoints = sum(payload["seconds"] for name, payload in recorder.events if name == "checkpoint")
    assert checkpoints == 2 * 64.0
    last_row, between = 0.25, 3 * 128.0 + 256.0
    total = sum(row["seconds_step"] for row in recorder.rows) + checkpoints + last_row + between
    assert time.now - began == pytest.approx(total)


def test_on_a_real_clock_the_phases_sum_to_the_step(tmp_path: Path) -> None:
    recorder = ListRecorder()
    tasks, prompts = tasks_and_prompts(2)
    began = phases.time.monotonic()
    algorithm = grpo(
        GrpoOptions(),
        engine=FakeEngine(lambda p, c: said("yes" if c == 0 else "no", 5 + c, 1)),
        verifier=SaysYes(),
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([t.id for t in tasks], seed=0, rule=None),
        step_sampling=StepSampling(prompts_per_step=2, group_size=3),
        sampling=Sampling(max_tokens=8),
        seed=0,
    )
    run_stage(
        StageOptions(name="s", num_steps=3, optim=OptimOptions(lr=1e-3), checkpoints=tmp_path),
        algorithm,
        small_policy(),
        scores=tree_scores,
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    wall = phases.time.monotonic() - began
    for row in recorder.rows:
        assert row["seconds_step"] == pytest.approx(sum(row.get(f"seconds_{name}", 0.0) for name in PHASES))
        assert all(row.get(f"seconds_{name}", 0.0) >= 0 for name in PHASES)
        assert row["memory_bytes"] > 1e7
    checkpoint = sum(payload["seconds"] for name, payload in recorder.events if name == "checkpoint")
    assert 0.5 * wall < sum(row["seconds_step"] for row in recorder.rows) + checkpoint <= wall
