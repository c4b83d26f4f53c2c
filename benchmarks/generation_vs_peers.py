"""How many tokens a second are generated here, by vLLM on the CPU, and by `generate` of transformers.

    python benchmarks/generation_vs_peers.py --peer vllm [--job a|b|c|d]
    python benchmarks/generation_vs_peers.py --peer transformers

Same weights, prompt token ids, group size, number of tokens, temperature, threads and wait policy; float32. Each
repetition starts a fresh process for the peer and then one for us (A B A B ...). A process loads, warms up with two
tokens, and times some calls; the figure is the median call. Loading and starting are not timed. Every call starts with
nothing kept from the one before, because weights change at each training step: vLLM's prefix cache is emptied, and we
lay out the weights again.

vLLM is installed once into `.venv-vllm` at the root of the checkout. It is given its better settings on two cores (see
`VLLM_ENVIRONMENT`) and is not asked for log-probabilities, which we record. transformers runs in this environment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from jobs import RESULTS, SIZES, add_job_options, read_job_options, workload_options
from peer_environments import VLLM
from workers import Report, ResultFile, Worker, alternate, ratio, spread, values_of, with_range

PEERS = Path(__file__).resolve().parent / "peers"
PEER_NAMES = ("vllm", "transformers")
WORKERS = {side: PEERS / f"{side}_generation.py" for side in (*PEER_NAMES, "groupwise")}
SAME = ("prompt_digest", "prompt_tokens", "completion_tokens", "threads")
VLLM_ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""The threads are left to the system and the engine runs in the process that calls it; 4 GiB hold every job's keys."""


def parse_arguments() -> argparse.Namespace:
    """Options of the driver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, repetitions=3, output="generation-PEER-JOB.json")
    parser.add_argument("--peer", choices=PEER_NAMES, default="vllm", help="what to compare with (vllm)")
    parser.add_argument("--calls", type=int, default=3, help="calls timed in each process, 1 or more (3)")
    parser.add_argument("--vllm-binding", default=VLLM_ENVIRONMENT["VLLM_CPU_OMP_THREADS_BIND"], help="or cores: 0-1")
    parser.add_argument("--vllm-openmp", choices=("gnu", "intel"), default="gnu", help="OpenMP library of vLLM (gnu)")
    args = read_job_options(parser)
    if args.calls < 1:
        parser.error(f"--calls: got {args.calls}, it must be 1 or more")
    return args


def make_worker(side: str, args: argparse.Namespace) -> Worker:
    """The command of one side; makes vLLM's environment where it is missing."""
    python = VLLM.python() if side == "vllm" else Path(sys.executable)
    environment: dict[str, str] = {}
    if side == "vllm":
        environment = {**VLLM_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": args.vllm_binding}
        if args.vllm_openmp == "intel":  # vLLM installs it and recommends it, but does not load it by itself
            environment["LD_PRELOAD"] = str(VLLM.folder / "lib" / "libiomp5.so")
    command = (str(python), str(WORKERS[side]), *workload_options(args), "--calls", str(args.calls))
    return Worker(side=side, command=command, environment=environment)


def describe(report: Report) -> str:
    """One line of progress."""
    calls = ", ".join(f"{seconds:.2f}" for seconds in report["call_seconds"])
    return f"{report['tokens_per_second']:.1f} tokens/s, calls of {calls} s"


def summarise(reports: list[Report], peer: str) -> dict[str, Any]:
    """Spread of each side over its repetitions, and of Groupwise / peer within a repetition."""
    fields = ("tokens_per_second", "seconds", "peak_rss_bytes")
    summary: dict[str, Any] = {
        side: {name: spread(values_of(reports, side, name)) for name in fields} for side in (peer, "groupwise")
    }
    summary["groupwise_over_peer"] = ratio(reports, "groupwise", peer, "tokens_per_second")
    return summary


def table(summary: dict[str, Any], peer: str) -> str:
    """The summary as a Markdown table."""
    lines = ["| side | tokens/s | s a call | peak RSS GiB |", "|---|---|---|---|"]
    for side in (peer, "groupwise"):
        row = summary[side]
        lines.append(
            f"| {side} | {with_range(row['tokens_per_second'])} | {with_range(row['seconds'], 2)} "
            f"| {row['peak_rss_bytes']['max'] / 2**30:.2f} |"
        )
    ratios = with_range(summary["groupwise_over_peer"], 2)
    return "\n".join([*lines, "", f"Groupwise / {peer} in tokens a second, median (min - max): {ratios}."])


def main() -> None:
    """Run the repetitions, write the JSON, print the table."""
    args = parse_arguments()
    output = args.output or RESULTS / f"generation-{args.peer}-{args.job}.json"
    options = {name: getattr(args, name) for name in (*SIZES, "seed", "job", "threads", "peer", "calls")}
    own = {name: getattr(args, name) for name in ("vllm_binding", "vllm_openmp") if args.peer == "vllm"}
    results = ResultFile(
        path=output,
        options={**options, **own, "model": args.model.resolve().name},
        summarise=lambda runs: summarise(runs, args.peer),
        sides=(args.peer, "groupwise"),
    )
    if args.append:
        results.resume()
    summary = alternate(
        [make_worker(side, args) for side in results.sides],
        results,
        repetitions=args.repetitions,
        threads=args.threads,
        timeout=args.timeout,
        same=SAME,
        describe=describe,
    )
    print(table(summary, args.peer))
    print(f"\nwritten: {output}")


if __name__ == "__main__":
    main()
