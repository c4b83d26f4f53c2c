"""Runs that die at some moment and go on: they end as one that was never stopped, and nothing of them is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from groupwise.cli.main import main
from groupwise.config import Recipe, load_recipe
from groupwise.errors import DataError, EngineError
from groupwise.launch import local, run_state
from groupwise.launch.display import Quiet
from groupwise.runs import (
    RunDirectory,
    RunSummary,
    read_events,
    read_metrics,
    read_stage_log,
    read_summary,
    stage_log,
)
from tiny_job import replaced, write_job

LORA = replaced("attention_check = false\n", "attention_check = false\n[model.lora]\nrank = 4\nalpha = 8.0\n")


def change(text: str) -> str:
    for one in (
        replaced("steps = 10\n", "steps = 6\ncheckpoint_every = 2\n"),
        replaced('{ name = "grpo" }', '{ name = "grpo", beta = 0.1 }'),
        replaced('name = "model"\n', 'name = "model"\nattention_check = false\n'),
        replaced("[curation]", "[audit]\nfast_tasks = 0\n[curation]"),
    ):
        text = one(text)
    return text


class Killed(BaseException):
    """The process ends here: nothing in the run may catch it."""


class Killer(Quiet):
    """Dies in a piece of work of this title, after so many of it are done; 0 = when it begins."""

    def __init__(self, title: str = "none", done: int = 0) -> None:
        self.title, self.done = title, done
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def working(self, title: str) -> Iterator[Callable[..., None]]:
        matches = title.startswith(self.title)
        if matches and not self.done:
            raise Killed

        def advance(done: int, total: int, note: str = "") -> None:
            if matches and 0 < self.done <= done:
                raise Killed

        yield advance


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))


Job = tuple[Recipe, RunDirectory, RunSummary]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The run that was never stopped."""
    recipe = load_recipe(write_job(tmp_path_factory.mktemp("job"), change))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("platformdirs.user_cache_dir", lambda *_: str(recipe.folder / "cache"))
        return recipe, *local.train(recipe)


def killed_run(recipe: Recipe, folder: Path, display: Killer) -> RunDirectory:
    """A run in a folder of its own that died as `display` says."""
    moved = recipe.model_copy(update={"output_dir": str(folder)})
    with pytest.raises(Killed):
        local.train(moved, display)
    (path,) = folder.iterdir()
    return RunDirectory(path)


def timeless(summary: RunSummary) -> list[Any]:
    return [replace(stage, seconds=0.0) for stage in summary.stages]


def numbers(directory: RunDirectory) -> list[Any]:
    return [(row["stage"], row["step"], row["loss"]) for row in read_metrics(directory.metrics)]


def assert_same_run(directory: RunDirectory, job: Job) -> None:
    """All that readers of a run look at: summary, rows, rollouts, events, checkpoints."""
    _, whole, summary = job
    assert timeless(read_summary(directory.summary)) == timeless(summary)
    assert numbers(directory) == numbers(whole)
    assert len(directory.metrics.read_text().splitlines()) == len(whole.metrics.read_text().splitlines())
    for folder in ("rollouts", "checkpoints"):
        names = [sorted(p.name for p in (d.path / folder).iterdir()) for d in (directory, whole)]
        assert names[0] == names[1]
    for path in whole.rollouts.iterdir():
        assert pq.read_table(path).equals(pq.read_table(directory.rollouts / path.name)), path.name
    events = [[e["event"] for e in read_events(d.events) if e["event"] != "restarted"] for d in (directory, whole)]
    assert events[0] == events[1]
    last = whole.path / str(read_stage_log(whole).finished[-1].weights)
    weights = [load_file(d.checkpoints / last.name / "model.safetensors") for d in (directory, whole)]
    assert all(torch.equal(weights[0][name], tensor) for name, tensor in weights[1].items())


