"""`groupwise pairs`: from a run and by sampling, and that the file can be trained on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from groupwise.cli.main import main
from groupwise.config import Recipe, load_recipe
from groupwise.curation.preference import PairRule
from groupwise.data import load_pairs, load_tasks
from groupwise.errors import DataError
from groupwise.launch import local
from groupwise.launch.display import Quiet
from groupwise.launch.pairs import pairs_by_sampling, pairs_of_run, write_pairs
from groupwise.runs import RunDirectory, read_metrics
from tiny_job import replaced, write_job


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What this machine has measured and computed before stays out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunDirectory]:
    """The recipe of a job, and a run of it in which some completions were right and some wrong."""
    path = write_job(tmp_path_factory.mktemp("job"), replaced("\n[data]", '\n[data]\nsystem_prompt = "Answer in SQL."'))
    directory, _ = local.train(load_recipe(path))
    return path, directory


def recorded(directory: RunDirectory) -> list[dict[str, Any]]:
    files = directory.rollouts.glob("grpo-*.parquet")
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_pairs_of_a_run_are_its_judged_training_rollouts(trained: tuple[Path, RunDirectory]) -> None:
    path, directory = trained
    recipe = load_recipe(path)
    made = pairs_of_run(recipe, directory.path, PairRule(max_pairs=9))
    outcome = {(row["task_id"], row["text"]): row["outcome"] for row in recorded(directory)}
    tasks = {task.id: task for task in load_tasks(recipe.data, recipe.folder, recipe.seed).train}
    assert made.rows
    for row in made.rows:
        assert outcome[row["task_id"], row["chosen"]] is True
        assert outcome[row["task_id"], row["rejected"]] is False
        assert row["prompt"] == [dict(turn) for turn in tasks[row["task_id"]].prompt]
        assert row["prompt"][0] == {"role": "system", "content": "Answer in SQL."}
        assert row["run"] == directory.path.name
        assert row["model"] == str(path.parent / "model")
        assert len(row["verifier_version"]) == 16
        assert row["policy_version"] in (10, 11)
    prompts_with_pairs = {row["task_id"] for row in made.rows}
    assert len(prompts_with_pairs) + sum(made.reasons.values()) == made.num_prompts == 4
    assert f"{len(made.rows)} pairs from {len(prompts_with_pairs)} of 4 prompts" in made.summary()
    assert "tokens on average." in made.summary()


def test_the_file_is_read_back_by_the_same_recipe(trained: tuple[Path, RunDirectory], tmp_path: Path) -> None:
    """The prompt has its system turn once, and the task's rendering is that of the task itself."""
    path, directory = trained
    recipe = load_recipe(path)
    made = pairs_of_run(recipe, directory.path, PairRule())
    write_pairs(tmp_path / "made" / "pairs.jsonl", made)
    data = recipe.data.model_copy(update={"pairs": str(tmp_path / "made" / "pairs.jsonl")})
    pairs = load_pairs(data, recipe.folder)
    assert [(p.chosen, p.rejected) for p in pairs] == [(row["chosen"], row["rejected"]) for row in made.rows]
    tasks = {task.id: task for task in load_tasks(recipe.data, recipe.folder, recipe.seed).train}
    assert [p.task.prompt for p in pairs] == [tasks[p.task.columns["task_id"]].prompt for p in pairs]
    lengths = {(row["task_id"], row["text"]): row["stop"] for row in recorded(directory)}
    for pair in pairs:
        stop = lengths[pair.task.columns["task_id"], pair.rejected]
        assert pair.rejected_truncated is (stop == "length")


def with_model(recipe: Recipe, folder: Path) -> Recipe:
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"name": str(folder)})})


