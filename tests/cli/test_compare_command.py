"""groupwise compare as a user calls it: two runs, one run, results, several, the page, JSON, errors, and no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluated_run import evaluate_into, groups_of, new_run
from groupwise.cli import main
from groupwise.errors import DataError
from groupwise.launch.compare_show import needed_sentence, read_places
from groupwise.planning.evaluation_size import greedy_prompts_needed
from groupwise.runs.comparison.compare import compare_evaluations
from groupwise.runs.evaluation_record import Attempts, EvaluationRecord

WITHOUT_TORCH = """
import sys
from groupwise.cli.main import main
sys.argv = ["groupwise", *sys.argv[1:]]
main.__globals__["app"](standalone_mode=False)
heavy = sorted({"torch", "transformers", "datasets", "pandas"} & set(sys.modules))
assert not heavy, heavy
"""


def write_run(folder: Path, name: str, **evaluations: list[int]) -> Path:
    """Solved counts of 4 by prompt, for each named evaluation."""
    directory = new_run(folder, name)
    for version, (evaluation, counts) in enumerate(evaluations.items()):
        outcomes = {f"q{i}": [True] * solved + [False] * (4 - solved) for i, solved in enumerate(counts)}
        evaluate_into(directory, evaluation, groups_of(outcomes), version=version)
    return directory.path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of one call in this process."""
    monkeypatch.setattr(sys, "argv", ["groupwise", "compare", *map(str, arguments)])
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as stop:
        main.main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_run(tmp_path, "one", grpo=[1] * 40)
    second = write_run(tmp_path, "two", grpo=[3] * 39 + [0])
    assert run(monkeypatch, first, second) == 0
    shown = capsys.readouterr().out
    assert "two grpo against one grpo: two grpo is better by 48.1 points" in shown
    assert "Regressions of two grpo: 1 of 40 prompts" in shown
    assert "q39" in shown
    assert "p is of the sign-flip test" in shown
    assert f"one grpo: {first.name} grpo" in shown


def test_a_loss_of_variety_stands_below_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_run(tmp_path, "one", grpo=[1] * 40)
    second = write_run(tmp_path, "two", grpo=[4] * 10 + [0] * 30)
    assert run(monkeypatch, first, second) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not distinguishable: the difference is +0.0 points" in shown
    assert "two grpo solves fewer prompts at all: pass@4 (solved at least once in 4 samples) fell from 100.0" in shown
    assert "with 95% intervals" in shown


def test_one_run_is_compared_with_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path, "job", base=[1, 2, 0, 1], sft=[2, 2, 0, 1], grpo=[2, 1, 1, 1])
    assert run(monkeypatch, path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in found["evaluations"]] == ["base", "grpo"]
    assert found["comparisons"][0]["sampled"]["num_prompts"] == 4
    assert "prompts would be needed" in found["notes"][0]
    only_base = write_run(tmp_path, "bare", base=[1])
    with pytest.raises(DataError, match="compared with its own base"):
        read_places([str(only_base)])


def test_several_with_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path, "job", base=[1, 2, 0, 1], sft=[2, 2, 0, 1], grpo=[2, 1, 1, 1])
    page = tmp_path / "new" / "page.html"
    assert run(monkeypatch, f"{path}:base", f"{path}:sft", path, "--out", page) == 0
    shown = capsys.readouterr().out
    assert "p Holm" in shown
    assert "p values are corrected" in shown
    assert "Others against base" in page.read_text()
    assert page.stat().st_size < 5_000_000


def test_mistakes_are_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path, "job", base=[1])
    assert run(monkeypatch, path, tmp_path / "none") == 2
    assert "is no folder" in capsys.readouterr().err
    assert run(monkeypatch, path, f"{path}:sft") == 2
    assert "no evaluation 'sft'; it has base" in capsys.readouterr().err
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(monkeypatch, path, path, "--out", blocked / "page.html") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_it_imports_no_torch(tmp_path: Path) -> None:
    path = write_run(tmp_path, "job", base=[1, 2], grpo=[2, 2])
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "compare", str(path), "--out", str(tmp_path / "page.html")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr


def of_counts(label: str, solved: list[int], scored: int) -> EvaluationRecord:
    sampled = {f"q{i}": Attempts(solved=n, scored=scored) for i, n in enumerate(solved)}
    return EvaluationRecord(label=label, sampled=sampled, greedy={}, settings={})


def test_how_many_prompts_it_would_take() -> None:
    # 50 prompts with one answer: 6 gained, 4 lost: d = 0.04, flipped 0.2
    first = of_counts("A", [1] * 4 + [0] * 46, 1)
    second = of_counts("B", [0] * 4 + [1] * 6 + [0] * 40, 1)
    sentence = needed_sentence(compare_evaluations(first, second).main)
    # variance (10 - 50 * 0.04^2) / 49 = 0.2024; 7.849 * 0.2024 / 0.0016 + 1.92 = 995.1; planning says 977 for flips
    assert "about 996 prompts would be needed" in sentence
    assert greedy_prompts_needed(0.04, 0.2).num_prompts == pytest.approx(996, rel=0.03)
    assert "+4.0 points" in sentence
    assert needed_sentence(compare_evaluations(first, first).main) == ""  # no difference has no size
    clear = compare_evaluations(of_counts("A", [0] * 40, 1), of_counts("B", [1] * 40, 1)).main
    assert needed_sentence(clear) == ""
    hardly = compare_evaluations(of_counts("B", [0, 4] * 50, 4), of_counts("C", [4, 0] * 49 + [4, 1], 4)).main
    assert "more than 100,000 prompts" in needed_sentence(hardly)


def test_one_evaluation_of_a_run_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match=r"run:base: one evaluation alone cannot be compared; give a second one"):
        read_places([f"{tmp_path}/run:base"])
    with pytest.raises(DataError, match="is not a run folder"):
        read_places(["nowhere"])
