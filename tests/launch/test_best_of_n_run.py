"""Pipelines of several stages: sft on the model's own right completions, and grpo with a reference that moves."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from groupwise.config import load_recipe
from groupwise.errors import DataError
from groupwise.launch import local
from groupwise.launch.display import Quiet
from groupwise.runs import RunDirectory, read_events, read_metrics, read_summary
from tiny_job import replaced, write_job

SAMPLED = """
[[stages]]
name = "{name}"
steps = 2
algorithm = {{ name = "sft", tasks_per_step = 3, source = "best_of_n", samples_per_prompt = 6, max_per_prompt = 2 }}
optim = {{ lr = 3e-3 }}
"""


class Lines(Quiet):
    """Keeps what a user would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))


def head(text: str) -> str:
    """The job with its sft stage alone."""
    return "[[stages]]".join(text.split("[[stages]]")[:2])


def test_right_completions_become_demonstrations_and_each_stage_samples_anew(tmp_path: Path) -> None:
    stages = SAMPLED.format(name="first") + SAMPLED.format(name="second")
    recipe = load_recipe(write_job(tmp_path, lambda text: head(text) + stages))
    display = Lines()
    directory, summary = local.train(recipe, display)
    assert [s.name for s in summary.stages] == ["base", "sft", "first", "second"]
    events = {e["stage"]: e for e in read_events(directory.events) if e["event"] == "best_of_n"}
    assert set(events) == {"first", "second"}
    for name, version in (("first", 10), ("second", 12)):
        rows = pq.read_table(directory.rollouts_of(f"{name}-best-of-n", version)).to_pylist()
        assert len(rows) == 4 * 6
        assert {row["policy_version"] for row in rows} == {version}
        taken = [row for row in rows if row["advantage"] == 1.0]
        assert 0 < len(taken) == events[name]["demonstrations"]  # the job is one that is solved sometimes
        assert all(row["outcome"] and row["stop"] == "end" for row in taken)
        assert {row["advantage"] for row in rows} == {0.0, 1.0}
        per_prompt = [[row["text"].strip() for row in taken if row["task_id"] == f"train-{i:04d}"] for i in range(5)]
        assert all(len(texts) == len(set(texts)) <= 2 for texts in per_prompt)
        solved = {row["task_id"] for row in rows if row["outcome"]}
        assert sum(events[name]["prompts_without"].values()) == 4 - len({row["task_id"] for row in taken})
        assert {task for task, number in events[name]["solved"].items() if number} == solved
        line = next(line for line in display.lines if line.startswith(f"{name}: "))
        assert line.startswith(f"{name}: {len(taken)} demonstrations from ")
    steps = [row for row in read_metrics(directory.metrics) if row["stage"] == "first"]
    assert [row["policy_version"] for row in steps] == [11, 12]
    assert steps[1]["nll"] < steps[0]["nll"]


def test_where_nothing_is_solved_the_run_ends_and_says_so(tmp_path: Path) -> None:
    """The untrained tiny model solves nothing."""
    recipe = load_recipe(write_job(tmp_path, lambda text: text.split("[[stages]]")[0] + SAMPLED.format(name="own")))
    with pytest.raises(DataError, match=r"(?s)no step was done\. own: no training prompt was solved.*What was sampled"):
        local.train(recipe)
    (run,) = (tmp_path / "runs").iterdir()
    directory = RunDirectory.open(run)
    (event,) = (e for e in read_events(directory.events) if e["event"] == "best_of_n")
    assert (event["demonstrations"], event["prompts_without"]) == (0, {"never solved": 4})
    assert directory.rollouts_of("own-best-of-n", 0).is_file()


def test_the_reference_of_grpo_stages_in_a_row_moves_with_them(tmp_path: Path) -> None:
    """Iterative GRPO (arXiv:2402.03300, algorithm 1): the KL of a stage is to the model at the start of that stage."""

    def change(text: str) -> str:
        text = replaced('{ name = "grpo" }', '{ name = "grpo", beta = 0.1 }')(text).replace(
            "steps = 2\n", "steps = 3\n"
        )
        stage = text[text.rindex("[[stages]]") :].replace("lr = 1e-3", "lr = 1e-2")
        parts = [stage.replace('name = "grpo"\n', f'name = "round-{i}"\n') for i in (1, 2)]
        return head(text) + "\n".join(parts)

    directory, summary = local.train(load_recipe(write_job(tmp_path, change)))
    assert [s.name for s in summary.stages] == ["base", "sft", "round-1", "round-2"]
    assert read_summary(directory.summary).stages[-1].name == "round-2"
    kls = [
        [row["kl_to_ref"] for row in read_metrics(directory.metrics) if row["stage"] == f"round-{i}"] for i in (1, 2)
    ]
    assert [kl[0] for kl in kls] == pytest.approx([0, 0], abs=1e-6)
    assert all(kl[-1] > 1e-6 for kl in kls)
