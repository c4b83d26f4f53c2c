"""groupwise plan as a user calls it: tables, JSON, the page, exit codes, and no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli import main
from plan_job import GRPO, SFT, write_plan_job

WITHOUT_TORCH = """
import sys
from groupwise.cli.main import main
sys.argv = ["groupwise", *sys.argv[1:]]
main.__globals__["app"](standalone_mode=False)
heavy = sorted({"torch", "transformers", "datasets", "pandas"} & set(sys.modules))
assert not heavy, heavy
"""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of one call in this process."""
    monkeypatch.setattr(sys, "argv", ["groupwise", "plan", *map(str, arguments)])
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as stop:
        main.main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    write_plan_job(tmp_path, ("enabled = false", "samples_per_prompt = 2"))
    return tmp_path / "recipe.toml"


def test_the_tables_and_what_to_do_next(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, recipe, "--hardware", recipe.parent / "round.json") == 0
    shown = capsys.readouterr().out
    for part in ("job: about", "Time binds", "Group sizes", "Stages", "Memory", "The methods", "Held-out", "Instead:"):
        assert part in shown
    assert "not measured: a U shape" in shown
    assert f"Next: groupwise curate {recipe}" in shown.replace("\n", " ").replace("  ", " ")


def test_with_rates_or_without_groups_training_is_next(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, recipe, "--hardware", "l4", "--pass-rate", "0.1", "--pass-rate", "0.4") == 0
    shown = capsys.readouterr().out
    assert "given: 0.1, 0.4" in shown
    assert "Next: groupwise train" in shown
    (tmp_path / "sft").mkdir()
    write_plan_job(tmp_path / "sft", stages=SFT)
    assert run(monkeypatch, tmp_path / "sft" / "recipe.toml", "--hardware", "l4") == 0
    assert "Next: groupwise train" in capsys.readouterr().out


def test_json_alone_on_stdout_and_the_page_in_its_file(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "plan.html"
    assert run(monkeypatch, recipe, "--hardware", "l4", "--price", "0.5", "--ranks", "2", "--json", "--html", page) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hardware"] == {
        "name": "l4", "measured": False, "memory_bytes": 24 << 30, "price_per_hour": 0.5, "ranks": 2,
    }  # fmt: skip
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--pass-rate", "1.5"), "pass rate 1.5"),
        (("--hardware", "abacus"), "'abacus'"),
        (("--budget", "1"), "budget = 1"),
        (("--ranks", "0"), "ranks = 0"),
        (("--price", "-2"), "price = -2"),
        (("--ledger", "nowhere.jsonl"), "a ledger is made by `groupwise curate`"),
        (("--hardware", "l4", "--html", "."), "--html"),
    ],
)
def test_what_can_be_mended_is_one_message_and_exit_code_2(
    recipe: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(recipe.parent)
    assert run(monkeypatch, recipe, *options) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert "Traceback" not in shown.err


def test_a_group_of_one_is_exit_code_2(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(recipe.read_text().replace("group_size = 2", "group_size = 1"))
    assert run(monkeypatch, recipe) == 2
    assert "cannot be its own baseline" in capsys.readouterr().err


def test_neither_torch_nor_transformers_is_imported(tmp_path: Path) -> None:
    write_plan_job(tmp_path, stages=SFT + GRPO)
    called = subprocess.run(
        [
            sys.executable, "-c", WITHOUT_TORCH, "plan", str(tmp_path / "recipe.toml"), "--hardware", "l4",
            "--json", "--html", str(tmp_path / "plan.html"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout)["name"] == "job"