@pytest.mark.parametrize(
    ("display", "stage", "kept_aside"),
    [
        (Killer("base: held-out", 0), "base", []),
        (Killer("base: held-out", 4), "base", []),
        (Killer("sft: 6 steps", 3), "sft", ["checkpoints/sft-2", "metrics.jsonl", "events.jsonl"]),
        (Killer("sft: held-out", 2), "sft", ["checkpoints/sft-6", "metrics.jsonl", "events.jsonl"]),
        (Killer("grpo: 2 steps", 1), "grpo", ["metrics.jsonl", "rollouts/grpo-000001.parquet"]),
    ],
    ids=["before", "in base", "in sft", "in its evaluation", "in grpo"],
)
def test_a_run_that_died_ends_as_one_that_did_not(
    job: Job, tmp_path: Path, display: Killer, stage: str, kept_aside: list[str]
) -> None:
    recipe, _, _ = job
    directory = killed_run(recipe, tmp_path / "runs", display)
    told = Killer()
    resumed, summary = local.resume(directory.path, told)
    assert resumed == directory
    assert timeless(summary) == timeless(job[2])
    assert_same_run(directory, job)
    (event,) = (e for e in read_events(directory.events) if e["event"] == "restarted")
    assert event["stage"] == stage
    assert any(line.startswith(f"Restarting at {stage}, from its beginning, with ") for line in told.lines)
    assert event["set_aside"] == ("abandoned-1" if kept_aside else None)
    for name in kept_aside:
        assert (directory.path / "abandoned-1" / name).exists(), name


def test_what_was_not_finished_is_kept_apart_and_whole(job: Job, tmp_path: Path) -> None:
    directory = killed_run(job[0], tmp_path / "runs", Killer("grpo: 2 steps", 1))
    with directory.metrics.open("a") as file:
        file.write('{"stage": "grpo", "st')  # the line that was being written
    before = directory.metrics.read_text()
    local.resume(directory.path)
    aside = directory.path / "abandoned-1"
    rows = read_metrics(aside / "metrics.jsonl")
    assert [(row["stage"], row["step"]) for row in rows] == [("grpo", 1)]
    kept = directory.metrics.read_text()
    assert before == kept[: before.index('{"stage": "grpo"')] + (aside / "metrics.jsonl").read_text()
    assert [s.name for s in read_summary(aside / "summary.json").stages] == ["base", "sft"]


