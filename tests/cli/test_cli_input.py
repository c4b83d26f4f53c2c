"""What the user gets wrong: one message that names the thing and the remedy, exit code 2, and nothing written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from groupwise.cli import main as command_line
from tiny_job import everything_in, replaced, write_job

VARIABLES = {
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""What main() sets."""


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str


Groupwise = Callable[..., Called]


@pytest.fixture
def groupwise(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Groupwise:
    """groupwise("train", path): the command line, called in this process."""
    for name, value in VARIABLES.items():  # they must not stay set for other tests
        monkeypatch.setenv(name, value)

    def call(*arguments: str | Path) -> Called:
        monkeypatch.setattr(sys, "argv", ["groupwise", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            command_line.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        out, err = capfd.readouterr()
        return Called(code=code, out=out, err=err)

    return call


def rewrite(name: str, change: Callable[[list[dict[str, str]]], object]) -> Callable[[Path], None]:
    """Edits the rows of a data file."""

    def edit(folder: Path) -> None:
        path = folder / name
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return edit


def untouched(text: str) -> str:
    return text


def no_folder_change(folder: Path) -> None:
    pass


@dataclass(frozen=True)
class Mistake:
    """One wrong input and what its message must contain."""

    name: str
    says: tuple[str, ...]
    recipe: Callable[[str], str] = untouched
    folder: Callable[[Path], object] = no_folder_change


MISTAKES = [
    Mistake("unknown key", ("ConfigError", "group_sise", "group_size"), replaced("group_size", "group_sise")),
    Mistake("group of one", ("ConfigError", "group_size", "2 to 256"), replaced("group_size = 4", "group_size = 1")),
    Mistake("not TOML", ("ConfigError", "not valid TOML", "recipe.toml:1"), replaced('name = "job"', "name = job")),
    Mistake(
        "no data file", ("DataError", "train.jsonl", "does not exist"), folder=lambda f: (f / "train.jsonl").unlink()
    ),
    Mistake("empty file", ("DataError", "train.jsonl", "no rows"), folder=lambda f: (f / "train.jsonl").write_text("")),
    Mistake(
        "prompt column",
        ("DataError", "train.jsonl:1", "'prompt'", "Columns found: completion, gold, question", "data.columns.prompt"),
        folder=rewrite("train.jsonl", lambda rows: [r.update(question=r.pop("prompt")) for r in rows]),
    ),
    Mistake(
        "demonstration column",
        ("DataError", "demonstrations.jsonl:1", "Columns found: answer", "data.columns.demonstration"),
        folder=rewrite("demonstrations.jsonl", lambda rows: [r.update(answer=r.pop("completion")) for r in rows]),
    ),
    Mistake(
        "gold column",
        ("VerifierError", "train-0001", "'golden'", "columns: completion, gold", "gold_column"),
        replaced('kind = "sql"', 'kind = "sql"\ngold_column = "golden"'),
    ),
    Mistake(
        "gold that does not run",
        ("VerifierError", "1 of 11", "train-0002", "no such column: b", "unusable_gold"),
        folder=rewrite("train.jsonl", lambda rows: rows[1].update(gold="SELECT b FROM t")),
    ),
    Mistake(
        "gold that finds nothing",
        ("VerifierError", "heldout-0003", "gold_empty"),
        folder=rewrite("heldout.jsonl", lambda rows: rows[2].update(gold="SELECT a FROM t WHERE a > 99")),
    ),
    Mistake(
        "snapshot that is no database",
        ("VerifierError", "two.sqlite", "not a database"),
        folder=lambda f: (f / "two.sqlite").write_text("a,b\n1,2\n" * 200),
    ),
    Mistake("no snapshot", ("VerifierError", "two.sqlite", "no file"), folder=lambda f: (f / "two.sqlite").unlink()),
    Mistake(
        "held-out prompt in train",
        ("DataError", "heldout", "train"),
        folder=lambda f: shutil.copy(f / "train.jsonl", f / "heldout.jsonl"),
    ),
    Mistake(
        "more prompts a step than there are",
        ("DataError", "'grpo'", "rollout.prompts_per_step", "at most 4"),
        replaced("prompts_per_step = 2", "prompts_per_step = 5"),
    ),
    Mistake(
        "more demonstrations a step than there are",
        ("DataError", "'sft'", "tasks_per_step", "at most 4"),
        replaced("tasks_per_step = 3", "tasks_per_step = 5"),
    ),
    Mistake(
        "every prompt too long",
        ("DataError", "data.max_prompt_tokens = 5", "the shortest has 12", "Raise data.max_prompt_tokens"),
        replaced("[data]", "[data]\nmax_prompt_tokens = 5"),
    ),
    Mistake(
        "no model folder",
        ("EngineError", "no folder /", "/other.", "hub id"),
        replaced('name = "model"', 'name = "./other"'),
    ),
    Mistake(
        "hub id without a network",
        ("EngineError", "nobody/no-such-model", "needs a network"),
        replaced('name = "model"', 'name = "nobody/no-such-model"'),
    ),
    Mistake(
        "folder without a model",
        ("EngineError", "no config.json"),
        folder=lambda f: (f / "model" / "config.json").unlink(),
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_a_mistake_is_one_message_and_leaves_nothing_behind(
    mistake: Mistake, groupwise: Groupwise, tmp_path: Path
) -> None:
    recipe = write_job(tmp_path, mistake.recipe)
    mistake.folder(tmp_path)
    before = everything_in(tmp_path)
    called = groupwise("train", recipe)
    assert called.code == 2, called.err
    for words in mistake.says:
        assert words in called.err
    assert "Traceback" not in called.err + called.out
    assert len([line for line in called.err.splitlines() if line and not line.startswith(" ")]) == 1, called.err
    assert everything_in(tmp_path) == before


def test_a_recipe_that_is_missing_is_named(groupwise: Groupwise, tmp_path: Path) -> None:
    called = groupwise("train", tmp_path / "recipe.toml")
    assert called.code == 2
    recipe = tmp_path / "recipe.toml"
    assert called.err == f"ConfigError: {recipe} does not exist; give the path of a recipe (a .toml file).\n"
    assert everything_in(tmp_path) == set()


def test_eval_says_the_same_of_the_same_mistake(groupwise: Groupwise, tmp_path: Path) -> None:
    called = groupwise("eval", write_job(tmp_path, replaced("group_size = 4", "group_size = 1")))
    assert called.code == 2
    assert "rollout.group_size" in called.err


def test_eval_measures_another_model_and_writes_nothing(groupwise: Groupwise, tmp_path: Path) -> None:
    recipe = write_job(tmp_path, replaced('name = "model"', 'name = "gone"'))
    before = everything_in(tmp_path)
    called = groupwise("eval", recipe, "--model", tmp_path / "model", "--json")
    assert called.code == 0, called.err
    numbers = json.loads(called.out.splitlines()[-1])
    assert (numbers["pass_rate"], numbers["greedy_pass_rate"], numbers["num_prompts"]) == (0.0, 0.0, 3)
    assert everything_in(tmp_path) == before


def test_an_error_of_ours_keeps_its_traceback(groupwise: Groupwise, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(command_line, "app", broken)
    with pytest.raises(ZeroDivisionError):
        groupwise("train", "recipe.toml")


def test_interrupted_at_once_it_exits_with_130(
    groupwise: Groupwise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("groupwise.launch.local.train", interrupted)
    called = groupwise("train", write_job(tmp_path))
    assert called.code == 130
    assert "Traceback" not in called.err


def test_the_quick_demo_runs_every_part_and_says_that_it_learns_nothing(groupwise: Groupwise, tmp_path: Path) -> None:
    called = groupwise("demo", "--quick", "--seed", "3", "--output-dir", tmp_path / "runs")
    assert called.code == 0, called.err
    assert "random model" in called.out
    assert "checks that everything runs, no more" in called.out
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert [s["name"] for s in summary["stages"]] == ["base", "sft", "grpo"]
    assert summary["seeds"] == {"run": 3}
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(s["stage"], s["updated"]) for s in steps] == [("sft", 1), ("sft", 1), ("grpo", 1), ("grpo", 1)]
    assert f"from_pretrained('{run / 'checkpoints' / 'grpo-2'}')" in called.out
