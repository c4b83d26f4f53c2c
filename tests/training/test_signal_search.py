"""A collection without a gradient is no step, is not lost, and not many of them follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import (
    FakeEngine,
    ListRecorder,
    said,
    small_llama,
    small_policy,
    tasks_and_prompts,
    verdict,
    weights,
)

from groupwise.curation import PromptLedger
from groupwise.models import tree_scores
from groupwise.rollout import Sampling
from groupwise.runs import FileRecorder, RunDirectory, read_events, read_metrics
from groupwise.training import GrpoOptions, OptimOptions, StageOptions, StageOutcome, grpo, run_stage
from groupwise.training.algorithm import Collected
from groupwise.training.grpo import StepSampling
from groupwise.types import Recorder, Task, Verdict


class Pays:
    """Pays every completion the same, except those of the collections in `live`, in which only the first is paid."""

    def __init__(self, reward: float, live: Sequence[int] = ()) -> None:
        self.reward, self.live, self.collection = reward, live, 0

    def judge(self, task: Task, completion_text: str) -> Verdict:
        if self.collection in self.live:
            return verdict(float(completion_text == "0"))
        return verdict(self.reward)

    def gold(self, task: Task) -> str:
        return "0"


def stage(
    verifier: Pays,
    tmp_path: Path,
    recorder: Recorder,
    *,
    extra_rounds: int = 0,
    beta: float = 0.0,
    steps: int = 3,
    max_empty_steps: int = 4,
    **seams: Any,
) -> tuple[StageOutcome, torch.Tensor, FakeEngine]:
    tasks, prompts = tasks_and_prompts(8)
    engine = FakeEngine(lambda p, c: said(str(c), 5 + c, 1))
    algorithm = grpo(
        GrpoOptions(beta=beta),
        engine=engine,
        verifier=verifier,
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([t.id for t in tasks], seed=0),
        step_sampling=StepSampling(prompts_per_step=2, group_size=3, extra_rounds=extra_rounds),
        sampling=Sampling(max_tokens=8),
        seed=0,
    )

    def collect(number: int) -> Collected | None:
        verifier.collection = number
        return algorithm.collect(number)

    policy = small_policy()
    outcome = run_stage(
        StageOptions(
            name="stage",
            num_steps=steps,
            optim=OptimOptions(lr=1e-3, schedule="linear"),
            checkpoints=tmp_path / "weights",
            max_empty_steps=max_empty_steps,
        ),
        replace(algorithm, collect=collect),
        policy,
        scores=tree_scores,
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=seams.pop("on_step", lambda step, metrics: None),
        should_stop=seams.pop("should_stop", lambda: False),
        **seams,
    )
    return outcome, weights(policy.model), engine


@pytest.mark.parametrize("extra_rounds", [0, 2])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_verifier_that_pays_all_or_nothing_ends_the_stage_with_its_numbers(
    tmp_path: Path, reward: float, extra_rounds: int
) -> None:
    recorder = ListRecorder()
    outcome, after, engine = stage(Pays(reward), tmp_path, recorder, extra_rounds=extra_rounds)
    assert (outcome.steps_done, outcome.policy_version, outcome.stopped) == (0, 0, False)
    assert torch.equal(after, weights(small_llama()))
    assert len(engine.calls) == 4 * (1 + extra_rounds)
    num_groups = 4 * 2 * (1 + extra_rounds)
    none, every = (num_groups, 0) if reward == 0 else (0, num_groups)
    assert f"4 collections in a row had no group with both right and wrong answers: of {num_groups} groups, " in (
        outcome.diagnosis
    )
    assert f"{none} had no right answer and {every} only right ones" in outcome.diagnosis
    assert ("too hard" if reward == 0 else "too easy") in outcome.diagnosis
    assert [(row["step"], row["updated"], row["policy_version"]) for row in recorder.rows] == [
        (n, 0, 0) for n in (1, 2, 3, 4)
    ]
    name, payload = recorder.events[0]
    assert (name, payload) == ("no_signal", {"stage": "stage", "step": 1, "diagnosis": outcome.diagnosis})


@pytest.mark.parametrize("extra_rounds", [0, 2])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_with_a_kl_there_is_a_gradient_and_every_collection_is_a_step(
    tmp_path: Path, reward: float, extra_rounds: int
) -> None:
    recorder = ListRecorder()
    outcome, *_ = stage(Pays(reward), tmp_path, recorder, extra_rounds=extra_rounds, beta=0.1)
    assert (outcome.steps_done, outcome.policy_version, outcome.diagnosis) == (3, 3, "")
    assert [row["updated"] for row in recorder.rows] == [1, 1, 1]
    assert all(row["num_trained_tokens"] == 2 * 3 * 2 for row in recorder.rows)  # two groups, replaced or not


def test_empty_collections_take_no_step_and_keep_the_learning_rate_waiting(tmp_path: Path) -> None:
    recorder = ListRecorder()
    steps: list[int] = []
    empties: list[int] = []
    outcome, *_ = stage(
        Pays(0.0, live=(2, 3, 6)),
        tmp_path,
        recorder,
        on_step=lambda step, metrics: steps.append(step),
        on_empty=lambda num, metrics: empties.append(num),
    )
    assert (outcome.steps_done, outcome.policy_version, outcome.diagnosis) == (3, 3, "")
    assert (steps, empties) == ([1, 2, 3], [1, 2, 1, 2])
    assert [row["updated"] for row in recorder.rows] == [0, 0, 1, 1, 0, 0, 1]
    assert [row["policy_version"] for row in recorder.rows] == [0, 0, 1, 2, 2, 2, 3]
    learning_rates = [row["lr"] for row in recorder.rows if row["updated"]]
    assert learning_rates == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3])


def test_a_repeated_collection_samples_with_other_random_numbers(tmp_path: Path) -> None:
    _, _, engine = stage(Pays(0.0), tmp_path, ListRecorder(), extra_rounds=1)
    assert len({seed for _, _, seed in engine.calls}) == len(engine.calls) == 8


def test_what_empty_collections_sampled_is_kept_beside_the_steps(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "run")
    stage(Pays(0.0, live=(2, 3)), tmp_path, FileRecorder(directory), steps=4)
    assert sorted(path.name for path in directory.rollouts.iterdir()) == [
        "stage-000001.parquet",
        "stage-000002.parquet",
        *(f"stage-no-signal-00000{n}.parquet" for n in (1, 2, 5, 6, 7, 8)),
    ]
    rows = read_metrics(directory.metrics)
    assert [(row["stage"], row["step"]) for row in rows if row["updated"]] == [("stage", 1), ("stage", 2)]
    assert [row["step"] for row in rows if row["stage"] == "stage-no-signal"] == [1, 2, 5, 6, 7, 8]
    (event,) = (e for e in read_events(directory.events) if e["event"] == "no_signal")
    assert (event["step"], event["diagnosis"][:13]) == (3, "4 collections")


def test_asked_to_stop_it_ends_between_empty_collections(tmp_path: Path) -> None:
    recorder = ListRecorder()
    outcome, *_ = stage(Pays(0.0), tmp_path, recorder, should_stop=lambda: len(recorder.rows) >= 2)
    assert (len(recorder.rows), outcome.steps_done, outcome.stopped, outcome.diagnosis) == (2, 0, True, "")
