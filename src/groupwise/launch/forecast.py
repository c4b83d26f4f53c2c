"""What a stage is expected to take, made before its first step, and how far off that was, told after its last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

from groupwise.config import Recipe
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.stage import StageSection
from groupwise.curation import JEFFREYS, fit_prior
from groupwise.errors import ConfigError
from groupwise.launch.hardware_choice import chosen_hardware
from groupwise.launch.plan_alternatives import duration
from groupwise.launch.plan_inputs import Lengths, lengths_of_run, shared_length
from groupwise.launch.plan_stages import plan_stage
from groupwise.planning.compute import GENERATION
from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import ModelShape, from_config
from groupwise.types import Group

SMALLEST_PARAMS = 20_000_000
"""Below it no forecast is made: what takes the time of a small model is not its operations, which are all that is
measured."""
_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One stage as planned.

    Example:
        Forecast(steps=30, generate_s=4.4, train_s=3.1, peak_bytes=4_400_000_000, live_share=0.7)
    """

    steps: int
    generate_s: float
    """Sampling, a step."""
    train_s: float
    """Forward, backward and update, a step."""
    peak_bytes: int
    live_share: float | None = None
    """Share of the groups that train; None where groups are no part of the method."""

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return self.steps * (self.generate_s + self.train_s)

    def __str__(self) -> str:
        return f"forecast {duration(self.seconds)}, {self.peak_bytes / _GB:.1f} GB"


def measured_hardware() -> Hardware | None:
    """This machine's measured rates; None where `groupwise doctor --measure` has not run, or its file is unreadable."""
    try:
        return chosen_hardware("this")
    except ConfigError:
        return None


def forecast_stage(
    recipe: Recipe,
    stage: StageSection,
    shape: ModelShape,
    lengths: Lengths,
    hardware: Hardware,
    *,
    live_share: float,
) -> Forecast:
    """The plan of one stage in the two parts that a step reports."""
    plan = plan_stage(recipe, stage, shape, lengths, hardware, live_share=live_share)
    phases = {phase.name: phase.seconds for phase in plan.compute.phases}
    generate_s = sum(phases.get(name, 0.0) for name in GENERATION)
    return Forecast(
        steps=stage.steps,
        generate_s=generate_s,
        train_s=sum(phases.values()) - generate_s,
        peak_bytes=plan.memory.total,
        live_share=live_share if plan.method == "grpo" else None,
    )


def sampled_lengths(groups: Sequence[Group], num_rows: int) -> tuple[float, float] | None:
    """(mean length, expected longest of num_rows completions) in tokens, from completions of the same weights.

    With the N lengths in order, l_1 <= ... <= l_N, the longest of n drawn with replacement is on average
    sum_i l_i ((i / N)^n - ((i - 1) / N)^n). None where nothing was sampled.
    """
    lengths = sorted(len(r.completion.token_ids) for group in groups for r in group.rollouts)
    if not lengths:
        return None
    total = len(lengths)
    longest = sum(
        length * ((i / total) ** num_rows - ((i - 1) / total) ** num_rows) for i, length in enumerate(lengths, start=1)
    )
    return fmean(lengths), longest


def shared_by_siblings(groups: Sequence[Group], group_size: int) -> float:
    """Tokens that a completion has in common with the next one of its group, in the order of their tokens, on average.

    A group of n completions of mean length l has N(n) distinct tree nodes, which grow as the vocabulary of a text does
    (Heaps' law):

        N(n) = l n^a        a from the sampled groups        shared = (G l - N(G)) / (G - 1)

    Groups with right and wrong answers, which are the ones that train, share less than the others: only they are
    looked at where there are any. 0 where no group has two completions.
    """
    several = [g for g in groups if len(g.rollouts) > 1]
    several = [g for g in several if not g.is_dead] or several
    ids = [sorted(r.completion.token_ids for r in g.rollouts) for g in several]
    length = fmean(len(row) for rows in ids for row in rows) if ids else 0.0
    if length == 0:
        return 0.0
    size = fmean(len(rows) for rows in ids)
    nodes = size * length - fmean(sum(shared_length(pair) for pair in pairwise(rows)) for rows in ids)
    growth = math.log(nodes / length) / math.log(size)
    return (group_size * length - length * group_size**growth) / (group_size - 1)


