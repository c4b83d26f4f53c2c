"""Held-out evaluation: sampled and greedy pass rates, and the length of right and wrong answers.

What counts as solved is decided here, once: every rate, length and record that comes from an `Evaluation` goes by it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from groupwise.rollout import Engine, Sampling, collect_groups
from groupwise.rollout.engine import Progress
from groupwise.types import Group, Prompt, Rollout, Stop, Task, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the held-out tasks showed of one set of weights.

    Completions that could not be scored are neither right nor wrong: they are part of no rate, and are counted.

    Example:
        Evaluation(groups=(...), greedy_groups=(...), samples_per_prompt=4, seconds=61.0)
    """

    groups: tuple[Group, ...]
    """Sampled completions, samples_per_prompt a task; empty where none were asked for."""
    greedy_groups: tuple[Group, ...]
    """One greedy completion a task; empty where greedy was off."""
    samples_per_prompt: int
    seconds: float
    success_reward: float | None = None
    """The outcomes above are reward >= this; None = they are the verifier's."""
    sampling: Sampling | None = None
    """How `groups` were drawn; greedy_groups the same way at temperature 0."""
    seed: int | None = None
    """What both were drawn with."""

    @property
    def success(self) -> str:
        """What counts as solved: "outcome", or "reward >= 0.5"."""
        return "outcome" if self.success_reward is None else f"reward >= {self.success_reward:g}"

    @property
    def counts(self) -> list[tuple[int, int]]:
        """(solved, scored) of each prompt's samples."""
        return [(g.num_solved, g.num_scored) for g in self.groups]

    @property
    def prompt_rates(self) -> list[float]:
        """Share solved of each prompt's scored samples, for prompts with a scored sample."""
        return [g.num_solved / g.num_scored for g in self.groups if g.num_scored]

    @property
    def greedy_outcomes(self) -> list[bool]:
        """Solved or not of each scored greedy completion."""
        return [g.num_solved == 1 for g in self.greedy_groups if g.num_scored]

    @property
    def num_unscored(self) -> int:
        """Sampled completions that nobody could judge, those among them that the engine gave up on."""
        return sum(len(g.rollouts) - g.num_scored for g in self.groups)

    @property
    def num_greedy_unscored(self) -> int:
        """The same of the greedy ones."""
        return sum(len(g.rollouts) - g.num_scored for g in self.greedy_groups)

    def mean_length(self, *, right: bool) -> float | None:
        """Mean tokens of the sampled completions that were right (or wrong); None when there are none, and where the
        engine tells no lengths."""
        lengths = [r.completion.num_tokens for r in self._shown if r.verdict.outcome is right]
        return fmean(lengths) if any(lengths) else None

    @property
    def truncated_frac(self) -> float:
        """Share of completions cut at the token limit, of those that the engine finished; 0 where there are none."""
        finished = [r.completion.stop for r in self._shown if r.completion.stop is not Stop.ABORTED]
        return fmean(stop is Stop.LENGTH for stop in finished) if finished else 0.0

    @property
    def _shown(self) -> list[Rollout]:
        """The sampled completions, or the greedy ones where only those were asked for."""
        return [rollout for group in self.groups or self.greedy_groups for rollout in group.rollouts]


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
    success_reward: float | None = None,
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
        return tuple(with_success(group, success_reward) for group in groups.groups)

    sampled = collect(samples_per_prompt, sampling, 0) if samples_per_prompt else ()
    greedy_groups = collect(1, replace(sampling, temperature=0.0), len(tasks) * samples_per_prompt) if greedy else ()
    return Evaluation(
        groups=sampled,
        greedy_groups=greedy_groups,
        samples_per_prompt=samples_per_prompt,
        seconds=time.monotonic() - started,
        success_reward=success_reward,
        sampling=sampling,
        seed=seed,
    )


def with_success(group: Group, success_reward: float | None) -> Group:
    """The group with outcome = reward >= success_reward in place of the verifier's; None leaves it as it is.

    What could not be scored stays so, and an invalid completion (reward 0) is not solved at any threshold above 0.
    """
    if success_reward is None:
        return group

    def decided(rollout: Rollout) -> Rollout:
        reward = rollout.verdict.reward
        if reward is None:
            return rollout
        return replace(rollout, verdict=replace(rollout.verdict, outcome=reward >= success_reward))

    return replace(group, rollouts=tuple(decided(rollout) for rollout in group.rollouts))


def _shifted(progress: Progress | None, offset: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(offset + done, total)
