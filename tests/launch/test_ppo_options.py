"""From the ppo section of a recipe to the options of the algorithm."""

from __future__ import annotations

from pathlib import Path

from groupwise.config import Recipe, parse_recipe
from groupwise.launch.assemble_ppo import ppo_options
from groupwise.training.algorithm import Updates
from groupwise.training.ppo import PpoOptions

RECIPE = """\
name = "job"
[model]
name = "model"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "math"
%s
[[stages]]
steps = 3
algorithm = { name = "ppo"%s }
optim = { lr = 1e-6 }
"""


def parse(settings: str = "", sections: str = "") -> Recipe:
    return parse_recipe(RECIPE % (sections, settings and f", {settings}"), folder=Path("."), file="recipe.toml")


def test_the_defaults_are_those_of_the_code_of_1909_08593_with_the_kl_of_instructgpt() -> None:
    recipe = parse()
    options = ppo_options(recipe, recipe.stages[0].algorithm)
    assert options == PpoOptions(prompts_per_step=8)
    assert (options.updates, options.clip, options.value_clip) == (Updates(epochs=4, minibatches=1), 0.2, 0.2)
    assert (options.reward.gamma, options.reward.lam, options.kl_coef, options.kl_target) == (1, 0.95, 0.02, None)
    assert options.completions_per_prompt == 1


def test_every_setting_reaches_the_algorithm() -> None:
    recipe = parse(
        "completions_per_prompt = 3, epochs = 2, minibatches = 6, clip = 0.1, gamma = 0.9, lam = 0.5, whiten = false, "
        'truncation.bootstrap = true, max_unscored_frac = 0.3, kl = { coef = 0.15, estimator = "k2", target = 6.0, '
        "horizon = 500 }, critic = { shared = true, clip = 0.0, coef = 0.7 }",
        "[rollout]\nprompts_per_step = 2",
    )
    options = ppo_options(recipe, recipe.stages[0].algorithm)
    assert (options.prompts_per_step, options.completions_per_prompt) == (2, 3)
    assert options.updates == Updates(epochs=2, minibatches=6)
    assert (options.clip, options.value_clip, options.value_coef) == (0.1, None, 0.7)
    assert (options.reward.gamma, options.reward.lam, options.reward.whiten) == (0.9, 0.5, False)
    assert (options.reward.bootstrap, options.reward.kl_estimator) == (True, "k2")
    assert (options.kl_coef, options.kl_target, options.kl_horizon) == (0.15, 6.0, 500)
    assert options.max_unscored_frac == 0.3
    recipe = parse("truncation.penalty = 0.5")
    assert ppo_options(recipe, recipe.stages[0].algorithm).reward.truncation_penalty == 0.5
