"""The one loop: updates, versions, the reference, stopping, checkpoints; and that it learns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training_cases import (
    FakeEngine,
    ListRecorder,
    SaysYes,
    ShiftedEngine,
    said,
    small_llama,
    small_policy,
    tasks_and_prompts,
    verdict,
    weights,
)
from transformers import AutoModelForCausalLM

from groupwise.curation import PromptLedger
from groupwise.errors import EngineError
from groupwise.models import LoadedModel, ScoredSequence, TokenScores, tree_logprobs, tree_scores
from groupwise.rollout import Engine, Sampling, TorchEngine
from groupwise.training import GrpoOptions, OptimOptions, StageOptions, StageOutcome, grpo, run_stage, sft
from groupwise.training.algorithm import Algorithm, Updates
from groupwise.training.batch import Batch
from groupwise.training.grpo import StepSampling, loss_function
from groupwise.training.numerics import GapBounds, gap_bounds
from groupwise.training.step import optimizer_step
from groupwise.types import Task, Verdict, Verifier


def run(
    algorithm: Algorithm,
    policy: LoadedModel,
    folder: Path,
    *,
    steps: int = 3,
    recorder: ListRecorder | None = None,
    versions: list[int] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    scores: Any = tree_scores,
    checkpoint_every: int = 0,
    gap_bounds: GapBounds | None = None,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
    **optim: Any,
) -> StageOutcome:
    return run_stage(
        StageOptions(
            name="stage",
            num_steps=steps,
            optim=OptimOptions(**{"lr": 1e-3, **optim}),
            checkpoints=folder,
            checkpoint_every=checkpoint_every,
            gap_bounds=gap_bounds,
        ),
        algorithm,
        policy,
        scores=scores,
        recorder=recorder or ListRecorder(),
        policy_version=10,
        on_new_weights=[].append if versions is None else versions.append,
        on_step=on_step,
        should_stop=should_stop,
    )


def grpo_on(
    engine: Engine,
    options: GrpoOptions,
    *,
    verifier: Verifier | None = None,
    group_size: int = 4,
    max_tokens: int = 8,
    top_p: float = 1.0,
    num_tasks: int = 2,
    **step: Any,
) -> Algorithm:
    tasks, prompts = tasks_and_prompts(num_tasks)
    return grpo(
        options,
        engine=engine,
        verifier=verifier or SaysYes(),
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([t.id for t in tasks], seed=0),
        step_sampling=StepSampling(prompts_per_step=2, group_size=group_size, **step),
        sampling=Sampling(max_tokens=max_tokens, top_p=top_p),
        seed=0,
    )


def imitation() -> Algorithm:
    rows = [ScoredSequence(token_ids=(2, 3, 4 + i, 1), prompt_length=2) for i in range(4)]
    return sft(rows, tasks_per_step=2, seed=0)


ALIVE = FakeEngine(lambda p, c: said("yes", 5, 1) if c == 0 else said("no", 6, 7, 1))
DEAD = FakeEngine(lambda p, c: said("no", 5 + c, 1))


def test_collections_in_which_every_group_is_dead_are_no_steps_and_change_nothing(tmp_path: Path) -> None:
    policy, recorder, versions = small_policy(), ListRecorder(), []
    outcome = run(
        grpo_on(DEAD, GrpoOptions()), policy, tmp_path, recorder=recorder, versions=versions, weight_decay=0.1
    )
    assert torch.equal(weights(policy.model), weights(small_llama()))
    assert (versions, outcome.policy_version, outcome.steps_done, outcome.stopped) == ([], 10, 0, False)
    assert [(row["updated"], row["policy_version"], row["step"]) for row in recorder.rows] == [
        (0, 10, n) for n in range(1, 9)
    ]
    assert len(recorder.groups) == 8  # what was sampled is still on record
    assert recorder.groups[0][1] == ((0.0,) * 4,) * 2


def test_each_update_is_one_version(tmp_path: Path) -> None:
    policy, recorder, versions = small_policy(), ListRecorder(), []
    outcome = run(grpo_on(ALIVE, GrpoOptions()), policy, tmp_path, recorder=recorder, versions=versions)
    assert versions == [11, 12, 13]
    assert (outcome.policy_version, outcome.steps_done, outcome.stopped) == (13, 3, False)
    assert [row["policy_version"] for row in recorder.rows] == [11, 12, 13]
    assert not torch.equal(weights(policy.model), weights(small_llama()))


def test_several_updates_a_step_are_as_many_versions_and_one_row_of_metrics(tmp_path: Path) -> None:
    policy, recorder, versions = small_policy(), ListRecorder(), []
    algorithm = replace(grpo_on(ALIVE, GrpoOptions()), updates=Updates(epochs=2, minibatches=2))
    outcome = run(algorithm, policy, tmp_path, recorder=recorder, versions=versions, schedule="linear")
    assert versions == [14, 18, 22]
    assert (outcome.policy_version, outcome.steps_done) == (22, 3)
    assert [row["policy_version"] for row in recorder.rows] == [14, 18, 22]
    assert [row["lr"] for row in recorder.rows] == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3])  # one rate a step
    assert {row["num_trained_tokens"] for row in recorder.rows} == {2 * 2 * (2 + 3 * 3)}  # 2 epochs, 2 groups
    state = json.loads((outcome.checkpoint / "groupwise.json").read_text())
    assert (state["step"], state["policy_version"]) == (3, 22)
    assert all(p.grad is None for p in policy.model.parameters())
    once = small_policy()
    run(grpo_on(ALIVE, GrpoOptions()), once, tmp_path / "once", schedule="linear")
    moved, moved_once = (weights(p.model) - weights(small_llama()) for p in (policy, once))
    assert moved.norm() > 2 * moved_once.norm()


def test_grpo_learns_with_several_updates_a_step(tmp_path: Path) -> None:
    policy, recorder = small_policy(), ListRecorder()
    algorithm = grpo_on(TorchEngine(policy), GrpoOptions(), verifier=BeginsWithSeven(), group_size=24, max_tokens=3)
    algorithm = replace(algorithm, updates=Updates(epochs=2, minibatches=2))
    run(algorithm, policy, tmp_path, steps=8, recorder=recorder, lr=1e-2, gap_bounds=gap_bounds(policy.model))
    rates = [row["pass_rate"] for row in recorder.rows]
    assert rates[0] < 0.3
    assert rates[-1] > 0.8
    # against the weights that sampled, in every update
    assert max(row["logprob_gap_max"] for row in recorder.rows if row["updated"]) < 1e-4


def test_a_step_of_several_updates_is_refused_before_the_first(tmp_path: Path) -> None:
    policy, recorder, versions = small_policy(), ListRecorder(), []
    engine = ShiftedEngine(TorchEngine(policy), 3e-4)
    algorithm = grpo_on(engine, GrpoOptions(), verifier=BeginsWithSeven(), group_size=24, max_tokens=3)
    algorithm = replace(algorithm, updates=Updates(epochs=2, minibatches=2))
    with pytest.raises(EngineError, match=r"(?s)^stage, step 1: .*update was not made"):
        run(algorithm, policy, tmp_path, recorder=recorder, versions=versions, gap_bounds=gap_bounds(policy.model))
    assert torch.equal(weights(policy.model), weights(small_llama()))
    assert all(p.grad is None for p in policy.model.parameters())
    assert (versions, [name for name, _ in recorder.events]) == ([], ["step_refused"])


def test_what_an_algorithm_writes_lies_in_every_checkpoint(tmp_path: Path) -> None:
    algorithm = replace(imitation(), save=lambda folder: (folder / "critic.txt").write_text("weights"))
    run(algorithm, small_policy(), tmp_path, steps=2, checkpoint_every=1)
    assert [(tmp_path / f"stage-{n}" / "critic.txt").read_text() for n in (1, 2)] == ["weights"] * 2


def test_with_a_kl_the_reference_is_a_frozen_copy_of_the_start(tmp_path: Path) -> None:
    policy, recorder = small_policy(), ListRecorder()
    seen: dict[int, Any] = {}

    def watched(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        seen[id(model)] = model
        return tree_scores(model, sequences, temperature=temperature, entropy=entropy)

    run(grpo_on(ALIVE, GrpoOptions(beta=0.1)), policy, tmp_path, recorder=recorder, scores=watched, lr=1e-2)
    assert len(seen) == 2
    (reference,) = (m for m in seen.values() if m is not policy.model)
    assert torch.equal(weights(reference), weights(small_llama()))
    assert not any(p.requires_grad for p in reference.parameters())
    kl = [row["kl_to_ref"] for row in recorder.rows]
    assert kl[0] == pytest.approx(0, abs=1e-7)
    assert kl[1] > 1e-6
    assert kl[2] > 1e-6


def test_without_a_kl_there_is_no_reference(tmp_path: Path) -> None:
    recorder = ListRecorder()
    run(grpo_on(ALIVE, GrpoOptions()), small_policy(), tmp_path, recorder=recorder)
    assert "kl_to_ref" not in recorder.rows[0]


def test_a_kl_pulls_even_where_every_group_is_dead(tmp_path: Path) -> None:
    versions: list[int] = []
    run(grpo_on(DEAD, GrpoOptions(beta=0.1)), small_policy(), tmp_path, versions=versions)
    assert versions == [11, 12, 13]


def test_the_learning_rate_follows_its_schedule(tmp_path: Path) -> None:
    recorder = ListRecorder()
    run(imitation(), small_policy(), tmp_path, steps=4, recorder=recorder, lr=0.4, schedule="linear")
    assert [row["lr"] for row in recorder.rows] == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change() -> None:
    model = small_llama()

    def poisoned(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        return TokenScores(tree_logprobs(model, sequences, temperature=temperature) * float("nan"))

    batch = Batch(
        sequences=(ScoredSequence(token_ids=(2, 3, 1), prompt_length=2),),
        advantages=torch.ones(1),
        sampler_logprobs=None,
        denominator=1.0,
    )
    with pytest.raises(FloatingPointError, match="nan"):
        optimizer_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            batch,
            loss_function(GrpoOptions()),
            scores=poisoned,
            temperature=1.0,
            tokens_per_microbatch=100,
            max_grad_norm=1.0,
        )
    assert torch.equal(weights(model), weights(small_llama()))


def test_a_checkpoint_opens_with_transformers_and_gives_the_same_logits(tmp_path: Path) -> None:
    policy, recorder = small_policy(), ListRecorder()
    outcome = run(grpo_on(ALIVE, GrpoOptions()), policy, tmp_path, recorder=recorder, lr=1e-2)
    assert outcome.checkpoint == tmp_path / "stage-3"
    opened = AutoModelForCausalLM.from_pretrained(outcome.checkpoint, dtype=torch.float32)
    ids = torch.tensor([[2, 3, 4, 5]])
    with torch.no_grad():
        assert torch.equal(opened(ids).logits, policy.model(ids).logits)
    state = json.loads((outcome.checkpoint / "groupwise.json").read_text())
    assert (state["stage"], state["step"], state["policy_version"]) == ("stage", 3, 13)
    assert state["algorithm"]["rows"]["q0"]["visits"] == 3
    assert [name for name, _ in recorder.events] == ["memory", "checkpoint"]
    seconds = recorder.events[1][1]["seconds"]
    assert recorder.events[1][1] == {
        "stage": "stage",
        "step": 3,
        "folder": str(outcome.checkpoint),
        "seconds": seconds,
    }
    assert seconds > 0


def test_checkpoints_come_every_so_many_steps_and_no_part_of_one_stays(tmp_path: Path) -> None:
    (tmp_path / "stage-2.partial").mkdir()
    (tmp_path / "stage-2.partial" / "left over").touch()
    run(imitation(), small_policy(), tmp_path, steps=4, checkpoint_every=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["stage-2", "stage-4"]
    assert not (tmp_path / "stage-2" / "left over").exists()


def test_asked_to_stop_it_ends_after_the_step_with_a_checkpoint(tmp_path: Path) -> None:
    done: list[int] = []
    outcome = run(
        imitation(),
        small_policy(),
        tmp_path,
        steps=5,
        on_step=lambda step, metrics: done.append(step),
        should_stop=lambda: len(done) >= 1,
    )
    assert (done, outcome.steps_done, outcome.stopped) == ([1], 1, True)
    assert (tmp_path / "stage-1" / "groupwise.json").is_file()


def test_a_stage_with_nothing_left_ends_early_and_says_so(tmp_path: Path) -> None:
    recorder = ListRecorder()
    algorithm = Algorithm(collect=lambda step: None, loss=lambda rows: None, temperature=1.0)  # type: ignore[arg-type, return-value]
    outcome = run(algorithm, small_policy(), tmp_path, recorder=recorder)
    assert (outcome.steps_done, outcome.policy_version) == (0, 10)
    assert outcome.diagnosis == "No training prompt is left to sample."
    assert recorder.events[0] == ("nothing_left", {"stage": "stage", "step": 1, "diagnosis": outcome.diagnosis})


class BeginsWithSeven:
    """Pays for the token 7 in the first place."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        return verdict(float(completion_text.split(" ")[0] == "7"))

    def gold(self, task: Task) -> str:
        return "7"


