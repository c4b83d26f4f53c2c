"""The GRPO settings that come from more than one section."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from groupwise.config import GrpoSection, parse_recipe
from groupwise.errors import ConfigError
from groupwise.launch.assemble import grpo_options, step_sampling
from groupwise.training.group_rewards import LengthPenalty
from groupwise.training.grpo import StepSampling

RECIPE = """
name = "composed"
[model]
name = "models/tiny"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "compose"
normalize_parts = NORMALIZE
[[verifier.parts]]
name = "number"
verifier = { kind = "math" }
[rollout]
max_completion_tokens = 100
[[stages]]
steps = 1
algorithm = { name = "grpo", length_penalty = { strength = 0.2, free_tokens = 40 } }
optim = { lr = 1e-5 }
"""
VERIFIER = SimpleNamespace(weights={"number": 1.0})


def test_the_length_limit_and_the_weights_of_the_parts_are_filled_in() -> None:
    recipe = parse_recipe(RECIPE.replace("NORMALIZE", "true"))
    section = recipe.stages[0].algorithm
    assert isinstance(section, GrpoSection)
    options = grpo_options(recipe, section, VERIFIER)
    assert options.length_penalty == LengthPenalty(strength=0.2, free_tokens=40, max_tokens=100)
    assert options.part_weights == {"number": 1.0}


def test_the_reward_is_compared_unless_parts_are_asked_for() -> None:
    recipe = parse_recipe(RECIPE.replace("NORMALIZE", "false"))
    section = recipe.stages[0].algorithm.model_copy(update={"length_penalty": None})
    options = grpo_options(recipe, section, VERIFIER)
    assert (options.length_penalty, options.part_weights) == (None, None)


def with_rollout(settings: str) -> str:
    return RECIPE.replace("NORMALIZE", "false").replace("[rollout]", f"[rollout]\n{settings}")


def test_group_sizes_and_rounds_come_from_the_rollout_section() -> None:
    plain = parse_recipe(with_rollout(""))
    assert step_sampling(plain) == StepSampling(prompts_per_step=8, group_size=8)
    section = plain.stages[0].algorithm
    assert isinstance(section, GrpoSection)
    assert grpo_options(plain, section, VERIFIER).nominal_group_size is None
    settings = "prompts_per_step = 6\ngroup_size = 5\nextra_rounds = 3\nallocation = { max_group_size = 12 }"
    recipe = parse_recipe(with_rollout(settings))
    assert step_sampling(recipe) == StepSampling(prompts_per_step=6, group_size=5, extra_rounds=3, size_bounds=(4, 12))
    assert grpo_options(recipe, section, VERIFIER).nominal_group_size == 5


def test_rounds_need_no_curation() -> None:
    recipe = parse_recipe(
        with_rollout("extra_rounds = 3").replace("[rollout]", "[curation]\nenabled = false\n[rollout]")
    )
    assert step_sampling(recipe).extra_rounds == 3


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ("min_group_size = 6", r"min_group_size.* must be group_size = 5 or less"),
        ("min_group_size = 2, max_group_size = 4", r"max_group_size.* must be group_size = 5 or more"),
        ("min_group_size = 1", r"min_group_size"),
    ],
)
def test_sizes_that_cannot_have_the_mean_are_refused(bounds: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_recipe(with_rollout(f"group_size = 5\nallocation = {{ {bounds} }}"))
