"""Each stage of a recipe as a workload, and what it takes: operations, seconds and memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from groupwise.config import ComposeVerifierSection, Recipe, VerifierSection
from groupwise.config.algorithm_dpo import DpoSection
from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.stage import AlgorithmSection, SftSection, StageSection
from groupwise.config.verifier_reward_model import RewardModelVerifierSection
from groupwise.launch.plan_inputs import Lengths
from groupwise.planning.compute import GENERATION, ComputeEstimate, Phase, estimate_compute
from groupwise.planning.hardware import Hardware
from groupwise.planning.memory import MemoryEstimate, estimate_memory
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.step_tokens import Method
from groupwise.planning.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What one stage is expected to take.

    Example:
        plan.compute.seconds * plan.workload.steps      # of the whole stage, without evaluations
    """

    name: str
    method: Method
    workload: Workload
    compute: ComputeEstimate
    memory: MemoryEstimate
    before_s: float
    """Before the first step: sampling training prompts, to choose among them or to learn from what is right, or the
    reference's log-probabilities of all pairs."""

    @property
    def seconds(self) -> float:
        """Of the whole stage, what comes before its first step included, evaluations not."""
        return self.compute.run_seconds + self.before_s


def method_of(section: AlgorithmSection) -> Method:
    """The method whose costs a stage has: a reward model learns from pairs as DPO does."""
    if isinstance(section, SftSection):
        return "sft"
    if isinstance(section, DpoSection | RewardModelSection):
        return "dpo"
    return "ppo" if isinstance(section, PpoSection) else "grpo"


def has_reward_model(verifier: VerifierSection) -> bool:
    """True where judging runs a reward model, alone or as a part."""
    parts = [part.verifier for part in verifier.parts] if isinstance(verifier, ComposeVerifierSection) else [verifier]
    return any(isinstance(part, RewardModelVerifierSection) for part in parts)


def plan_stage(
    recipe: Recipe,
    stage: StageSection,
    shape: ModelShape,
    lengths: Lengths,
    hardware: Hardware,
    *,
    live_share: float,
    num_train: int = 0,
    num_pairs: int = 0,
    ranks: int = 1,
    prefix_sharing: bool = True,
) -> StagePlan:
    """The plan of one stage.

    num_train and num_pairs are what is worked through before the first step; 0 leaves that out, as a ledger does.
    ranks divides memory; seconds are always those of one device.
    """
    method, workload = method_of(stage.algorithm), workload_of(recipe, stage, lengths, live_share=live_share)
    lora = recipe.model.lora
    lora_rank, recompute = None if lora is None else lora.rank, recipe.model.gradient_checkpointing
    max_rows = recipe.rollout.max_rows

    def compute_of(work: Workload) -> ComputeEstimate:
        return estimate_compute(
            method,
            shape,
            work,
            hardware,
            prefix_sharing=prefix_sharing,
            lora_rank=lora_rank,
            gradient_checkpointing=recompute,
            max_rows=max_rows,
        )

    memory = estimate_memory(
        method,
        shape,
        workload,
        hardware,
        lora_rank=lora_rank,
        ranks=ranks,
        gradient_checkpointing=recompute,
        max_rows=max_rows,
        cache_bytes=int(recipe.rollout.cache_gb * 1e9),
        prefix_sharing=prefix_sharing,
    )
    frozen = math.ceil(shape.num_params * hardware.bytes_per_number / ranks)
    before_s = 0.0
    if isinstance(stage.algorithm, DpoSection) and not stage.algorithm.reference_free:
        with_reference = compute_of(dataclasses.replace(workload, has_reference=True))
        before_s = _seconds(with_reference, ("reference",)) * num_pairs / workload.prompts_per_step
    elif isinstance(stage.algorithm, SftSection):  # best_of_n: every training prompt is sampled
        before_s = sampling_seconds(
            recipe, shape, lengths, hardware, num_train, stage.algorithm.samples_per_prompt or 0
        )
    elif stage.selects_prompts and recipe.curation.enabled:
        curation = recipe.curation
        num_measured = min(num_train, curation.num_prompts or num_train)
        before_s = sampling_seconds(recipe, shape, lengths, hardware, num_measured, curation.samples_per_prompt)
    return StagePlan(
        name=stage.name,
        method=method,
        workload=workload,
        compute=_as_in(recipe, stage.algorithm, compute_of(workload)),
        memory=_held_in(recipe, stage.algorithm, memory, frozen),
        before_s=before_s,
    )