def test_grpo_learns_what_is_paid_for(tmp_path: Path) -> None:
    policy, recorder = small_policy(), ListRecorder()
    engine = TorchEngine(policy)
    algorithm = grpo_on(engine, GrpoOptions(), verifier=BeginsWithSeven(), group_size=24, max_tokens=3)
    run(algorithm, policy, tmp_path, steps=20, recorder=recorder, lr=1e-2, gap_bounds=gap_bounds(policy.model))
    rates = [row["pass_rate"] for row in recorder.rows]
    assert rates[0] < 0.3
    assert sum(rates[-3:]) / 3 > 0.9
    assert max(row["logprob_gap_max"] for row in recorder.rows if row["updated"]) < 1e-4  # sampler and trainer agree


def test_it_learns_with_allocated_sizes_and_replaced_groups(tmp_path: Path) -> None:
    policy, recorder = small_policy(), ListRecorder()
    options = GrpoOptions(scale="batch_std", nominal_group_size=12)
    sampled = {"num_tasks": 5, "size_bounds": (4, 24), "extra_rounds": 2, "group_size": 12, "max_tokens": 3}
    algorithm = grpo_on(TorchEngine(policy), options, verifier=BeginsWithSeven(), **sampled)
    run(algorithm, policy, tmp_path, steps=16, recorder=recorder, lr=1e-2, gap_bounds=gap_bounds(policy.model))
    rows = [row for row in recorder.rows if row["updated"]]
    assert any(row["smallest_group"] < 12 < row["largest_group"] for row in rows)
    assert any(row["num_rounds"] > 1 and row["num_kept_groups"] < row["num_groups"] for row in rows)
    assert rows[0]["pass_rate"] < 0.3
    assert rows[-1]["pass_rate"] > 0.8
    assert max(row["logprob_gap_max"] for row in rows) < 1e-4


