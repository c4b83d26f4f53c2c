"""groupwise eval: the recipe's model, another one, checkpoints of a run, a model behind an endpoint; and what a run
records of its own evaluations."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fake_endpoint import Answer, Asked, FakeServer
from groupwise.config import Recipe, load_recipe
from groupwise.errors import ConfigError, DataError, EngineError
from groupwise.launch import local
from groupwise.launch.assemble import RenderedTasks
from groupwise.launch.display import Quiet
from groupwise.launch.evaluate import (
    Measured,
    evaluate_any,
    evaluate_endpoint,
    evaluate_model,
    find_checkpoint,
    recipe_of,
    with_overrides,
)
from groupwise.launch.evaluate_show import measured_json, measured_lines, settings_line, unscored_line
from groupwise.launch.measure import evaluation_facts, evaluation_line, summarise, unscored_warning
from groupwise.rollout.endpoint_engine import Endpoint
from groupwise.runs import RunDirectory, read_events, read_rollouts
from groupwise.types import Group, Status, Verdict
from tiny_job import GOLD, everything_in, replaced, write_job


class Job(NamedTuple):
    recipe: Recipe
    run: RunDirectory


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A trained run: one stage of SFT, after which greedy answers are right and sampled ones sometimes."""
    folder = tmp_path_factory.mktemp("job")

    def sft_only(text: str) -> str:
        return text[: text.rindex("[[stages]]")]

    recipe = load_recipe(write_job(folder, sft_only))
    return Job(recipe, local.train(recipe)[0])


def measured_of(job: Job, **options: Any) -> Measured:
    return evaluate_any(job.recipe, Quiet(), checkpoint=find_checkpoint(job.run.path), **options)


def test_the_event_of_a_run_has_everything_that_the_rates_rest_on(job: Job) -> None:
    base, sft = (e for e in read_events(job.run.events) if e["event"] == "evaluation")
    assert (base["name"], sft["name"], sft["policy_version"]) == ("base", "sft", 10)
    assert (sft["temperature"], sft["top_p"], sft["max_completion_tokens"], sft["seed"]) == (1.0, 1.0, 20, 7)
    assert (sft["success"], sft["num_prompts"], sft["samples_per_prompt"]) == ("outcome", 3, 2)
    assert set(sft["scored"].values()) == {2}
    assert set(sft["greedy_scored"].values()) == {1}
    assert sft["pass_at"]["1"] == pytest.approx(sum(sft["solved"].values()) / 6) == sft["pass_all"]["1"]
    assert sft["pass_at"]["2"] == pytest.approx(sum(n > 0 for n in sft["solved"].values()) / 3)
    assert sft["pass_all"]["2"] == pytest.approx(sum(n == 2 for n in sft["solved"].values()) / 3)
    assert sft["pass_at"].keys() == sft["pass_at_intervals"].keys() == {"1", "2"}
    assert sft["interval"] == sft["pass_at_intervals"]["1"]
    assert sft["greedy_interval"][0] <= sft["greedy_pass_rate"] <= sft["greedy_interval"][1]
    assert (sft["num_unscored"], sft["num_greedy_unscored"]) == (0, 0)


def test_greedy_completions_are_recorded_beside_the_sampled_ones(job: Job) -> None:
    sampled = read_rollouts(job.run.rollouts_of("evaluation-sft", 10))
    greedy = read_rollouts(job.run.rollouts_of("evaluation-sft-greedy", 10))
    assert (len(sampled), len(greedy)) == (6, 3)
    event = [e for e in read_events(job.run.events) if e["event"] == "evaluation"][-1]
    assert {row.task_id: int(row.outcome is True) for row in greedy} == event["greedy_solved"]


def test_a_checkpoint_of_a_run_gives_what_the_run_measured(job: Job) -> None:
    recorded = [e for e in read_events(job.run.events) if e["event"] == "evaluation"][-1]
    found = evaluate_any(recipe_of(find_checkpoint(job.run.path)), Quiet(), checkpoint=find_checkpoint(job.run.path))
    own = ("name", "seconds", "event", "time")  # sft there, sft-10 here
    assert {k: v for k, v in found.facts.items() if k in recorded and k not in own} == {
        k: v for k, v in recorded.items() if k not in own
    }
    assert found.facts["name"] == "sft-10"
    assert found.evaluation.groups[0].rollouts[0].completion.policy_version == 10


