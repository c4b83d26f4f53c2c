"""Whole runs with a dpo stage: alone, after sft, from the cache, and what is refused before anything is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.main import main
from groupwise.config import load_recipe
from groupwise.launch import local
from groupwise.launch.display import Quiet
from groupwise.launch.evaluate import evaluate
from groupwise.runs import RunDirectory, read_events, read_metrics
from tiny_job import GOLD, everything_in, replaced, write_job

DPO = """
[[stages]]
name = "dpo"
steps = 4
algorithm = { name = "dpo", pairs_per_step = 3, beta = 0.5 }
optim = { lr = 1e-2 }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference-logprobs"


class Lines(Quiet):
    """Keeps what a user would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def working(self, title: str) -> AbstractContextManager[Any]:
        return super().working(title)


def write_dpo_job(folder: Path, *, with_sft: bool = False, change: Callable[[str], str] = lambda text: text) -> Path:
    """The tiny job with three pairs, trained by dpo alone or after two steps of sft; no training tasks at all."""

    def changed(text: str) -> str:
        head, sft, _ = replaced("steps = 10", "steps = 2")(text).split("[[stages]]")
        head = replaced('train = "train.jsonl"', 'pairs = "pairs.jsonl"')(head)
        if not with_sft:
            head = replaced('demonstrations = "demonstrations.jsonl"\n', "")(head)
        return change(head + ("[[stages]]" + sft if with_sft else "") + DPO)

    rows = [{"prompt": f"all of a, {x}?", "chosen": GOLD, "rejected": f"SELECT {x} FROM t"} for x in "mno"]
    folder.mkdir(exist_ok=True)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_job(folder, changed)


def numbers(directory: RunDirectory, stage: str = "dpo") -> list[dict[str, Any]]:
    return [row for row in read_metrics(directory.metrics) if row["stage"] == stage]


def test_a_run_with_dpo_alone_learns_its_pairs_and_is_on_record(tmp_path: Path) -> None:
    directory, summary = local.train(load_recipe(write_dpo_job(tmp_path / "job")))
    rows = numbers(directory)
    assert [s.name for s in summary.stages] == ["base", "dpo"]
    assert (len(rows), {row["num_pairs"] for row in rows}) == (4, {3})
    assert rows[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert rows[0]["reward_margin"] == pytest.approx(0, abs=1e-4)
    assert rows[-1]["reward_margin"] > 0.5
    assert rows[-1]["accuracy"] == 1
    for name in ("chosen_reward", "rejected_reward", "chosen_logprob", "rejected_logprob"):
        assert math.isfinite(rows[0][name])
    # the prompt is forwarded once for both sides, and the start that all texts share once for all
    assert rows[0]["num_forward_nodes"] < 0.6 * rows[0]["num_plain_tokens"]
    assert (directory.checkpoints / "dpo-4").is_dir()
    kept = load_recipe(directory.recipe)
    assert kept.data.pairs == str(tmp_path / "job" / "pairs.jsonl")


def test_after_sft_the_reference_is_what_sft_has_made(tmp_path: Path, cache: Path) -> None:
    path = write_dpo_job(tmp_path / "job", with_sft=True)
    directory, summary = local.train(load_recipe(path))
    assert [s.name for s in summary.stages] == ["base", "sft", "dpo"]
    first = numbers(directory)[0]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert first["policy_version"] == 3
    assert len(list(cache.iterdir())) == 1
    events = [(e["event"], e.get("stage") or e.get("name")) for e in read_events(directory.events)]
    events = [event for event in events if event[0] not in ("length", "hacking")]
    assert events[-2:] == [("checkpoint", "dpo"), ("evaluation", "dpo")]


def test_a_second_run_reads_the_reference_and_repeats_the_first(tmp_path: Path, cache: Path) -> None:
    recipe = load_recipe(write_dpo_job(tmp_path / "job"))
    displays = [Lines(), Lines()]
    runs = [numbers(local.train(recipe, display)[0]) for display in displays]
    (file,) = cache.iterdir()
    told = [line for display in displays for line in display.lines if line.startswith("Reference log-prob")]
    assert told == [f"Reference log-probabilities of 3 pairs: {how}." for how in ("computed", f"from {file}")]
    of_the_machine = ("time", "seconds", "memory")
    timeless = [[{k: v for k, v in row.items() if not any(w in k for w in of_the_machine)} for row in r] for r in runs]
    assert timeless[0] == timeless[1]


def test_reference_free_computes_none_and_long_prompts_are_dropped_and_counted(tmp_path: Path, cache: Path) -> None:
    simpo = replaced("beta = 0.5", "beta = 2.0, reference_free = true, length_normalize = true, margin = 0.8")
    limit = replaced("[data]", "[data]\nmax_prompt_tokens = 40")
    path = write_dpo_job(tmp_path / "job", change=lambda text: limit(simpo(text)))
    with (tmp_path / "job" / "pairs.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": "long " * 20, "chosen": "a", "rejected": "b"}) + "\n")
    display = Lines()
    directory, _ = local.train(load_recipe(path), display)
    assert "1 of 4 pairs dropped: their prompt is over 40 tokens" in display.lines
    assert json.loads(directory.environment.read_text())["num_tasks"]["pairs"] == 3
    rows = numbers(directory)
    assert rows[-1]["reward_margin"] > rows[0]["reward_margin"]
    assert not cache.exists()


def test_lora_is_trained_and_the_reference_is_the_model_without_it(tmp_path: Path) -> None:
    lora = replaced('name = "model"', 'name = "model"\nlora = { rank = 4, alpha = 8.0 }')
    rows = numbers(local.train(load_recipe(write_dpo_job(tmp_path / "job", change=lora)))[0])
    assert rows[0]["reward_margin"] == pytest.approx(0, abs=1e-4)
    assert rows[-1]["reward_margin"] > 0.05


def row(**changes: str) -> str:
    return json.dumps({"prompt": "all of a, p?", "chosen": "x", "rejected": "y", **changes}) + "\n"


@pytest.mark.parametrize(
    ("pairs", "change", "message"),
    [
        (row(rejected="x"), None, "chosen and rejected are the same text"),
        (
            row(prompt="all of a, j?"),
            None,
            "1 of 1 pairs have a held-out prompt, for instance pairs-0001 = held",
        ),
        (row(), None, "a step needs 3 pairs (pairs_per_step), data.pairs has 1"),
        ("", None, "no rows"),
        (row(), replaced("beta = 0.5", 'loss = "ipo", margin = 1.0'), "margin = 1.0 is not part of loss = ipo"),
        (row(), replaced('pairs = "pairs.jsonl"', 'train = "train.jsonl"'), "set data.pairs"),
    ],
)
def test_what_cannot_be_trained_on_exits_with_2_and_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pairs: str,
    change: Callable[[str], str] | None,
    message: str,
) -> None:
    path = write_dpo_job(tmp_path / "job", change=change or (lambda text: text))
    (tmp_path / "job" / "pairs.jsonl").write_text(pairs)
    before = everything_in(tmp_path)
    monkeypatch.setattr("sys.argv", ["groupwise", "train", str(path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert everything_in(tmp_path) == before


def test_the_model_can_be_measured_before_there_are_pairs(tmp_path: Path) -> None:
    path = write_dpo_job(tmp_path / "job")
    (tmp_path / "job" / "pairs.jsonl").unlink()
    assert evaluate(load_recipe(path)).num_prompts == 3
