from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.errors import DataError
from groupwise.runs import FileRecorder, RunDirectory

run_verb = CliRunner().invoke


def small_run(folder: Path, name: str) -> RunDirectory:
    run = RunDirectory.create(folder, name)
    FileRecorder(run).metrics("sft", 1, {"loss": 1.0})
    return run


def test_the_page_of_one_run_lies_in_its_folder(tmp_path: Path) -> None:
    run = small_run(tmp_path, "one")
    done = run_verb(app, ["report", str(run.path)])
    assert done.exit_code == 0, done.output
    assert "<h1>Run one-" in (run.path / "report.html").read_text()
    assert "report.html (" in done.output


def test_several_runs_make_one_page_at_out(tmp_path: Path) -> None:
    runs = [small_run(tmp_path, name) for name in ("one", "two")]
    out = tmp_path / "new" / "both.html"
    done = run_verb(app, ["report", *(str(run.path) for run in runs), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "<h1>one and two</h1>" in out.read_text()


def test_a_folder_that_is_no_run_and_a_place_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    done = run_verb(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, DataError)
    assert "is not a run folder" in str(done.exception)
    run = small_run(tmp_path, "one")
    done = run_verb(app, ["report", str(run.path), "--out", str(run.metrics / "page.html")])
    assert isinstance(done.exception, DataError)
    assert "--out" in str(done.exception)


@pytest.mark.parametrize("name", ["metrics.jsonl", "recipe.toml"])
def test_what_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    run = small_run(tmp_path, "one")
    (run.path / name).write_text("{ no\n{}\n")
    done = run_verb(app, ["report", str(run.path)])
    assert done.exit_code == 0, done.output
    assert name in done.output.splitlines()[0]
