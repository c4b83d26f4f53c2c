"""The GRPO settings that come from more than one section."""

from __future__ import annotations

from types import SimpleNamespace

from groupwise.config import GrpoSection, parse_recipe
from groupwise.launch.assemble import grpo_options
from groupwise.training.group_rewards import LengthPenalty

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