def test_which_checkpoint_a_path_means(job: Job, tmp_path: Path) -> None:
    last = find_checkpoint(job.run.path)
    assert (last.folder.name, last.policy_version) == ("sft-10", 10)
    assert find_checkpoint(job.run.checkpoints / "sft-10") == last
    with pytest.raises(DataError, match="not a run folder"):
        find_checkpoint(tmp_path)
    empty = RunDirectory.create(tmp_path, "empty")
    with pytest.raises(DataError, match="no checkpoint of its policy yet"):
        find_checkpoint(empty.path)
    reward = empty.checkpoints / "rm-3"
    reward.mkdir()
    (reward / "groupwise.json").write_text('{"policy_version": 3}')
    (reward / "reward_model.json").write_text("{}")
    with pytest.raises(DataError, match="is a reward model"):
        find_checkpoint(reward)
    with pytest.raises(DataError, match="no checkpoint of its policy yet"):
        find_checkpoint(empty.path)
    (empty.checkpoints / "grpo-3.partial").mkdir()
    (empty.checkpoints / "grpo-3.partial" / "groupwise.json").write_text('{"policy_version": 3}')
    with pytest.raises(DataError, match="no checkpoint of its policy yet"):
        find_checkpoint(empty.path)
    for name in ("grpo-9", "grpo-10"):
        (empty.checkpoints / name).mkdir()
        (empty.checkpoints / name / "groupwise.json").write_text('{"policy_version": 4}')
    assert find_checkpoint(empty.path).folder.name == "grpo-10"
    for name, version in (("grpo-36", 46), ("grpo-40", 40), ("grpo-50.partial", 60), ("grpo-50.old.partial", 60)):
        (empty.checkpoints / name).mkdir()
        (empty.checkpoints / name / "groupwise.json").write_text(f'{{"policy_version": {version}}}')
    assert find_checkpoint(empty.path).folder.name == "grpo-36"  # by updates, and what was half-written is none
    with pytest.raises(DataError, match="was not written to its end"):
        find_checkpoint(empty.checkpoints / "grpo-50.partial")
    (empty.checkpoints / "grpo-9" / "groupwise.json").write_text("{")
    assert find_checkpoint(empty.path).folder.name == "grpo-36"
    with pytest.raises(DataError, match="the checkpoint is damaged"):
        find_checkpoint(empty.checkpoints / "grpo-9")


def test_a_stage_that_was_stopped_is_measured_where_it_stopped(job: Job, tmp_path: Path) -> None:
    """The finished stage's checkpoint is older than that of the stage under way, whatever the clock says."""
    copied = tmp_path / "stopped"
    shutil.copytree(job.run.path, copied)
    shutil.copytree(copied / "checkpoints" / "sft-10", copied / "checkpoints" / "grpo-36")
    (copied / "checkpoints" / "grpo-36" / "groupwise.json").write_text('{"policy_version": 46}')
    os.utime(copied / "checkpoints" / "grpo-36", (1, 1))
    found = find_checkpoint(copied)
    assert (found.folder.name, found.policy_version) == ("grpo-36", 46)


def test_a_seed_changes_the_samples_and_nothing_else(job: Job) -> None:
    one, other, again = (measured_of(job, seed=seed) for seed in (None, 5, 5))

    def texts(measured: Measured) -> list[list[str]]:
        return [[r.completion.text for r in g.rollouts] for g in measured.evaluation.groups]

    assert texts(other) == texts(again) != texts(one)
    assert [g.task.id for g in other.evaluation.groups] == [g.task.id for g in one.evaluation.groups]
    assert [g.rollouts[0].completion.text for g in other.evaluation.greedy_groups] == [
        g.rollouts[0].completion.text for g in one.evaluation.greedy_groups
    ]
    assert (one.facts["seed"], other.facts["seed"], other.about.seed) == (7, 5, 5)


def test_the_temperature_is_the_evaluations_own(job: Job) -> None:
    def at(temperature: float) -> Measured:
        section = job.recipe.evaluation.model_copy(update={"temperature": temperature})
        rollout = job.recipe.rollout.model_copy(update={"temperature": 0.3})  # training's does not matter
        recipe = job.recipe.model_copy(update={"evaluation": section, "rollout": rollout})
        return evaluate_any(recipe, Quiet(), checkpoint=find_checkpoint(job.run.path))

    cold = at(0.01)
    greedy = [g.rollouts[0].completion.text for g in cold.evaluation.greedy_groups]
    assert [[r.completion.text for r in g.rollouts] for g in cold.evaluation.groups] == [[text] * 2 for text in greedy]
    assert (cold.facts["temperature"], cold.about.generation["temperature"]) == (0.01, 0.01)
    assert at(1.0).facts["solved"] == measured_of(job).facts["solved"]


