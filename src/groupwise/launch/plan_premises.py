"""What every variant of a recipe is planned with, so that a plan and its alternatives differ in the recipe alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from groupwise.config import Recipe
from groupwise.config.stage import StageSection
from groupwise.curation import PassRate
from groupwise.launch.plan_inputs import Lengths
from groupwise.launch.plan_stages import StagePlan, evaluation_seconds, plan_stage
from groupwise.planning.groups import informative_fraction
from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.pass_rates import PassRates


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The model, its data and the machine.

    Example:
        premises.seconds(recipe, premises.stages(recipe))
    """

    shape: ModelShape
    lengths: Lengths
    hardware: Hardware
    rates: PassRates
    kept: tuple[PassRate, ...] = ()
    """Posteriors of the training prompts that a ledger keeps; empty where there is none."""
    is_measured: bool
    """False: the rates are assumed."""
    num_train: int = 0
    num_pairs: int = 0
    num_heldout: int = 0
    ranks: int = 1
    """Devices that share the memory."""

    def live_share(self, recipe: Recipe) -> float:
        """Share of a GRPO stage's groups that are expected to train.

        Of the prompts that are kept, where a ledger says which and curation is on; their rates are as unsure as the
        counts leave them.
        """
        group_size = recipe.rollout.group_size
        if self.kept and recipe.curation.enabled:
            return 1 - fmean(rate.zero_variance_probability(group_size) for rate in self.kept)
        return informative_fraction(self.rates, group_size)

    def stage(self, recipe: Recipe, stage: StageSection, *, prefix_sharing: bool = True) -> StagePlan:
        """The plan of one stage, whether the recipe has it or not."""
        return plan_stage(
            recipe,
            stage,
            self.shape,
            self.lengths,
            self.hardware,
            live_share=self.live_share(recipe),
            num_train=0 if recipe.curation.ledger else self.num_train,
            num_pairs=self.num_pairs,
            ranks=self.ranks,
            prefix_sharing=prefix_sharing,
        )

    def stages(self, recipe: Recipe) -> tuple[StagePlan, ...]:
        """The plan of every stage."""
        return tuple(self.stage(recipe, stage) for stage in recipe.stages)

    def evaluation_s(self, recipe: Recipe) -> float:
        """Seconds of one held-out evaluation."""
        return evaluation_seconds(recipe, self.shape, self.lengths, self.hardware, self.num_heldout)

    def seconds(self, recipe: Recipe, stages: tuple[StagePlan, ...]) -> float:
        """Of the whole run: its stages with what comes before them, and its evaluations."""
        return math.fsum(stage.seconds for stage in stages) + num_evaluations(recipe) * self.evaluation_s(recipe)


def num_evaluations(recipe: Recipe) -> int:
    """One before the first stage, one after each, and those inside the stages."""
    every = recipe.evaluation.every
    inside = sum((stage.steps - 1) // every for stage in recipe.stages) if every else 0
    return 1 + len(recipe.stages) + inside
