"""What a run forecasts beside what it took: SFT and GRPO with groups of 4, 8 and 16, SmolLM2-135M on the bundled task.

    groupwise doctor --measure                   # first, with nothing else running
    python benchmarks/forecast_error.py          # about 12 minutes on two cores; nothing else should run
    python benchmarks/forecast_error.py --table  # what has been measured

One run of the bundled recipe's SFT stage, then one run for each group size from its checkpoint, all by `groupwise
train`, which writes its forecast and the measured numbers into events.jsonl. Seconds are sums over a stage's steps. The
share of dead groups is compared with the binomial interval of the forecast: the groups of a stage are that many draws.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import binom
from workers import say, worker_environment

from groupwise import bundled as bundled_files
from groupwise.config import Recipe, dump_toml, load_recipe

RESULTS = Path(__file__).resolve().parent / "results"
GROUP_SIZES = (4, 8, 16)
HELDOUT_PROMPTS = 24
"""Enough to measure the lengths of completions before a stage, and quick."""


def sft_recipe(work: Path, steps: int) -> Recipe:
    """The bundled recipe's first stage."""
    recipe = bundled().model_copy(update={"name": "forecast-sft", "output_dir": str(work)})
    return _with_stage(recipe, 0, steps, samples_per_prompt=0)


def grpo_recipe(work: Path, checkpoint: Path, group_size: int, steps: int) -> Recipe:
    """The bundled recipe's second stage with another group size, from the checkpoint of the first."""
    recipe = bundled().model_copy(update={"name": f"forecast-g{group_size}", "output_dir": str(work)})
    recipe = recipe.model_copy(
        update={
            "model": recipe.model.model_copy(update={"name": str(checkpoint)}),
            "rollout": recipe.rollout.model_copy(update={"group_size": group_size}),
            "curation": recipe.curation.model_copy(update={"num_prompts": 96}),
        }
    )
    return _with_stage(recipe, 1, steps, samples_per_prompt=4)


def bundled() -> Recipe:
    """The bundled recipe with absolute paths."""
    return load_recipe(bundled_files.path("recipe.toml")).with_absolute_paths()


def _with_stage(recipe: Recipe, place: int, steps: int, *, samples_per_prompt: int) -> Recipe:
    """Only that stage, with so many steps, and a short evaluation."""
    evaluation = {
        "num_prompts": HELDOUT_PROMPTS,
        "samples_per_prompt": samples_per_prompt,
        "greedy": samples_per_prompt == 0,
    }
    return recipe.model_copy(
        update={
            "stages": (recipe.stages[place].model_copy(update={"steps": steps}),),
            "evaluation": recipe.evaluation.model_copy(update=evaluation),
        }
    )


def train(recipe: Recipe, work: Path, threads: int) -> Path:
    """Runs `groupwise train` in a process of its own; returns the run's folder.

    Raises:
        SystemExit: with the end of its output, where it fails.
    """
    path = work / f"{recipe.name}.toml"
    path.write_text(dump_toml(recipe))
    process = subprocess.run(
        [sys.executable, "-m", "groupwise.cli.main", "train", str(path)],
        env=worker_environment(threads),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"{path} failed:\n{process.stdout[-2000:]}{process.stderr[-2000:]}")
    return max(work.glob(f"{recipe.name}-2*"), key=lambda run: run.stat().st_mtime)


def forecast_of(run: Path) -> dict[str, Any]:
    """The forecast event of a run's only stage, and how many groups it sampled."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    found = [event for event in events if event["event"] == "forecast"]
    if not found:
        raise SystemExit("the run made no forecast: run `groupwise doctor --measure` first")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {**found[0], "num_groups": sum(row.get("num_groups", 0) for row in rows)}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: run, quantity, forecast, measured, error."""
    lines = ["| run | what | forecast | measured | error |", "|---|---|---|---|---|"]
    for name, found in results.items():
        for key, unit in (("seconds_generate", "s"), ("seconds_train", "s"), ("peak_bytes", "GB")):
            if key in found:
                scale = 1e-9 if unit == "GB" else 1.0
                forecast, measured = (scale * found[key][side] for side in ("forecast", "measured"))
                error = f"{forecast / measured - 1:+.0%}"
                lines.append(f"| {name} | {key} | {forecast:.2f} {unit} | {measured:.2f} {unit} | {error} |")
        if "live_share" in found:
            lines.append(_dead_groups(name, found))
    return "\n".join(lines)


def _dead_groups(name: str, found: Mapping[str, Any]) -> str:
    num, dead = int(found["num_groups"]), 1 - found["live_share"]["forecast"]
    low, high = (float(binom.ppf(q, num, dead)) / num for q in (0.025, 0.975))
    measured = 1 - found["live_share"]["measured"]
    inside = "inside" if low <= measured <= high else "outside"
    return f"| {name} | dead groups of {num} | {dead:.0%} [{low:.0%}, {high:.0%}] | {measured:.0%} | {inside} |"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sft-steps", type=int, default=30, help="steps of SFT (30)")
    parser.add_argument("--steps", type=int, default=8, help="GRPO steps of each group size (8)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--checkpoint", type=Path, help="an SFT checkpoint to start from; None = make one")
    parser.add_argument("--work", type=Path, default=RESULTS / "forecast_error", help="folder of the runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "forecast-error.json")
    parser.add_argument("--table", action="store_true", help="measure nothing, show the table")
    return parser.parse_args(arguments)


def main() -> None:
    """SFT, then the group sizes, then the table."""
    args = parse_arguments()
    results: dict[str, Any] = json.loads(args.output.read_text()) if args.output.is_file() else {}
    if not args.table:
        work = args.work.absolute()
        work.mkdir(parents=True, exist_ok=True)
        checkpoint = args.checkpoint
        if checkpoint is None:
            run = train(sft_recipe(work, args.sft_steps), work, args.threads)
            results["SFT"] = forecast_of(run)
            checkpoint = run / "checkpoints" / f"sft-{args.sft_steps}"
        for group_size in GROUP_SIZES:
            run = train(grpo_recipe(work, checkpoint.absolute(), group_size, args.steps), work, args.threads)
            results[f"GRPO G={group_size}"] = forecast_of(run)
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(results, indent=1))
            say(f"G = {group_size} done")
    print(table(results))


if __name__ == "__main__":
    main()
