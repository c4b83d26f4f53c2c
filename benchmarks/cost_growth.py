"""How the time of one step grows when the group is doubled: completions cost, the prompt does not.

    python benchmarks/cost_growth.py [--job b]

Our side only. The step of `step_vs_trl.py` with the job's group size and with twice as many completions of the same
prompt, in turn (A B A B ...), each in a fresh process that makes one unmeasured step first. Without sharing the time
would double; the figure is the time of the large group over that of the small one within a repetition.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from jobs import RESULTS, SIZES, add_job_options, read_job_options, workload_options
from workers import Report, ResultFile, Worker, alternate, ratio, spread, values_of, with_range

WORKER = Path(__file__).resolve().parent / "peers" / "groupwise_step.py"
SIDES = ("once", "twice")
SAME = ("prompt_digest", "threads")


def make_worker(side: str, args: argparse.Namespace) -> Worker:
    """The command of one group size."""
    group_size = args.group_size * (2 if side == "twice" else 1)
    options = workload_options(args, group_size=group_size)
    return Worker(side=side, command=(sys.executable, str(WORKER), *options, "--warm-up-steps", "1"))


def describe(report: Report) -> str:
    """One line of progress."""
    phases = report["phases"]
    return f"{report['seconds']:.2f} s, of it rollout {phases['rollout']:.2f} s, update {phases['update']:.2f} s"


def summarise(reports: list[Report]) -> dict[str, Any]:
    """Spread of each group size over its repetitions, and of twice / once within a repetition."""
    summary: dict[str, Any] = {
        side: {
            "seconds": spread(values_of(reports, side, "seconds")),
            "rollout_seconds": spread([r["phases"]["rollout"] for r in reports if r["side"] == side]),
            "update_seconds": spread([r["phases"]["update"] for r in reports if r["side"] == side]),
        }
        for side in SIDES
    }
    summary["growth"] = ratio(reports, "twice", "once", "seconds")
    return summary


def table(summary: dict[str, Any], group_size: int) -> str:
    """The summary as a Markdown table."""
    lines = ["| group size | s a step | rollout s | update s |", "|---|---|---|---|"]
    for side, size in zip(SIDES, (group_size, 2 * group_size), strict=True):
        columns = [with_range(summary[side][name], 2) for name in ("seconds", "rollout_seconds", "update_seconds")]
        lines.append(f"| {size} | {' | '.join(columns)} |")
    growth = with_range(summary["growth"], 2)
    return "\n".join([*lines, "", f"Twice the group takes this many times as long, median (min - max): {growth}."])


def main() -> None:
    """Run the repetitions, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, repetitions=3, output="growth-JOB.json")
    parser.set_defaults(job="b")
    args = read_job_options(parser)
    output = args.output or RESULTS / f"growth-{args.job}.json"
    options = {name: getattr(args, name) for name in (*SIZES, "seed", "job", "threads")}
    results = ResultFile(
        path=output, options={**options, "model": args.model.resolve().name}, summarise=summarise, sides=SIDES
    )
    if args.append:
        results.resume()
    summary = alternate(
        [make_worker(side, args) for side in SIDES],
        results,
        repetitions=args.repetitions,
        threads=args.threads,
        timeout=args.timeout,
        same=SAME,
        describe=describe,
    )
    print(table(summary, args.group_size))
    print(f"\nwritten: {output}")


if __name__ == "__main__":
    main()
