"""A plan's numbers by hand, what is refused, and the pass rates that it rests on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.launch import hardware_choice
from groupwise.launch.plan import Plan, make_plan
from groupwise.planning.hardware import named_hardware
from groupwise.planning.pass_rates import BetaRates
from plan_job import GRPO, ROUND, SFT, write_plan_job


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    return make_plan(write_plan_job(tmp_path), hardware=str(tmp_path / "round.json"), pass_rates=[0.5])


def phases(plan: Plan, stage: int) -> dict[str, float]:
    return {phase.name: pytest.approx(phase.seconds) for phase in plan.stages[stage].compute.phases}


def test_lengths_and_shape_come_from_the_files(planned: Plan) -> None:
    lengths = planned.lengths
    assert (lengths.prompt, lengths.trunk, lengths.demonstration, lengths.completion, lengths.longest) == (
        4,
        0,
        3,
        3,
        3,
    )
    assert planned.shape.num_params == 50


def test_seconds_of_every_phase_by_hand(planned: Plan) -> None:
    # one sequence of 7: forward 2 * 34 * 7 + 8 * 28 pairs + 2 * 10 * 3 logits = 760; update 10 * 2 bytes * 50
    assert phases(planned, 0) == {"train": 3 * 760 / 10, "update": 1000 / 2}
    # half of the groups live: of a tree of 4 + 3 + 3 nodes, 46 pairs and 5 heads, 1148 operations a forward
    assert phases(planned, 1) == {
        "prefill": (2 * 34 * 4 + 8 * 10 + 2 * 10) / 20,
        "decode": (2 * 44 * 2 + 14 * 8) / 4 + (2 * 44 * 4 + 8 * 4 * 5.5) / 5,
        "train": 0.5 * 3 * 1148 / 10,
        "update": 1000 / 2,
    }


def test_the_whole_run_is_its_stages_and_its_evaluations(planned: Plan) -> None:
    # one row of 3 tokens: two decode steps read 88 weights and the keys of 2 * 1.5 + 2 * 4 tokens
    evaluation = 372 / 20 + (2 * 88 + 11 * 8) / 4 + (2 * 44 * 2 + 8 * 2 * 5.5) / 5
    assert planned.evaluation_s == pytest.approx(evaluation)
    assert planned.num_evaluations == 3
    grpo = 18.6 + 177.6 + 172.2 + 500
    assert planned.seconds == pytest.approx(10 * 728 + 4 * grpo + 3 * evaluation)
    assert planned.price is None


def test_a_price_an_hour_prices_the_run(tmp_path: Path, planned: Plan) -> None:
    (tmp_path / "second").mkdir()
    recipe = write_plan_job(tmp_path / "second")
    plan = make_plan(recipe, hardware=str(tmp_path / "round.json"), pass_rates=[0.5], price_per_hour=3.6)
    assert plan.price == pytest.approx(planned.seconds / 1000)
    with pytest.raises(ConfigError, match=r"price = -1.*0 or more"):
        make_plan(recipe, price_per_hour=-1)


def test_evaluations_inside_a_stage_are_counted(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, ("greedy = false", "greedy = true\nevery = 3"), ("steps = 10", "steps = 9"))
    plan = make_plan(recipe, hardware=str(tmp_path / "round.json"))
    assert plan.num_evaluations == 3 + 2 + 1  # after steps 3 and 6 of nine, and 3 of four
    assert plan.evaluation_s == pytest.approx(2 * 137.4)


def test_measuring_before_grpo_costs_two_samples_of_each_prompt(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, ("enabled = false", "samples_per_prompt = 2"))
    plan = make_plan(recipe, hardware=str(tmp_path / "round.json"), pass_rates=[0.5])
    # two prompts prefilled; 4 rows * 2 steps; keys of 4 * 2 * 1.5 own + 2 prompts * 4 * 2
    expected = 2 * 372 / 20 + (2 * 88 + 28 * 8) / 4 + (2 * 44 * 8 + 8 * 8 * 5.5) / 5
    assert plan.stages[1].before_s == pytest.approx(expected)
    assert plan.stages[0].before_s == 0
    assert plan.stages[1].seconds == pytest.approx(plan.stages[1].compute.run_seconds + expected)


def test_one_rate_of_a_tenth_gives_the_known_table(tmp_path: Path) -> None:
    recipe = write_plan_job(
        tmp_path, ("group_size = 2", "group_size = 8"), ("prompts_per_step = 1", "prompts_per_step = 4")
    )
    plan = make_plan(recipe, pass_rates=[0.1])
    found = {g.group_size: g for g in plan.groups}
    assert list(found) == [2, 4, 8, 16, 32]  # 64 do not fit into 4 * 8 rollouts
    assert round(found[4].all_fail, 2) == 0.66
    assert round(found[16].all_fail, 2) == 0.19
    assert {g.num_prompts * g.group_size for g in plan.groups} == {32}
    assert found[8].usable_groups == pytest.approx(4 * (1 - 0.9**8 - 0.1**8))
    assert plan.live_share == pytest.approx(found[8].informative)


def test_where_nothing_is_measured_a_u_shape_is_assumed_and_said(tmp_path: Path) -> None:
    plan = make_plan(write_plan_job(tmp_path))
    assert plan.rates == BetaRates(alpha=0.5, beta=0.5)
    assert not plan.rates_measured
    assert "not measured" in plan.rates_source


def test_without_a_measured_machine_an_h100_is_planned_for_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware_choice, "hardware_file", lambda: tmp_path / "none.json")
    plan = make_plan(write_plan_job(tmp_path))
    assert plan.hardware == named_hardware("h100")
    assert any("H100" in note and "doctor --measure" in note for note in plan.notes)
    assert not make_plan(write_plan_job_again(tmp_path), hardware="l4").notes


def write_plan_job_again(folder: Path):
    inner = folder / "again"
    inner.mkdir()
    return write_plan_job(inner)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"pass_rates": [0.5, 1.5]}, r"1\.5.*between 0 and 1"),
        ({"pass_rates": [-0.1]}, r"-0\.1.*between 0 and 1"),
        ({"budget": 1}, r"budget = 1: expected.*>= 2.*\n.*One group takes 2 rollouts"),
        ({"hardware": "abacus"}, r"'abacus'.*h100"),
        ({"ranks": 0}, "ranks = 0"),
    ],
)
def test_bad_input_is_refused_with_the_reason(tmp_path: Path, asked: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_plan(write_plan_job(tmp_path), **asked)


def test_a_group_of_one_is_refused_by_the_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be its own baseline"):
        write_plan_job(tmp_path, ("group_size = 2", "group_size = 1"))


def test_a_larger_budget_shows_larger_groups(tmp_path: Path) -> None:
    plan = make_plan(write_plan_job(tmp_path), budget=64)
    assert [g.group_size for g in plan.groups] == [2, 4, 8, 16, 32, 64]


def test_ranks_divide_the_state_and_leave_the_seconds(tmp_path: Path, planned: Plan) -> None:
    (tmp_path / "second").mkdir()
    two = make_plan(
        write_plan_job(tmp_path / "second"), hardware=str(tmp_path / "round.json"), pass_rates=[0.5], ranks=2
    )
    assert two.stages[1].memory.parts["optimizer"] == planned.stages[1].memory.parts["optimizer"] // 2 == 100
    assert two.seconds == planned.seconds


@pytest.mark.parametrize(
    ("rates", "memory", "limit", "names"),
    [
        ([0.5], 10**9, "Time binds: stage 'sft'", "a step is update"),
        ([0.001], 10**9, "Signal binds: 100% of the groups of 4", "teach nothing"),
        ([0.001], 600, "Memory binds: stage 'grpo'", "GB of round's"),
        (None, 10**9, "Time binds", ""),  # assumed rates say nothing of this task
    ],
)
def test_the_binding_limit_follows_one_input(
    tmp_path: Path, rates: list[float] | None, memory: int, limit: str, names: str
) -> None:
    machine = dataclasses.replace(ROUND, memory_bytes=memory)
    recipe = write_plan_job(
        tmp_path, ("steps = 10", "steps = 100"), ("group_size = 2", "group_size = 4"), hardware=machine
    )
    plan = make_plan(recipe, hardware=str(tmp_path / "round.json"), pass_rates=rates)
    assert plan.binding.startswith(limit)
    assert names in plan.binding


def test_the_method_knows_what_the_recipe_offers(tmp_path: Path) -> None:
    plan = make_plan(write_plan_job(tmp_path), hardware=str(tmp_path / "round.json"), pass_rates=[0.4])
    assert plan.method.summary == "grpo"
    assert {left.method: left.reason for left in plan.method.left_out}["dpo"].startswith("2 preference pairs")


def test_a_stage_without_groups_has_no_share_of_live_ones(tmp_path: Path) -> None:
    plan = make_plan(write_plan_job(tmp_path, stages=SFT), pass_rates=[0.0])
    assert plan.live_share is None
    assert plan.binding.startswith("Time binds")
    assert make_plan(write_plan_job_again(tmp_path), pass_rates=[0.0]).live_share == 0


def test_no_tasks_are_refused(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, stages=GRPO)
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(DataError):
        make_plan(recipe)