def test_restricted_sampling_with_its_weight_is_no_gap_and_learns(tmp_path: Path) -> None:
    policy, recorder = small_policy(), ListRecorder()
    options = GrpoOptions(importance_cap=2.0)
    algorithm = grpo_on(
        TorchEngine(policy), options, verifier=BeginsWithSeven(), group_size=24, max_tokens=3, top_p=0.95
    )
    run(algorithm, policy, tmp_path, steps=8, recorder=recorder, lr=1e-2, gap_bounds=gap_bounds(policy.model))
    rows = [row for row in recorder.rows if row["updated"]]
    assert max(row["logprob_gap_max"] for row in rows) < 1e-4
    assert all(0.95 < row["importance_weight"] < 1 and row["importance_capped_frac"] == 0 for row in rows)
    assert sum(r["pass_rate"] for r in recorder.rows[-2:]) > sum(r["pass_rate"] for r in recorder.rows[:2]) + 0.4


@pytest.mark.parametrize("fault", ["stale", "offset"])
def test_a_step_sampled_from_something_else_is_refused_before_its_update(tmp_path: Path, fault: str) -> None:
    policy, recorder, versions = small_policy(), ListRecorder(), []
    engine: Engine = TorchEngine(small_policy())  # the same weights, until the first update
    if fault == "offset":
        engine = ShiftedEngine(TorchEngine(policy), 3e-4, start=1)
    after_first: list[Tensor] = []
    algorithm = grpo_on(engine, GrpoOptions(), verifier=BeginsWithSeven(), group_size=24, max_tokens=3)
    with pytest.raises(EngineError, match=r"(?s)^stage, step 2: .*update was not made.*older weights"):
        run(
            algorithm,
            policy,
            tmp_path,
            recorder=recorder,
            versions=versions,
            gap_bounds=gap_bounds(policy.model),
            on_step=lambda step, metrics: after_first.append(weights(policy.model)),
        )
    assert torch.equal(weights(policy.model), after_first[0])
    assert all(p.grad is None for p in policy.model.parameters())
    assert (versions, len(recorder.rows), len(recorder.groups)) == ([11], 1, 2)  # step 2 has rollouts and no numbers
    assert [name for name, _ in recorder.events] == ["memory", "step_refused", "checkpoint"]
    assert recorder.events[1][1]["step"] == 2
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "stage-1", dtype=torch.float32)
    assert torch.equal(weights(saved), after_first[0])


def test_without_bounds_any_gap_is_accepted(tmp_path: Path) -> None:
    recorder = ListRecorder()
    engine = ShiftedEngine(TorchEngine(policy := small_policy()), 0.5)
    run(grpo_on(engine, GrpoOptions(), verifier=BeginsWithSeven(), group_size=24), policy, tmp_path, recorder=recorder)
    assert recorder.rows[0]["logprob_gap_mean"] == pytest.approx(0.5, abs=1e-4)
