"""The resolved recipe can be used from any folder."""

from __future__ import annotations

from pathlib import Path

from groupwise.config import dump_toml, parse_recipe

TEXT = """
name = "x"
[model]
name = "owner/model"
[data]
train = "train.jsonl"
heldout = "owner/rows:test"
schema_from = "db/{db_id}.sqlite"
[verifier]
kind = "sql"
snapshots = ["db/{db_id}.sqlite", "one.sqlite"]
[[stages]]
steps = 1
algorithm = { name = "grpo" }
optim = { lr = 1e-5 }
"""


def test_paths_below_the_folder_become_absolute_and_hub_ids_stay(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    for name in ("train.jsonl", "one.sqlite"):
        (tmp_path / name).touch()
    recipe = parse_recipe(TEXT, folder=tmp_path).with_absolute_paths()
    assert recipe.model.name == "owner/model"
    assert recipe.data.heldout == "owner/rows:test"
    assert recipe.data.train == str(tmp_path / "train.jsonl")
    assert recipe.data.schema_from == str(tmp_path / "db/{db_id}.sqlite")
    assert recipe.verifier.snapshots == (str(tmp_path / "db/{db_id}.sqlite"), str(tmp_path / "one.sqlite"))
    assert recipe.output_dir == str(tmp_path / "runs")


def test_the_absolute_recipe_loads_again_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    recipe = parse_recipe(TEXT, folder=tmp_path).with_absolute_paths()
    again = parse_recipe(dump_toml(recipe), folder="/")
    assert again.data == recipe.data
    assert again.resolve(again.data.train or "") == tmp_path / "train.jsonl"