def test_sizes_can_be_asked_for_and_nothing_at_all_cannot(job: Job) -> None:
    small = with_overrides(job.recipe, samples=3, num_prompts=2)
    found = evaluate_any(small, Quiet(), checkpoint=find_checkpoint(job.run.path))
    assert [len(g.rollouts) for g in found.evaluation.groups] == [3, 3]
    assert list(found.facts["pass_at"]) == ["1", "2", "3"]
    assert "2 of 3 held-out prompts, 3 sampled and 1 greedy completions each" in settings_line(found)
    greedy = evaluate_any(with_overrides(job.recipe, samples=0), Quiet(), checkpoint=find_checkpoint(job.run.path))
    assert (greedy.facts["pass_at"], greedy.facts["solved"]) == ({}, {})
    assert "none sampled and 1 greedy" in settings_line(greedy)
    assert with_overrides(job.recipe) == job.recipe
    section = job.recipe.evaluation.model_copy(update={"greedy": False})
    with pytest.raises(ConfigError, match="measures nothing"):
        with_overrides(job.recipe.model_copy(update={"evaluation": section}), samples=0)


def test_a_threshold_of_the_recipe_holds_in_every_number(tmp_path: Path) -> None:
    """Every completion earns half, which is no outcome: from 0.5 on it counts as solved, everywhere."""
    (tmp_path / "pays.py").write_text(
        "def half(prompts, completions, **columns):\n    return [0.5 for _ in completions]\n"
    )
    verifier = 'kind = "function"\npath = "pays.py:half"\nthreshold = 0.9\n'

    def change(threshold: str) -> Callable[[str], str]:
        def changed(text: str) -> str:
            begin, end = text.index('kind = "sql"'), text.index("[rollout]")
            text = text[:begin] + verifier + "\n" + text[end:]
            return text.replace("[evaluation]\n", f"[evaluation]\n{threshold}")

        return changed

    strict = evaluate_model(load_recipe(write_job(tmp_path, change(""))), Quiet())
    for name in ("one", "two"):
        (tmp_path / f"{name}.sqlite").unlink()
    mild = evaluate_model(load_recipe(write_job(tmp_path, change("success_reward = 0.5\n"))), Quiet())
    assert (strict.facts["pass_rate"], strict.facts["success"]) == (0.0, "outcome")
    assert (mild.facts["pass_rate"], mild.facts["success"]) == (1.0, "reward >= 0.5")
    assert (mild.facts["greedy_pass_rate"], mild.facts["pass_all"]["2"]) == (1.0, 1.0)
    assert (mild.summary.pass_rate, mild.summary.mean_length_wrong) == (1.0, None)
    assert set(mild.facts["solved"].values()) == {2}
    assert "solved = reward >= 0.5" in evaluation_line(mild.evaluation, mild.summary)


def gold_for(asked: Asked) -> Answer:
    """Right for one prompt, wrong for the second, and nothing usable for the third."""
    if "j?" in asked.prompt:
        return Answer(GOLD)
    return Answer("SELECT 1") if "k?" in asked.prompt else Answer(status=500)


def test_an_endpoint_is_measured_without_any_weights(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path, replaced('name = "model"', 'name = "gone"')))
    before = everything_in(tmp_path)
    with FakeServer(gold_for) as server:
        endpoint = Endpoint(url=server.url, model="served", num_retries=0, num_requests=3)
        found = evaluate_endpoint(recipe, endpoint, Quiet())
        again = evaluate_endpoint(recipe, endpoint, Quiet(), seed=5)
    assert everything_in(tmp_path) == before
    assert found.facts["solved"] == {"heldout-0001": 2, "heldout-0002": 0, "heldout-0003": 0}
    assert found.facts["scored"] == {"heldout-0001": 2, "heldout-0002": 2, "heldout-0003": 0}
    assert (found.facts["pass_rate"], found.facts["greedy_pass_rate"]) == (0.5, 0.5)
    assert (found.facts["num_unscored"], found.facts["num_greedy_unscored"], found.facts["num_aborted"]) == (2, 1, 3)
    assert "2 sampled and 1 greedy completions" in unscored_line(found)
    assert "3 completions did not arrive" in found.notes[0]
    assert "HTTP status 500" in found.notes[0]
    assert (found.about.kind, found.about.model, found.facts["endpoint"]) == (
        "openai-compatible",
        "served",
        server.url,
    )
    assert {asked.path for asked in server.asked} == {"/v1/completions"}  # the tasks are plain text
    assert {asked.body["temperature"] for asked in server.asked} == {0.0, 1.0}
    seeds = [asked.body["seed"] for asked in server.asked]
    assert len(set(seeds[:9])) == 6  # two samples of three prompts; greedy repeats the first one's
    assert set(seeds[:9]).isdisjoint(seeds[9:])
    assert again.about.seed == 5
    assert found.summary.mean_length_right == 4  # as the server counts them: SELECT a FROM t


