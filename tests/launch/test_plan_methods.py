"""The methods on one recipe: the recipe's own stages, defaults for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.launch.plan import Plan, make_plan
from groupwise.launch.plan_methods import MethodCost
from plan_job import GRPO, SFT, write_plan_job

LONG = (("group_size = 2", "group_size = 8"), ("prompts_per_step = 1", "prompts_per_step = 4"))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("methods")
    recipe = write_plan_job(folder, *LONG, stages=SFT + GRPO)
    return make_plan(recipe, hardware=str(folder / "round.json"), pass_rates=[0.5])


@pytest.fixture(scope="module")
def costs(plan: Plan) -> dict[str, MethodCost]:
    return {cost.method: cost for cost in plan.methods}


def test_the_recipe_s_own_stages_are_compared(plan: Plan, costs: dict[str, MethodCost]) -> None:
    assert [cost.method for cost in plan.methods] == ["sft", "dpo", "ppo", "grpo"]
    assert {name for name, cost in costs.items() if cost.is_planned} == {"sft", "grpo"}
    for stage in plan.stages:
        assert costs[stage.method].compute == stage.compute
        assert costs[stage.method].full == stage.memory


def test_the_others_learn_from_as_much(costs: dict[str, MethodCost]) -> None:
    by_name = {name: {p.name: p.flops for p in cost.compute.phases} for name, cost in costs.items()}
    assert by_name["ppo"]["decode"] == by_name["grpo"]["decode"]  # as many rows of the same lengths
    # four pairs in one tree: prompts of 4 with two sides of 3 have 10 nodes, 46 pairs and 5 heads each
    assert by_name["dpo"]["train"] == pytest.approx(4 * 3 * 1148)


def test_networks_are_those_that_are_held(costs: dict[str, MethodCost]) -> None:
    assert {name: cost.networks for name, cost in costs.items()} == {
        "sft": ("policy",),
        "dpo": ("policy",),
        "ppo": ("policy", "critic", "reference"),
        "grpo": ("policy",),
    }
    state = ("weights", "gradients", "optimizer")
    ppo, grpo = costs["ppo"].full.parts, costs["grpo"].full.parts
    assert sum(ppo[f"critic_{part}"] for part in state) == 50 * 2 * 4
    assert costs["ppo"].full.total > costs["grpo"].full.total
    assert grpo["weights"] == 100


def test_sharing_prefixes_saves_where_prompts_repeat(costs: dict[str, MethodCost]) -> None:
    for name in ("dpo", "grpo"):
        train, whole = (
            {p.name: p.flops for p in compute.phases}["train"] for compute in (costs[name].compute, costs[name].whole)
        )
        assert train < whole
    # whole: 32 rows of 7 tokens, 28 pairs each, logits everywhere, in the share of groups that live
    live = 1 - 2 * 0.5**8
    whole = {p.name: p.flops for p in costs["grpo"].whole.phases}["train"]
    assert whole == pytest.approx(live * 32 * 3 * (2 * 34 * 7 + 8 * 28 + 20 * 7))


def test_adapters_are_shown_beside_full_training(tmp_path: Path, costs: dict[str, MethodCost]) -> None:
    rank = costs["grpo"].lora.parts["optimizer"] / 8
    assert rank == 16 * (4 * 4 + 3 * 5)  # 16 (inputs + outputs) of q, k, v, o and the MLP's three
    recipe = write_plan_job(tmp_path, ("[data]", "[model.lora]\nrank = 2\n\n[data]"))
    plan = make_plan(recipe, hardware=str(tmp_path / "round.json"), pass_rates=[0.5])
    grpo = next(cost for cost in plan.methods if cost.method == "grpo")
    assert grpo.lora.parts["optimizer"] == 8 * 2 * 31
    assert grpo.full.parts["optimizer"] == 200
    assert plan.stages[1].memory == grpo.lora
