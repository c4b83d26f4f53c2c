"""[monitor]: a held-back grader is a whole [verifier], and not the same one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise.config import Recipe, dump_toml, parse_recipe
from groupwise.errors import ConfigError

TEXT = """
name = "x"
[model]
name = "owner/model"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "sql"
snapshots = ["one.sqlite"]
{monitor}
[[stages]]
steps = 1
algorithm = {{ name = "grpo" }}
optim = {{ lr = 1e-5 }}
"""


def recipe(monitor: str, folder: Path = Path("."), verifier: str = "") -> Recipe:
    text = TEXT.format(monitor=monitor)
    return parse_recipe(text.replace('snapshots = ["one.sqlite"]', verifier) if verifier else text, folder=folder)


HELD_BACK = '[monitor.held_back]\nkind = "sql"\nsnapshots = {snapshots}\n'


def test_without_a_monitor_there_is_no_second_grader_and_attacks_are_looked_for() -> None:
    monitor = recipe("").monitor
    assert (monitor.held_back, monitor.attacks) == (None, True)


def test_its_paths_become_absolute_and_it_loads_again(tmp_path: Path) -> None:
    for name in ("one.sqlite", "two.sqlite"):
        (tmp_path / name).touch()
    made = recipe(HELD_BACK.format(snapshots='["one.sqlite", "two.sqlite"]'), tmp_path).with_absolute_paths()
    assert made.monitor.held_back.snapshots == (str(tmp_path / "one.sqlite"), str(tmp_path / "two.sqlite"))
    assert parse_recipe(dump_toml(made), folder="/").monitor == made.monitor


def test_the_file_of_a_held_back_function_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "judge.py").touch()
    text = '[monitor.held_back]\nkind = "function"\npath = "judge.py:strict"\n'
    assert recipe(text, tmp_path).with_absolute_paths().monitor.held_back.path == f"{tmp_path}/judge.py:strict"


@pytest.mark.parametrize(
    ("verifier", "snapshots"),
    [
        ("", '["one.sqlite"]\nnum_workers = 7\ntime_limit_s = 9.0\nunusable_gold = "drop"'),
        ('snapshots = ["one.sqlite", "two.sqlite"]', '["two.sqlite", "one.sqlite"]'),
    ],
)
def test_a_held_back_grader_that_decides_as_the_verifier_does_is_refused(verifier: str, snapshots: str) -> None:
    with pytest.raises(ConfigError, match=r"monitor\.held_back decides as \[verifier\] does, so it can show nothing"):
        recipe(HELD_BACK.format(snapshots=snapshots), verifier=verifier)


def test_more_snapshots_or_another_rule_is_another_grader() -> None:
    assert recipe(HELD_BACK.format(snapshots='["one.sqlite", "two.sqlite"]')).monitor.held_back is not None
    fenced = HELD_BACK.format(snapshots='["one.sqlite"]\nanswer_in = "fence"')
    assert recipe(fenced).monitor.held_back is not None


def test_a_margin_of_one_would_allow_everything() -> None:
    with pytest.raises(ConfigError, match=r"monitor\.max_gap = 1\.0 is out of range"):
        recipe("[monitor]\nmax_gap = 1.0\n")


def test_the_example_of_the_documents_loads() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "verifiers.md").read_text(encoding="utf-8")
    block = re.search(r"```toml\n(.*?)```", text.split("## A held-back grader")[1], re.DOTALL)
    assert block is not None
    verifier, held_back = block[1].split("[monitor.held_back]")
    made = recipe(f"[monitor.held_back]{held_back}", verifier=verifier.split('kind = "sql"\n')[1])
    assert made.monitor.held_back is not None
    assert set(made.verifier.snapshots) < set(made.monitor.held_back.snapshots)
