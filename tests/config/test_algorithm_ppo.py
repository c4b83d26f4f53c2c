"""[[stages]] with ppo: the published defaults, what contradicts itself, and what the rest of a recipe must allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.config import dump_toml, load_recipe, parse_recipe
from groupwise.errors import ConfigError

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


def parse(settings: str = "", sections: str = "") -> Any:
    text = RECIPE % (sections, settings and f", {settings}")
    return parse_recipe(text, folder=Path("."), file="recipe.toml")


def test_prompts_are_set_aside_only_on_request() -> None:
    assert [parse(s).stages[0].selects_prompts for s in ("", "retire = true")] == [False, True]
    assert parse().stages[0].learns_from_rollouts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("critic = { shared = true, lr = 1e-5 }", r"critic\.lr = 1e-05 has no optimizer of its own with shared = true"),
        (
            'critic = { shared = true, start = "rm" }',
            r"critic\.start = .rm. names a body, and shared = true uses the policy's",
        ),
        ("critic = { coef = 0.1 }", r"critic\.coef = 0\.1 weighs two losses of one network, and with shared = false"),
        ("kl = { coef = 0.0, target = 6.0 }", r"kl\.target = 6\.0 never moves coef = 0"),
        ("kl = { horizon = 100 }", r"kl\.horizon = 100 is how fast coef moves to reach target, which is not given"),
        ("truncation = { penalty = 1.0, bootstrap = true }", r"truncation\.bootstrap = true .* penalty = 1\.0"),
        ("minibatches = 9", r"minibatches = 9 must be at most the 8 completions .*prompts_per_step = 8"),
        ("lam = 1.1", "lam"),
        ("gamma = 0.0", "gamma"),
        ("clip = 1.0", "clip"),
        ('kl = { estimator = "k4" }', "estimator"),
        ("beta = 0.1", "beta"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_both_names(settings: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(settings)


@pytest.mark.parametrize(
    ("settings", "sections", "message"),
    [
        ("", "[rollout]\ntop_p = 0.9", r"algorithm\.name .*rollout\.top_p = 0\.9"),
        ("", "[rollout]\ntop_k = 20", r"algorithm\.name .*rollout\.top_k = 20"),
        ("retire = true", "[curation]\nenabled = false", r"algorithm\.retire .*curation\.enabled = false"),
    ],
)
def test_other_sections_that_do_not_fit_are_named(settings: str, sections: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(settings, sections)


def test_the_recipe_of_a_run_loads_again(tmp_path: Path) -> None:
    recipe = parse("critic = { shared = true, coef = 0.2 }, kl = { target = 6.0 }")
    (tmp_path / "recipe.toml").write_text(dump_toml(recipe))
    assert load_recipe(tmp_path / "recipe.toml").stages == recipe.stages
