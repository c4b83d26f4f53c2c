"""Held-out evaluation of a recipe's tasks, and its row in the summary."""

from __future__ import annotations

import resource
import sys

import torch

from groupwise.config import Recipe
from groupwise.launch.assemble import Policy, RenderedSets, RenderedTasks, evaluation_sampling
from groupwise.launch.display import Display
from groupwise.runs import StageSummary, clustered_wilson, wilson
from groupwise.training import Evaluation, evaluate_tasks
from groupwise.training.batch import derive_seed
from groupwise.types import Verifier


def evaluate_heldout(
    recipe: Recipe, policy: Policy, verifier: Verifier, sets: RenderedSets, display: Display, title: str
) -> tuple[Evaluation, RenderedTasks]:
    """Samples the held-out tasks (the first evaluation.num_prompts of them); returns them beside what they showed."""
    section = recipe.evaluation
    num = section.num_prompts or len(sets.heldout.tasks)
    heldout = RenderedTasks(tasks=sets.heldout.tasks[:num], prompts=sets.heldout.prompts[:num])
    with display.working(title) as advance:
        evaluation = evaluate_tasks(
            policy.engine,
            verifier,
            heldout.tasks,
            heldout.prompts,
            samples_per_prompt=section.samples_per_prompt,
            greedy=section.greedy,
            sampling=evaluation_sampling(recipe),
            seed=derive_seed(recipe.seed, "evaluation"),
            progress=advance,
        )
    return evaluation, heldout


def summarise(name: str, evaluation: Evaluation, heldout: RenderedTasks, train_seconds: float = 0.0) -> StageSummary:
    """An evaluation as a row of the table: rates with 95 % intervals, lengths of right and wrong answers."""
    rates = evaluation.prompt_rates
    greedy = evaluation.greedy_outcomes
    if not rates:  # only greedy was asked for: it stands in both places
        rates = [float(outcome) for outcome in greedy]
    return StageSummary(
        name=name,
        pass_rate=sum(rates) / len(rates) if rates else float("nan"),
        interval=clustered_wilson(rates, max(1, evaluation.samples_per_prompt)),
        greedy_pass_rate=sum(greedy) / len(greedy) if greedy else None,
        greedy_interval=wilson(sum(greedy), len(greedy)) if greedy else None,
        num_prompts=len(heldout.tasks),
        mean_length_right=evaluation.mean_length(right=True),
        mean_length_wrong=evaluation.mean_length(right=False),
        truncated_frac=evaluation.truncated_frac,
        seconds=train_seconds + evaluation.seconds,
    )


def peak_memory_bytes() -> int:
    """The most memory that this process has held: on the GPU where there is one, else resident in the host."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