def test_a_stage_whose_evaluation_was_written_is_not_finished_before_its_entry(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between summary.json and stages.json."""
    write = run_state.write_stage_log

    def dies(directory: RunDirectory, log: Any) -> None:
        if log.finished[-1].name == "sft":
            raise Killed
        write(directory, log)

    with monkeypatch.context() as patch:
        patch.setattr(run_state, "write_stage_log", dies)
        directory = killed_run(job[0], tmp_path / "runs", Killer())
    assert [s.name for s in read_summary(directory.summary).stages] == ["base", "sft"]
    local.resume(directory.path)
    assert_same_run(directory, job)


def test_a_restart_that_dies_while_it_moves_files_can_be_restarted(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = killed_run(job[0], tmp_path / "runs", Killer("sft: held-out", 2))
    move = os.replace

    def dies(source: Any, target: Any) -> None:
        if str(source).endswith("sft-4"):
            raise Killed
        move(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(stage_log.os, "replace", dies)
        with pytest.raises(Killed):
            local.resume(directory.path)
    assert (directory.path / "abandoned-1" / "checkpoints" / "sft-2").is_dir()
    local.resume(directory.path)
    assert (directory.path / "abandoned-2" / "checkpoints" / "sft-4").is_dir()
    assert_same_run(directory, job)


def test_a_run_can_die_again_and_its_restarts_stay_on_record(job: Job, tmp_path: Path) -> None:
    directory = killed_run(job[0], tmp_path / "runs", Killer("sft: 6 steps", 3))
    for _ in range(2):
        with pytest.raises(Killed):
            local.resume(directory.path, Killer("grpo: 2 steps", 2))
    local.resume(directory.path)
    assert_same_run(directory, job)
    restarts = [(e["stage"], e["set_aside"]) for e in read_events(directory.events) if e["event"] == "restarted"]
    assert restarts == [("sft", "abandoned-1"), ("grpo", "abandoned-2"), ("grpo", "abandoned-3")]


def test_a_stage_that_was_stopped_is_done_again(job: Job, tmp_path: Path) -> None:
    """Ctrl-C leaves a checkpoint and an evaluation of half a stage: the user's to use, not a finished stage."""

    class Stops(Quiet):
        @contextmanager
        def working(self, title: str) -> Iterator[Callable[..., None]]:
            def advance(done: int, total: int, note: str = "") -> None:
                if title.startswith("sft: 6") and done == 3:
                    os.kill(os.getpid(), 2)

            yield advance

    moved = job[0].model_copy(update={"output_dir": str(tmp_path / "runs")})
    directory, summary = local.train(moved, Stops())
    assert [s.name for s in summary.stages] == ["base", "sft"]
    assert (directory.checkpoints / "sft-3").is_dir()
    local.resume(directory.path)
    assert_same_run(directory, job)
    assert (directory.path / "abandoned-1" / "checkpoints" / "sft-3").is_dir()


def test_adapters_go_on_as_adapters(tmp_path: Path) -> None:
    """The merged weights beside them would make the next stage train another model."""
    recipe = load_recipe(write_job(tmp_path, lambda text: LORA(change(text)).replace("lr = 1e-2", "lr = 3e-2")))
    whole = (recipe, *local.train(recipe))
    directory = killed_run(recipe, tmp_path / "other", Killer("grpo: 2 steps", 1))
    local.resume(directory.path)
    assert_same_run(directory, whole)
    adapters = [
        load_file(d.checkpoints / "grpo-2" / "adapter" / "adapter_model.safetensors") for d in (directory, whole[1])
    ]
    assert all(torch.equal(adapters[0][name], tensor) for name, tensor in adapters[1].items())


def test_a_process_that_is_gone_within_a_step_goes_on_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_job(tmp_path, lambda text: change(text).replace("samples_per_prompt = 2", "samples_per_prompt = 1"))
    code = (
        "import os, sys\n"
        "from groupwise.training import loop\n"
        "learn = loop.Learner.learn\n"
        "calls = []\n"
        "def dies(*given):\n"
        "    calls.append(1)\n"
        "    return os._exit(9) if len(calls) == 8 else learn(*given)\n"
        "loop.Learner.learn = dies\n"
        "from groupwise.cli.main import main\n"
        f"sys.argv = ['groupwise', 'train', {str(recipe)!r}]\n"
        "main()\n"
    )
    died = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == 9, died.stderr
    (run,) = (tmp_path / "runs").iterdir()
    monkeypatch.setattr(sys, "argv", ["groupwise", "train", "--resume", str(run)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told = capsys.readouterr().out
    assert "Restarting at grpo, from its beginning, with the weights of checkpoints/sft-6." in told
    assert [s.name for s in read_summary(run / "summary.json").stages] == ["base", "sft", "grpo"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to train; give a recipe"),
        (("r.toml", "--from-stage", "grpo"), "--from-stage has no effect without --resume"),
        (("--resume", "run", "--accept-audit"), "--accept-audit has no effect with --resume"),
        (("--resume", "no-run"), "is not a run folder"),
    ],
)
def test_a_command_that_contradicts_itself_is_refused(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["groupwise", "train", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def finished(job: Job, tmp_path: Path) -> RunDirectory:
    """A run with all stages finished, to change."""
    shutil.copytree(job[1].path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def test_a_stage_can_be_done_again_with_other_settings(job: Job, finished: RunDirectory, tmp_path: Path) -> None:
    recipe, whole, _ = job
    text = (recipe.folder / "recipe.toml").read_text()
    (recipe.folder / "changed.toml").write_text(text.replace("lr = 1e-3", "lr = 5e-3"))
    changed = load_recipe(recipe.folder / "changed.toml")
    _, summary = local.resume(finished.path, recipe=changed, from_stage="grpo")
    assert [s.name for s in summary.stages] == ["base", "sft", "grpo"]
    assert timeless(summary)[:2] == timeless(job[2])[:2]
    rows = [[row for row in read_metrics(d.metrics) if row["stage"] == "grpo"] for d in (finished, whole)]
    assert rows[0][0]["loss"] == rows[1][0]["loss"]  # the same weights, prompts and completions
    assert [row["lr"] for row in rows[0]] == [5e-3, 5e-3]
    aside = finished.path / "abandoned-1"
    assert (aside / "checkpoints" / "grpo-2").is_dir()
    assert load_recipe(aside / "recipe.toml").stages[1].optim.lr == 1e-3
    assert load_recipe(finished.recipe).stages[1].optim.lr == 5e-3
    assert [s.name for s in read_summary(aside / "summary.json").stages] == ["base", "sft", "grpo"]
    with pytest.raises(DataError, match="every stage is finished"):
        local.resume(finished.path)


def test_stages_can_be_added_to_a_finished_run(job: Job, finished: RunDirectory) -> None:
    recipe = job[0]
    text = (recipe.folder / "recipe.toml").read_text()
    more = text + text[text.rindex("[[stages]]") :].replace('name = "grpo"\n', 'name = "again"\n')
    (recipe.folder / "longer.toml").write_text(more)
    _, summary = local.resume(finished.path, recipe=load_recipe(recipe.folder / "longer.toml"))
    assert [s.name for s in summary.stages] == ["base", "sft", "grpo", "again"]
    rows = [row for row in read_metrics(finished.metrics) if row["stage"] == "again"]
    assert rows[-1]["policy_version"] == 6 + 2 + 2
    assert rows[0]["kl_to_ref"] == pytest.approx(0, abs=1e-6)


def refused(directory: RunDirectory, error: type[Exception], match: str, **options: Any) -> None:
    """Refused, and the run is left as it was."""
    before = {p: p.read_bytes() for p in directory.path.rglob("*") if p.is_file()}
    with pytest.raises(error, match=match):
        local.resume(directory.path, **options)
    assert {p: p.read_bytes() for p in directory.path.rglob("*") if p.is_file()} == before


def test_changes_before_the_stage_are_refused_with_what_differs(job: Job, finished: RunDirectory) -> None:
    recipe = job[0]
    text = (recipe.folder / "recipe.toml").read_text()
    text = text.replace("lr = 1e-2", "lr = 2e-2").replace("group_size = 4", "group_size = 5")
    (recipe.folder / "early.toml").write_text(text)
    early = load_recipe(recipe.folder / "early.toml")
    match = (
        r"(?s)before grpo:\n  rollout.group_size: 4 in the run, 5 in the recipe\n  stages.0.optim.lr: 0.01 in .*0.02"
    )
    refused(finished, DataError, match, recipe=early, from_stage="grpo")
    one = early.model_copy(update={"rollout": recipe.rollout})
    local.resume(finished.path, recipe=one, from_stage="sft")
    assert read_metrics(finished.metrics)[0]["lr"] == 2e-2


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_another_version_an_edited_recipe_and_a_foreign_folder_are_refused(finished: RunDirectory) -> None:
    log = finished.stages.read_text()
    version = json.loads(log)["groupwise"]
    edited(finished.stages, f'"groupwise": "{version}"', '"groupwise": "0.0.1"')
    refused(finished, DataError, rf"made by groupwise 0\.0\.1, this is {version}", from_stage="grpo")
    finished.stages.write_text(log[:-9])
    refused(finished, DataError, "does not say which stages are finished", from_stage="grpo")
    finished.stages.write_text(log)
    refused(finished, DataError, "has no such stage; it has sft, grpo", from_stage="gpro")
    edited(finished.recipe, "group_size = 4", "group_size = 6")
    refused(finished, DataError, r"recipe.toml was changed since the run was trained", from_stage="grpo")
    finished.stages.unlink()
    refused(finished, DataError, "has no stages.json", from_stage="grpo")


def test_lost_weights_and_a_later_stage_are_refused(job: Job, finished: RunDirectory, tmp_path: Path) -> None:
    (finished.checkpoints / "sft-6" / "model.safetensors").unlink()
    refused(finished, EngineError, "checkpoint .*sft-6 cannot be put back", from_stage="grpo")
    directory = killed_run(job[0], tmp_path / "runs", Killer("sft: 6 steps", 3))
    refused(directory, DataError, "stage 'sft' before it is not finished", from_stage="grpo")


def test_other_tasks_under_the_same_names_are_refused(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path, change))
    directory = killed_run(recipe, tmp_path / "other", Killer("sft: 6 steps", 1))
    edited(recipe.folder / "train.jsonl", "all of a, f?", "all of a, z?")
    refused(directory, DataError, "have changed since the run began")


def test_a_run_that_is_being_written_is_refused(finished: RunDirectory) -> None:
    with finished.claimed():
        refused(finished, DataError, "is being written by another process", from_stage="grpo")