def test_an_endpoint_that_gives_nothing_is_an_error_and_no_rate(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path))
    with FakeServer(lambda asked: Answer(status=500)) as server, pytest.raises(EngineError, match="gave no completion"):
        evaluate_endpoint(recipe, Endpoint(url=server.url, model="served", num_retries=0), Quiet())


def test_nothing_that_could_be_judged_is_unknown_and_not_zero(job: Job) -> None:
    unscored = Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="broke")
    seen = measured_of(job).evaluation

    def lost(groups: tuple[Group, ...]) -> tuple[Group, ...]:
        return tuple(
            replace(g, rollouts=tuple(replace(rollout, verdict=unscored) for rollout in g.rollouts)) for g in groups
        )

    evaluation = replace(seen, groups=lost(seen.groups), greedy_groups=lost(seen.greedy_groups))
    tasks = RenderedTasks(tasks=tuple(g.task for g in seen.groups), prompts=tuple(g.prompt for g in seen.groups))
    summary = summarise("base", evaluation, tasks)
    facts = evaluation_facts(job.recipe, "base", 0, evaluation, summary)
    assert math.isnan(summary.pass_rate)
    assert (facts["pass_rate"], facts["greedy_pass_rate"], facts["pass_at"]) == (None, None, {"1": None, "2": None})
    assert (facts["interval"], facts["num_unscored"], facts["num_greedy_unscored"]) == ([0.0, 1.0], 6, 3)
    assert (summary.judged_frac, summary.greedy_judged_frac) == (0.0, 0.0)
    warning = unscored_warning(evaluation)
    assert warning.startswith("100% of the completions (9 of 9) have no verdict")
    assert warning.endswith("First reason: broke")
    line = evaluation_line(evaluation, summary)
    assert "pass rate unknown" in line
    assert "greedy unknown" in line
    assert "9 completions could not be scored" in line


def test_files_and_lines_tell_the_same(job: Job, tmp_path: Path) -> None:
    found = measured_of(job)
    results, samples = found.write(tmp_path)
    assert results.is_file()
    assert len(samples.read_text().splitlines()) == 3
    assert GOLD in samples.read_text()
    lines = list(measured_lines(found))
    assert len([line for line in lines if not isinstance(line, str)]) == 2
    assert '"pass_all"' in measured_json(found)
    assert "NaN" not in measured_json(found)


@pytest.mark.parametrize("num_lost", [1, 2, 12])
def test_more_than_one_in_twenty_without_a_verdict_is_a_warning_before_the_rate(job: Job, num_lost: int) -> None:
    """20 sampled completions, all right but those that were lost; the greedy ones are all judged."""
    seen = measured_of(job).evaluation
    first = seen.groups[0]
    lost = Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason="KeyError:\n  cells")
    right = Verdict(status=Status.SCORED, reward=1.0, outcome=True, reason="same_rows")
    many = [replace(first.rollouts[0], verdict=lost if i < num_lost else right) for i in range(20)]
    evaluation = replace(seen, groups=(replace(first, rollouts=tuple(many)),), greedy_groups=(), samples_per_prompt=20)
    tasks = RenderedTasks(tasks=(first.task,), prompts=(first.prompt,))
    summary = summarise("base", evaluation, tasks)
    line = evaluation_line(evaluation, summary)
    assert ("100.0% [" in line, " judged" in line) == (True, num_lost > 1)
    warning = unscored_warning(evaluation)
    if num_lost == 1:
        assert warning == ""
        return
    assert warning.startswith(f"{5 * num_lost}% of the completions ({num_lost} of 20) have no verdict")
    assert "too high where the verifier fails more often on wrong answers" in warning
    assert warning.endswith("First reason: KeyError: cells")
    assert f"] of {100 - 5 * num_lost}% judged" in line
