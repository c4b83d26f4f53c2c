"""How much of a step is not the model's arithmetic: trees, sampling, verdicts, recording, Python between the products.

    python benchmarks/overhead.py

Our side only: the real loop on the bundled task, with its engine, its SQL verifier in the sandbox and its recorder (see
`peers/groupwise_overhead.py`); 2 prompts a step, 8 completions of 32 tokens each. Two kinds of process in turn: one
attributes the time of each warm step (see `peers/attribution.py`), the other only times the steps, which shows what the
attribution itself costs. The figure is (step - tensor operations outside the sampler) / step. The prompts are the
task's own, of about 340 tokens: the sizes of prompts have no effect here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from typing import Any

from jobs import RESULTS, SIZES, add_job_options, read_job_options, workload_options
from workers import Report, ResultFile, Worker, alternate, ratio, spread, values_of, with_range

WORKER = Path(__file__).resolve().parent / "peers" / "groupwise_overhead.py"
SIDES = ("plain", "attributed")
PARTS = ("tensors", "sampling", "judging", "recording", "other")


def make_worker(side: str, args: argparse.Namespace) -> Worker:
    """The command of one kind of process."""
    own = ("--steps", str(args.steps), "--watch", "1" if side == "attributed" else "0")
    return Worker(side=side, command=(sys.executable, str(WORKER), *workload_options(args), *own))


def describe(report: Report) -> str:
    """One line of progress."""
    seconds = ", ".join(f"{value:.2f}" for value in report["step_seconds"])
    share = f", {report['share_outside']:.1%} outside" if report["side"] == "attributed" else ""
    return f"steps of {seconds} s{share}"


def summarise(reports: list[Report]) -> dict[str, Any]:
    """Spread over the repetitions of the share outside, of a step's seconds, and the median of each part."""
    attributed = [report for report in reports if report["side"] == "attributed"]
    return {
        "share_outside": spread([report["share_outside"] for report in attributed]),
        "seconds": {side: spread(values_of(reports, side, "seconds")) for side in SIDES},
        "parts": {part: median(report["parts"][part] for report in attributed) for part in PARTS},
        "attributed_over_plain": ratio(reports, "attributed", "plain", "seconds"),
    }


def table(summary: dict[str, Any]) -> str:
    """The summary as a Markdown table."""
    total = sum(summary["parts"].values())
    lines = ["| part of a warm step | seconds | share |", "|---|---|---|"]
    for part, seconds in summary["parts"].items():
        lines.append(f"| {part} | {seconds:.3f} | {100 * seconds / total:.1f} % |")
    share = with_range({key: 100 * value for key, value in summary["share_outside"].items()})
    cost = with_range(summary["attributed_over_plain"], 2)
    return "\n".join(
        [
            *lines,
            "",
            f"Outside the model's arithmetic, median (min - max): {share} % of the step. A step whose time is "
            f"attributed takes {cost} times as long as one that is only timed.",
        ]
    )


def main() -> None:
    """Run the repetitions, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, repetitions=3, output="overhead-JOB.json")
    parser.add_argument("--steps", type=int, default=4, help="steps in each process, 2 or more; the first is left out")
    args = read_job_options(parser)
    if args.steps < 2:
        parser.error(f"--steps: got {args.steps}, it must be 2 or more")
    output = args.output or RESULTS / f"overhead-{args.job}.json"
    options = {name: getattr(args, name) for name in (*SIZES, "seed", "job", "threads", "steps")}
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
        same=("threads",),
        describe=describe,
    )
    print(table(summary))
    print(f"\nwritten: {output}")


if __name__ == "__main__":
    main()
