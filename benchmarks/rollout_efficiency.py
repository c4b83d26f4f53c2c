"""How many rollouts reach the same held-out pass rate: plain GRPO, and with curation, allocation, dynamic sampling.

    python benchmarks/rollout_efficiency.py                       # 5 seeds, about half an hour on one core
    python benchmarks/rollout_efficiency.py --seeds 1,2 --steps 40
    python benchmarks/rollout_efficiency.py --table               # the table of what has been measured

For every seed a small model learns the form of the answer by SFT (letters_job.py). From that checkpoint each arm trains
for the same number of steps. Rollouts are counted where they are drawn: those that measured pass rates before training
belong to the arm that used them, and so do those of a step's extra rounds. Held-out evaluations are counted for nobody.

Arms:
    plain        every prompt, groups of 8, one round a step
    retired      plain, but prompts retire once their groups make them surely solved or hopeless, and are probed again
    curated      retired, on prompts that 4 completions each showed the start model to solve sometimes
    allocated    curated, with group sizes from the posteriors
    dynamic      curated, with up to 2 extra rounds for dead groups
    all          curated, allocated, dynamic
Target: the pass rate that plain reaches at its last evaluations, averaged over seeds. Result: the rollouts at which
each arm's mean curve first reaches it, and the pass rate of each arm where plain's budget ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from letters_job import MAX_COMPLETION_TOKENS, recipe, write_job
from workers import say, worker_environment

RESULTS = Path(__file__).resolve().parent / "results"
GROUP_SIZE = PROMPTS_PER_STEP = 8
LAST_EVALUATIONS = 2
"""Evaluations that are averaged into plain's final pass rate, as the end of a smoothed curve is."""

PLAIN_ROLLOUT = f"""[rollout]
group_size = {GROUP_SIZE}
prompts_per_step = {PROMPTS_PER_STEP}
max_completion_tokens = {MAX_COMPLETION_TOKENS}
"""
ALLOCATION = "allocation = { min_group_size = 4, max_group_size = 24 }\n"
DYNAMIC = "extra_rounds = 2\n"
RETIRED = "[curation]\nsamples_per_prompt = 0\n"
UNFILTERED = "[curation]\nenabled = false\n"
CURATED = "[curation]\nsamples_per_prompt = 4\nmax_samples_per_prompt = 4\nnum_prompts = 400\n"
ARMS: Mapping[str, str] = {
    "plain": PLAIN_ROLLOUT + UNFILTERED,
    "retired": PLAIN_ROLLOUT + RETIRED,
    "curated": PLAIN_ROLLOUT + CURATED,
    "allocated": PLAIN_ROLLOUT + ALLOCATION + CURATED,
    "dynamic": PLAIN_ROLLOUT + DYNAMIC + CURATED,
    "all": PLAIN_ROLLOUT + ALLOCATION + DYNAMIC + CURATED,
}

Point = tuple[float, float]
"""(rollouts drawn so far, held-out pass rate)."""


def start_model(folder: Path, seed: int, sft_steps: int, num_train: int) -> Path:
    """The checkpoint that every arm of a seed starts from."""
    done = folder / "start.json"
    if not done.is_file():
        write_job(folder, seed=seed, demonstrations=3000, train=num_train, heldout=300)
        stages = (
            f'[[stages]]\nname = "sft"\nsteps = {sft_steps}\nalgorithm = {{ name = "sft", tasks_per_step = 32 }}\n'
            'optim = { lr = 2e-3, warmup_steps = 10, schedule = "linear" }\n'
        )
        path = recipe(folder, name="start", seed=seed, model="model", stages=stages, sections=PLAIN_ROLLOUT, every=0)
        run = train(path)
        done.write_text(json.dumps({"checkpoint": str(run / "checkpoints" / f"sft-{sft_steps}")}))
    return Path(json.loads(done.read_text())["checkpoint"])


def run_arm(folder: Path, arm: str, seed: int, checkpoint: Path, args: argparse.Namespace) -> list[Point]:
    """Trains one arm and returns its curve, the start model first."""
    stages = (
        f'[[stages]]\nname = "grpo"\nsteps = {args.steps}\nalgorithm = {{ name = "grpo" }}\n'
        f"optim = {{ lr = {args.lr}, warmup_steps = 2 }}\n"
    )
    path = recipe(
        folder, name=arm, seed=seed, model=str(checkpoint), stages=stages, sections=ARMS[arm], every=args.every
    )
    return curve(train(path))


def train(recipe_path: Path) -> Path:
    """Runs `groupwise train` in a process of its own; returns the run's folder.

    Raises:
        SystemExit: with the end of its output, where it fails.
    """
    process = subprocess.run(
        [sys.executable, "-m", "groupwise.cli.main", "train", str(recipe_path)],
        env=worker_environment(1),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"{recipe_path} failed:\n{process.stdout[-2000:]}{process.stderr[-2000:]}")
    runs = (recipe_path.parent / "runs").glob(f"{recipe_path.stem}-*")
    return max(runs, key=lambda run: run.stat().st_mtime)


def curve(run: Path) -> list[Point]:
    """Pass rates of a run against the rollouts drawn before each, those of collections without signal included."""
    events = _rows(run / "events.jsonl")
    drawn = sum(event["num_rollouts"] for event in events if event["event"] == "curated")
    drawn_before = {0: 0.0}
    for row in _rows(run / "metrics.jsonl"):
        drawn += row["num_rollouts"]
        if row["updated"]:
            drawn_before[int(row["policy_version"])] = drawn
    return [
        (drawn_before[event["policy_version"]], event["pass_rate"])
        for event in events
        if event["event"] == "evaluation"
    ]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def mean_curve(curves: Sequence[Sequence[Point]], grid: Sequence[float]) -> list[float]:
    """Pass rate at each number of rollouts: smoothed and interpolated linearly in every seed, then averaged."""
    smoothed = [smooth(curve) for curve in curves]
    return [fmean(_at(curve, x) for curve in smoothed) for x in grid]


