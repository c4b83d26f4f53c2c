"""What recording costs as a share of a step: metrics, every rollout as Parquet, and TensorBoard in its thread.

    python benchmarks/logging_cost.py                    # a minute; nothing else should run
    python benchmarks/logging_cost.py --run runs/NAME    # what a run of yours has spent on it, by its own clock

Two measurements:
    bundled   the recorder of a run (build_recorder) is handed steps of the bundled task: 8 groups of 8 rollouts,
              prompts of 340 tokens, completions of 30, verdicts with 3 checks, 60 numbers. Waited is what the loop
              stands still for, files flushed to the disk included. CPU counts the trackers' threads, too. Both are
              divided by --step-seconds, the time of such a step on two cores.
    tiny      a real run: GRPO on the letters task, 64 rollouts a step and a model of 0.5 million weights, whose steps
              take a fraction of a second. The share is seconds_record / seconds_step of its own metrics.
The target is 2 % of the bundled task's step. A tiny model's steps are shorter than any that teaches something.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from letters_job import recipe as write_recipe
from letters_job import write_job
from rollout_efficiency import PLAIN_ROLLOUT, UNFILTERED, train
from workers import say

from groupwise import bundled
from groupwise.config import load_recipe
from groupwise.launch.recording import build_recorder, close_recorder
from groupwise.runs import RunDirectory, read_run
from groupwise.types import Check, Completion, Group, Prompt, Rollout, Status, Task, Verdict

TARGET = 0.02
NUM_GROUPS = GROUP_SIZE = 8
PROMPT_TOKENS, COMPLETION_TOKENS = 340, 30
NUM_METRICS = 60
RESULT = Path(__file__).resolve().parent / "results" / "logging_cost.json"


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds a step that recording takes."""

    waited: float
    """The loop stands still: median over steps."""
    cpu: float
    """Of all threads: mean over steps, opening and closing included."""


def one_step(number: int) -> list[Group]:
    """Groups of the bundled task's size; texts and ids differ, so that nothing compresses better than it would."""
    checks = tuple(Check(name=name, passed=number % 3 == 0, expected="3 rows", found="4 rows") for name in "abc")
    groups = []
    for g in range(NUM_GROUPS):
        prompt = tuple((7 * number + 13 * g + 3 * i) % 49152 for i in range(PROMPT_TOKENS))
        rollouts = []
        for r in range(GROUP_SIZE):
            ids = tuple((number * 31 + g * 17 + r * 5 + i * 11) % 49152 for i in range(COMPLETION_TOKENS))
            text = f"SELECT name, {g} FROM customer WHERE age > {number + r} AND city = 'Rome' ORDER BY {ids[0]}"
            completion = Completion(
                text=text, token_ids=ids, sampler_logprobs=tuple(-0.001 * (i % 997) for i in ids), policy_version=number
            )
            verdict = Verdict(
                status=Status.SCORED, reward=float(r % 2), outcome=r % 2 == 1, reason="wrong_rows", checks=checks
            )
            rollouts.append(Rollout(completion=completion, verdict=verdict))
        task_id = f"train-{(8 * number + g) % 400:04d}"
        task = Task(id=task_id, prompt=f"How many customers of city {g} are older than {number}?")
        groups.append(Group(task=task, prompt=Prompt(task_id=task_id, token_ids=prompt), rollouts=tuple(rollouts)))
    return groups


