"""How close the training phase comes to the fastest float32 products of this machine.

    python benchmarks/training_flops.py [--job a|b|c|d]

Our side only. Each repetition is a fresh process: it times the products that such a training phase consists of, makes
a first (cold) and some warm training phases, each a whole `optimizer_step` with clipping and AdamW, and times the
products again. The figure is useful operations of a phase / its seconds / rate of the products, for the warm phase.
What counts as useful stands in `peers/flops.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from jobs import RESULTS, SIZES, add_job_options, read_job_options, workload_options
from workers import Report, ResultFile, Worker, alternate, spread, values_of, with_range

WORKER = Path(__file__).resolve().parent / "peers" / "groupwise_training.py"
SIDE = "groupwise"
SAME = ("prompt_digest", "useful_flops", "threads")


def describe(report: Report) -> str:
    """One line of progress."""
    seconds = ", ".join(f"{value:.2f}" for value in report["step_seconds"])
    return (
        f"{report['warm_share_of_peak']:.0%} of {report['peak_flops_per_second'] / 1e9:.0f} GFLOP/s, phases of "
        f"{seconds} s"
    )


def summarise(reports: list[Report]) -> dict[str, Any]:
    """Spread over the repetitions of what a worker measured."""
    fields = ("warm_seconds", "cold_seconds", "peak_flops_per_second", "warm_share_of_peak", "cold_share_of_peak")
    summary: dict[str, Any] = {name: spread(values_of(reports, SIDE, name)) for name in fields}
    summary["useful_flops"] = reports[0]["useful_flops"]
    return summary


def table(summary: dict[str, Any]) -> str:
    """The summary as a Markdown table."""
    lines = ["| training phase | seconds | GFLOP/s | share of the products' rate |", "|---|---|---|---|"]
    for name in ("cold", "warm"):
        seconds = summary[f"{name}_seconds"]
        rate = summary["useful_flops"] / seconds["median"] / 1e9
        share = with_range({key: 100 * value for key, value in summary[f"{name}_share_of_peak"].items()}, 0)
        lines.append(f"| {name} | {with_range(seconds, 2)} | {rate:.0f} | {share} % |")
    peak = with_range({key: value / 1e9 for key, value in summary["peak_flops_per_second"].items()}, 0)
    useful = summary["useful_flops"] / 1e9
    return "\n".join([*lines, "", f"{useful:.0f} useful GFLOP a phase; the products alone: {peak} GFLOP/s."])


def main() -> None:
    """Run the repetitions, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, repetitions=3, output="training-JOB.json")
    args = read_job_options(parser)
    output = args.output or RESULTS / f"training-{args.job}.json"
    options = {name: getattr(args, name) for name in (*SIZES, "seed", "job", "threads")}
    results = ResultFile(
        path=output, options={**options, "model": args.model.resolve().name}, summarise=summarise, sides=(SIDE,)
    )
    if args.append:
        results.resume()
    worker = Worker(side=SIDE, command=(sys.executable, str(WORKER), *workload_options(args)))
    summary = alternate(
        [worker],
        results,
        repetitions=args.repetitions,
        threads=args.threads,
        timeout=args.timeout,
        same=SAME,
        describe=describe,
    )
    print(table(summary))
    print(f"\nwritten: {output}")


if __name__ == "__main__":
    main()
