"""Alternatives save what they say, and those that ease the binding limit come first."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from groupwise.config import Recipe
from groupwise.launch.plan import Plan, make_plan
from groupwise.launch.plan_alternatives import duration
from groupwise.planning.hardware import write_hardware
from plan_job import GRPO, ROUND, SFT, SMOLLM2, write_plan_job

WIDE = (("group_size = 2", "group_size = 8"), ("prompts_per_step = 1", "prompts_per_step = 4"))


def planned(recipe: Recipe, rates: list[float], memory: int = 10**9) -> Plan:
    path = recipe.folder / "round.json"
    write_hardware(path, dataclasses.replace(ROUND, memory_bytes=memory))
    return make_plan(recipe, hardware=str(path), pass_rates=rates)


def changed(recipe: Recipe, section: str, **update: object) -> Recipe:
    return recipe.model_copy(update={section: getattr(recipe, section).model_copy(update=update)})


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return write_plan_job(tmp_path, *WIDE, ("steps = 10", "steps = 2"))


@pytest.mark.parametrize(
    ("rates", "first", "saves"),
    [
        ([0.5], "half the steps of every stage", "time"),
        ([0.02], "rollout.prompts_per_step = 8", "groups that teach something"),
    ],
)
def test_what_eases_the_binding_limit_comes_first(recipe: Recipe, rates: list[float], first: str, saves: str) -> None:
    plan = planned(recipe, rates)
    assert len(plan.alternatives) == 3
    assert plan.alternatives[0].change == first
    assert saves in plan.alternatives[0].saves


def test_where_memory_binds_the_largest_saving_comes_first(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, *WIDE, config=SMOLLM2)
    plan = planned(recipe, [0.5], 12 * 10**8)
    assert plan.binding.startswith("Memory binds")
    assert plan.alternatives[0].change == "[model.lora] rank = 16"
    assert "memory" in plan.alternatives[0].saves
    assert "learning rate" in plan.alternatives[0].costs


def test_what_is_said_to_be_saved_is_saved(recipe: Recipe) -> None:
    """Every change that is offered, made in the recipe and planned anew, gives the numbers that were told."""
    made = {
        "rollout.group_size = 4": changed(recipe, "rollout", group_size=4),
        "rollout.group_size = 16, rollout.prompts_per_step = 2": changed(
            recipe, "rollout", group_size=16, prompts_per_step=2
        ),
        "rollout.prompts_per_step = 8": changed(recipe, "rollout", prompts_per_step=8),
        "half the steps of every stage": recipe.model_copy(
            update={"stages": tuple(s.model_copy(update={"steps": s.steps // 2}) for s in recipe.stages)}
        ),
        "model.gradient_checkpointing = true": changed(recipe, "model", gradient_checkpointing=True),
    }
    tried = 0
    for rates in ([0.5], [0.05]):
        before = planned(recipe, rates)
        for alternative in before.alternatives:
            if alternative.change not in made:
                continue
            tried += 1
            after = planned(made[alternative.change], rates)
            told = f"{alternative.saves}; {alternative.costs}"
            for old, new, name, better in (
                (before.seconds, after.seconds, "time", after.seconds < before.seconds),
                (before.live_share, after.live_share, "share of live groups", after.live_share > before.live_share),
            ):
                if abs(new - old) < 0.02 * old:
                    assert name not in told
                    continue
                shown = [f"{v:.0%}" if "share" in name else duration(v) for v in (new, old)]
                text = f"{name} {shown[0]} instead of {shown[1]}"
                assert text in (alternative.saves if better else alternative.costs)
    assert tried >= 4


def test_every_alternative_is_a_recipe_that_is_allowed(tmp_path: Path) -> None:
    stage = GRPO.replace('name = "grpo" }', 'name = "grpo", loss = { minibatches = 30 } }')
    recipe = write_plan_job(tmp_path, *WIDE, stages=stage.replace("lr = 1e-3", "lr = 1e-3, warmup_steps = 3"))
    changes = [a.change for rates in ([0.5], [0.01]) for a in planned(recipe, rates).alternatives]
    assert "half the steps of every stage" not in changes  # the warm-up would not end
    assert "rollout.group_size = 4" not in changes  # 16 completions make no 30 mini-batches


def test_sft_alone_has_three_alternatives_too(tmp_path: Path) -> None:
    recipe = write_plan_job(tmp_path, ("tasks_per_step = 1", "tasks_per_step = 8"), stages=SFT, config=SMOLLM2)
    plan = planned(recipe, [0.5])
    assert len(plan.alternatives) == 3
    assert not any("rollout" in a.change or "groups" in a.saves for a in plan.alternatives)
    recomputed = ("[model]", "[model]\ngradient_checkpointing = true")  # else it is the third alternative
    eight = ("tasks_per_step = 1", "tasks_per_step = 8")
    again = tmp_path / "again"
    again.mkdir()
    recipe = write_plan_job(again, recomputed, eight, stages=SFT, config=SMOLLM2)
    plan = planned(recipe, [0.5])
    halved = next(a for a in plan.alternatives if a.change.startswith("tasks_per_step = 4"))
    assert "noisier" in halved.costs


@pytest.mark.parametrize(("seconds", "told"), [(41.26, "41.3 s"), (600, "10.0 min"), (7200, "2.0 h"), (0.5, "0.5 s")])
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told
