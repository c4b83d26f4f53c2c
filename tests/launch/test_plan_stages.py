"""Every kind of stage as a workload, and what it adds or saves against the method that it is planned as."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from groupwise.config import Recipe
from groupwise.config.algorithm_dpo import DpoSection
from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.stage import AlgorithmSection, SftSection
from groupwise.launch.plan_inputs import Lengths
from groupwise.launch.plan_stages import StagePlan, evaluation_seconds, method_of, plan_stage, sampling_seconds
from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import from_config
from plan_job import GRPO, ROUND, SFT, write_plan_job

LENGTHS = Lengths(
    prompt=4, trunk=0, demonstration=3, completion=3, longest=3, pair_prompt=5, pair_side=2, source="by hand"
)
DPO = '[[stages]]\nname = "dpo"\nsteps = 3\nalgorithm = { name = "dpo", pairs_per_step = 1 }\noptim = { lr = 1e-3 }\n'


def staged(name: str, settings: str = "") -> str:
    text = f'[[stages]]\nname = "{name}"\nsteps = 3\noptim = {{ lr = 1e-3 }}\n'
    return text + f'algorithm = {{ name = "{name}"{settings} }}\n'


@pytest.fixture
def plan_of(tmp_path: Path):
    def plan_of(
        stages: str, *changes: tuple[str, str], live: float = 1.0, lengths: Lengths = LENGTHS,
        hardware: Hardware = ROUND, num_train: int = 0, num_pairs: int = 0,
    ) -> StagePlan:  # fmt: skip
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        recipe = write_plan_job(folder, *changes, stages=stages)
        return plan_stage(
            recipe, recipe.stages[0], SHAPE, lengths, hardware, live_share=live, num_train=num_train,
            num_pairs=num_pairs,
        )  # fmt: skip

    return plan_of


SHAPE = from_config(
    {
        "num_hidden_layers": 1, "hidden_size": 2, "intermediate_size": 3, "num_attention_heads": 1,
        "vocab_size": 5, "tie_word_embeddings": True,
    }
)  # fmt: skip


def phases(plan: StagePlan) -> dict[str, float]:
    return {phase.name: phase.seconds for phase in plan.compute.phases}


@pytest.mark.parametrize(
    ("section", "method"),
    [
        (SftSection(name="sft"), "sft"),
        (DpoSection(name="dpo"), "dpo"),
        (RewardModelSection(name="reward_model"), "dpo"),
        (PpoSection(name="ppo"), "ppo"),
        (GrpoSection(name="grpo"), "grpo"),
    ],
)
def test_every_algorithm_has_a_method(section: AlgorithmSection, method: str) -> None:
    assert method_of(section) == method


def test_dpo_learns_from_pairs_and_looks_at_the_reference_once(plan_of) -> None:
    plan = plan_of(DPO, num_pairs=6)
    work = plan.workload
    assert (work.prompts_per_step, work.prompt_tokens, work.completion_tokens) == (1, 5, 2)
    # two sides of 2 behind a prompt of 5: 9 nodes, depths 1..5 and twice 6, 7; the head reads 1 + 2 positions
    forward = 2 * 34 * 9 + 8 * (15 + 26) + 20 * 3
    assert phases(plan) == {"train": 3 * forward / 10, "update": 500}
    assert plan.before_s == pytest.approx(6 * forward / 20)
    assert plan_of(staged("dpo", ", pairs_per_step = 2"), num_pairs=6).before_s == pytest.approx(plan.before_s)
    assert "reference" not in plan.memory.parts
    assert plan_of(staged("dpo", ", pairs_per_step = 1, reference_free = true"), num_pairs=6).before_s == 0


def test_without_pairs_their_lengths_are_those_of_the_demonstrations(plan_of) -> None:
    plan = plan_of(DPO, lengths=dataclasses.replace(LENGTHS, pair_prompt=0, pair_side=0))
    assert (plan.workload.prompt_tokens, plan.workload.completion_tokens) == (4, 3)


def test_a_reward_model_is_trained_beside_the_policy(plan_of) -> None:
    plan = plan_of(staged("reward_model", ", pairs_per_step = 1"), num_pairs=6)
    dpo = plan_of(DPO)
    assert phases(plan) == phases(dpo)
    assert plan.before_s == 0
    assert plan.memory.parts["policy"] == 50 * 2
    assert plan.memory.total == dpo.memory.total + 100
    assert plan.memory.phases == {name: size + 100 for name, size in dpo.memory.phases.items()}


def test_ppo_is_planned_as_the_recipe_sets_it_up(plan_of) -> None:
    plan = plan_of(staged("ppo", ", epochs = 2, completions_per_prompt = 2"))
    assert plan.workload.group_size == 2
    assert set(phases(plan)) == {
        "prefill",
        "decode",
        "old_logprobs",
        "reference",
        "values",
        "train",
        "train_critic",
        "update",
    }
    assert {"reference", "critic_weights"} <= set(plan.memory.parts)
    assert "reward_model" not in plan.memory.parts  # a program judges
    assert phases(plan)["update"] == 2 * 2 * 500  # two networks, two epochs
    parts = plan_of(staged("ppo", ", epochs = 2, minibatches = 2, completions_per_prompt = 2"))
    assert phases(parts)["update"] == 2 * phases(plan)["update"]


def test_a_shared_critic_costs_no_network(plan_of) -> None:
    own, shared = (
        plan_of(staged("ppo", f", kl = {{ coef = 0.0 }}, critic = {{ shared = {flag} }}")) for flag in ("false", "true")
    )
    assert not [name for name in shared.memory.parts if name.startswith("critic")]
    critic = sum(size for name, size in own.memory.parts.items() if name.startswith("critic"))
    assert shared.memory.total == own.memory.total - critic
    assert {"values", "train_critic"} & set(phases(shared)) == set()
    assert phases(shared)["update"] == phases(own)["update"] / 2


def test_a_reward_model_that_judges_is_held(plan_of) -> None:
    judge = ('kind = "math"', 'kind = "reward_model"\npath = "rm"')
    plain, judged = plan_of(GRPO), plan_of(GRPO, judge)
    assert judged.memory.total == plain.memory.total + 100
    assert {"reward_model"} <= set(plan_of(staged("ppo"), judge).memory.parts)
    assert "reward_model" in phases(plan_of(staged("ppo"), judge))


def test_extra_rounds_sample_in_place_of_dead_groups(plan_of) -> None:
    changes = (("prompts_per_step = 1", "prompts_per_step = 8\nextra_rounds = 2"),)
    plan = plan_of(GRPO, *changes, live=0.5)
    assert plan.workload.prompts_per_step == 8 + 4 + 2
    assert plan.workload.prompts_per_step * plan.workload.live_share == 7  # 8 (1 - 0.5^3) groups train
    assert plan_of(GRPO, *changes, live=1.0).workload.prompts_per_step == 8
    assert plan_of(GRPO, *changes, live=0.0).workload.prompts_per_step == 24


def test_dead_groups_are_trained_on_where_they_are_not_skipped(plan_of) -> None:
    kept = plan_of(staged("grpo", ", advantage = { skip_dead_groups = false }"), live=0.25)
    assert kept.workload.live_share == 1
    assert plan_of(GRPO, live=0.25).workload.live_share == 0.25


def test_a_kl_term_brings_a_reference(plan_of) -> None:
    plan = plan_of(staged("grpo", ", beta = 0.1"), live=0.5)
    assert "reference" in phases(plan)
    assert "reference" in plan.memory.parts


def test_grpo_s_epochs_and_minibatches_count_updates(plan_of) -> None:
    plan = plan_of(staged("grpo", ", loss = { epochs = 3, minibatches = 2 }"))
    assert phases(plan)["update"] == 6 * 500
    assert phases(plan)["train"] == pytest.approx(3 * phases(plan_of(GRPO))["train"])


def test_siblings_share_only_in_grpo(plan_of) -> None:
    lengths = dataclasses.replace(LENGTHS, sibling_prefix=2.0)
    assert plan_of(GRPO, lengths=lengths).workload.sibling_prefix == 2
    assert plan_of(SFT, lengths=lengths).workload.sibling_prefix == 0


def test_best_of_n_samples_every_training_prompt_first(plan_of) -> None:
    plan = plan_of(staged("sft", ', tasks_per_step = 1, source = "best_of_n", samples_per_prompt = 2'), num_train=2)
    assert plan.before_s == pytest.approx(2 * 18.6 + (2 * 88 + 28 * 8) / 4 + (2 * 44 * 8 + 8 * 8 * 5.5) / 5)
    assert plan_of(SFT, num_train=2).before_s == 0


def test_curation_measures_only_for_stages_that_choose(plan_of) -> None:
    on = ("enabled = false", "samples_per_prompt = 2\nnum_prompts = 1")
    assert plan_of(GRPO, on, num_train=2).before_s == pytest.approx(18.6 + 177.6)  # of one prompt
    assert plan_of(GRPO, num_train=2).before_s == 0
    assert plan_of(staged("ppo"), on, num_train=2).before_s == 0


def test_evaluation_samples_and_decodes_greedily(tmp_path: Path) -> None:
    recipe: Recipe = write_plan_job(tmp_path, ("greedy = false", "greedy = true\nnum_prompts = 2"))
    one = sampling_seconds(recipe, SHAPE, LENGTHS, ROUND, 2, 1)
    assert evaluation_seconds(recipe, SHAPE, LENGTHS, ROUND, 9) == pytest.approx(2 * one)
    assert evaluation_seconds(recipe, SHAPE, LENGTHS, ROUND, 0) == 0
