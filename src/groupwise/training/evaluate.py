"""Held-out evaluation: sampled and greedy pass rates, and the length of right and wrong answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from groupwise.rollout import Engine, Sampling, collect_groups
from groupwise.rollout.engine import Progress
from groupwise.types import Group, Prompt, Stop, Task, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the held-out tasks showed of one set of weights.

    Example:
        Evaluation(groups=(...), greedy_groups=(...), samples_per_prompt=4, seconds=61.0)
    """

    groups: tuple[Group, ...]
    """Sampled completions, samples_per_prompt a task; empty where none were asked for."""
    greedy_groups: tuple[Group, ...]
    """One greedy completion a task; empty where greedy was off."""
    samples_per_prompt: int
    seconds: float

    @property
    def prompt_rates(self) -> list[float]:
        """Share solved of each prompt's scored samples, for prompts with a scored sample."""
        return [g.num_solved / g.num_scored for g in self.groups if g.num_scored]

    @property
    def greedy_outcomes(self) -> list[bool]:
        """Solved or not of each scored greedy completion."""
        return [g.num_solved == 1 for g in self.greedy_groups if g.num_scored]

    def mean_length(self, *, right: bool) -> float | None:
        """Mean tokens of the sampled completions that were right (or wrong); None when there are none."""
        groups = self.groups or self.greedy_groups
        lengths = [len(r.completion.token_ids) for g in groups for r in g.rollouts if r.verdict.outcome is right]
        return fmean(lengths) if lengths else None

    @property
    def truncated_frac(self) -> float:
        """Share of completions cut at the token limit."""
        return fmean(r.completion.stop is Stop.LENGTH for g in self.groups or self.greedy_groups for r in g.rollouts)


def evaluate_tasks(
    engine: Engine,
    verifier: Verifier,
    tasks: Sequence[Task],
    prompts: Sequence[Prompt],
    *,
    samples_per_prompt: int,
    greedy: bool,
    sampling: Sampling,
    seed: int,
    progress: Progress | None = None,
) -> Evaluation:
    """Samples each task samples_per_prompt times and once greedily. The same seed at every call: differences between
    two sets of weights are then not differences of luck."""
    started = time.monotonic()
    total = len(tasks) * (samples_per_prompt + greedy)

    def collect(group_size: int, how: Sampling, offset: int) -> tuple[Group, ...]:
        groups = collect_groups(
            engine,
            verifier,
            tasks,
            prompts,
            group_size=group_size,
            sampling=how,
            seed=seed,
            progress=_shifted(progress, offset, total),
        )
        return tuple(groups.groups)

    sampled = collect(samples_per_prompt, sampling, 0) if samples_per_prompt else ()
    greedy_groups = collect(1, replace(sampling, temperature=0.0), len(tasks) * samples_per_prompt) if greedy else ()
    return Evaluation(
        groups=sampled,
        greedy_groups=greedy_groups,
        samples_per_prompt=samples_per_prompt,
        seconds=time.monotonic() - started,
    )


def _shifted(progress: Progress | None, offset: int, total: int) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, _: progress(offset + done, total)
