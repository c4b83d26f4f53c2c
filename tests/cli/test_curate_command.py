"""groupwise curate as a user calls it: what is printed, and the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from groupwise.cli import main
from tiny_job import write_job


def run(monkeypatch, *arguments):
    """The exit code of one call in this process."""
    monkeypatch.setattr(sys, "argv", ["groupwise", "curate", *map(str, arguments)])
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as stop:
        main.main()
    return stop.value.code


def test_nothing_kept_is_exit_code_1_with_reasons_and_advice(tmp_path, monkeypatch, capsys):
    recipe = write_job(tmp_path)
    capsys.readouterr()
    assert run(monkeypatch, recipe, "--max-samples", "8", "--out", tmp_path / "there") == 1
    shown = capsys.readouterr().out
    assert "0 of 4 training prompts are kept" in shown
    assert "There is nothing to train on" in shown
    assert "pass rate of 4 sampled prompts" in shown
    assert {p.name for p in (tmp_path / "there").iterdir()} == {
        "ledger.jsonl",
        "ledger.json",
        "curated.jsonl",
        "summary.html",
    }
    assert run(monkeypatch, recipe, "--out", tmp_path / "there", "--keep-undecided", "--json") in (0, 1)
    summary = json.loads(capsys.readouterr().out)
    assert summary["num_samples"] >= 16


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--samples", "8", "--max-samples", "4"], "samples_per_prompt <= max_samples_per_prompt, got 8 and 4"),
        (["--samples", "0"], "--samples"),
        (["--budget", "0"], "--budget"),
    ],
)
def test_limits_that_cannot_be_are_exit_code_2(tmp_path, monkeypatch, capsys, arguments, told):
    assert run(monkeypatch, write_job(tmp_path), *arguments) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "curated-job").exists()


def test_a_recipe_that_is_not_there_is_told_before_torch_is_imported(tmp_path):
    code = (
        "import sys; from groupwise.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, "curate", str(tmp_path / "none.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "none.toml does not exist" in done.stderr