def workload_of(recipe: Recipe, stage: StageSection, lengths: Lengths, *, live_share: float) -> Workload:
    """One step of a stage. A reference whose log-probabilities are kept, as DPO's are, is no part of a step."""
    section, rollout = stage.algorithm, recipe.rollout
    prompt, trunk, completion, longest = lengths.prompt, lengths.trunk, lengths.completion, lengths.longest
    prompts, group_size, epochs, sibling_prefix, has_reference = rollout.prompts_per_step, 1, 1, 0.0, False
    if isinstance(section, SftSection):
        prompts = section.tasks_per_step
        completion = lengths.demonstration if section.source == "demonstrations" else lengths.completion
        longest = completion
    elif isinstance(section, DpoSection | RewardModelSection):
        prompts, (prompt, completion) = section.pairs_per_step, lengths.of_pairs
        trunk, longest = min(trunk, prompt), completion
    elif isinstance(section, PpoSection):
        group_size, epochs, has_reference = section.completions_per_prompt, section.epochs, section.kl.coef > 0
    else:
        group_size, sibling_prefix, has_reference = rollout.group_size, lengths.sibling_prefix, section.beta > 0
        epochs = section.loss.epochs
        prompts = _prompts_sampled(prompts, rollout.extra_rounds, live_share)
    return Workload(
        prompts_per_step=prompts,
        group_size=group_size,
        prompt_tokens=prompt,
        trunk_tokens=trunk,
        completion_tokens=completion,
        longest_completion=longest,
        live_share=live_share if isinstance(section, GrpoSection) and section.advantage.skip_dead_groups else 1.0,
        has_reference=has_reference,
        epochs=epochs,
        tokens_per_microbatch=stage.optim.tokens_per_microbatch,
        max_completion_tokens=max(rollout.max_completion_tokens, math.ceil(longest)),
        steps=stage.steps,
        sibling_prefix=sibling_prefix,
    )


def sampling_seconds(
    recipe: Recipe, shape: ModelShape, lengths: Lengths, hardware: Hardware, num_prompts: int, samples: int
) -> float:
    """Seconds to draw so many completions of so many prompts: a measurement or an evaluation."""
    if not num_prompts or not samples:
        return 0.0
    workload = Workload(
        prompts_per_step=num_prompts,
        group_size=samples,
        prompt_tokens=lengths.prompt,
        trunk_tokens=lengths.trunk,
        completion_tokens=lengths.completion,
        longest_completion=lengths.longest,
        live_share=0.0,
        has_reference=False,
        tokens_per_microbatch=1,
        max_completion_tokens=recipe.rollout.max_completion_tokens,
        steps=1,
    )
    return _seconds(estimate_compute("grpo", shape, workload, hardware, max_rows=recipe.rollout.max_rows), GENERATION)


def evaluation_seconds(
    recipe: Recipe, shape: ModelShape, lengths: Lengths, hardware: Hardware, num_heldout: int
) -> float:
    """Seconds of one held-out evaluation: the samples, then the greedy completions."""
    section = recipe.evaluation
    num = min(num_heldout, section.num_prompts or num_heldout)
    sampled = sampling_seconds(recipe, shape, lengths, hardware, num, section.samples_per_prompt)
    return sampled + (sampling_seconds(recipe, shape, lengths, hardware, num, 1) if section.greedy else 0.0)


def _prompts_sampled(wanted: int, extra_rounds: int, live_share: float) -> int:
    """Prompts of a step on average, those included that extra rounds sample in place of dead groups: each round makes
    up for what the rounds before lack."""
    return round(math.fsum(wanted * (1 - live_share) ** number for number in range(extra_rounds + 1)))


def _seconds(compute: ComputeEstimate, names: Collection[str]) -> float:
    return math.fsum(phase.seconds for phase in compute.phases if phase.name in names)


def _as_in(recipe: Recipe, section: AlgorithmSection, compute: ComputeEstimate) -> ComputeEstimate:
    """A step as the recipe sets it up: an update a mini-batch; in PPO a program where the verifier is no reward model,
    and a head where the critic shares the policy's body."""
    absent: set[str] = set()
    num_updates = 1.0
    if isinstance(section, GrpoSection):
        num_updates = section.loss.minibatches
    elif isinstance(section, PpoSection):
        absent |= set() if has_reward_model(recipe.verifier) else {"reward_model"}
        absent |= {"values", "train_critic"} if section.critic.shared else set()
        num_updates = section.minibatches * (0.5 if section.critic.shared else 1)

    def updates(phase: Phase) -> Phase:
        return dataclasses.replace(phase, seconds=phase.seconds * num_updates) if phase.name == "update" else phase

    return dataclasses.replace(
        compute, phases=tuple(updates(phase) for phase in compute.phases if phase.name not in absent)
    )


def _held_in(recipe: Recipe, section: AlgorithmSection, memory: MemoryEstimate, frozen: int) -> MemoryEstimate:
    """The networks that the recipe's stage holds; `frozen` is the size of one without gradients, which a reward model
    is taken to have."""
    if isinstance(section, RewardModelSection):
        return _with_parts(memory, added={"policy": frozen})
    absent: set[str] = set()
    judge = has_reward_model(recipe.verifier)
    if isinstance(section, PpoSection):
        absent |= set() if judge else {"reward_model"}
        if section.critic.shared:
            absent |= {"critic_weights", "critic_gradients", "critic_optimizer"}
    added = {"reward_model": frozen} if judge and isinstance(section, GrpoSection) else {}
    return _with_parts(memory, added=added, absent=absent)


def _with_parts(memory: MemoryEstimate, *, added: Mapping[str, int], absent: Collection[str] = ()) -> MemoryEstimate:
    """Other networks, which are held at every moment, so that the same moment stays the fullest."""
    more = sum(added.values()) - sum(memory.parts.get(name, 0) for name in absent)
    return dataclasses.replace(
        memory,
        parts={name: size for name, size in {**memory.parts, **added}.items() if name not in absent},
        phases={name: total + more for name, total in memory.phases.items()},
    )
