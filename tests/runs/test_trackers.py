"""What trackers are told, and that nothing they do reaches training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from groupwise.runs import FileRecorder, RunDirectory, read_metrics
from groupwise.runs.trackers import BackgroundTracker, ClosingRecorder, RecorderGroup, Tracker, rows_written
from groupwise.types import Recorder


class Kept:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.closed = 0
        self.threads: set[int] = set()

    def log(self, x: int, values: Mapping[str, float]) -> None:
        self.threads.add(threading.get_ident())
        self.rows.append((x, values))

    def close(self) -> None:
        self.closed += 1


class Broken(Kept):
    def log(self, x: int, values: Mapping[str, float]) -> None:
        super().log(x, values)
        raise SystemExit("no network")  # the worst of what a client library may raise

    def close(self) -> None:
        raise RuntimeError("closed already")


class Blocked(Kept):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def log(self, x: int, values: Mapping[str, float]) -> None:
        self.go_on.wait(30)


class Raises:
    """A recorder that breaks its promise."""

    def __init__(self) -> None:
        self.calls = 0

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        self.calls += 1
        raise ZeroDivisionError("mine")

    def rollouts(self, *args: Any, **kwargs: Any) -> None:
        self.calls += 1

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        self.calls += 1


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "r")


def test_names_are_grouped_and_the_axis_goes_on_over_stages() -> None:
    kept: Tracker = Kept()
    tracker: Recorder = BackgroundTracker("kept", lambda: kept, rows_before=10)
    facts = {"name": "base", "pass_rate": 0.25, "solved": {"q1": 1}, "greedy_pass_rate": None, "temperature": 1.0}
    tracker.event("evaluation", facts)
    tracker.metrics("sft", 1, {"loss": 2.0, "kl": float("nan")})
    tracker.metrics("sft", 2, {"loss": 1.5})
    tracker.metrics("grpo", 1, {"pass_rate": 0.5})
    tracker.metrics("grpo", 1, {"late": 1.0})  # the same step again
    tracker.event("note", {"text": "nothing to draw"})
    tracker.close()
    assert kept.rows == [
        (10, {"evaluation/pass_rate": 0.25}),
        (11, {"sft/loss": 2.0, "sft/step": 1.0}),
        (12, {"sft/loss": 1.5, "sft/step": 2.0}),
        (13, {"grpo/pass_rate": 0.5, "grpo/step": 1.0}),
        (13, {"grpo/late": 1.0, "grpo/step": 1.0}),
    ]
    assert kept.closed == 1
    assert threading.get_ident() not in kept.threads
    assert tracker.num_dropped == 0


def test_a_second_close_does_nothing_and_later_rows_are_forgotten() -> None:
    kept = Kept()
    tracker = BackgroundTracker("kept", lambda: kept)
    tracker.metrics("sft", 1, {})
    tracker.close()
    tracker.close()
    tracker.metrics("sft", 2, {})
    assert (len(kept.rows), kept.closed) == (1, 1)


def test_nothing_is_opened_for_nothing() -> None:
    opened: list[int] = []
    BackgroundTracker("kept", lambda: opened.append(1) or Kept()).close()
    assert opened == []


def test_a_tracker_that_raises_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    tracker = BackgroundTracker("broken", lambda: broken)
    with caplog.at_level(logging.WARNING):
        for step in range(5):
            tracker.metrics("sft", step, {})
        tracker.close()
    assert (len(broken.rows), tracker.num_dropped) == (5, 5)
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "broken does not get every number of this run"
    ]
    assert "SystemExit: no network" in caplog.text


def test_a_tracker_that_cannot_be_opened_costs_its_rows_only(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Tracker:
        raise ImportError("no such package")

    tracker = BackgroundTracker("gone", refuse)
    with caplog.at_level(logging.WARNING):
        tracker.metrics("sft", 1, {})
        tracker._thread.join()
        for step in range(2, 2000):
            tracker.metrics("sft", step, {})
        tracker.close()
    assert tracker.num_dropped == 1999
    assert tracker._queue.qsize() <= 2  # nothing piles up
    assert len(caplog.records) == 1
    assert "could not be opened: ImportError: no such package" in caplog.text


def test_a_blocked_tracker_never_holds_training_up(caplog: pytest.LogCaptureFixture) -> None:
    blocked = Blocked()
    tracker = BackgroundTracker("blocked", lambda: blocked, queue_size=3)
    started = time.perf_counter()
    with caplog.at_level(logging.WARNING):
        for step in range(100):
            tracker.metrics("sft", step, {"loss": 1.0})
        in_loop = tracker.num_dropped
        tracker.close(0.05)
    assert time.perf_counter() - started < 5  # 100 rows at 30 s each otherwise
    assert 96 <= in_loop <= 97  # three wait, and the thread may hold one
    assert tracker.num_dropped == pytest.approx(100, abs=1)
    assert len(caplog.records) == 1
    blocked.go_on.set()


def test_the_files_come_first_and_an_observer_that_raises_is_told_no_more(
    run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    raises, kept = Raises(), Kept()
    group = RecorderGroup(FileRecorder(run), [raises, BackgroundTracker("kept", lambda: kept)])
    assert isinstance(group, ClosingRecorder)
    with caplog.at_level(logging.WARNING):
        group.event("begin", {})
        group.metrics("sft", 1, {"loss": 1.0})
        group.metrics("sft", 2, {"loss": 1.0})
        group.rollouts("sft", 2, [], [], left_out=[])
    group.close()
    assert raises.calls == 2
    assert "Raises failed and is told no more in this run (ZeroDivisionError: mine)" in caplog.text
    assert len(caplog.records) == 1
    assert [row["step"] for row in read_metrics(run.metrics)] == [1, 2]
    assert [x for x, _ in kept.rows] == [1, 2]
    assert run.rollouts_of("sft", 2).exists()


def test_trackers_share_the_time_at_the_end(monkeypatch: pytest.MonkeyPatch, run: RunDirectory) -> None:
    monkeypatch.setattr("groupwise.runs.trackers.CLOSE_SECONDS", 0.2)
    stuck, kept = [Blocked(), Blocked()], Kept()
    made = [BackgroundTracker(str(i), lambda t=t: t) for i, t in enumerate([*stuck, kept])]
    group = RecorderGroup(FileRecorder(run), made)
    group.metrics("sft", 1, {})
    started = time.perf_counter()
    group.close()
    assert time.perf_counter() - started < 5
    assert (len(kept.rows), kept.closed) == (1, 1)
    for tracker in stuck:
        tracker.go_on.set()


def test_rows_before_a_restart_are_counted_wherever_they_went(run: RunDirectory) -> None:
    assert rows_written(run) == 0
    FileRecorder(run).metrics("sft", 1, {})
    aside = run.path / "abandoned-1"
    aside.mkdir()
    (aside / "metrics.jsonl").write_text("{}\n{}\n")
    assert rows_written(run) == 3
