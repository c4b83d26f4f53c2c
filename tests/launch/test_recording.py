"""[tracking]: what is refused before anything slow, and that the packages are called as they want to be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.config import Recipe, load_recipe
from groupwise.errors import ConfigError
from groupwise.launch.recording import build_recorder, check_trackers, close_recorder
from groupwise.runs import FileRecorder, RunDirectory, read_metrics

RECIPE = """\
name = "job"
[model]
name = "model"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "classification"
labels = ["a", "b"]
[[stages]]
name = "grpo"
steps = 1
algorithm = { name = "grpo" }
optim = { lr = 1e-4 }
"""

FAKE = """\
import json, pathlib

calls = []

class Run:
    def log(self, values, step=None):
        calls.append(("log", values, step))

    def finish(self):
        calls.append(("finish",))

def init(**options):
    calls.append(("init", options))
    return Run()
"""


def recipe_with(folder: Path, tracking: str) -> Recipe:
    (folder / "recipe.toml").write_text(RECIPE + "[tracking]\n" + tracking)
    return load_recipe(folder / "recipe.toml")


def without_costs(calls: list[tuple]) -> list[tuple]:
    """The calls of a fake package without the numbers of launch/cost.py, which the clock decides."""

    def plain(part: object) -> object:
        return {k: v for k, v in part.items() if "/spent_" not in k} if isinstance(part, dict) else part

    return [tuple(map(plain, call)) for call in calls]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs", "job")


@pytest.fixture
def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """fake_package("wandb"): a package of that name that writes down its calls, and only for this test."""

    def make(name: str):
        place = tmp_path / "packages"
        place.mkdir(exist_ok=True)
        (place / f"{name}.py").write_text(FAKE)
        monkeypatch.syspath_prepend(place)
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = __import__(name)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


@pytest.fixture(autouse=True)
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_nothing_asked_for_is_the_run_folder_alone(tmp_path: Path, run: RunDirectory) -> None:
    recipe = recipe_with(tmp_path, "")
    check_trackers(recipe)
    recorder = build_recorder(recipe, run)
    recorder.metrics("grpo", 1, {"loss": 1.0})
    close_recorder(recorder)
    assert [row["loss"] for row in read_metrics(run.metrics)] == [1.0]
    close_recorder(FileRecorder(run))  # holds nothing


@pytest.mark.parametrize(
    ("name", "line"),
    [("tensorboard", "tensorboard = true"), ("wandb", 'wandb = "p"'), ("trackio", 'trackio = "p"')],
)
def test_a_missing_package_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: str
) -> None:
    monkeypatch.setattr("groupwise.launch.recording.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf'pip install "groupwise\[{name}\]"'):
        check_trackers(recipe_with(tmp_path, line))


def test_a_folder_named_like_a_package_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trackio").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="not installed"):
        check_trackers(recipe_with(tmp_path, 'trackio = "p"'))


def test_wandb_without_a_key_is_refused_because_it_would_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_package
) -> None:
    fake_package("wandb")
    recipe = recipe_with(tmp_path, 'wandb = "p"')
    with pytest.raises(ConfigError, match="wandb login"):
        check_trackers(recipe)
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password x\n")
    check_trackers(recipe)
    (tmp_path / ".netrc").unlink()
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(recipe)


def test_wandb_and_trackio_get_rows_settings_and_an_end(tmp_path: Path, run: RunDirectory, fake_package) -> None:
    wandb, trackio = fake_package("wandb"), fake_package("trackio")
    recorder = build_recorder(recipe_with(tmp_path, 'wandb = "team"\ntrackio = "mine"'), run)
    recorder.metrics("grpo", 1, {"pass_rate": 0.5})
    recorder.metrics("grpo", 2, {"pass_rate": 0.75})
    close_recorder(recorder)
    for module, project in ((wandb, "team"), (trackio, "mine")):
        (_, options), *rows, end = without_costs(module.calls)
        assert (options["project"], options["name"], options["resume"]) == (project, run.path.name, "allow")
        assert options["config"]["stages"][0]["name"] == "grpo"
        assert rows == [
            ("log", {"grpo/pass_rate": 0.5, "grpo/step": 1.0}, 1),
            ("log", {"grpo/pass_rate": 0.75, "grpo/step": 2.0}, 2),
        ]
        assert end == ("finish",)
    assert wandb.calls[0][1]["id"].startswith(f"{run.path.name}-")
    assert set(trackio.calls[0][1]) == {"project", "name", "config", "resume"}


def test_a_restart_goes_on_behind_the_last_row(tmp_path: Path, run: RunDirectory, fake_package) -> None:
    trackio = fake_package("trackio")
    FileRecorder(run).metrics("grpo", 1, {})
    recorder = build_recorder(recipe_with(tmp_path, 'trackio = "mine"'), run)
    recorder.metrics("grpo", 2, {})
    close_recorder(recorder)
    assert without_costs(trackio.calls)[1] == ("log", {"grpo/step": 2.0}, 2)


def test_tensorboard_files_can_be_read_back(tmp_path: Path, run: RunDirectory) -> None:
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe = recipe_with(tmp_path, "tensorboard = true")
    check_trackers(recipe)
    recorder = build_recorder(recipe, run)
    recorder.event("evaluation", {"name": "base", "pass_rate": 0.25})
    recorder.metrics("sft", 1, {"loss": 2.0})
    recorder.metrics("grpo", 1, {"pass_rate": 0.5})
    close_recorder(recorder)
    written = EventAccumulator(str(run.path / "tensorboard")).Reload()
    tags = written.Tags()["scalars"]
    assert "grpo/spent_seconds" in tags  # what the run has cost reaches everybody
    assert sorted(tag for tag in tags if "/spent_" not in tag) == [
        "evaluation/pass_rate",
        "grpo/pass_rate",
        "grpo/step",
        "sft/loss",
        "sft/step",
    ]
    assert [(point.step, point.value) for point in written.Scalars("grpo/pass_rate")] == [(2, 0.5)]


def test_observers_are_told_between_files_and_trackers(tmp_path: Path, run: RunDirectory) -> None:
    seen: list[tuple[str, int]] = []

    class Observer:
        def metrics(self, stage, step, values) -> None:
            seen.append((stage, len(read_metrics(run.metrics))))

        def rollouts(self, stage, step, groups, advantages, *, left_out=None) -> None:
            seen.append(("rollouts", 0))

        def event(self, name, payload) -> None:
            raise RuntimeError("not today")

    recorder = build_recorder(recipe_with(tmp_path, ""), run, observers=[Observer()])
    recorder.metrics("grpo", 1, {})
    recorder.rollouts("grpo", 1, [], [])
    recorder.event("begin", {})
    recorder.metrics("grpo", 2, {})
    assert seen == [("grpo", 1), ("rollouts", 0)]
