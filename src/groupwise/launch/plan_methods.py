"""The four methods on one recipe's model, prompts and machine: what a step of each takes, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.config import Recipe
from groupwise.config.algorithm_dpo import DpoSection
from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.model import LoraSection
from groupwise.config.stage import AlgorithmSection, SftSection, StageSection
from groupwise.launch.plan_premises import Premises
from groupwise.launch.plan_stages import method_of
from groupwise.planning.compute import ComputeEstimate
from groupwise.planning.memory import MemoryEstimate
from groupwise.planning.step_tokens import METHODS, Method

_NETWORKS = {"critic_weights": "critic", "reference": "reference", "reward_model": "reward model"}
"""Parts of memory that are a network besides the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCost:
    """One step of a method.

    Example:
        next(m for m in plan.methods if m.method == "ppo").networks     # ("policy", "critic", "reference")
    """

    method: Method
    is_planned: bool
    """True where the recipe has a stage with it, whose settings these are; else the method's defaults."""
    networks: tuple[str, ...]
    """Held during training with all weights trained."""
    compute: ComputeEstimate
    whole: ComputeEstimate
    """The same without prefix sharing: every sequence forwarded by itself, padded to the longest."""
    full: MemoryEstimate
    """With all weights trained."""
    lora: MemoryEstimate
    """With adapters: those of the recipe, or of rank 16."""


def method_costs(recipe: Recipe, premises: Premises) -> tuple[MethodCost, ...]:
    """Every method with the recipe's own stage of it, or with its defaults on the same prompts and completions.

    SFT and DPO then learn from as many prompts a step as GRPO samples, and PPO samples as many completions.
    """
    return tuple(_cost(recipe, premises, method) for method in METHODS)


def _cost(recipe: Recipe, premises: Premises, method: Method) -> MethodCost:
    own = next((stage for stage in recipe.stages if method_of(stage.algorithm) == method), None)
    stage = own or _usual(recipe, method)
    full = premises.stage(_with_lora(recipe, None), stage)
    held = [name for part, name in _NETWORKS.items() if part in full.memory.parts]
    return MethodCost(
        method=method,
        is_planned=own is not None,
        networks=("policy", *held),
        compute=premises.stage(recipe, stage).compute,
        whole=premises.stage(recipe, stage, prefix_sharing=False).compute,
        full=full.memory,
        lora=premises.stage(_with_lora(recipe, recipe.model.lora or LoraSection()), stage).memory,
    )


def _usual(recipe: Recipe, method: Method) -> StageSection:
    num_prompts, group_size = recipe.rollout.prompts_per_step, recipe.rollout.group_size
    sections: dict[Method, AlgorithmSection] = {
        "sft": SftSection(name="sft", tasks_per_step=num_prompts),
        "dpo": DpoSection(name="dpo", pairs_per_step=num_prompts),
        "ppo": PpoSection(name="ppo", completions_per_prompt=group_size),
        "grpo": GrpoSection(name="grpo"),
    }
    last = recipe.stages[-1]
    return StageSection(name=method, steps=last.steps, algorithm=sections[method], optim=last.optim)


def _with_lora(recipe: Recipe, lora: LoraSection | None) -> Recipe:
    model = recipe.model.model_copy(update={"lora": lora})
    return recipe.model_copy(update={"model": model})
