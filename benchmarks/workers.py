"""Runs workers in turn (A B A B ...), keeps every report on disk at once, and compares what they report.

A worker is a script in `peers/` that prints one JSON report as its last line. Each run is a fresh process. The result
file is rewritten after each of them, so that a benchmark that is killed keeps what it has; with --append the next call
does only the runs that are missing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Report = dict[str, Any]
"""What a worker printed, with "side" and "repetition"."""

HEARTBEAT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One side: Worker(side="trl", command=("python", "peers/trl_step.py", "--seed", "17"), environment={...})."""

    side: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of `worker_environment`."""


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables of every side: same threads, the same short spinning, no network."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",  # spinning threads on a shared core cost ten times the forward itself
        "GOMP_SPINCOUNT": "10000",  # but sleeping at once costs as much again on an idle one
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def run_worker(worker: Worker, *, threads: int, timeout: float) -> Report:
    """Run one worker process and return what it printed, with the load average before it started.

    Raises:
        SystemExit: if the worker fails or takes too long; the end of its error output is shown.
    """
    load_average = os.getloadavg()[0]
    started = time.perf_counter()
    process = subprocess.Popen(
        worker.command,
        env={**worker_environment(threads), **worker.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = _wait(process, worker.side, started, timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise SystemExit(f"{worker.side}: worker ended with {process.returncode}\n{errors[-3000:]}")
    report: Report = json.loads(output.strip().splitlines()[-1])
    report["side"] = worker.side
    report["process_seconds"] = time.perf_counter() - started
    report["load_average_before"] = load_average
    return report


def _wait(process: subprocess.Popen[str], side: str, started: float, timeout: float) -> tuple[str, str]:
    while True:
        left = started + timeout - time.perf_counter()
        try:
            return process.communicate(timeout=max(0.0, min(HEARTBEAT_SECONDS, left)))
        except subprocess.TimeoutExpired:
            passed = time.perf_counter() - started
            if passed >= timeout:
                raise SystemExit(f"{side}: no result after {timeout:.0f} s; raise --timeout") from None
            say(f"{side}: {passed / 60:.0f} min so far")


def say(line: str) -> None:
    """Progress, on the error output, so that the table alone is on the standard output."""
    print(line, file=sys.stderr, flush=True)


@dataclass(slots=True)
class ResultFile:
    """The runs of one benchmark on disk. `add` writes the file at once."""

    path: Path
    options: Mapping[str, Any]
    """What must be equal for two runs to belong together."""
    summarise: Callable[[list[Report]], dict[str, Any]]
    """From all runs so far to the summary; given only when at least one repetition is complete."""
    sides: tuple[str, ...]
    runs: list[Report] = field(default_factory=list)

    def resume(self) -> None:
        """Take over the runs that the file holds.

        Raises:
            SystemExit: if they were made with other options.
        """
        if not self.path.is_file():
            return
        document = json.loads(self.path.read_text(encoding="utf-8"))
        if document["options"] != self.options:
            raise SystemExit(
                f"--append: {self.path} was made with other options; remove it, or choose another --output"
            )
        self.runs = [run for run in document["runs"] if run["side"] in self.sides]

    def missing(self, repetitions: int) -> list[tuple[int, str]]:
        """(repetition, side) in the order in which they are to run."""
        done = {(run["repetition"], run["side"]) for run in self.runs}
        wanted = [(repetition, side) for repetition in range(repetitions) for side in self.sides]
        return [pair for pair in wanted if pair not in done]

    def add(self, run: Report) -> None:
        """Keep a run and write the file."""
        self.runs.append(run)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")
        partial.rename(self.path)

    def document(self) -> dict[str, Any]:
        """What is written."""
        machine = {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()}
        complete = self.complete_runs()
        return {
            "machine": machine,
            "options": dict(self.options),
            "summary": self.summarise(complete) if complete else {},
            "runs": self.runs,
        }

    def complete_runs(self) -> list[Report]:
        """The runs of those repetitions in which every side has run, in order."""
        whole = [
            number
            for number in sorted({run["repetition"] for run in self.runs})
            if {run["side"] for run in self.runs if run["repetition"] == number} >= set(self.sides)
        ]
        order = {side: place for place, side in enumerate(self.sides)}
        kept = [run for run in self.runs if run["repetition"] in whole]
        return sorted(kept, key=lambda run: (run["repetition"], order[run["side"]]))


def alternate(
    workers: Sequence[Worker],
    results: ResultFile,
    *,
    repetitions: int,
    threads: int,
    timeout: float,
    same: Sequence[str],
    describe: Callable[[Report], str],
) -> dict[str, Any]:
    """Run what is missing, one side after the other, and return the summary.

    Args:
        workers: one a side.
        results: where the runs are kept.
        repetitions: complete rounds wanted, those that the file already holds included.
        threads: of each worker.
        timeout: seconds a worker may take.
        same: fields that must be equal in all reports.
        describe: one line about a report, for the progress.
    """
    by_side = {worker.side: worker for worker in workers}
    for repetition, side in results.missing(repetitions):
        say(f"{side}: run {repetition + 1} of {repetitions} started at {time.strftime('%H:%M:%S')}")
        report = run_worker(by_side[side], threads=threads, timeout=timeout)
        say(f"{side}: {describe(report)}, load before {report['load_average_before']:.1f}")
        check_same_work([*results.runs, report], same)
        results.add({"repetition": repetition, **report})
    summary: dict[str, Any] = results.document()["summary"]
    return summary


def check_same_work(reports: Sequence[Report], fields: Sequence[str]) -> None:
    """Refuse to compare runs that did not do the same work.

    Raises:
        SystemExit: if one of the fields differs between two reports.
    """
    for name in fields:
        values = {report["side"]: report[name] for report in reports}
        if any(report[name] != reports[0][name] for report in reports):
            raise SystemExit(f"the sides did not do the same work: {name} is {values}")


def values_of(reports: Sequence[Report], side: str, name: str) -> list[float]:
    """The field of one side in every repetition."""
    return [report[name] for report in reports if report["side"] == side]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and largest: spread([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def ratio(reports: Sequence[Report], over: str, under: str, name: str) -> dict[str, float]:
    """Spread over the repetitions of the field of one side divided by that of another in the same repetition."""
    pairs = zip(values_of(reports, over, name), values_of(reports, under, name), strict=True)
    return spread([one / other for one, other in pairs])


def with_range(values: Mapping[str, float], digits: int = 1) -> str:
    """A spread as text: "2.0 (1.0 - 3.0)"."""
    return f"{values['median']:.{digits}f} ({values['min']:.{digits}f} - {values['max']:.{digits}f})"