@dataclass(slots=True)
class Forecaster:
    """Makes the forecasts of a run's stages, each from the newest completions of the weights that it starts from.

    Example:
        forecaster.saw(evaluation.groups)
        forecast = forecaster.stage(stage, counts, task_ids)
    """

    recipe: Recipe
    hardware: Hardware
    shape: ModelShape
    prompts: Sequence[Sequence[int]]
    demonstrations: Sequence[int]
    """Their lengths in tokens."""
    pairs: Sequence[tuple[int, float]] = ()
    """Of each preference pair: tokens of its prompt, mean tokens of its two completions."""
    sampled: Sequence[Group] = ()
    measured: list[Group] = field(default_factory=list)
    """Groups of training prompts, sampled from the present weights."""

    def saw(self, groups: Sequence[Group]) -> None:
        """Completions of new weights, on held-out prompts."""
        self.sampled, self.measured = groups or self.sampled, []

    def saw_training(self, groups: Sequence[Group]) -> None:
        """Completions of the same weights on training prompts, which tell more of what a stage will sample."""
        self.measured += groups

    def stage(self, stage: StageSection, counts: Mapping[str, tuple[int, int]], task_ids: Sequence[str]) -> Forecast:
        """The forecast of a stage that samples task_ids; counts are (solved, scored) of all prompts that were measured,
        those too that are set aside."""
        rollout = self.recipe.rollout
        section = stage.algorithm
        size = section.completions_per_prompt if isinstance(section, PpoSection) else rollout.group_size
        wanted = set(task_ids)
        sampled = [group for group in self.measured if group.task.id in wanted] or self.sampled
        found = sampled_lengths(sampled, rollout.prompts_per_step * size)
        lengths = lengths_of_run(
            self.prompts,
            self.demonstrations,
            rollout.max_completion_tokens,
            completion=found[0] if found else None,
            longest=found[1] if found else None,
            sibling_prefix=shared_by_siblings(sampled, rollout.group_size) if rollout.group_size > 1 else 0.0,
            pairs=self.pairs,
        )
        live_share = expected_live_share(counts, task_ids, rollout.group_size)
        return forecast_stage(self.recipe, stage, self.shape, lengths, self.hardware, live_share=live_share)


def expected_live_share(counts: Mapping[str, tuple[int, int]], task_ids: Sequence[str], group_size: int) -> float:
    """Share of the next groups of these tasks with right and wrong answers, their rates as unsure as counts leave them.

    All counts together tell what is usual (the prior); a task without a count has that. Where nothing was counted a U
    shape is assumed, as in a plan without a ledger.
    """
    prior = fit_prior(list(counts.values())) if counts else JEFFREYS
    unknown = prior.posterior(solved=0, scored=0)
    if not task_ids:
        return 1 - unknown.zero_variance_probability(group_size)
    known = Counter(
        counts.get(task_id) for task_id in task_ids
    )  # some thousand tasks have a few dozen different counts
    dead = sum(
        number
        * (prior.posterior(solved=pair[0], scored=pair[1]) if pair else unknown).zero_variance_probability(group_size)
        for pair, number in known.items()
    )
    return 1 - dead / len(task_ids)


def forecaster(
    recipe: Recipe,
    config: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    demonstrations: Sequence[int],
    pairs: Sequence[tuple[int, float]] = (),
) -> Forecaster | None:
    """None where this machine was not measured, or the model (config: its config.json) is very small or unknown."""
    hardware = measured_hardware()
    if hardware is None:
        return None
    try:
        shape = from_config(config)
    except ConfigError:
        return None
    if shape.num_params < SMALLEST_PARAMS:
        return None
    return Forecaster(
        recipe=recipe,
        hardware=hardware,
        shape=shape,
        prompts=prompts,
        demonstrations=demonstrations,
        pairs=pairs,
    )


@dataclass(slots=True)
class Meter:
    """Adds up what a stage really takes, step by step."""

    steps: int = 0
    generate_s: float = 0.0
    train_s: float = 0.0
    num_groups: float = 0.0
    live_groups: float = 0.0

    def add(self, metrics: Mapping[str, float]) -> None:
        """One step's metrics."""
        self.steps += 1
        self.generate_s += metrics.get("seconds_generate", 0.0)
        self.train_s += metrics.get("seconds_train", 0.0) + metrics.get("seconds_score", 0.0)
        self.num_groups += metrics.get("num_groups", 0.0)
        self.live_groups += metrics.get("live_groups", 0.0)

    def compared(self, forecast: Forecast, peak_bytes: int) -> dict[str, dict[str, float]]:
        """Expected and measured numbers by name, of the steps that were made."""
        found = {
            "seconds_generate": (self.steps * forecast.generate_s, self.generate_s),
            "seconds_train": (self.steps * forecast.train_s, self.train_s),
            "peak_bytes": (float(forecast.peak_bytes), float(peak_bytes)),
        }
        if self.num_groups and forecast.live_share is not None:
            found["live_share"] = (forecast.live_share, self.live_groups / self.num_groups)
        return {name: {"forecast": a, "measured": b} for name, (a, b) in found.items() if a or b}


def errors_line(name: str, compared: Mapping[str, Mapping[str, float]]) -> str:
    """A forecast's errors as one sentence: "grpo against its forecast: sampling 2.2 min (forecast 2.4 min, +9%)"."""
    shown = {
        "seconds_generate": ("sampling", duration),
        "seconds_train": ("training", duration),
        "peak_bytes": ("peak memory", lambda v: f"{v / _GB:.1f} GB"),
        "live_share": ("live groups", lambda v: f"{v:.0%}"),
    }
    parts = []
    for key, pair in compared.items():
        title, show = shown[key]
        off = f", {pair['forecast'] / pair['measured'] - 1:+.0%}" if pair["measured"] else ""
        parts.append(f"{title} {show(pair['measured'])} (forecast {show(pair['forecast'])}{off})")
    return f"{name} against its forecast: " + "; ".join(parts)
