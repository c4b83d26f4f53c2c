"""The driver of the step benchmark: order of the sides, refusal of unequal work, and the ratio. No model, no TRL."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DRIVER = Path(__file__).resolve().parents[2] / "benchmarks" / "step_vs_trl.py"

FAKE_WORKER = """
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
order = os.path.join(folder, "order.txt")
with open(order, "a") as file:
    file.write("SIDE\\n")
number = open(order).read().split().count("SIDE") - 1
report = {
    "side": "SIDE", "seconds": SECONDS[number], "cpu_seconds": 10.0, "phases": {"rollout": 1.0, "update": 2.0},
    "peak_rss_bytes": 2**30, "prompt_tokens": 5488, "completion_tokens": 512, "prompt_digest": "DIGEST",
    "threads": int(os.environ["OMP_NUM_THREADS"]), "versions": {}, "arguments": sys.argv[1:],
}
print("a line that a library prints")
print(json.dumps(report))
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def driver() -> ModuleType:
    spec = importlib.util.spec_from_file_location("step_vs_trl", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(driver: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the driver with fake workers: run(trl=[seconds of each repetition], groupwise=[...]) -> its JSON."""
    (tmp_path / "config.json").write_text("{}")

    def run(
        *, trl: list[float], groupwise: list[float], digests: tuple[str, str] = ("a", "a"), repetitions: int = 0
    ) -> dict[str, Any]:
        for side, seconds, digest in zip(driver.SIDES, (trl, groupwise), digests, strict=True):
            text = FAKE_WORKER.replace("SIDE", side).replace("DIGEST", digest).replace("SECONDS", repr(seconds))
            (tmp_path / f"{side}_step.py").write_text(text)
        monkeypatch.setattr(driver, "WORKERS", {side: tmp_path / f"{side}_step.py" for side in driver.SIDES})
        monkeypatch.setattr(driver, "ensure_peer_environment", lambda: Path(sys.executable))
        output = tmp_path / "results" / "step.json"
        times = str(repetitions or len(trl))
        options = ["--model", str(tmp_path), "--repetitions", times, "--threads", "1", "--output", str(output)]
        monkeypatch.setattr(sys, "argv", ["step_vs_trl.py", *options])
        driver.main()
        return json.loads(output.read_text())

    return run


def test_sides_alternate_and_the_ratio_is_taken_within_a_repetition(run: Run, tmp_path: Path) -> None:
    # Pairs 20/10 = 2, 90/10 = 9, 40/20 = 2: their median is 2. The ratio of the medians would be 40/10 = 4.
    document = run(trl=[20.0, 90.0, 40.0], groupwise=[10.0, 10.0, 20.0])
    assert (tmp_path / "order.txt").read_text().split() == ["trl", "groupwise"] * 3
    assert [step["repetition"] for step in document["steps"]] == [0, 0, 1, 1, 2, 2]
    assert document["summary"]["trl_over_groupwise"]["seconds"] == 2.0
    assert document["summary"]["trl"]["median_seconds"] == 40.0
    assert document["summary"]["groupwise"]["max_seconds"] == 20.0


def test_both_workers_get_the_same_workload(run: Run) -> None:
    trl, groupwise = run(trl=[2.0], groupwise=[1.0])["steps"]
    assert trl["arguments"] == groupwise["arguments"]
    assert trl["threads"] == 1


def test_steps_on_other_prompts_are_not_compared(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="prompt_digest"):
        run(trl=[2.0], groupwise=[1.0], digests=("a", "b"))
    assert not (tmp_path / "results").exists()


def test_a_failing_worker_ends_the_benchmark_with_its_error(run: Run) -> None:
    with pytest.raises(SystemExit, match=r"trl: worker ended with 1\n(.|\n)*IndexError"):
        run(trl=[], groupwise=[], repetitions=1)


def test_the_table_shows_both_sides_and_the_ratio(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(trl=[30.0], groupwise=[10.0])
    shown = capsys.readouterr().out
    assert "| trl | 30.0 |" in shown
    assert "3.00 in wall time" in shown
