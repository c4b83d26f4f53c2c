"""[[stages]] with dpo: what contradicts itself, and what a recipe must give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import load_recipe, parse_recipe
from groupwise.errors import ConfigError

RECIPE = """\
name = "job"
[model]
name = "model"
[data]
pairs = "pairs.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "math"
[[stages]]
steps = 3
algorithm = { name = "dpo"%s }
optim = { lr = 1e-6 }
"""


def parse(settings: str = "", text: str = RECIPE):
    return parse_recipe(text % settings, folder=Path("."), file="recipe.toml")


def test_pairs_and_held_out_tasks_are_enough() -> None:
    (stage,) = parse().stages
    assert (stage.name, stage.learns_from_pairs, stage.learns_from_rollouts) == ("dpo", True, False)


@pytest.mark.parametrize(
    ("settings", "compares_means"),
    [("", False), (', loss = "ipo"', True), (', loss = "ipo", length_normalize = false', False)],
)
def test_ipo_compares_means_unless_told_otherwise(settings: str, compares_means: bool) -> None:
    assert parse(settings).stages[0].algorithm.normalizes_length is compares_means


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (', loss = "ipo", label_smoothing = 0.1', r"label_smoothing = 0.1 is not part of loss = ipo"),
        (', loss = "hinge", label_smoothing = 0.1', r"label_smoothing = 0.1 is not part of loss = hinge"),
        (', loss = "robust"', r"label_smoothing is 0, with which loss = robust is sigmoid"),
        (', loss = "ipo", margin = 0.5', r"margin = 0.5 is not part of loss = ipo"),
        (", label_smoothing = 0.5", "label_smoothing"),
        (", beta = 0.0", "beta"),
        (', loss = "kto"', "sigmoid"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_both_names(settings: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(settings)


def test_a_dpo_stage_needs_pairs() -> None:
    text = RECIPE.replace('pairs = "pairs.jsonl"', 'train = "train.jsonl"')
    with pytest.raises(ConfigError, match=r"learns from pairs and there are none; set data\.pairs"):
        parse("", text)


def test_pairs_are_not_the_held_out_file() -> None:
    with pytest.raises(ConfigError, match=r"heldout = .* is the same as pairs"):
        parse("", RECIPE.replace("pairs.jsonl", "heldout.jsonl"))


def test_pairs_alone_are_not_enough() -> None:
    with pytest.raises(ConfigError, match="needs heldout, and train, demonstrations or pairs; given: pairs"):
        parse("", RECIPE.replace('heldout = "heldout.jsonl"\n', ""))


def test_pairs_may_stand_beside_a_source_and_move_with_the_recipe(tmp_path: Path) -> None:
    text = RECIPE.replace('heldout = "heldout.jsonl"', 'source = "all.jsonl"\nsplit = { heldout = 2 }')
    (tmp_path / "pairs.jsonl").write_text("")
    (tmp_path / "recipe.toml").write_text(text % "")
    moved = load_recipe(tmp_path / "recipe.toml").with_absolute_paths()
    assert moved.data.pairs == str(tmp_path / "pairs.jsonl")
