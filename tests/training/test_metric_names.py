"""The registry and the algorithms name the same numbers: small stages of every kind, name by name."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import END, FakeEngine, ListRecorder, SaysYes, said, small_llama, small_policy, tasks_and_prompts

from groupwise.curation import PromptLedger, RetireRule
from groupwise.launch.cost import with_costs
from groupwise.models import LoadedModel, ScoredSequence, tree_scores
from groupwise.models.reference import frozen_reference
from groupwise.models.reward_model import reward_model_from, tree_rewards
from groupwise.models.value_model import (
    score_function,
    tree_values,
    value_head_for,
    value_model_from,
    with_value_head,
)
from groupwise.rollout import Sampling
from groupwise.runs import RunDirectory
from groupwise.runs.metrics.metric import ALL
from groupwise.runs.metrics.of_costs import PHASES
from groupwise.runs.metrics.registry import CRITIC, FAMILIES, METRICS, OF_A_CRITIC, SET_ASIDE, describe_metric
from groupwise.training import GrpoOptions, OptimOptions, StageOptions, grpo, run_stage, sft
from groupwise.training.algorithm import Algorithm, Updates
from groupwise.training.dpo import DpoOptions, dpo
from groupwise.training.group_rewards import OverlongPenalty
from groupwise.training.grpo import StepSampling
from groupwise.training.pairs import ScoredPair
from groupwise.training.ppo import PpoOptions, ppo
from groupwise.training.ppo_networks import Networks, OwnCritic, SharedCritic
from groupwise.training.reward_model import RewardModelOptions, reward_model

OPTIM = OptimOptions(lr=1e-3)
TWICE = Updates(epochs=2)
PAIRS = tuple(
    ScoredPair(*(ScoredSequence(token_ids=(2, 3, 4 + i, side, END), prompt_length=3) for side in (8, 9)))
    for i in range(2)
)


def rows_of(algorithm: Algorithm, loaded: LoadedModel, folder: Path) -> set[str]:
    """Every name in the rows of two steps, among them those of what was spent."""
    recorder, directory = ListRecorder(), RunDirectory.create(folder, "run")
    directory.plan.write_text(json.dumps({"seconds": 100.0, "price": 2.0}))
    run_stage(
        StageOptions(name="s", num_steps=2, optim=OPTIM, checkpoints=folder / "weights"),
        algorithm,
        loaded,
        scores=tree_scores,
        recorder=with_costs(recorder, directory),
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    assert any(row["updated"] for row in recorder.rows)
    return {name for row in recorder.rows for name in row} - {"step"}  # which the recorder adds itself


def sampling_parts(ledger: Mapping[str, Any]) -> dict[str, Any]:
    tasks, prompts = tasks_and_prompts(4)
    return {
        "engine": FakeEngine(lambda p, c: said("yes" if c == p % 2 else "no", 5 + c, 6, END)),
        "verifier": SaysYes(),
        "tasks": tasks,
        "prompts": prompts,
        "ledger": PromptLedger([task.id for task in tasks], seed=0, **ledger),
        "sampling": Sampling(max_tokens=8),
        "seed": 0,
    }


def grpo_names(folder: Path) -> Iterable[set[str]]:
    penalty = OverlongPenalty(weight=0.5, buffer_tokens=4, max_tokens=8)
    cases: list[tuple[GrpoOptions, dict[str, Any]]] = [
        (GrpoOptions(beta=0.1, report_entropy=True, mask_truncated=True), {}),
        (GrpoOptions(importance_cap=2.0, overlong_penalty=penalty), {"extra_rounds": 1}),
        (GrpoOptions(importance_cap=2.0, importance_floor=0.5), {"size_bounds": (2, 4)}),
        (GrpoOptions(updates=TWICE, dual_clip=3.0), {}),
        (GrpoOptions(beta=0.1, kl_in_reward=True), {}),
    ]
    for number, (options, sampled) in enumerate(cases):
        loaded = small_policy()

        def logprobs(sequences: Any) -> torch.Tensor:
            return tree_scores(small_llama(1), list(sequences), temperature=1.0).logprobs.detach()

        algorithm = grpo(
            options,
            step_sampling=StepSampling(prompts_per_step=2, group_size=3, **sampled),
            reference_logprobs=logprobs if options.kl_in_reward else None,
            **sampling_parts({"rule": RetireRule(solved_above=0.95, hopeless_below=0.05, confidence=0.8)}),
        )
        yield rows_of(algorithm, loaded, folder / str(number))


def ppo_names(folder: Path) -> Iterable[set[str]]:
    for shared in (False, True):
        loaded = small_policy()
        model, critic = loaded.model, None
        critic = (
            SharedCritic(head=value_head_for(model))
            if shared
            else OwnCritic(model=value_model_from(model), scores=score_function(tree_values), optim=OPTIM)
        )
        networks = Networks(
            policy=model,
            scores=with_value_head(tree_scores, critic.head) if isinstance(critic, SharedCritic) else tree_scores,
            critic=critic,
            reference=frozen_reference(model),
            tokens_per_microbatch=64,
        )
        options = PpoOptions(prompts_per_step=2, completions_per_prompt=2, updates=TWICE)
        yield rows_of(ppo(options, networks=networks, **sampling_parts({})), loaded, folder / str(shared))


def sft_names(folder: Path) -> Iterable[set[str]]:
    rows = [ScoredSequence(token_ids=(2, 3, 4 + i, END), prompt_length=2) for i in range(2)]
    yield rows_of(sft(rows, tasks_per_step=2, seed=0), small_policy(), folder)


def dpo_names(folder: Path) -> Iterable[set[str]]:
    options = DpoOptions(pairs_per_step=2, nll_coef=0.5)
    yield rows_of(dpo(PAIRS, options, seed=0, reference=torch.full((2, 2), -9.0)), small_policy(), folder)


def reward_model_names(folder: Path) -> Iterable[set[str]]:
    loaded = small_policy()
    model = reward_model_from(loaded.model, seed=0)
    algorithm = reward_model(PAIRS, RewardModelOptions(pairs_per_step=2), model=model, rewards=tree_rewards, seed=0)
    yield rows_of(algorithm, replace(loaded, model=model.body), folder)


RUNS = {
    "sft": sft_names,
    "dpo": dpo_names,
    "reward_model": reward_model_names,
    "grpo": grpo_names,
    "ppo": ppo_names,
}


@functools.cache
def reported(algorithm: str, folder: Path) -> frozenset[str]:
    return frozenset(name for names in RUNS[algorithm](folder / algorithm) for name in names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


def registered(algorithm: str) -> set[str]:
    """What the registry says that this algorithm reports; members in place of families."""
    names = {metric.name for metric in METRICS if algorithm in metric.algorithms}
    set_aside, critic = FAMILIES
    if algorithm in set_aside.algorithms:
        names |= {SET_ASIDE + reason for reason in PromptLedger(["q"], seed=0).set_aside()}
    if algorithm in critic.algorithms:
        names |= {CRITIC + name for name in OF_A_CRITIC}
    return names


@pytest.mark.parametrize("algorithm", RUNS)
def test_what_a_stage_reports_is_registered_and_the_other_way_round(algorithm: str, folder: Path) -> None:
    assert set(RUNS) == set(ALL)
    found, expected = reported(algorithm, folder), registered(algorithm)
    assert sorted(found - expected) == [], "reported, and not in runs/metrics/registry.py"
    assert sorted(expected - found) == [], "in runs/metrics/registry.py, and reported by nothing"
    for name in found:
        metric = describe_metric(name)
        assert metric is not None
        assert metric.name == name
        assert algorithm in metric.algorithms


def test_a_number_that_only_some_recipes_report_says_which(folder: Path) -> None:
    """Every other one is in the rows of every step of its algorithms, whatever the options."""
    for algorithm, names_of in RUNS.items():
        always = set.intersection(*map(set, names_of(folder / f"{algorithm}-again")))
        for name in reported(algorithm, folder) - always:
            metric = describe_metric(name)
            assert metric is not None
            assert metric.when or name.startswith(SET_ASIDE), f"{name} is not in every row of {algorithm}"


def test_the_phases_are_those_of_the_registry(folder: Path) -> None:
    seconds = {n.removeprefix("seconds_") for a in RUNS for n in reported(a, folder) if n.startswith("seconds_")}
    assert seconds == {*PHASES, "step"}