def smooth(curve: Sequence[Point]) -> list[Point]:
    """Each pass rate averaged with its two neighbours, the first and last with the one that they have; the start, which
    is the same for all arms, stays."""
    rates = [rate for _, rate in curve]
    means = [fmean(rates[max(1, i - 1) : i + 2]) if i else rates[0] for i in range(len(rates))]
    return [(x, mean) for (x, _), mean in zip(curve, means, strict=True)]


def _at(curve: Sequence[Point], rollouts: float) -> float:
    """Held before the first point, where rollouts measured pass rates, and after the last."""
    if rollouts <= curve[0][0]:
        return curve[0][1]
    earlier, later = curve[0], curve[-1]
    for left, right in pairwise(curve):
        if left[0] <= rollouts <= right[0]:
            earlier, later = left, right
            break
    if rollouts >= later[0] or later[0] == earlier[0]:
        return later[1]
    share = (rollouts - earlier[0]) / (later[0] - earlier[0])
    return earlier[1] + share * (later[1] - earlier[1])


def first_reach(grid: Sequence[float], rates: Sequence[float], target: float) -> float | None:
    """The first grid point at which the rate is the target or more."""
    return next((x for x, rate in zip(grid, rates, strict=True) if rate >= target), None)


def table(results: Mapping[str, Mapping[str, list[Point]]]) -> str:
    """Markdown: arm, rollouts to reach plain's final rate, pass rate at plain's budget with the spread over seeds."""
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in results.values())))
    curves = {arm: [results[arm][seed] for seed in seeds] for arm in results}
    budget = fmean(c[-1][0] for c in curves["plain"])
    target = fmean(fmean(rate for _, rate in c[-LAST_EVALUATIONS:]) for c in curves["plain"])
    end = max(c[-1][0] for of_arm in curves.values() for c in of_arm)
    grid = [end * i / 400 for i in range(401)]
    plain_reaches = first_reach(grid, mean_curve(curves["plain"], grid), target)
    start = fmean(c[0][1] for c in curves["plain"])
    lines = [
        f"{len(seeds)} seeds; start {start:.1%}; target {target:.1%}, plain's mean over its last {LAST_EVALUATIONS} "
        f"evaluations; budget {budget:.0f} rollouts",
        "",
        "| arm | rollouts to the target | against plain | pass rate at the budget | spread over seeds |",
        "|---|---|---|---|---|",
    ]
    for arm, of_arm in curves.items():
        reach = first_reach(grid, mean_curve(of_arm, grid), target)
        at_budget = [_at(smooth(c), budget) for c in of_arm]
        ratio = "-" if reach is None or not plain_reaches else f"{reach / plain_reaches:.2f}"
        spread = f"{stdev(at_budget):.1%}" if len(at_budget) > 1 else "-"
        shown = "not reached" if reach is None else f"{reach:.0f}"
        lines.append(f"| {arm} | {shown} | {ratio} | {fmean(at_budget):.1%} | {spread} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3,4,5", help="comma-separated (1,2,3,4,5)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {', '.join(ARMS)}")
    parser.add_argument("--steps", type=int, default=160, help="GRPO steps of each arm (160)")
    parser.add_argument("--every", type=int, default=10, help="steps between evaluations (10)")
    parser.add_argument("--sft-steps", type=int, default=700, help="SFT steps of the start model (700)")
    parser.add_argument("--train", type=int, default=2000, help="training prompts (2000: hardly any is seen twice)")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate of GRPO (1e-4)")
    parser.add_argument("--work", type=Path, default=RESULTS / "rollout_efficiency", help="folder of the runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "rollout-efficiency.json")
    parser.add_argument("--append", action="store_true", help="keep the curves that the output holds, do the rest")
    parser.add_argument("--table", action="store_true", help="measure nothing, show the table")
    args = parser.parse_args()
    unknown = [arm for arm in args.arms.split(",") if arm not in ARMS]
    if unknown:
        parser.error(f"--arms: {', '.join(unknown)} is not known; known: {', '.join(ARMS)}")
    return args


def main() -> None:
    """Every arm of every seed, then the table."""
    args = parse_arguments()
    results: dict[str, dict[str, list[Point]]] = {arm: {} for arm in args.arms.split(",")}
    if (args.append or args.table) and args.output.is_file():
        stored = json.loads(args.output.read_text())
        results |= {arm: {s: [tuple(p) for p in c] for s, c in by_seed.items()} for arm, by_seed in stored.items()}
    for seed in [] if args.table else args.seeds.split(","):
        folder = args.work.absolute() / f"seed-{seed}"
        checkpoint = start_model(folder, int(seed), args.sft_steps, args.train)
        for arm in args.arms.split(","):
            if seed not in results[arm]:
                results[arm][seed] = run_arm(folder, arm, int(seed), checkpoint, args)
                args.output.parent.mkdir(parents=True, exist_ok=True)
                args.output.write_text(json.dumps(results))
            say(f"seed {seed}, {arm}: {results[arm][seed][-1][0]:.0f} rollouts, {results[arm][seed][-1][1]:.1%}")
    print(table({arm: by_seed for arm, by_seed in results.items() if by_seed}))


if __name__ == "__main__":
    main()
