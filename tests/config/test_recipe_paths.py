"""The resolved recipe can be used from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

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
[curation]
ledger = "ledger.jsonl"
[[stages]]
steps = 1
algorithm = { name = "grpo" }
optim = { lr = 1e-5 }
"""


def test_paths_below_the_folder_become_absolute_and_hub_ids_stay(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    for name in ("train.jsonl", "one.sqlite", "ledger.jsonl"):
        (tmp_path / name).touch()
    recipe = parse_recipe(TEXT, folder=tmp_path).with_absolute_paths()
    assert recipe.model.name == "owner/model"
    assert recipe.data.heldout == "owner/rows:test"
    assert recipe.data.train == str(tmp_path / "train.jsonl")
    assert recipe.data.schema_from == str(tmp_path / "db/{db_id}.sqlite")
    assert recipe.verifier.snapshots == (str(tmp_path / "db/{db_id}.sqlite"), str(tmp_path / "one.sqlite"))
    assert recipe.curation.ledger == str(tmp_path / "ledger.jsonl")
    assert recipe.output_dir == str(tmp_path / "runs")


def test_the_absolute_recipe_loads_again_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    recipe = parse_recipe(TEXT, folder=tmp_path).with_absolute_paths()
    again = parse_recipe(dump_toml(recipe), folder="/")
    assert again.data == recipe.data
    assert again.resolve(again.data.train or "") == tmp_path / "train.jsonl"


FUNCTION = TEXT.replace(
    'kind = "sql"\nsnapshots = ["db/{db_id}.sqlite", "one.sqlite"]', 'kind = "function"\npath = "PATH"'
)


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("rewards/exact.py:Judge.exact", "FOLDER/rewards/exact.py:Judge.exact"),
        ("beside:exact", "FOLDER/beside.py:exact"),
        ("package.exact:exact", "package.exact:exact"),
        ("math:sqrt", "math:sqrt"),
        ("nowhere.py:exact", "nowhere.py:exact"),
        ("/elsewhere/exact.py:exact", "/elsewhere/exact.py:exact"),
    ],
)
def test_the_file_of_a_reward_function_becomes_absolute(tmp_path: Path, path: str, moved: str) -> None:
    for name in ("rewards/exact.py", "package/exact.py", "beside.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    recipe = parse_recipe(FUNCTION.replace("PATH", path), folder=tmp_path).with_absolute_paths()
    assert recipe.verifier.path == moved.replace("FOLDER", str(tmp_path))


def test_so_it_does_in_a_part_of_a_composition(tmp_path: Path) -> None:
    (tmp_path / "exact.py").touch()
    part = '{ name = "a", verifier = { kind = "function", path = "exact.py:exact" } }'
    text = FUNCTION.replace('kind = "function"\npath = "PATH"', f'kind = "compose"\nparts = [{part}]')
    recipe = parse_recipe(text, folder=tmp_path).with_absolute_paths()
    assert recipe.verifier.parts[0].verifier.path == f"{tmp_path}/exact.py:exact"
