"""Ten steps of a method over the whole loop on a tiny model, as numbers: what golden/*.json keeps."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from training_cases import ListRecorder, small_policy, tasks_and_prompts, verdict, weights

from groupwise.config import GrpoSection, parse_recipe
from groupwise.curation import PromptLedger
from groupwise.launch.assemble_grpo import grpo_options
from groupwise.models import tree_scores
from groupwise.rollout import Sampling, TorchEngine
from groupwise.training import OptimOptions, StageOptions, grpo, run_stage
from groupwise.training.grpo import StepSampling
from groupwise.types import Task, Verdict

GOLDEN = Path(__file__).with_name("golden")
STEPS, NUM_TASKS, GROUP_SIZE, MAX_TOKENS = 10, 4, 6, 8
METRICS = ("loss", "grad_norm", "reward_mean", "num_trained_tokens", "kl_to_ref", "clipped_low", "clipped_high")

METHODS = {
    "grpo": 'preset = "grpo"',
    "dr_grpo": 'preset = "dr_grpo"',
    "dapo": 'preset = "dapo", loss = { epochs = 2 }',
    "gspo": 'preset = "gspo", loss = { epochs = 2, minibatches = 2 }',
}
"""The settings of each curve."""

RECIPE = """\
name = "golden"
[model]
name = "model"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
kind = "math"
[rollout]
max_completion_tokens = %d
[[stages]]
steps = 1
algorithm = { name = "grpo", %s }
optim = { lr = 1e-3 }
"""


class MostlyEven:
    """Solved where more than half of the tokens have an even number."""

    def judge(self, task: Task, completion_text: str) -> Verdict:
        ids = [int(number) for number in completion_text.split()]
        return verdict(float(sum(i % 2 == 0 for i in ids) * 2 > len(ids)))

    def gold(self, task: Task) -> str:
        return "2"


def curve(method: str, folder: Path) -> list[dict[str, float]]:
    """One row a step: METRICS, and the norm of all weights at the end in the last row."""
    recipe = parse_recipe(RECIPE % (MAX_TOKENS, METHODS[method]))
    section = recipe.stages[0].algorithm
    assert isinstance(section, GrpoSection)
    policy, recorder = small_policy(), ListRecorder()
    tasks, prompts = tasks_and_prompts(NUM_TASKS)
    algorithm = grpo(
        grpo_options(recipe, section, None),
        engine=TorchEngine(policy, max_rows=64),
        verifier=MostlyEven(),
        tasks=tasks,
        prompts=prompts,
        ledger=PromptLedger([task.id for task in tasks], seed=0, rule=None),
        step_sampling=StepSampling(prompts_per_step=NUM_TASKS, group_size=GROUP_SIZE),
        sampling=Sampling(max_tokens=MAX_TOKENS),
        seed=3,
    )
    # a large eps keeps Adam from blowing up the rounding of weights that hardly learn
    optim = OptimOptions(lr=0.005, eps=1e-2)
    run_stage(
        StageOptions(name="golden", num_steps=STEPS, optim=optim, checkpoints=folder),
        algorithm,
        policy,
        scores=tree_scores,
        recorder=recorder,
        policy_version=0,
        on_new_weights=lambda version: None,
        on_step=lambda step, metrics: None,
        should_stop=lambda: False,
    )
    rows = [{name: float(row[name]) for name in METRICS if name in row} for row in recorder.rows if "loss" in row]
    rows[-1]["weight_norm"] = torch.linalg.vector_norm(weights(policy.model).double()).item()
    return rows


def record(folder: Path) -> None:
    """Writes the curve of every method."""
    GOLDEN.mkdir(exist_ok=True)
    for method in METHODS:
        rows = curve(method, folder / method)
        (GOLDEN / f"{method}.json").write_text(
            json.dumps({"settings": METHODS[method], "steps": rows}, indent=1) + "\n"
        )
