"""The whole suite: every measurement, one after the other, then one table of all figures.

    python benchmarks/run_all.py                    # about an hour and a half on two cores; nothing else should run
    python benchmarks/run_all.py --quick            # every script on a tiny step, to see that it runs; no figures
    python benchmarks/run_all.py --only step-a,growth-b
    python benchmarks/run_all.py --table            # the table of what has been measured, without measuring

Results are kept as `benchmarks/results/NAME.json` after each single run. A suite that was interrupted goes on with
`--append`. A measurement that fails is named at the end, and the others are made all the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from figures import MEASUREMENTS, QUICK_OPTIONS, Measurement, table
from jobs import RESULTS
from workers import say

HERE = Path(__file__).resolve().parent


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Options of the suite."""
    names = [m.name for m in MEASUREMENTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(names), help=f"measurements to make, of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="tiny steps, once each, in benchmarks/results/quick")
    parser.add_argument("--table", action="store_true", help="measure nothing, show the table")
    parser.add_argument("--append", action="store_true", help="keep the runs there are, do those that are missing")
    parser.add_argument("--repetitions", type=int, help="runs of each side (each script's own number)")
    parser.add_argument("--threads", type=int, help="threads of each side (all cores)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (benchmarks/results)")
    args = parser.parse_args(arguments)
    args.only = args.only.split(",")
    unknown = [name for name in args.only if name not in names]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not known; known: {', '.join(names)}")
    if args.quick:
        args.results = args.results / "quick"
    return args


def command(measurement: Measurement, args: argparse.Namespace) -> list[str]:
    """How the measurement's script is called."""
    line = [sys.executable, str(HERE / measurement.script), *measurement.options]
    line += ["--output", str(args.results / measurement.result_name)]
    if args.quick:
        line += QUICK_OPTIONS
    for name in ("repetitions", "threads"):
        if getattr(args, name) is not None:
            line += [f"--{name}", str(getattr(args, name))]
    return [*line, "--append"] if args.append else line


def main() -> int:
    """Measure, then print the table; 1 if a measurement failed."""
    args = parse_arguments()
    chosen = [] if args.table else [m for m in MEASUREMENTS if m.name in args.only]
    failed = []
    for number, measurement in enumerate(chosen, start=1):
        length = "" if args.quick else f", about {measurement.minutes:g} minutes"
        say(f"== {number} of {len(chosen)}: {measurement.name}{length}")
        if subprocess.run(command(measurement, args), check=False, stdout=sys.stderr).returncode != 0:
            failed.append(measurement.name)
    print(table(args.results, judged=not args.quick))
    if args.quick:
        print("\nThese are tiny steps: the numbers only show that every script runs.")
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
