"""A whole run in this process: what it writes, that it repeats exactly, and what it does with odd prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from groupwise.config import load_recipe
from groupwise.errors import DataError, EngineError
from groupwise.launch import assemble, local
from groupwise.launch.display import Quiet
from groupwise.launch.evaluate import evaluate
from groupwise.rollout import TorchEngine
from groupwise.runs import RunDirectory, RunSummary, read_events, read_metrics, read_summary
from groupwise.types import Completion
from tiny_job import everything_in, replaced, write_job

Run = tuple[RunDirectory, RunSummary]


class Lines(Quiet):
    """Keeps what a user would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.titles: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def working(self, title: str) -> AbstractContextManager[Any]:
        self.titles.append(title)
        return super().working(title)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The same recipe twice, on a machine that was never measured: there is no forecast among the events."""
    recipe = load_recipe(write_job(tmp_path_factory.mktemp("job")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return local.train(recipe), local.train(recipe)


def test_a_run_directory_holds_all_there_is_to_know(runs: tuple[Run, Run]) -> None:
    directory, _ = runs[0]
    files = {str(p.relative_to(directory.path)) for p in directory.path.rglob("*") if "checkpoints" not in p.parts}
    assert files == {
        "recipe.toml",
        "environment.json",
        "audit.json",
        "plan.json",
        "ledger.json",
        "diagnosis.json",
        "metrics.jsonl",
        "events.jsonl",
        "summary.json",
        "stages.json",
        "rollouts",
        "rollouts/grpo-000001.parquet",
        "rollouts/grpo-000002.parquet",
        "rollouts/evaluation-base-000000.parquet",
        "rollouts/evaluation-base-greedy-000000.parquet",
        "rollouts/evaluation-sft-000010.parquet",
        "rollouts/evaluation-sft-greedy-000010.parquet",
        "rollouts/evaluation-grpo-000012.parquet",
        "rollouts/evaluation-grpo-greedy-000012.parquet",
    }
    assert {p.name for p in directory.checkpoints.iterdir()} == {"sft-10", "grpo-2"}


def test_the_recipe_in_it_is_the_one_that_ran(runs: tuple[Run, Run]) -> None:
    directory, summary = runs[0]
    kept, written = load_recipe(directory.recipe), load_recipe(directory.path.parent.parent / "recipe.toml")
    for section in ("name", "seed", "rollout", "evaluation", "curation", "stages"):
        assert getattr(kept, section) == getattr(written, section)
    again = evaluate(kept)  # its paths lead to the same files from where it lies
    assert replace(again, seconds=0.0) == replace(summary.stages[0], seconds=0.0)


def test_the_environment_names_versions_verifier_and_tasks(runs: tuple[Run, Run]) -> None:
    environment = json.loads(runs[0][0].environment.read_text())
    assert environment["versions"]["torch"] == torch.__version__
    assert len(environment["verifier_version"]) == 16
    assert environment["token_tree"] is True
    numerics = environment["numerics"]
    assert (numerics["dtype"], numerics["allowed"]) == ("float32", {"largest": 1e-4, "mean": 1e-4})
    assert 0 < numerics["whole_vocabulary"]["mean"] <= numerics["whole_vocabulary"]["largest"] < 1e-4
    assert numerics["whole_vocabulary"]["num_tokens"] > 50
    assert "restricted" not in numerics
    assert environment["num_tasks"] == {"demonstrations": 4, "train": 4, "heldout": 3}


def test_every_step_has_a_row_of_numbers(runs: tuple[Run, Run]) -> None:
    rows = read_metrics(runs[0][0].metrics)
    assert [(r["stage"], r["step"]) for r in rows] == [
        *(("sft", s) for s in range(1, 11)),
        ("grpo", 1),
        ("grpo", 2),
    ]
    assert rows[9]["nll"] < 0.5 * rows[0]["nll"]
    assert rows[-1]["policy_version"] == 10 + rows[-1]["updated"] + rows[-2]["updated"]
    assert rows[-2]["live_groups"] > 0  # the job is one in which GRPO has something to learn from
    assert rows[-2]["logprob_gap_mean"] <= rows[-2]["logprob_gap_p99"] <= rows[-2]["logprob_gap_max"] < 1e-3


def test_every_completion_is_on_record_with_its_verdict_and_advantage(runs: tuple[Run, Run]) -> None:
    directory, _ = runs[0]
    rows = pq.read_table(directory.rollouts_of("grpo", 1)).to_pylist()
    assert len(rows) == 2 * 4
    assert {row["policy_version"] for row in rows} == {10}
    rewards = [row["reward"] for row in rows if row["group"] == 0]
    advantages = [row["advantage"] for row in rows if row["group"] == 0]
    assert sum(advantages) == pytest.approx(0, abs=1e-6)
    assert len({a > 0 for a, r in zip(advantages, rewards, strict=True) if r == 1.0}) <= 1


def test_events_tell_evaluations_and_checkpoints_in_order(runs: tuple[Run, Run]) -> None:
    events = [(e["event"], e.get("name") or e.get("stage")) for e in read_events(runs[0][0].events)]
    watched = ("forecast", "length", "hacking")  # a machine that was measured adds the first, monitors the others
    assert [e for e in events if e[0] not in watched] == [
        ("evaluation", "base"),
        ("memory", "sft"),
        ("checkpoint", "sft"),
        ("evaluation", "sft"),
        ("memory", "grpo"),
        ("checkpoint", "grpo"),
        ("evaluation", "grpo"),
    ]


def test_the_summary_has_every_number_of_every_stage(runs: tuple[Run, Run]) -> None:
    directory, summary = runs[0]
    written = json.loads(directory.summary.read_text())
    assert [s["name"] for s in written["stages"]] == ["base", "sft", "grpo"]
    for stage in written["stages"]:
        low, high = stage["interval"]
        assert 0 <= low <= stage["pass_rate"] <= high <= 1
        assert 0 <= stage["greedy_pass_rate"] <= 1
        assert stage["num_prompts"] == 3
        assert stage["seconds"] > 0
        assert {"mean_length_right", "mean_length_wrong", "greedy_interval", "truncated_frac"} <= set(stage)
    assert written["stages"][0]["pass_rate"] == 0
    assert written["stages"][1]["pass_rate"] > 0
    # right answers are the gold's 15 bytes and the end token, or another query with the same rows
    assert 14 <= written["stages"][1]["mean_length_right"] <= 20
    assert written["peak_memory_bytes"] > 50e6
    assert written["seeds"] == {"run": 7}
    assert written["versions"]["torch"] == torch.__version__
    assert read_summary(directory.summary) == replace(summary, peak_memory_bytes=written["peak_memory_bytes"])


def test_two_runs_with_one_seed_are_equal_but_for_time_and_memory(runs: tuple[Run, Run]) -> None:
    (first, first_summary), (second, second_summary) = runs
    assert first.path != second.path
    timeless = [[replace(s, seconds=0.0) for s in summary.stages] for summary in (first_summary, second_summary)]
    assert timeless[0] == timeless[1]
    names = sorted(p.name for p in first.rollouts.iterdir())
    assert names == sorted(p.name for p in second.rollouts.iterdir())
    for name in names:
        assert pq.read_table(first.rollouts / name).equals(pq.read_table(second.rollouts / name)), name
    for row, same in zip(read_metrics(first.metrics), read_metrics(second.metrics), strict=True):
        assert row.get("loss") == same.get("loss")


def test_the_last_checkpoint_is_the_trained_model(runs: tuple[Run, Run]) -> None:
    directory, summary = runs[0]
    recipe = load_recipe(directory.path.parent.parent / "recipe.toml")
    checkpoint = directory.checkpoints / "grpo-2"
    AutoModelForCausalLM.from_pretrained(checkpoint)
    model = recipe.model.model_copy(update={"name": str(checkpoint)})
    before = everything_in(recipe.folder)
    again = evaluate(recipe.model_copy(update={"model": model}))
    assert (again.pass_rate, again.greedy_pass_rate) == (
        summary.stages[-1].pass_rate,
        summary.stages[-1].greedy_pass_rate,
    )
    assert everything_in(recipe.folder) == before


WITH_KL = replaced('name = "grpo" }', 'name = "grpo", beta = 0.01 }')
"""A step even where all groups are dead."""


def job(folder: Path, *changes: Callable[[str], str]) -> Any:
    def change(text: str) -> str:
        for one in (replaced("steps = 10", "steps = 1"), *changes):
            text = one(text)
        return text

    return load_recipe(write_job(folder, change))


def test_prompts_over_the_limit_are_counted_and_the_run_goes_on(tmp_path: Path) -> None:
    recipe = job(tmp_path, replaced("[data]", "[data]\nmax_prompt_tokens = 40"), WITH_KL)
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "long " * 20, "gold": "SELECT a FROM t"}) + "\n")
    display = Lines()
    directory, summary = local.train(recipe, display)
    assert "1 of 5 training prompts dropped: over 40 tokens" in display.lines
    assert json.loads(directory.environment.read_text())["num_tasks"]["train"] == 4
    assert [s.name for s in summary.stages] == ["base", "sft", "grpo"]


def test_where_every_prompt_is_over_the_limit_nothing_is_written(tmp_path: Path) -> None:
    recipe = job(tmp_path, replaced("[data]", "[data]\nmax_prompt_tokens = 3"))
    before = everything_in(tmp_path)
    with pytest.raises(DataError, match=r"all 4 prompts .* = 3; the shortest has \d+ tokens"):
        local.train(recipe)
    assert everything_in(tmp_path) == before


def test_unusable_golds_can_be_dropped_and_are_counted(tmp_path: Path) -> None:
    recipe = job(tmp_path, replaced('kind = "sql"', 'kind = "sql"\nunusable_gold = "drop"'))
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "other", "gold": "SELECT b FROM t"}) + "\n")
    display = Lines()
    directory, _ = local.train(recipe, display)
    assert any(line.startswith("1 of 12 tasks dropped for their gold: gold_failed 1") for line in display.lines)
    assert json.loads(directory.environment.read_text())["num_tasks"]["train"] == 4


def test_curation_that_keeps_nothing_says_so_and_stops(tmp_path: Path) -> None:
    """After one step of SFT the tiny model solves nothing, so no prompt is worth a GRPO step."""
    recipe = job(tmp_path, replaced("enabled = false", "enabled = true"))
    display = Lines()
    directory, summary = local.train(recipe, display)
    assert [s.name for s in summary.stages] == ["base", "sft"]
    assert any("GRPO has nothing to learn from" in line for line in display.lines)
    (event,) = (e for e in read_events(directory.events) if e["event"] == "curated")
    assert (event["kept"], len(event["never_solved"])) == (0, 4)
    assert directory.summary.is_file()


def test_a_stage_without_any_signal_ends_and_says_why(tmp_path: Path) -> None:
    """After one step of SFT the tiny model solves nothing: three collections, one of them again for its dead groups."""
    recipe = job(
        tmp_path,
        replaced("group_size = 4", "group_size = 4\nextra_rounds = 1\nallocation = { min_group_size = 2 }"),
        replaced("enabled = false", "enabled = false\nmax_empty_steps = 3"),
    )
    display = Lines()
    directory, summary = local.train(recipe, display)
    assert [s.name for s in summary.stages] == ["base", "sft"]
    (event,) = (e for e in read_events(directory.events) if e["event"] == "no_signal")
    assert "of 12 groups, 12 had no right answer" in event["diagnosis"]
    assert any(f"grpo ended after 0 of 2 steps. {event['diagnosis']}" == line for line in display.lines)
    assert sum("no signal, " in line and "of at most 3" in line for line in display.lines) == 3
    table = pq.read_table(directory.rollouts_of("grpo-no-signal", 3))
    assert (table.num_rows, len(set(table["task_id"].to_pylist()))) == (16, 4)
    rows = [row for row in read_metrics(directory.metrics) if row["stage"] == "grpo-no-signal"]
    assert [(row["updated"], row["cap_reached"], row["policy_version"]) for row in rows] == [(0, 1, 1)] * 3


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_run_without_a_single_step_is_an_error_and_on_record(tmp_path: Path, enabled: str) -> None:
    def without_sft(text: str) -> str:
        stages = text.split("[[stages]]")
        return "[[stages]]".join([stages[0], stages[2]])

    recipe = load_recipe(
        write_job(tmp_path, lambda text: without_sft(text.replace("= false", f"= {enabled}\nmax_empty_steps = 5")))
    )
    why = "GRPO has nothing to learn from" if enabled == "true" else "5 collections in a row had no group"
    with pytest.raises(DataError, match=f"(?s)^no step was done.*{why}.*What was sampled: .*job"):
        local.train(recipe)
    (run,) = (tmp_path / "runs").iterdir()
    directory = RunDirectory.open(run)
    assert [s.name for s in read_summary(directory.summary).stages] == ["base"]
    assert directory.rollouts_of("grpo-no-signal", 5).is_file() == (enabled == "false")


def test_curation_keeps_what_is_solved_sometimes(tmp_path: Path) -> None:
    def change(text: str) -> str:
        return text.replace("enabled = false", "enabled = true").replace("prompts_per_step = 2", "prompts_per_step = 1")

    recipe = load_recipe(write_job(tmp_path, change))
    directory, _ = local.train(recipe)
    (event,) = (e for e in read_events(directory.events) if e["event"] == "curated")
    assert event["kept"] >= 1  # otherwise the job is too easy or too hard
    assert event["kept"] + len(event["always_solved"]) + len(event["never_solved"]) == 4
    sometimes = {task for task, solved in event["solved"].items() if 0 < solved < 4}
    sampled = set(pq.read_table(directory.rollouts_of("grpo", 1))["task_id"].to_pylist())
    assert sampled <= sometimes


def test_evaluations_inside_a_stage_are_on_record_but_not_in_the_summary(tmp_path: Path) -> None:
    every = replaced("samples_per_prompt = 2", "samples_per_prompt = 2\nevery = 1\nnum_prompts = 2")
    recipe = job(tmp_path, every, WITH_KL)
    directory, summary = local.train(recipe)
    names = [e["name"] for e in read_events(directory.events) if e["event"] == "evaluation"]
    versions = [e["policy_version"] for e in read_events(directory.events) if e["event"] == "evaluation"]
    assert versions == sorted(set(versions)), "each names the weights that it measured"
    assert names == ["base", "sft", "grpo step 1", "grpo"]
    assert [s.name for s in summary.stages] == ["base", "sft", "grpo"]
    assert summary.stages[0].num_prompts == 2


def test_a_path_whose_numbers_differ_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.models import TokenScores, tree_scores

    def wrong(model: Any, sequences: Any, *, temperature: float, entropy: bool = False) -> TokenScores:
        return tree_scores(model, sequences, temperature=2 * temperature, entropy=entropy)

    monkeypatch.setattr(assemble, "tree_scores", wrong)
    recipe = job(tmp_path)
    before = everything_in(tmp_path)
    with pytest.raises(EngineError, match="attention_check"):
        local.train(recipe)
    assert everything_in(tmp_path) == before


class OffsetEngine(TorchEngine):
    """Reports log-probabilities that are not those it sampled with."""

    def generate(self, *arguments: Any, **named: Any) -> list[list[Completion]]:
        return [
            [replace(c, sampler_logprobs=tuple(x - 0.01 for x in c.sampler_logprobs)) for c in group]
            for group in super().generate(*arguments, **named)
        ]


def test_an_engine_that_disagrees_with_the_trainer_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "TorchEngine", OffsetEngine)
    recipe = job(tmp_path)
    before = everything_in(tmp_path)
    with pytest.raises(EngineError, match=r"(?s)largest 0\.01 nats over \d+ tokens.*attention_check"):
        local.train(recipe)
    assert everything_in(tmp_path) == before


def test_the_checks_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "TorchEngine", OffsetEngine)
    recipe = job(tmp_path, replaced('name = "model"', 'name = "model"\nattention_check = false'), WITH_KL)
    directory, _ = local.train(recipe)
    assert json.loads(directory.environment.read_text())["numerics"] is None
    assert read_metrics(directory.metrics)[-1]["logprob_gap_mean"] == pytest.approx(0.01, abs=1e-4)


def test_restricted_sampling_is_checked_as_it_is_used_and_weighted(tmp_path: Path) -> None:
    recipe = job(
        tmp_path,
        replaced("group_size = 4", "group_size = 4\ntop_p = 0.9"),
        replaced('name = "grpo" }', 'name = "grpo", beta = 0.01, importance_cap = 2.0 }'),
    )
    display = Lines()
    directory, _ = local.train(recipe, display)
    (line,) = (line for line in display.lines if line.startswith("Sampler and trainer agree: mean "))
    assert "; with top_p and top_k mean " in line
    assert "(allowed: mean 0.0001, largest 0.0001)" in line
    numerics = json.loads(directory.environment.read_text())["numerics"]
    assert numerics["restricted"]["min_kept_mass"] == 0.9
    assert numerics["restricted"]["largest"] < 1e-4
    last = read_metrics(directory.metrics)[-1]
    assert last["logprob_gap_max"] < 1e-4
    assert 0.9 <= last["importance_weight"] < 1
