"""Forecasts of a run's stages: what completions and counts say, and how far off they were."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from fakes import fake_task
from groupwise.curation import BetaPrior, fit_prior
from groupwise.errors import ConfigError
from groupwise.launch import forecast as module
from groupwise.launch.forecast import (
    Forecast,
    Forecaster,
    Meter,
    errors_line,
    expected_live_share,
    forecaster,
    sampled_lengths,
    shared_by_siblings,
)
from groupwise.planning.model_shape import from_config
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Verdict
from plan_job import GRPO, ROUND, SFT, write_plan_job

SHAPE_CONFIG = {
    "num_hidden_layers": 1, "hidden_size": 2, "intermediate_size": 3, "num_attention_heads": 1,
    "vocab_size": 5, "tie_word_embeddings": True,
}  # fmt: skip
WRONG = Verdict(status=Status.SCORED, reward=0.0, outcome=False, reason="wrong")


def group(*completions: tuple[int, ...]) -> Group:
    rollouts = tuple(
        Rollout(completion=Completion(text="", token_ids=ids, sampler_logprobs=(0.0,) * len(ids)), verdict=WRONG)
        for ids in completions
    )
    return Group(task=fake_task(), prompt=Prompt(task_id="q0", token_ids=(1,)), rollouts=rollouts)


@pytest.mark.parametrize("num_rows", [1, 2, 3])
def test_the_expected_longest_is_that_of_all_draws(num_rows: int) -> None:
    lengths = [2, 2, 5, 9]
    found = sampled_lengths([group((0,) * 2, (0,) * 9), group((0,) * 5, (1, 1))], num_rows)
    draws = [max(draw) for draw in itertools.product(lengths, repeat=num_rows)]
    assert found == pytest.approx((4.5, fmean(draws)))


def test_nothing_sampled_has_no_lengths() -> None:
    assert sampled_lengths([], 3) is None
    assert sampled_lengths([group()], 3) is None


def solved(some: Group) -> Group:
    """The same group with its first rollout right."""
    right = replace(some.rollouts[0], verdict=replace(WRONG, outcome=True, reward=1.0))
    return replace(some, rollouts=(right, *some.rollouts[1:]))


def test_siblings_share_what_neighbours_in_order_begin_with() -> None:
    # in order (1 1 2), (1 2 3), (1 2 4): 1 and 2 in common, 6 nodes of 9 tokens
    groups = [group((1, 2, 4), (1, 1, 2), (1, 2, 3)), group((5, 5))]
    assert shared_by_siblings(groups, 3) == pytest.approx((1 + 2) / 2)
    assert shared_by_siblings([group((1, 2))], 8) == 0
    assert shared_by_siblings([], 8) == 0


def test_larger_groups_share_more_as_a_power() -> None:
    # 6 nodes of 3 completions of length 3: N(n) = 3 n^a with a = log 2 / log 3
    groups = [group((1, 2, 4), (1, 1, 2), (1, 2, 3))]
    nodes = 3 * 9 ** (math.log(2) / math.log(3))  # 12
    assert nodes == pytest.approx(12)
    assert shared_by_siblings(groups, 9) == pytest.approx((9 * 3 - nodes) / 8)


def test_groups_that_share_nothing_and_groups_of_copies() -> None:
    assert shared_by_siblings([group((1, 2), (3, 4))], 8) == pytest.approx(0)
    assert shared_by_siblings([group((1, 2), (1, 2))], 8) == pytest.approx(2)


def test_only_groups_that_train_count_where_there_are_any() -> None:
    copies, mixed = group((1, 2), (1, 2)), solved(group((1, 2), (3, 4)))
    assert shared_by_siblings([copies, mixed], 8) == pytest.approx(0)
    assert shared_by_siblings([copies], 8) == pytest.approx(2)


def test_the_prior_is_of_all_counts_and_the_mean_of_those_that_are_sampled() -> None:
    counts = {f"dead{i}": (0, 16) for i in range(8)} | {"open": (8, 16), "other": (4, 16)}
    prior = fit_prior(list(counts.values()))

    def live(solved: int, scored: int) -> float:
        return 1 - prior.posterior(solved=solved, scored=scored).zero_variance_probability(8)

    assert expected_live_share(counts, ["open", "other"], 8) == pytest.approx((live(8, 16) + live(4, 16)) / 2)
    assert expected_live_share(counts, ["open", "new"], 8) == pytest.approx((live(8, 16) + live(0, 0)) / 2)
    alike = counts | {"twin": (8, 16)}
    assert expected_live_share(alike, ["open", "twin"], 8) == pytest.approx(expected_live_share(alike, ["open"], 8))
    assert expected_live_share(counts, list(counts), 8) < expected_live_share(counts, ["open"], 8)


def test_without_counts_a_u_shape_is_assumed() -> None:
    expected = 1 - BetaPrior(alpha=0.5, beta=0.5).posterior(solved=0, scored=0).zero_variance_probability(4)
    assert expected_live_share({}, ["a"], 4) == pytest.approx(expected)
    assert expected_live_share({}, [], 4) == pytest.approx(expected)


@pytest.fixture
def job(tmp_path: Path) -> Forecaster:
    recipe = write_plan_job(tmp_path, stages=SFT + GRPO)
    return Forecaster(
        recipe=recipe,
        hardware=ROUND,
        shape=from_config(SHAPE_CONFIG),
        prompts=[(1, 0, 0, 0), (2, 0, 0, 0)],
        demonstrations=[3],
    )


def test_a_stage_is_forecast_as_it_is_planned(job: Forecaster) -> None:
    sft, grpo = job.recipe.stages
    expected = job.stage(sft, {}, [])
    assert (expected.generate_s, expected.train_s) == pytest.approx((0, 728))
    assert expected.live_share is None
    assert expected.seconds == pytest.approx(10 * 728)
    job.saw([group((0, 1, 2), (1, 1, 1))])
    live = expected_live_share({"a": (4, 8)}, ["a"], 2)
    expected = job.stage(grpo, {"a": (4, 8)}, ["a"])
    assert expected.generate_s == pytest.approx(18.6 + 177.6)
    assert expected.train_s == pytest.approx(live * 3 * 1148 / 10 + 500)
    assert expected.live_share == live
    assert expected.steps == 4


def test_the_newest_completions_count(job: Forecaster) -> None:
    grpo = job.recipe.stages[1]
    job.saw([group((0, 1, 2), (1, 1, 1))])
    long = job.stage(grpo, {}, ["a"]).generate_s
    job.saw([group((0, 1), (1, 1))])
    assert job.stage(grpo, {}, ["a"]).generate_s < long
    job.saw([])  # an evaluation without samples says nothing
    assert job.stage(grpo, {}, ["a"]).generate_s < long


def test_completions_of_the_prompts_that_will_be_sampled_tell_more(job: Forecaster) -> None:
    grpo = job.recipe.stages[1]
    job.saw([group((0, 1, 2), (1, 1, 1))])
    heldout = job.stage(grpo, {}, [fake_task().id]).generate_s
    job.saw_training([group((0, 1), (1, 1))])
    assert job.stage(grpo, {}, [fake_task().id]).generate_s < heldout
    assert job.stage(grpo, {}, ["another"]).generate_s == heldout
    job.saw([group((0, 1, 2), (1, 1, 1))])  # new weights
    assert job.stage(grpo, {}, [fake_task().id]).generate_s == heldout


def test_a_forecast_needs_a_measured_machine_and_a_known_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_plan_job(tmp_path)

    def unmeasured(name: str) -> object:
        raise ConfigError("not measured")

    monkeypatch.setattr(module, "chosen_hardware", unmeasured)
    assert forecaster(recipe, SHAPE_CONFIG, [(1,)], []) is None
    monkeypatch.setattr(module, "chosen_hardware", lambda name: ROUND)
    assert forecaster(recipe, {**SHAPE_CONFIG, "num_experts": 8}, [(1,)], []) is None
    assert forecaster(recipe, SHAPE_CONFIG, [(1,)], [2]) is None, "50 weights: its operations are not what takes time"
    monkeypatch.setattr(module, "SMALLEST_PARAMS", 50)
    found = forecaster(recipe, SHAPE_CONFIG, [(1,)], [2], [(3, 4.0)])
    assert found is not None
    assert (found.hardware, found.shape.num_params, found.pairs) == (ROUND, 50, [(3, 4.0)])


def test_what_a_stage_took_is_set_against_its_forecast() -> None:
    meter = Meter()
    for live in (2.0, 4.0):
        meter.add({"seconds_generate": 3.0, "seconds_train": 1.0, "num_groups": 4.0, "live_groups": live})
    expected = Forecast(steps=9, generate_s=4.0, train_s=1.0, peak_bytes=3_000_000_000, live_share=0.5)
    compared = meter.compared(expected, 2_000_000_000)
    assert compared == {
        "seconds_generate": {"forecast": 8.0, "measured": 6.0},
        "seconds_train": {"forecast": 2.0, "measured": 2.0},
        "peak_bytes": {"forecast": 3e9, "measured": 2e9},
        "live_share": {"forecast": 0.5, "measured": 0.75},
    }
    assert errors_line("grpo", compared) == (
        "grpo against its forecast: sampling 6 s (forecast 8 s, +33%); training 2 s (forecast 2 s, +0%); "
        "peak memory 2.0 GB (forecast 3.0 GB, +50%); live groups 75% (forecast 50%, -33%)"
    )


def test_a_method_without_sampling_or_groups_is_not_told_of_them() -> None:
    meter = Meter()
    meter.add({"seconds_train": 1.0, "num_groups": 4.0})
    compared = meter.compared(Forecast(steps=9, generate_s=0.0, train_s=1.0, peak_bytes=10), 0)
    assert set(compared) == {"seconds_train", "peak_bytes"}
    assert "(forecast 0.0 GB)" in errors_line("sft", compared)
    assert str(Forecast(steps=100, generate_s=0.5, train_s=0.5, peak_bytes=10**9)) == "forecast 1.7 min, 1.0 GB"
