"""`groupwise runs` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.errors import DataError
from groupwise.runs import FileRecorder, RunDirectory


def call(*arguments: object):
    return CliRunner().invoke(app, ["runs", *(str(argument) for argument in arguments)])


def a_run(folder: Path, name: str = "r") -> RunDirectory:
    run = RunDirectory.create(folder, name)
    run.recipe.write_text('[[stages]]\nname = "grpo"\nsteps = 4\n')
    FileRecorder(run).event("evaluation", {"name": "base", "pass_rate": 0.125, "interval": [0.1, 0.2]})
    FileRecorder(run).metrics("grpo", 1, {})
    FileRecorder(run).event("evaluation", {"name": "grpo step 1", "pass_rate": 0.5, "interval": [0.4, 0.6]})
    return run


def test_a_line_says_how_far_it_is_and_what_comes_next(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with run.claimed():
        shown = call(tmp_path).output
    (line,) = (line for line in shown.splitlines() if run.path.name in line and "Next" not in line)
    assert "running" in line
    assert "0/1" in line
    assert "1/4" in line
    assert "12.5% [10, 20] -> 50.0% [40, 60]" in line
    assert shown.splitlines()[-1] == f"Next: groupwise report {run.path}"


def test_json_has_every_field(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (listed,) = json.loads(call(tmp_path, "--json").output)
    assert (listed["name"], listed["state"], listed["after"]["rate"]) == (run.path.name, "crashed", 0.5)
    assert (listed["steps_done"], listed["num_steps"]) == (1, 4)


def test_an_empty_folder_says_what_to_do_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert (done.exit_code, "groupwise train RECIPE" in done.output) == (0, True)
    assert f"No runs in {tmp_path}" in done.output
    assert "A folder without runs is no error" in " ".join(call("--help").output.split())
    assert json.loads(call(tmp_path, "--json").output) == []
    assert isinstance(call(tmp_path / "none").exception, DataError)


def test_names_and_errors_are_shown_as_text(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    FileRecorder(run).event("failed", {"error": "EngineError", "message": "[red]gone\x1b[2J[/red]"})
    run.path.rename(tmp_path / "[bold]r\x1b[0m")
    shown = call(tmp_path).output
    assert r"[bold]r\x1b[0m" in shown
    assert r"EngineError: [red]gone\x1b[2J[/red]" in shown
    assert "\x1b" not in shown


def test_neither_command_imports_torch(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    code = (
        "import sys; from groupwise.cli.main import app\n"
        f"for words in (['runs', {str(tmp_path)!r}], ['rollouts', {str(run.path)!r}]):\n"
        "    try: app(words, standalone_mode=False)\n"
        "    except ValueError as error: print(error)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
