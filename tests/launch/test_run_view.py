"""A whole small run as its display sees it, and the files of the whole run: plan, ledger, environment, costs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import Recipe, load_recipe
from groupwise.launch import local, run_plan
from groupwise.launch.display import Quiet, StageOutlook, StageScreen, StepView
from groupwise.launch.machine import usable_memory_bytes
from groupwise.launch.prompt_ledgers import keep_finished, write_ledger
from groupwise.launch.run_plan import RunPlan, read_plan, write_plan
from groupwise.launch.verifiers import build_verifier
from groupwise.runs import RunDirectory, read_metrics, read_run
from groupwise.training.algorithm import Algorithm
from plan_job import ROUND
from tiny_job import replaced, write_job


class Screen:
    """Keeps what a stage tells it."""

    def __init__(self, outlook: StageOutlook) -> None:
        self.outlook = outlook
        self.views: list[StepView] = []
        self.sampled: list[tuple[int, int]] = []

    def step(self, view: StepView) -> None:
        self.views.append(view)

    def sampling(self, done: int, total: int) -> None:
        self.sampled.append((done, total))


class Watcher(Quiet):
    def __init__(self) -> None:
        self.screens: list[Screen] = []

    @contextmanager
    def training(self, outlook: StageOutlook) -> Iterator[StageScreen]:
        self.screens.append(Screen(outlook))
        yield self.screens[-1]


def change(text: str) -> str:
    for one in (
        replaced("steps = 10\n", "steps = 4\n"),
        replaced('{ name = "grpo" }', '{ name = "grpo", beta = 0.1 }'),
        replaced('name = "model"\n', 'name = "model"\nattention_check = false\n'),
        replaced("[evaluation]\n", "[evaluation]\nevery = 2\n"),
        replaced("[curation]", "[budget]\nseconds = 3600.0\n\n[audit]\nfast_tasks = 0\n[curation]"),
    ):
        text = one(text)
    return text


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, RunDirectory, Watcher]:
    """A run on a machine that was measured, with a model that is not too small to be timed."""
    watcher = Watcher()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_plan, "measured_hardware", lambda: ROUND)
        patch.setattr(run_plan, "SMALLEST_PARAMS", 0)
        recipe = load_recipe(write_job(tmp_path_factory.mktemp("view"), change))
        directory, _ = local.train(recipe, watcher)
    return recipe, directory, watcher


def test_the_outlook_of_each_stage(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    sft, grpo = (screen.outlook for screen in job[2].screens)
    assert (sft.run, sft.name, sft.title, sft.num_steps) == ("job", "sft", "sft: 4 steps", 4)
    assert [(one.number, one.num_stages) for one in (sft, grpo)] == [(1, 2), (2, 2)]
    assert sft.heldout is not None
    assert sft.heldout.name == "base"
    assert grpo.heldout is not None
    assert grpo.heldout.name == "sft"
    assert sft.memory_limit_bytes == usable_memory_bytes()


def test_the_view_of_each_step(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    recipe, directory, watcher = job
    sft, grpo = watcher.screens
    assert [view.step for view in sft.views] == [1, 2, 3, 4]
    assert all(view.metrics["seconds_step"] > 0 for view in grpo.views)
    assert (grpo.views[0].memory_bytes or 0) > 0
    assert grpo.views[0].budget.endswith("% of the budget")
    plan = read_plan(directory, recipe)
    assert plan is not None
    assert {view.planned_s for view in grpo.views} == {plan.seconds}
    spent = [view.spent_s or 0.0 for screen in watcher.screens for view in screen.views]
    assert spent == sorted(spent)
    assert spent[0] > 0


def test_time_left_counts_steps_evaluations_and_later_stages(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    recipe, directory, watcher = job
    plan = read_plan(directory, recipe)
    assert plan is not None
    sft, grpo = watcher.screens
    last = sft.views[-1]
    assert last.stage_left_s == 0.0
    later = plan.seconds_after("sft")
    assert later is not None
    assert (last.run_left_s or 0.0) > later  # the evaluations behind both stages
    second = sft.views[1].metrics["seconds_step"] + sft.views[0].metrics["seconds_step"]
    # a step is shown before the evaluation behind it, which is not over: it is no part of the steps that are left
    assert sft.views[1].stage_left_s == pytest.approx(2 * second / 2)
    assert (sft.views[0].stage_left_s or 0.0) > 3 * sft.views[0].metrics["seconds_step"]  # and the one after step 2
    assert grpo.views[-1].stage_left_s == 0.0
    assert 0 < (grpo.views[-1].run_left_s or 0.0) < 30


def test_sampling_inside_a_step_is_shown(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    sft, grpo = job[2].screens
    assert not sft.sampled
    assert grpo.sampled[-1] == (8, 8)
    assert grpo.sampled[0][0] < 8


def test_the_last_evaluation_inside_a_stage_is_shown_with_the_next_step(
    job: tuple[Recipe, RunDirectory, Watcher],
) -> None:
    names = [view.heldout.name for view in job[2].screens[0].views if view.heldout is not None]
    assert names == ["base", "base", "sft step 2", "sft step 2"]


def test_plan_json_has_every_stage_and_adds_up(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    plan = read_run(job[1].path).plan
    assert plan is not None
    assert plan["hardware"] == "round"
    assert [(stage["name"], stage["steps"]) for stage in plan["stages"]] == [("sft", 4), ("grpo", 2)]
    for stage in plan["stages"]:
        assert stage["step_seconds"] == pytest.approx(sum(stage["phases"].values()))
        assert stage["seconds"] == pytest.approx(stage["steps"] * stage["step_seconds"])  # nothing comes before them
    evaluations = 1 + 2 + 1  # base, one after each stage, one after step 2 of the first
    total = sum(stage["seconds"] for stage in plan["stages"]) + evaluations * plan["evaluation_seconds"]
    assert plan["seconds"] == pytest.approx(total)
    assert plan["peak_bytes"] == max(stage["peak_bytes"] for stage in plan["stages"])
    assert 0 < plan["live_share"] < 1
    rate = ROUND.price_per_hour
    assert plan["price"] == (None if rate is None else pytest.approx(plan["seconds"] / 3600 * rate))


def test_the_rows_tell_what_was_spent_of_the_plan(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    rows = read_metrics(job[1].metrics)
    plan = read_run(job[1].path).plan
    assert plan is not None
    for row in rows:
        assert row["spent_frac_of_plan"] == pytest.approx(row["spent_seconds"] / plan["seconds"])
    grpo = [row for row in rows if row["stage"] == "grpo"]
    assert [row["spent_rollout_tokens"] for row in rows if row["stage"] == "sft"] == [0.0] * 4
    assert grpo[-1]["spent_rollout_tokens"] == sum(row["num_generated_tokens"] for row in grpo)


def test_environment_json_tells_the_device_and_its_memory(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    environment = read_run(job[1].path).environment
    assert (environment["device"], environment["dtype"]) == ("cpu", "float32")
    assert environment["memory_limit_bytes"] == usable_memory_bytes()
    plan = read_run(job[1].path).plan
    assert plan is not None
    assert environment["planned_seconds"] == plan["seconds"]


def test_ledger_json_has_the_prompts_of_the_grpo_stage(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    stages_of = json.loads(job[1].ledger.read_text())["stages"]
    assert list(stages_of) == ["grpo"]
    rows = stages_of["grpo"]
    assert len(rows) == 4
    assert sum(row["scored"] for row in rows.values()) == 2 * 2 * 4  # steps * prompts * completions
    assert {row["state"] for row in rows.values()} == {"active"}


def ledger(**rows: int) -> Algorithm:
    entries = {
        name: {"solved": n, "scored": 4, "visits": 1, "state": "active", "last_step": 1, "recent_solved": 0.5}
        for name, n in rows.items()
    }
    return Algorithm(collect=lambda _: None, loss=None, temperature=1.0, state=lambda: {"rows": entries})  # type: ignore[arg-type]


def test_a_stage_that_is_done_again_replaces_its_ledger(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "run")
    write_ledger(directory, "one", ledger(a=1), {"base"})
    write_ledger(directory, "two", ledger(b=2), {"base", "one"})
    write_ledger(directory, "two", ledger(b=3), {"base", "one"})
    found = json.loads(directory.ledger.read_text())["stages"]
    assert {name: [row["solved"] for row in rows.values()] for name, rows in found.items()} == {"one": [1], "two": [3]}
    assert "recent_solved" not in found["one"]["a"]
    write_ledger(directory, "sft", Algorithm(collect=lambda _: None, loss=None, temperature=1.0), {"base"})  # type: ignore[arg-type]
    assert json.loads(directory.ledger.read_text())["stages"] == found
    keep_finished(directory, {"base", "one"})
    write_ledger(directory, "three", ledger(c=1), {"base"})  # a restart from the first stage: "one" is to do again
    assert list(json.loads(directory.ledger.read_text())["stages"]) == ["three"]
    write_ledger(directory, "one", ledger(a=1), {"base", "three"})
    keep_finished(directory, {"base", "one"})
    assert list(json.loads(directory.ledger.read_text())["stages"]) == ["one"]


def test_a_disk_that_refuses_the_ledger_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    directory = RunDirectory.create(tmp_path, "run")
    monkeypatch.setattr("groupwise.launch.prompt_ledgers.write_atomic", full)
    write_ledger(directory, "one", ledger(a=1), ())
    assert "no space left" in caplog.text


class Stops(Watcher):
    """Asks the run to stop after the first step of a stage, as Ctrl-C does."""

    @contextmanager
    def training(self, outlook: StageOutlook) -> Iterator[StageScreen]:
        with super().training(outlook) as screen:
            if outlook.name == "grpo":
                raise KeyboardInterrupt
            yield screen


def test_a_restart_keeps_the_plan_goes_on_counting_and_forgets_the_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "measured_hardware", lambda: ROUND)
    monkeypatch.setattr(run_plan, "SMALLEST_PARAMS", 0)
    recipe = load_recipe(write_job(tmp_path, change))
    with pytest.raises(KeyboardInterrupt):
        local.train(recipe, Stops())
    (path,) = (tmp_path / "runs").iterdir()
    directory = RunDirectory(path)
    spent = read_metrics(directory.metrics)[-1]["spent_seconds"]
    directory.diagnosis.write_text('{"findings": []}')
    kept = json.loads(directory.plan.read_text()) | {"seconds": 1e6}
    directory.plan.write_text(json.dumps(kept))
    seen: list[bool] = []

    class Looks(Watcher):
        @contextmanager
        def training(self, outlook: StageOutlook) -> Iterator[StageScreen]:
            seen.append(directory.diagnosis.exists())
            with super().training(outlook) as screen:
                yield screen

    local.resume(path, Looks())
    assert seen == [False]
    assert json.loads(directory.plan.read_text()) == kept
    after = read_metrics(directory.metrics)[-1]
    assert spent < after["spent_seconds"] < spent + 60
    assert after["spent_frac_of_plan"] == pytest.approx(after["spent_seconds"] / 1e6)


def test_a_plan_of_other_stages_is_not_read_again(tmp_path: Path, job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    recipe, whole, _ = job
    directory = RunDirectory.create(tmp_path, "run")
    assert read_plan(directory, recipe) is None
    values: dict[str, Any] = json.loads(whole.plan.read_text())
    write_plan(directory, RunPlan(values=values))
    assert read_plan(directory, recipe) is not None
    longer = [dict(stage) for stage in values["stages"]]
    longer[0]["steps"] = 5
    for other in (values | {"stages": longer}, {"stages": []}, {}):
        write_plan(directory, RunPlan(values=other))
        assert read_plan(directory, recipe) is None
    write_plan(directory, None)
    assert not directory.plan.exists()


def test_an_unmeasured_machine_plans_memory_and_no_seconds(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path, change))
    stopped = Stops()
    with pytest.raises(KeyboardInterrupt):
        local.train(recipe, stopped)
    (path,) = (tmp_path / "runs").iterdir()
    plan = read_run(path).plan
    assert plan is not None
    assert (plan["seconds"], plan["price"], plan["hardware"]) == (None, None, None)
    assert {stage["seconds"] for stage in plan["stages"]} == {None}
    assert 0 < plan["peak_bytes"] < usable_memory_bytes()
    view = stopped.screens[0].views[-1]
    assert view.planned_s is None
    assert view.run_left_s is None  # nobody knows how long the stage behind it takes
    assert "spent_frac_of_plan" not in read_metrics(RunDirectory(path).metrics)[-1]


def test_a_model_that_planning_does_not_know_has_no_plan(
    job: tuple[Recipe, RunDirectory, Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(config: object) -> None:
        raise ValueError("a mixture of experts")

    monkeypatch.setattr(run_plan, "from_config", unknown)
    verifier = build_verifier(job[0])
    try:
        policy, sets = local.prepare(job[0], verifier, Quiet())
    finally:
        verifier.close()
    assert run_plan.plan_run(job[0], policy, sets) is None


def test_seconds_behind_a_stage(job: tuple[Recipe, RunDirectory, Watcher]) -> None:
    plan = read_plan(job[1], job[0])
    assert plan is not None
    assert plan.seconds_after("grpo") == 0
    assert plan.seconds_after("sft") == plan.values["stages"][1]["seconds"]


class Ends(Watcher):
    """Ends the run in its last stage, in one of three ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def training(self, outlook: StageOutlook) -> Iterator[StageScreen]:
        with super().training(outlook) as screen:
            if outlook.name == "grpo" and self.how == "twice":
                raise KeyboardInterrupt
            if outlook.name == "grpo" and self.how == "error":
                raise OSError("the disk is gone")
            if outlook.name == "grpo" and self.how == "once":
                os.kill(os.getpid(), signal.SIGINT)
            yield screen


@pytest.mark.parametrize(
    ("how", "error"), [("once", None), ("twice", KeyboardInterrupt), ("error", OSError), ("", None)]
)
def test_an_early_end_names_the_command_that_goes_on(
    tmp_path: Path, how: str, error: type[BaseException] | None
) -> None:
    recipe = load_recipe(write_job(tmp_path, change))
    display = Ends(how)
    with pytest.raises(error) if error else nullcontext():
        local.train(recipe, display)
    (path,) = (tmp_path / "runs").iterdir()
    told = [line for line in display.lines if line.startswith("Left: ")]
    assert told == ([f"Left: grpo. To go on:\n  groupwise train --resume {path}"] if how else [])
