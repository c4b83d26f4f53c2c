"""Does a diagnosis leave runs in peace that learn? SFT and GRPO of a small model, ten seeds; every finding is printed.

    python benchmarks/clean_runs.py                # 10 seeds, about a minute on one core
    python benchmarks/clean_runs.py --seeds 3

The job is the one of tests/launch/planted_runs.py. Exit code 1 where a run had a finding or did not learn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "launch"))

from planted_runs import grpo_stage, run_job, save_small_model, sft_stage

from groupwise.launch.display import Quiet
from groupwise.runs.diagnosis.diagnose import diagnose, finding_lines


class Warnings(Quiet):
    """Keeps what was told while the run went on."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def warning(self, text: str) -> None:
        """See Display."""
        self.told.append(text)


def main() -> None:
    """Trains with each seed and prints a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30, help="GRPO steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    num_bad = 0
    for seed in range(args.seeds):
        started, display = time.monotonic(), Warnings()
        with tempfile.TemporaryDirectory() as folder:
            record = run_job(
                Path(folder) / "job",
                model=save_small_model(Path(folder) / "model", seed),
                stages=sft_stage() + grpo_stage(args.steps),
                seed=seed,
                display=display,
            )
            assert record.summary is not None
            rates = [stage.pass_rate for stage in record.summary.stages]
            lines = [*finding_lines(diagnose(record)), *display.told]
            num_bad += bool(lines) or rates[-1] <= rates[0]
            shown = " -> ".join(f"{rate:.1%}" for rate in rates)
            print(f"seed {seed}: held out {shown}, {len(lines)} lines of findings, {time.monotonic() - started:.1f} s")
            for line in lines:
                print(f"  {line}")
    print(f"{args.seeds - num_bad} of {args.seeds} runs learned and had no finding")
    sys.exit(1 if num_bad else 0)


if __name__ == "__main__":
    main()
