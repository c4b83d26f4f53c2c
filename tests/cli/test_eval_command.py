"""groupwise eval on the command line: what it takes, what it refuses, what it prints and writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fake_endpoint import Answer, FakeServer
from groupwise.cli.main import app
from groupwise.errors import ConfigError, DataError
from tiny_job import GOLD, everything_in, write_job


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, arguments)])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def run(recipe: Path) -> Path:
    """A run folder as one stage leaves it, made by hand: the recipe's model is its only checkpoint."""
    folder = recipe.parent / "runs" / "job-1"
    shutil.copytree(recipe.parent / "model", folder / "checkpoints" / "sft-10")
    (folder / "checkpoints" / "sft-10" / "groupwise.json").write_text('{"policy_version": 10}')
    from groupwise.config import dump_toml, load_recipe

    (folder / "recipe.toml").write_text(dump_toml(load_recipe(recipe).with_absolute_paths()))
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to measure"),
        (("--run", "r", "--model", "m"), "--run names the weights itself"),
        (("--run", "r", "--endpoint", "http://h/v1", "--model", "m"), "groupwise eval r/recipe.toml"),
        (("x.toml", "--endpoint", "http://h/v1"), "--endpoint needs --model"),
    ],
)
def test_contradictions_are_refused_first(arguments: tuple[str, ...], message: str) -> None:
    result = called(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_json_is_the_only_thing_printed_and_nothing_is_written(recipe: Path) -> None:
    before = everything_in(recipe.parent)
    result = called(recipe, "--json", "--samples", "3", "--num-prompts", "2", "--seed", "5")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["samples_per_prompt"], facts["num_prompts"], facts["seed"]) == (3, 2, 5)
    assert facts["pass_at"].keys() == {"1", "2", "3"}
    assert facts["num_original_prompts"] == 3
    assert everything_in(recipe.parent) == before


def test_a_run_needs_no_recipe_and_out_writes_what_the_next_command_reads(run: Path, tmp_path: Path) -> None:
    result = called("--run", run, "--out", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "sft-10" in text
    assert "pass@k" in text
    assert "checkpoints/sft-10 (policy version 10)." in text.split("Held-out pass rates")[0]
    assert "seed 7; solved = the verifier's outcome; verifier sql" in text
    assert "groupwise compare OTHER" in text
    results, samples = sorted((tmp_path / "kept").iterdir())
    assert json.loads(results.read_text())["groupwise"]["policy_version"] == 10
    assert len(samples.read_text().splitlines()) == 3


def test_without_out_the_next_command_keeps_it(run: Path) -> None:
    result = called("--run", run / "checkpoints" / "sft-10", "--samples", "0")
    assert result.exit_code == 0, result.output
    assert "--out evaluations/job" in " ".join(result.stdout.split())
    assert "pass^k" not in result.stdout  # nothing was sampled


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    assert isinstance(called("--run", tmp_path).exception, DataError)


def test_an_endpoint_with_its_settings(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "sesame")
    with FakeServer(lambda asked: Answer(GOLD, wait_s=0.02)) as server:
        how = ("--endpoint", server.url, "--model", "served", "--key-variable", "OTHER_KEY", "--as-chat")
        result = called(recipe, *how, "--requests", "2", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["pass_rate"], facts["greedy_pass_rate"], facts["model"]) == (1.0, 1.0, "served")
    assert {asked.path for asked in server.asked} == {"/v1/chat/completions"}
    assert {asked.key for asked in server.asked} == {"Bearer sesame"}
    assert server.most_at_once == 2
    assert "sesame" not in result.output
