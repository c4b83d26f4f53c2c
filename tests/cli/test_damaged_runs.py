"""A run that died at any byte can still be listed, shown and gone on with: a small real run, damaged in every way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.config import load_recipe
from groupwise.errors import DataError, GroupwiseError
from groupwise.launch.local import train
from groupwise.runs import FileRecorder, RunDirectory, read_events, read_metrics, read_run
from groupwise.runs.listing import list_runs
from groupwise.runs.rollout_view import overview
from tiny_job import write_job

STATES = {"running", "finished", "stopped", "crashed"}
NUM_CUTS = 60
"""Of each file: about half of them at the ends of lines and next to them, half in between."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, _ = train(load_recipe(write_job(tmp_path_factory.mktemp("job"))), accept_audit=True)
    for checkpoint in directory.checkpoints.iterdir():
        shutil.rmtree(checkpoint)  # nothing here reads weights, and every test copies the folder
    return directory.path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "runs" / whole.name))


def cuts(content: bytes) -> list[int]:
    ends = [at for at, byte in enumerate(content) if byte == 10]
    near = [at + by for at in ends[:: max(1, 6 * len(ends) // NUM_CUTS)] for by in (0, 1, 2)]
    between = range(0, len(content), max(1, 2 * len(content) // NUM_CUTS))
    return sorted({*near, *between, len(content) - 1})


def text_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def check_readable(run: Path, damaged: str) -> None:
    """What every reader promises, whatever the damage."""
    record = read_run(run)
    for sentence in record.unreadable:
        assert sentence.startswith(damaged), sentence
    (listed,) = list_runs(run.parent)
    assert listed.state in STATES


def ask(*arguments: object) -> str:
    """What a verb prints, or its one message; anything but a GroupwiseError is a bug."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None:
        assert isinstance(done.exception, GroupwiseError), done.exception
        return str(done.exception)
    assert done.exit_code == 0
    return done.output


def test_the_whole_run_has_every_file_and_says_finished(run: Path) -> None:
    names = {path.name for path in text_files(run)}
    assert names >= {"recipe.toml", "environment.json", "metrics.jsonl", "events.jsonl", "summary.json", "stages.json"}
    assert read_run(run).unreadable == ()
    assert list_runs(run.parent)[0].state == "finished"


def test_every_text_file_may_be_cut_at_any_byte(run: Path) -> None:
    num_cuts = 0
    for path in text_files(run):
        content = path.read_bytes()
        for length in cuts(content):
            path.write_bytes(content[:length])
            check_readable(run, path.name)
            num_cuts += 1
        path.write_bytes(content)
    assert num_cuts > 300
    assert overview(read_run(run))


@pytest.mark.parametrize("verb", [["runs"], ["rollouts"], ["rollouts", "--stage", "grpo", "--step", "1"]])
def test_the_commands_never_show_a_traceback(run: Path, verb: list[str]) -> None:
    for path in (*text_files(run), *sorted(run.glob("rollouts/*"))[-2:]):
        content = path.read_bytes()
        for length in (0, len(content) // 3):
            path.write_bytes(content[:length])
            assert ask(verb[0], run.parent if verb == ["runs"] else run, *verb[1:])
        path.unlink()
        assert ask(verb[0], run.parent if verb == ["runs"] else run, *verb[1:])
        path.write_bytes(content)


def test_what_a_dead_process_leaves_behind_is_no_part_of_the_run(run: Path) -> None:
    before = (read_run(run).recorded(), list_runs(run.parent)[0].state)
    for name in (".metrics.jsonl.77.tmp", ".summary.json.77.tmp", "rollouts/.grpo-000009.parquet.77.tmp"):
        (run / name).write_bytes(b"half")
    record = read_run(run)
    assert (record.recorded(), list_runs(run.parent)[0].state) == before
    assert record.unreadable == ()
    assert overview(record)


def test_a_damaged_parquet_file_is_named_and_the_others_are_shown(run: Path) -> None:
    path = next(run.glob("rollouts/grpo-000001.parquet"))
    content = path.read_bytes()
    for length in range(0, len(content), 499):
        path.write_bytes(content[:length])
        problems = [step.problem for step in overview(read_run(run)) if step.problem]
        assert len(problems) == 1
        assert "grpo-000001.parquet cannot be read" in problems[0]
        with pytest.raises(DataError):
            read_run(run).rollouts("grpo", 1)
    assert "grpo-000001.parquet cannot be read" in ask("rollouts", run, "--stage", "grpo", "--step", "1")


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl"])
def test_an_append_behind_a_torn_line_loses_that_line_alone(run: Path, name: str) -> None:
    directory = RunDirectory.open(run)
    path = run / name
    read = read_metrics if name == "metrics.jsonl" else read_events
    content, whole_rows = path.read_bytes(), read(path)
    start = content.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(start, len(content), 29):
        path.write_bytes(content[:length])
        FileRecorder(directory).metrics("later", 1, {"loss": 1.0})
        FileRecorder(directory).event("later", {})
        assert read(path)[:-1] == whole_rows[:-1]
        assert "later" in (read(path)[-1].get("stage"), read(path)[-1].get("event"))


def test_a_line_that_is_no_row_is_left_out_and_counted(run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\xff\x00broken\n", b"[1]\n", b'{"loss": 1}\n', *lines[1:]]))
    record = read_run(run)
    assert len(record.metrics) == len(lines)
    (sentence,) = record.unreadable
    assert sentence.startswith("metrics.jsonl has 3 lines that are left out; the first: ")
    assert "metrics.jsonl:2 is not JSON" in sentence
    assert "3 lines that are left out" in ask("runs", run.parent)
