"""Steps of the real loop with its time attributed: the worker of `overhead.py`.

The loop, the engine, the bundled data, the SQL verifier in its sandbox and the recorder are those of a run. Only the
reward is another: an untrained model answers nothing right, all groups would be dead and nothing would be trained. So
the verifier judges each completion as ever, and its reward is then replaced by one that differs inside a group. The
model has no end tokens, so that every completion has the agreed length.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from attribution import Seconds, TensorSeconds, timed
from workload import LEARNING_RATE, TEMPERATURE, parse_worker_arguments, peak_rss_bytes

from groupwise import bundled, load_recipe
from groupwise.curation import PromptLedger
from groupwise.launch.assemble import build_tasks, render_sets
from groupwise.launch.verifiers import build_verifier
from groupwise.models import load_model, padded_scores, tree_scores, why_no_tree
from groupwise.rollout import Sampling, TorchEngine
from groupwise.runs import FileRecorder, RunDirectory
from groupwise.training import StageOptions, run_stage
from groupwise.training.grpo import GrpoOptions, StepSampling, grpo
from groupwise.training.optim import OptimOptions
from groupwise.types import Group, Status, Task, Verdict, Verifier


class LivelyVerifier:
    """Judges with a real verifier and then gives a reward that depends on the text, so that no group is dead."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """The real verdict's reason, with a reward made of the characters' codes."""
        verdict = self._verifier.judge(task, completion_text)
        reward = sum(ord(character) % 100 for character in completion_text) / (100 * max(len(completion_text), 1))
        return Verdict(status=Status.SCORED, reward=reward, outcome=reward > 0.5, reason=verdict.reason)

    def gold(self, task: Task) -> str:
        """The real verifier's."""
        return self._verifier.gold(task)


class TimedRecorder:
    """A file recorder that adds its time to "recording"."""

    def __init__(self, recorder: FileRecorder, seconds: Seconds) -> None:
        self._metrics = timed(seconds, "recording", recorder.metrics)
        self._rollouts = timed(seconds, "recording", recorder.rollouts)
        self._event = timed(seconds, "recording", recorder.event)

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """See Recorder."""
        self._metrics(stage, step, values)

    def rollouts(
        self,
        stage: str,
        step: int,
        groups: Sequence[Group],
        advantages: Sequence[Sequence[float]],
        *,
        left_out: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """See Recorder."""
        self._rollouts(stage, step, groups, advantages, left_out=left_out)

    def event(self, name: str, payload: Mapping[str, Any]) -> None:
        """See Recorder."""
        self._event(name, payload)


def main() -> None:
    """Load, run the stage, print how the time of each step divides."""
    options = {"steps": (3, "steps of the loop; the first is not counted"), "watch": (1, "0: only time the steps")}
    model_folder, workload, args = parse_worker_arguments(__doc__, options)
    recipe = load_recipe(bundled.path("recipe.toml"))
    sql = build_verifier(recipe)  # before torch computes: its worker processes start small
    try:
        sets, _ = build_tasks(recipe, sql)
        loaded = load_model(str(model_folder), device="cpu", dtype="float32")
        rendered = render_sets(recipe, sets, loaded)
        has_tree = why_no_tree(loaded.model) is None
        engine = TorchEngine(replace(loaded, end_token_ids=()), use_tree=has_tree)
        algorithm = grpo(
            GrpoOptions(),
            engine=engine,
            verifier=LivelyVerifier(sql),
            tasks=rendered.train.tasks,
            prompts=rendered.train.prompts,
            ledger=PromptLedger([task.id for task in rendered.train.tasks], seed=workload.seed),
            step_sampling=StepSampling(prompts_per_step=workload.num_prompts, group_size=workload.group_size),
            sampling=Sampling(max_tokens=workload.completion_tokens, temperature=TEMPERATURE),
            seed=workload.seed,
        )
        seconds = Seconds()
        steps: list[dict[str, float]] = []
        started = time.perf_counter()

        def on_step(step: int, metrics: dict[str, float]) -> None:
            nonlocal started
            taken = {"total": time.perf_counter() - started, "judging": metrics["seconds_judge"], **seconds.take()}
            steps.append(taken)
            started = time.perf_counter()

        with tempfile.TemporaryDirectory() as folder:
            recorder = FileRecorder(RunDirectory.create(folder, "overhead"))
            watch = TensorSeconds(seconds)
            if args.watch:
                watch.watch_sampler()
                watch.__enter__()
            outcome = run_stage(
                StageOptions(
                    name="grpo",
                    num_steps=args.steps,
                    optim=OptimOptions(lr=LEARNING_RATE),
                    checkpoints=Path(folder) / "checkpoints",
                ),
                algorithm,
                loaded,
                scores=tree_scores if has_tree else padded_scores,
                recorder=TimedRecorder(recorder, seconds),
                policy_version=0,
                on_new_weights=engine.set_policy_version,
                on_step=on_step,
                should_stop=lambda: False,
            )
            if outcome.diagnosis:
                raise ValueError(f"groupwise: a step trained nothing, so nothing is measured. {outcome.diagnosis}")
            if args.watch:
                watch.__exit__(None, None, None)
    finally:
        sql.close()
    print_attribution(steps[1:], threads=torch.get_num_threads())


def print_attribution(steps: Sequence[Mapping[str, float]], *, threads: int) -> None:
    """Print the report: seconds of each warm step, and the means of their parts. "other" is what no part explains."""
    parts = {
        name: sum(step.get(name, 0.0) for step in steps) / len(steps)
        for name in ("total", "tensors", "sampling", "judging", "recording")
    }
    parts["other"] = parts["total"] - sum(seconds for name, seconds in parts.items() if name != "total")
    report = {
        "step_seconds": [step["total"] for step in steps],
        "seconds": parts["total"],
        "parts": parts,
        "share_outside": (parts["total"] - parts["tensors"]) / parts["total"],
        "threads": threads,
        "peak_rss_bytes": peak_rss_bytes(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