def test_pairs_are_sampled_now_by_the_recipes_model(trained: tuple[Path, RunDirectory]) -> None:
    path, directory = trained
    recipe = with_model(load_recipe(path), directory.checkpoints / "sft-10")
    made, again = (pairs_by_sampling(recipe, 8, PairRule(), Quiet()) for _ in range(2))
    assert made.rows == again.rows
    assert made.rows
    for row in made.rows:
        assert row["chosen"].startswith("SELECT")
        assert (row["model"], row["policy_version"]) == (str(directory.checkpoints / "sft-10"), 0)
        assert "run" not in row


def test_another_prompt_under_the_same_id_is_refused(trained: tuple[Path, RunDirectory], tmp_path: Path) -> None:
    path, directory = trained
    recipe = load_recipe(path)
    data = recipe.data.model_copy(update={"system_prompt": "Answer in French."})
    changed = recipe.model_copy(update={"data": data})
    with pytest.raises(DataError, match=r"the prompt of 'train-000\d' is another one than in this recipe"):
        pairs_of_run(changed, directory.path, PairRule())


def test_a_run_without_training_rollouts_is_refused(trained: tuple[Path, RunDirectory], tmp_path: Path) -> None:
    """Evaluations are on record too; held-out completions never become pairs."""
    path, directory = trained
    copied = tmp_path / "run"
    shutil.copytree(directory.path, copied, ignore=shutil.ignore_patterns("grpo-*.parquet", "checkpoints"))
    assert list((copied / "rollouts").glob("evaluation-*"))
    with pytest.raises(DataError, match="no rollouts of this recipe's 4 training tasks"):
        pairs_of_run(load_recipe(path), copied, PairRule())


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["groupwise", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_the_command_writes_the_file_and_says_how_to_use_it(
    trained: tuple[Path, RunDirectory], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, directory = trained
    out = path.parent / "pairs.jsonl"
    assert call(monkeypatch, "pairs", path, "--run", directory.path, "--out", out) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    shown = capsys.readouterr().out
    assert f"{len(rows)} pairs from " in shown
    assert 'pairs = "pairs.jsonl"' in shown


def test_a_dpo_stage_learns_from_the_file(trained: tuple[Path, RunDirectory]) -> None:
    """The whole way round: sample, judge, pair, train on the pairs."""
    path, directory = trained
    made = pairs_of_run(load_recipe(path), directory.path, PairRule(max_pairs=2))
    write_pairs(path.parent / "made.jsonl", made)
    head, _, _ = path.read_text().split("[[stages]]")
    stage = 'steps = 3\nalgorithm = { name = "dpo", pairs_per_step = 2 }\noptim = { lr = 3e-3 }\n'
    (path.parent / "dpo.toml").write_text(
        replaced("[data]", '[data]\npairs = "made.jsonl"')(head) + "[[stages]]\n" + stage
    )
    recipe = with_model(load_recipe(path.parent / "dpo.toml"), directory.checkpoints / "sft-10")
    second, _ = local.train(recipe)
    rows = read_metrics(second.metrics)
    assert (rows[0]["stage"], rows[0]["loss"]) == ("dpo", pytest.approx(math.log(2), abs=1e-4))
    assert rows[-1]["reward_margin"] > 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--samples", 4], "--run and --samples are both given"),
        (["--pick", "shortest"], "'shortest' is not known; use closest or random"),
    ],
)
def test_wrong_arguments_exit_with_2(
    trained: tuple[Path, RunDirectory],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[object],
    message: str,
) -> None:
    path, directory = trained
    out = path.parent / "refused.jsonl"
    assert call(monkeypatch, "pairs", path, "--run", directory.path, "--out", out, *arguments) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_no_pair_at_all_is_exit_code_1_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that knows nothing solves nothing."""
    path = write_job(tmp_path)
    assert call(monkeypatch, "pairs", path, "--samples", 2, "--out", tmp_path / "none.jsonl") == 1
    assert "0 pairs from 0 of 4 prompts; the others: never solved 4." in capsys.readouterr().out
    assert not (tmp_path / "none.jsonl").exists()
