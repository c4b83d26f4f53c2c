"""`groupwise plan`: what a recipe will teach and cost, worked out from its files before anything is spent.

    signal       group sizes against the distribution of pass rates
    cost         operations, seconds and price of every stage, phase by phase; memory part by part
    methods      SFT, DPO, PPO and GRPO on the same model and prompts; which of them suits what there is
    evaluation   what the held-out set can show

Nothing is sampled and no weights are read; torch is not imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.config import ComposeVerifierSection, Recipe
from groupwise.config.verifier_reward_model import RewardModelVerifierSection
from groupwise.data import TaskSets, load_pairs, load_tasks
from groupwise.errors import ConfigError, DataError
from groupwise.launch.hardware_choice import chosen_hardware
from groupwise.launch.model_facts import model_facts
from groupwise.launch.plan_alternatives import Alternative, alternatives, binding_limit
from groupwise.launch.plan_inputs import Lengths, planned_lengths
from groupwise.launch.plan_ledger import Measured, read_measured
from groupwise.launch.plan_methods import MethodCost, method_costs
from groupwise.launch.plan_premises import Premises, num_evaluations
from groupwise.launch.plan_stages import StagePlan, has_reward_model
from groupwise.planning.evaluation_size import EvaluationDesign, difference_shown, prompts_needed
from groupwise.planning.groups import GroupOutlook, group_outlook, prompts_in_budget
from groupwise.planning.hardware import Hardware, named_hardware
from groupwise.planning.method import MethodChoice, Situation, choose_method
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.pass_rates import BetaRates, PassRates

GROUP_SIZES = (2, 4, 8, 16, 32, 64)
ASSUMED_RATES = BetaRates(alpha=0.5, beta=0.5)
"""Pass rates where none are measured: as many prompts near 0 and near 1 as a U shape has. Not a forecast of yours."""
DEFAULT_CARD = "h100"
"""Planned for where this machine was not measured and no card is named."""
WANTED_DIFFERENCES = (0.02, 0.05, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a plan says: make_plan(load_recipe("recipe.toml")).stages[0].compute.run_seconds."""

    name: str
    shape: ModelShape
    hardware: Hardware
    ranks: int
    """Devices that share the memory; seconds are those of one."""
    lengths: Lengths
    rates: PassRates
    rates_source: str
    """Where the pass rates come from, for the reader."""
    rates_measured: bool
    live_share: float | None
    """Share of a GRPO stage's groups that are expected to train; None without such a stage."""
    groups: tuple[GroupOutlook, ...]
    stages: tuple[StagePlan, ...]
    seconds: float
    """Of the whole run: stages, what comes before them, evaluations."""
    evaluation_s: float
    """One held-out evaluation."""
    num_evaluations: int
    methods: tuple[MethodCost, ...]
    method: MethodChoice
    designs: tuple[EvaluationDesign, ...]
    """Held-out prompts for the wanted differences."""
    heldout: EvaluationDesign | None
    """What this recipe's held-out prompts can show; None where they are too few to show any difference."""
    num_heldout: int
    binding: str
    """The limit that binds, in one sentence."""
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...] = ()

    @property
    def price(self) -> float | None:
        """Of the whole run, in the currency of the hardware's price; None where there is none."""
        rate = self.hardware.price_per_hour
        return None if rate is None else self.seconds / 3600 * rate

    @property
    def peak_bytes(self) -> int:
        """On each device, of the stage that needs the most memory."""
        return max(stage.memory.total for stage in self.stages)