def bundled_cost(folder: Path, *, steps: int, tensorboard: bool) -> Cost:
    """Records so many steps through the recorder of a run of the bundled recipe."""
    recipe = load_recipe(bundled.path("recipe.toml"))
    tracking = recipe.tracking.model_copy(update={"tensorboard": tensorboard})
    directory = RunDirectory.create(folder, "cost")
    advantages = [[1.0, -1.0] * (GROUP_SIZE // 2)] * NUM_GROUPS
    left_out = [[""] * GROUP_SIZE] * NUM_GROUPS
    made = [one_step(number) for number in range(steps)]
    waited = []
    cpu = time.process_time()
    recorder = build_recorder(recipe.model_copy(update={"tracking": tracking}), directory)
    for number, groups in enumerate(made, start=1):
        started = time.perf_counter()
        recorder.rollouts("grpo", number, groups, advantages, left_out=left_out)
        recorder.metrics("grpo", number, {f"metric_{i}": number + i / 7 for i in range(NUM_METRICS)})
        waited.append(time.perf_counter() - started)
        time.sleep(0.02)  # a step: the threads of trackers get on meanwhile
    close_recorder(recorder)
    return Cost(waited=median(waited), cpu=(time.process_time() - cpu) / steps)


def tiny_run(folder: Path, steps: int) -> Path:
    """A run of the letters task with GRPO from a random model."""
    write_job(folder, seed=1, demonstrations=50, train=200, heldout=20)
    stages = (
        f'[[stages]]\nname = "grpo"\nsteps = {steps}\nalgorithm = {{ name = "grpo", beta = 0.01 }}\n'
        "optim = { lr = 1e-4 }\n"
    )
    sections = PLAIN_ROLLOUT + UNFILTERED
    return train(write_recipe(folder, name="tiny", seed=1, model="model", stages=stages, sections=sections, every=0))


def recorded_share(run: Path) -> tuple[float, float, float]:
    """(seconds_record, seconds_step, their ratio) of a run: sums over its steps, per step.

    Raises:
        SystemExit: if its metrics do not have both numbers.
    """
    rows = [row for row in read_run(run).metrics if row.get("seconds_record") and row.get("seconds_step")]
    if not rows:
        raise SystemExit(f"{run} has no seconds_record in its metrics; give a run that this version has trained")
    record, step = (sum(row[name] for row in rows) / len(rows) for name in ("seconds_record", "seconds_step"))
    return record, step, record / step


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a line for each measurement, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="steps that are recorded (60)")
    parser.add_argument("--step-seconds", type=float, default=8.0, help="time of a step of the bundled task (8)")
    parser.add_argument("--tiny-steps", type=int, default=20, help="steps of the tiny run; 0 = leave it out (20)")
    parser.add_argument("--run", type=Path, help="only the share of this run, by its own metrics")
    parser.add_argument("--output", type=Path, default=RESULT, help="result file (benchmarks/results)")
    args = parser.parse_args(arguments)
    if args.run is not None:
        record, step, share = recorded_share(args.run)
        say(f"{args.run.name}: {1000 * record:.1f} ms of a step of {step:.2f} s are recording, {share:.2%}")
        return
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        sides = {"files": False} | ({"files and TensorBoard": True} if find_spec("tensorboard") else {})
        bundled_cost(Path(scratch), steps=3, tensorboard=len(sides) > 1)  # imports, and codecs that begin
        for name, tensorboard in sides.items():
            cost = bundled_cost(Path(scratch), steps=args.steps, tensorboard=tensorboard)
            waited, cpu = cost.waited / args.step_seconds, cost.cpu / args.step_seconds
            results[name] = {"waited_seconds": cost.waited, "cpu_seconds": cost.cpu, "waited": waited, "cpu": cpu}
            say(
                f"bundled, {name}: waits {1000 * cost.waited:.1f} ms a step, {waited:.2%} of {args.step_seconds:g} s; "
                f"CPU of all threads {1000 * cost.cpu:.1f} ms, {cpu:.2%}; target {TARGET:.0%}"
            )
        if args.tiny_steps:
            record, step, share = recorded_share(tiny_run(Path(scratch) / "tiny", args.tiny_steps))
            results["tiny"] = {"waited_seconds": record, "step_seconds": step, "waited": share}
            say(f"tiny, files: {1000 * record:.1f} ms of a step of {1000 * step:.0f} ms are recording, {share:.1%}")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    say(f"written: {args.output}")


if __name__ == "__main__":
    main()
