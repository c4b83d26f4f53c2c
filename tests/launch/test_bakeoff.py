"""A bake-off of tiny models: two arms with two seeds, what is kept, what is measured, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.main import main
from groupwise.config import load_recipe
from groupwise.launch import bakeoff, bakeoff_start, local
from groupwise.launch.bakeoff_result import PHASES
from tiny_job import write_job

ARMS = """
[audit]
fast_tasks = 0

[[stages]]
name = "ppo"
steps = 20
algorithm = { name = "ppo", completions_per_prompt = 4, epochs = 1 }
optim = { lr = 1e-3 }

[[stages]]
name = "grpo"
steps = 20
algorithm = { name = "grpo", preset = "grpo" }
optim = { lr = 1e-3 }

[[stages]]
name = "dpo"
steps = 1
algorithm = { name = "dpo", source = "sampled", pairs_per_step = 1 }
optim = { lr = 1e-3 }
"""


def arms_of(text: str) -> str:
    return text.split("[[stages]]")[0] + ARMS


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe whose model solves some of its tasks."""
    folder = tmp_path_factory.mktemp("job")
    recipe = write_job(folder, lambda text: "[[stages]]".join(text.split("[[stages]]")[:2]).replace("= 10", "= 11"))
    directory, _ = local.train(load_recipe(recipe))
    shutil.rmtree(folder / "model")
    shutil.copytree(next(directory.checkpoints.iterdir()), folder / "model")
    recipe.write_text(arms_of(recipe.read_text()))
    return recipe