def make_plan(
    recipe: Recipe,
    *,
    ledger: str | None = None,
    hardware: str | None = None,
    price_per_hour: float | None = None,
    pass_rates: Sequence[float] | None = None,
    budget: int | None = None,
    ranks: int = 1,
) -> Plan:
    """The plan of a recipe.

    Pass rates come from `pass_rates`, else from the ledger that `groupwise curate` wrote (the argument, or
    curation.ledger), else a U shape is assumed, and said. hardware is a card's name, "this" or a .json file; None is
    what `groupwise doctor --measure` measured here, or else an H100. budget is the rollouts for which group sizes are
    compared; None: those of a step.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    facts = model_facts(recipe)
    machine, note = _hardware(hardware, price_per_hour)
    sets = load_tasks(recipe.data, recipe.folder, recipe.seed)
    pairs = load_pairs(recipe.data, recipe.folder)
    if not (sets.train or sets.demonstrations or pairs):
        raise DataError("there are no training tasks to plan for; check [data]")
    path = ledger or recipe.curation.ledger
    measured = None if path is None else read_measured(recipe, recipe.resolve(path), sets.train)
    counted = planned_lengths(recipe, sets, facts.count_tokens, pairs)
    rates, source = _rates(pass_rates, measured)
    premises = Premises(
        shape=facts.shape,
        lengths=counted if measured is None else measured.lengths(counted),
        hardware=machine,
        rates=rates,
        kept=measured.kept if measured is not None and pass_rates is None else (),
        is_measured=bool(source),
        num_train=len(sets.train),
        num_pairs=len(pairs),
        num_heldout=min(len(sets.heldout), recipe.evaluation.num_prompts or len(sets.heldout)),
        ranks=ranks,
    )
    stages, methods = premises.stages(recipe), method_costs(recipe, premises)
    samples = max(1, recipe.evaluation.samples_per_prompt)
    return Plan(
        name=recipe.name,
        shape=facts.shape,
        hardware=machine,
        ranks=ranks,
        lengths=premises.lengths,
        rates=rates,
        rates_source=source or "not measured: a U shape, Beta(0.5, 0.5), is assumed",
        rates_measured=bool(source),
        live_share=premises.live_share(recipe) if any(stage.method == "grpo" for stage in stages) else None,
        groups=_groups(recipe, rates, budget),
        stages=stages,
        seconds=premises.seconds(recipe, stages),
        evaluation_s=premises.evaluation_s(recipe),
        num_evaluations=num_evaluations(recipe),
        methods=methods,
        method=choose_method(_situation(recipe, sets, len(pairs), rates if source else None, machine, methods)),
        designs=tuple(d for d in (_design(rates, wanted, samples) for wanted in WANTED_DIFFERENCES) if d is not None),
        heldout=_shown(rates, premises.num_heldout, samples),
        num_heldout=premises.num_heldout,
        binding=binding_limit(recipe, premises, stages),
        alternatives=alternatives(recipe, premises, stages),
        notes=tuple(n for n in (note, _ledger_note(recipe, measured)) if n),
    )


def _hardware(name: str | None, price: float | None) -> tuple[Hardware, str]:
    try:
        machine, note = chosen_hardware(name), ""
    except ConfigError:
        if name is not None:
            raise
        machine = named_hardware(DEFAULT_CARD)
        note = (
            f"Planned for one {DEFAULT_CARD.upper()} with assumed rates. `groupwise doctor --measure` measures this "
            "machine; --hardware names another card."
        )
    if price is None:
        return machine, note
    if not 0 <= price < float("inf"):
        raise ConfigError(f"price = {price}: expected a price per hour, 0 or more.")
    return dataclasses.replace(machine, price_per_hour=price), note


def _rates(given: Sequence[float] | None, measured: Measured | None) -> tuple[PassRates, str]:
    if given is not None:
        return tuple(given), f"given: {', '.join(f'{rate:g}' for rate in given)}"
    if measured is not None:
        return measured.rates, measured.source
    return ASSUMED_RATES, ""


def _groups(recipe: Recipe, rates: PassRates, budget: int | None) -> tuple[GroupOutlook, ...]:
    """Every group size for the same rollouts; sizes of which these fill no group are left out."""
    rollout = recipe.rollout
    budget = rollout.prompts_per_step * rollout.group_size if budget is None else budget
    prompts_in_budget(rollout.group_size, budget)  # refuses less than one group
    sizes = sorted({*GROUP_SIZES, rollout.group_size})
    return tuple(group_outlook(rates, size, budget=budget) for size in sizes if size <= budget)


def _design(rates: PassRates, difference: float, samples: int) -> EvaluationDesign | None:
    """None where the difference would lead beyond a pass rate of 1."""
    try:
        return prompts_needed(rates, difference, samples_per_prompt=samples)
    except ConfigError:
        return None


def _shown(rates: PassRates, num_heldout: int, samples: int) -> EvaluationDesign | None:
    try:
        return difference_shown(rates, num_heldout, samples_per_prompt=samples)
    except ConfigError:
        return None


def _situation(
    recipe: Recipe,
    sets: TaskSets,
    num_pairs: int,
    rates: PassRates | None,
    machine: Hardware,
    methods: Sequence[MethodCost],
) -> Situation:
    section = recipe.verifier
    parts = [part.verifier for part in section.parts] if isinstance(section, ComposeVerifierSection) else [section]
    decides = any(not isinstance(part, RewardModelVerifierSection) or part.gold_column for part in parts)
    return Situation(
        num_demonstrations=len(sets.demonstrations),
        num_preference_pairs=num_pairs,
        has_verifier=decides,
        has_reward_model=has_reward_model(section),
        pass_rates=rates if decides else None,
        group_size=recipe.rollout.group_size,
        memory_bytes=machine.memory_bytes,
        memory_needed={cost.method: (cost.full if recipe.model.lora is None else cost.lora).total for cost in methods},
    )


def _ledger_note(recipe: Recipe, measured: Measured | None) -> str:
    if measured is None:
        return ""
    if not measured.kept:
        return "The ledger keeps no prompt of this recipe's training tasks: there is nothing for GRPO to learn from."
    first = next((i for i, stage in enumerate(recipe.stages) if stage.selects_prompts), 0)
    if first == 0:
        return ""
    return (
        f"The ledger counts what the start model solves; stage {recipe.stages[first].name!r} starts from the weights "
        f"of stage {recipe.stages[first - 1].name!r}, which solve other prompts."
    )
