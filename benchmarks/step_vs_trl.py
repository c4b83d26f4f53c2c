"""How long one GRPO optimizer step takes here and in TRL, and how much memory it needs.

    python benchmarks/step_vs_trl.py [--job a|b|c|d] [--model NAME]

The step: generate, score, forward, backward, AdamW; in float32 on the CPU, without KL term. Both sides get the same
weights, prompt token ids, reward, clip, number of threads and wait policy. Each repetition starts a fresh process for
one side and then for the other (A B A B ...), so that a drift of the machine hits both. Loading is not timed; and with
`--warm-up-steps 1`, the default, neither is a first step, which also allocates and plans; the long jobs (b) and (c) of
the suite are measured without it, because a step of TRL takes minutes there.

TRL is installed once into `.venv-trl` at the root of the checkout. It puts as many rows through one forward as fit
about 14 GiB, and accumulates gradients where the step has more; `--trl-micro-batch` sets another number.
The workers are in `peers/`: `workload.py` says what the step is, `trl_step.py` and `groupwise_step.py` perform it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from typing import Any

from jobs import RESULTS, SIZES, add_job_options, read_job_options, workload_options
from peer_environments import TRL
from workers import Report, ResultFile, Worker, alternate, ratio, spread, values_of, with_range

PEERS = Path(__file__).resolve().parent / "peers"
SIDES = ("trl", "groupwise")
WORKERS = {side: PEERS / f"{side}_step.py" for side in SIDES}
SAME = ("prompt_digest", "prompt_tokens", "completion_tokens", "threads")
TRL_FORWARD_TOKENS = 6016
"""Tokens in one forward of TRL: 16 rows of 375 took 13 GiB with SmolLM2-135M, most of it proportional to tokens."""


def parse_arguments() -> argparse.Namespace:
    """Options of the driver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, repetitions=2, output="step-JOB.json")
    parser.add_argument("--sides", default=",".join(SIDES), help="which sides to run, in this order (trl,groupwise)")
    parser.add_argument("--warm-up-steps", type=int, default=1, help="steps of each side before the measured one (1)")
    parser.add_argument("--trl-micro-batch", type=int, default=0, help="rows a forward in TRL; 0: what fits 14 GiB")
    args = read_job_options(parser)
    args.sides = args.sides.split(",")
    unknown = [side for side in args.sides if side not in SIDES]
    if unknown:
        parser.error(f"--sides: {', '.join(unknown)} is not known; known: {', '.join(SIDES)}")
    args.trl_micro_batch = args.trl_micro_batch or micro_batch(
        args.num_prompts * args.group_size, args.prompt_tokens + args.completion_tokens
    )
    return args


def micro_batch(rows: int, row_tokens: int, forward_tokens: int = TRL_FORWARD_TOKENS) -> int:
    """The largest divisor of `rows` with at most `forward_tokens` tokens in that many rows; at least 1."""
    fitting = [size for size in range(1, rows + 1) if rows % size == 0 and size * row_tokens <= forward_tokens]
    return max(fitting, default=1)


def make_worker(side: str, args: argparse.Namespace) -> Worker:
    """The command of one side; makes TRL's environment where it is missing."""
    python = TRL.python() if side == "trl" else Path(sys.executable)
    own = ["--warm-up-steps", str(args.warm_up_steps)]
    own += ["--micro-batch", str(args.trl_micro_batch)] if side == "trl" else []
    return Worker(side=side, command=(str(python), str(WORKERS[side]), *workload_options(args), *own))


def describe(report: Report) -> str:
    """One line of progress."""
    peak = report["peak_rss_bytes"] / 2**30
    return f"{report['seconds']:.1f} s, cpu {report['cpu_seconds']:.1f} s, peak {peak:.2f} GiB"


def summarise(reports: list[Report], sides: list[str]) -> dict[str, Any]:
    """Spread of each side over its repetitions, and of TRL / Groupwise within a repetition."""
    summary: dict[str, Any] = {}
    for side in sides:
        own = [report for report in reports if report["side"] == side]
        summary[side] = {
            "seconds": spread(values_of(reports, side, "seconds")),
            "cpu_seconds": spread(values_of(reports, side, "cpu_seconds")),
            "phases": {phase: median(report["phases"][phase] for report in own) for phase in own[0]["phases"]},
            "peak_rss_bytes": spread(values_of(reports, side, "peak_rss_bytes")),
        }
    if set(sides) == set(SIDES):
        fields = ("seconds", "cpu_seconds", "peak_rss_bytes")
        summary["trl_over_groupwise"] = {name: ratio(reports, "trl", "groupwise", name) for name in fields}
    return summary


def table(summary: dict[str, Any], sides: list[str]) -> str:
    """The summary as a Markdown table."""
    lines = ["| side | s a step | rollout s | update s | CPU s | peak RSS GiB |", "|---|---|---|---|---|---|"]
    for side in sides:
        row = summary[side]
        lines.append(
            f"| {side} | {with_range(row['seconds'])} | {row['phases']['rollout']:.1f} | {row['phases']['update']:.1f} "
            f"| {row['cpu_seconds']['median']:.1f} | {row['peak_rss_bytes']['max'] / 2**30:.2f} |"
        )
    if "trl_over_groupwise" in summary:
        ratios = {name: with_range(values, 2) for name, values in summary["trl_over_groupwise"].items()}
        lines += [
            "",
            f"TRL / Groupwise within a repetition, median (min - max): {ratios['seconds']} in wall time, "
            f"{ratios['cpu_seconds']} in CPU time, {ratios['peak_rss_bytes']} in peak memory.",
        ]
    return "\n".join(lines)


def main() -> None:
    """Run the repetitions, write the JSON, print the table."""
    args = parse_arguments()
    output = args.output or RESULTS / f"step-{args.job}.json"
    options = {
        name: getattr(args, name)
        for name in (*SIZES, "seed", "job", "threads", "trl_micro_batch", "warm_up_steps", "sides")
    }
    results = ResultFile(
        path=output,
        options={**options, "model": args.model.resolve().name},
        summarise=lambda runs: summarise(runs, args.sides),
        sides=tuple(args.sides),
    )
    if args.append:
        results.resume()
    summary = alternate(
        [make_worker(side, args) for side in args.sides],
        results,
        repetitions=args.repetitions,
        threads=args.threads,
        timeout=args.timeout,
        same=SAME,
        describe=describe,
    )
    print(table(summary, args.sides))
    print(f"\nwritten: {output}")


if __name__ == "__main__":
    main()