class Processes:
    """In place of processes: the same modules in this one. Each call is kept."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: set[str] = set()

    def __call__(self, arguments: Sequence[str], log: Path) -> str | None:
        self.calls.append(log.parent.name)
        if log.parent.name in self.fails:
            return "EngineError: no memory"
        if arguments[0] == "groupwise.cli.main":
            local.train(load_recipe(arguments[2]))
            return None
        folder = Path(arguments[1])
        found = bakeoff_start.measure_start(
            load_recipe(folder / "recipe.toml"),
            json.loads((folder / "seeds.json").read_text())["seeds"],
            bakeoff_start.Lines(),
            accept_audit=False,
        )
        (folder / "start.json").write_text(json.dumps(found))
        return None


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    fake = Processes()
    monkeypatch.setattr(bakeoff, "_process", fake)
    return fake


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["groupwise", "bakeoff", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


def test_two_arms_with_two_seeds(
    job: Path, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = (job, "--out", out, "--seeds", "1,2", "--arms", "ppo,grpo", "--rollout-tokens", "300")
    assert call(monkeypatch, *command) == 0
    assert processes.calls == ["start", "ppo-1", "grpo-1", "ppo-2", "grpo-2"]
    shown = capsys.readouterr().out
    assert "The value network of ppo holds" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if " ppo " in line and "[" in line)
    report = json.loads((out / "bakeoff.json").read_text())
    _check_report(report)
    page = (out / "bakeoff.html").read_text()
    assert "Peak memory by part" in page
    assert (out / "arms" / "ppo-1" / "runs").is_dir()
    assert not list(out.rglob("*.safetensors"))
    assert len(page) < 2_000_000
    assert call(monkeypatch, *command, "--json") == 0
    assert len(processes.calls) == 5  # nothing is done again
    assert json.loads(capsys.readouterr().out)["arms"] == report["arms"]
    shutil.rmtree(out / "arms" / "grpo-2")
    assert call(monkeypatch, *command) == 0
    assert processes.calls[5:] == ["grpo-2"]
    assert call(monkeypatch, *command[:-1], "301") == 2  # another budget cannot be compared
    assert "--out" in capsys.readouterr().err


def _check_report(report: dict[str, Any]) -> None:
    assert report["budget"] == {"rollout_tokens": 300}
    assert [arm["name"] for arm in report["arms"]] == ["start", "ppo", "grpo"]
    assert [(run["arm"], run["seed"]) for run in report["runs"]] == [("ppo", 1), ("grpo", 1), ("ppo", 2), ("grpo", 2)]
    for run in report["runs"]:
        assert tuple(run["phases_s"]) == PHASES
        assert sum(run["phases_s"].values()) == pytest.approx(run["wall_s"], rel=1e-6)
        assert run["ended_by"] == "budget"
        assert run["spent"]["rollout_tokens"] >= 300
        assert sum(row["rollout_tokens"] for row in run["lengths"][-1:]) == run["spent"]["rollout_tokens"]
        assert run["spent"]["flops"] > 0
        assert run["phases_s"]["score"] > 0 or run["arm"] == "grpo"
        assert len(run["solved"]) == 3
        assert 0 <= run["wasted_rollouts"] <= run["num_rollouts"]
    ppo, grpo = report["arms"][1:]
    assert ppo["networks"] == ["policy", "critic", "reference"]
    assert grpo["networks"] == ["policy", "reference"]
    assert grpo["held_bytes"]["policy"] == ppo["held_bytes"]["policy"]
    # the tiny model has an LM head of its own, which a critic lacks
    assert 1.7 < report["value_network"]["trained_bytes"] / report["value_network"]["other_trained_bytes"] <= 2
    assert {c["verdict"] for c in report["comparisons"]} <= {
        "not distinguishable",
        "ppo is better",
        "grpo is better",
        "start is better",
    }
    push = {row["normalize"]: row["ratio"] for row in report["gradient"]["pushes"]}
    lengths = report["gradient"]["pushes"][0]
    assert push["sequence"] == pytest.approx(lengths["short_tokens"] / lengths["long_tokens"], rel=1e-4)
    assert push["token"] == push["constant"] == 1


def test_an_arm_that_fails_is_told_and_tried_again(
    job: Path, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = (job, "--out", out, "--seeds", "1", "--arms", "grpo,dpo", "--seconds", "60")
    monkeypatch.setattr(bakeoff, "_process", processes)
    processes.fails = {"grpo-1"}
    assert call(monkeypatch, *command) == 1
    assert "no memory" in capsys.readouterr().out
    report = json.loads((out / "bakeoff.json").read_text())
    assert [arm["num_failed"] for arm in report["arms"]] == [0, 1, 0]
    dpo = report["runs"][1]
    assert dpo["ended_by"] == "steps"
    assert dpo["spent"]["rollout_tokens"] > 0  # those of its pairs
    assert dpo["num_rollouts"] == 4 * 8
    processes.calls.clear()
    processes.fails = {"start"}
    assert call(monkeypatch, *command[:4], "1,3", *command[5:]) == 2
    assert processes.calls == ["start"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "--rollout-tokens"),
        (("--seconds", "1", "--flops", "1"), "one budget"),
        (("--seconds", "1", "--arms", "grpo"), "2 arms or more"),
        (("--seconds", "1", "--arms", "grpo,rl"), "no such stage"),
        (("--seconds", "1", "--seeds", "1,1"), "different numbers"),
        (("--seconds", "1", "--seeds", "one"), "whole numbers"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_written(
    options: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = write_job(tmp_path, arms_of)
    assert call(monkeypatch, recipe, "--out", tmp_path / "out", *options) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_sft_arm_needs_demonstrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_job(tmp_path, lambda text: text.replace('demonstrations = "demonstrations.jsonl"\n', ""))
    assert call(monkeypatch, recipe, "--out", tmp_path / "out", "--seconds", "1") == 2
    assert "imitates demonstrations and there are none" in capsys.readouterr().err


def test_a_process_that_fails_gives_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    failure = bakeoff._process(["groupwise.cli.main", "train", str(tmp_path / "missing.toml")], log)
    assert failure is not None
    assert "missing.toml does not exist" in failure
    assert bakeoff._process(["groupwise.cli.main", "--help"], log) is None
