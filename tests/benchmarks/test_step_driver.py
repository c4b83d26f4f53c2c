"""The driver of the step benchmark: order of sides, refusal of unequal work, resuming, the ratio. No model, no TRL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import step_vs_trl as driver

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
    "spin": os.environ["GOMP_SPINCOUNT"], "wait": os.environ["OMP_WAIT_POLICY"],
}
print("a line that a library prints")
print(json.dumps(report))
"""

Run = Callable[..., dict[str, Any]]


class FakeEnvironment:
    def python(self) -> Path:
        return Path(sys.executable)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the driver with fake workers: run(trl=[seconds of each repetition], groupwise=[...]) -> its JSON."""
    (tmp_path / "config.json").write_text("{}")

    def run(
        *,
        trl: list[float],
        groupwise: list[float],
        digests: tuple[str, str] = ("a", "a"),
        repetitions: int = 0,
        options: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        for side, seconds, digest in zip(driver.SIDES, (trl, groupwise), digests, strict=True):
            text = FAKE_WORKER.replace("SIDE", side).replace("DIGEST", digest).replace("SECONDS", repr(seconds))
            (tmp_path / f"{side}_step.py").write_text(text)
        monkeypatch.setattr(driver, "WORKERS", {side: tmp_path / f"{side}_step.py" for side in driver.SIDES})
        monkeypatch.setattr(driver, "TRL", FakeEnvironment())
        output = tmp_path / "results" / "step.json"
        times = str(repetitions or len(trl))
        given = ["--model", str(tmp_path), "--repetitions", times, "--threads", "1", "--output", str(output), *options]
        monkeypatch.setattr(sys, "argv", ["step_vs_trl.py", *given])
        driver.main()
        return json.loads(output.read_text())

    return run


def order(folder: Path) -> list[str]:
    return (folder / "order.txt").read_text().split()


def test_sides_alternate_and_the_ratio_is_taken_within_a_repetition(run: Run, tmp_path: Path) -> None:
    # Pairs 20/10 = 2, 90/10 = 9, 40/20 = 2: their median is 2. The ratio of the medians would be 40/10 = 4.
    document = run(trl=[20.0, 90.0, 40.0], groupwise=[10.0, 10.0, 20.0])
    assert order(tmp_path) == ["trl", "groupwise"] * 3
    assert [step["repetition"] for step in document["runs"]] == [0, 0, 1, 1, 2, 2]
    assert document["summary"]["trl_over_groupwise"]["seconds"] == {"median": 2.0, "min": 2.0, "max": 9.0}
    assert document["summary"]["trl"]["seconds"]["median"] == 40.0
    assert document["summary"]["groupwise"]["seconds"]["max"] == 20.0


def test_both_workers_get_the_same_workload_and_the_same_threads(run: Run) -> None:
    trl, groupwise = run(trl=[2.0], groupwise=[1.0], options=("--job", "b"))["runs"]
    assert trl["arguments"][-2:] == ["--micro-batch", "4"]
    assert trl["arguments"][:-2] == groupwise["arguments"]
    for name in ("threads", "spin", "wait"):
        assert trl[name] == groupwise[name]
    assert (trl["threads"], trl["spin"], trl["wait"]) == (1, "10000", "passive")


def test_steps_on_other_prompts_are_not_compared(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="prompt_digest"):
        run(trl=[2.0], groupwise=[1.0], digests=("a", "b"))
    document = json.loads((tmp_path / "results" / "step.json").read_text())
    assert [step["side"] for step in document["runs"]] == ["trl"]
    assert document["summary"] == {}


def test_a_killed_benchmark_keeps_its_runs_and_append_does_the_rest(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="groupwise: worker ended with 1"):
        run(trl=[30.0], groupwise=[])
    document = run(trl=[0.0, 80.0], groupwise=[0.0, 10.0, 20.0], repetitions=2, options=("--append",))
    assert order(tmp_path) == ["trl", "groupwise", "groupwise", "trl", "groupwise"]
    assert [(step["side"], step["seconds"]) for step in document["runs"]] == [
        ("trl", 30.0),
        ("groupwise", 10.0),
        ("trl", 80.0),
        ("groupwise", 20.0),
    ]
    assert document["summary"]["trl_over_groupwise"]["seconds"]["median"] == 3.5  # of 30/10 and 80/20


def test_without_append_the_runs_of_before_are_replaced(run: Run) -> None:
    run(trl=[30.0], groupwise=[10.0])
    assert len(run(trl=[0.0, 30.0], groupwise=[0.0, 10.0], repetitions=1)["runs"]) == 2


def test_append_refuses_runs_of_another_size(run: Run) -> None:
    run(trl=[30.0], groupwise=[10.0])
    with pytest.raises(SystemExit, match="other options"):
        run(trl=[30.0], groupwise=[10.0], options=("--append", "--group-size", "4"))


def test_a_failing_worker_ends_the_benchmark_with_its_error(run: Run) -> None:
    with pytest.raises(SystemExit, match=r"trl: worker ended with 1\n(.|\n)*IndexError"):
        run(trl=[], groupwise=[], repetitions=1)


def test_the_table_shows_both_sides_and_the_ratio(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(trl=[30.0, 40.0], groupwise=[10.0, 10.0])
    shown = capsys.readouterr().out
    assert "| trl | 35.0 (30.0 - 40.0) |" in shown
    assert "3.50 (3.00 - 4.00) in wall time" in shown


def test_trl_forwards_as_many_rows_as_fit_and_divide_the_step() -> None:
    assert driver.micro_batch(16, 375) == 16  # 6,000 tokens
    assert driver.micro_batch(16, 1032) == 4  # 5 rows fit, 4 is the divisor below
    assert driver.micro_batch(64, 708) == 8  # 5,664 tokens
    assert driver.micro_batch(16, 168) == 16
    assert driver.micro_batch(7, 10_000) == 1  # one row is always possible
