"""The limit that binds a plan, and three ways around it, each worked out like the plan itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.config import Recipe
from groupwise.config.algorithm_grpo import GrpoSection
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.model import LoraSection
from groupwise.launch.plan_inputs import Lengths
from groupwise.launch.plan_premises import Premises
from groupwise.launch.plan_stages import StagePlan, method_of

NUM_ALTERNATIVES = 3
TIGHT_SHARE = 0.85
"""Of the machine's memory; a plan above it is called close to the limit."""
MOSTLY_DEAD = 0.5
"""Below this share of live groups the signal binds, whatever the hardware does."""
LEAST_CHANGE = 0.02
"""Relative: smaller differences are not told."""
_GB = 1e9

Limit = Literal["memory", "signal", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One change of the recipe: Alternative(change="rollout.group_size = 16", saves="...", costs="...")."""

    change: str
    """The setting to write."""
    saves: str
    costs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    change: str
    recipe: Recipe
    costs: str = ""
    """What is not in the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    seconds: float
    """Of the whole run."""
    peak_bytes: float
    live_share: float
    """0 without a GRPO stage."""
    usable_groups: float
    """In the whole run."""


def limit_of(recipe: Recipe, premises: Premises, stages: Sequence[StagePlan]) -> Limit:
    """Memory where it is nearly full, else the signal where GRPO's groups are known to be mostly dead, else time."""
    if max(stage.memory.total for stage in stages) > TIGHT_SHARE * premises.hardware.memory_bytes:
        return "memory"
    learns = premises.is_measured and any(stage.method == "grpo" for stage in stages)
    return "signal" if learns and premises.live_share(recipe) < MOSTLY_DEAD else "time"


def binding_limit(recipe: Recipe, premises: Premises, stages: Sequence[StagePlan]) -> str:
    """The limit that binds, in one sentence."""
    limit, hardware = limit_of(recipe, premises, stages), premises.hardware
    if limit == "memory":
        stage = max(stages, key=lambda s: s.memory.total)
        part, size = max(stage.memory.parts.items(), key=lambda item: item[1])
        return (
            f"Memory binds: stage {stage.name!r} needs {stage.memory.total / _GB:.1f} GB of {hardware.name}'s "
            f"{hardware.memory_bytes / _GB:.1f} GB, most of it for {part.replace('_', ' ')} ({size / _GB:.1f} GB)."
        )
    if limit == "signal":
        return (
            f"Signal binds: {1 - premises.live_share(recipe):.0%} of the groups of {recipe.rollout.group_size} are "
            "expected to be all right or all wrong, and teach nothing."
        )
    stage = max(stages, key=lambda s: s.seconds)
    if stage.before_s > stage.compute.run_seconds:
        return f"Time binds: what comes before the first step of stage {stage.name!r} takes most of it."
    phase = max(stage.compute.phases, key=lambda p: p.seconds)
    share = phase.seconds / stage.compute.seconds
    return (
        f"Time binds: stage {stage.name!r} takes most of it; {share:.0%} of a step is {phase.name.replace('_', ' ')}."
    )


def alternatives(recipe: Recipe, premises: Premises, stages: Sequence[StagePlan]) -> tuple[Alternative, ...]:
    """Three changes with what each saves and costs; those that ease the binding limit come first, the best first."""
    before = _outcome(recipe, premises)
    measures = _EASES[limit_of(recipe, premises, stages)]
    found: list[tuple[float, Alternative]] = []
    for candidate in _candidates(recipe, premises.lengths):
        after = _outcome(candidate.recipe, premises)
        saves, costs = _difference(before, after, candidate.costs)
        if saves:
            gain = max(_gain(measure, before, after) for measure in measures)
            alternative = Alternative(change=candidate.change, saves=saves, costs=costs)
            found.append((gain if gain >= LEAST_CHANGE else 0.0, alternative))
    found.sort(key=lambda item: -item[0])  # stable: without a gain the order of the candidates stays
    return tuple(alternative for _, alternative in found[:NUM_ALTERNATIVES])


def _outcome(recipe: Recipe, premises: Premises) -> _Outcome:
    plans, live = premises.stages(recipe), premises.live_share(recipe)
    groups = math.fsum(p.workload.steps * p.workload.prompts_per_step for p in plans if p.method == "grpo")
    return _Outcome(
        seconds=premises.seconds(recipe, plans),
        peak_bytes=max(p.memory.total for p in plans),
        live_share=live if groups else 0.0,
        usable_groups=groups * live,
    )


def _candidates(recipe: Recipe, lengths: Lengths) -> Iterator[_Candidate]:
    if any(isinstance(stage.algorithm, GrpoSection) for stage in recipe.stages):
        yield from _of_groups(recipe)
    if any(stage.learns_from_rollouts for stage in recipe.stages):
        yield from _of_sampling(recipe, lengths)
    yield from _of_memory(recipe, lengths)
    yield from _of_steps(recipe)


def _with_rollout(recipe: Recipe, **update: int) -> Recipe:
    return recipe.model_copy(update={"rollout": recipe.rollout.model_copy(update=update)})


def _of_groups(recipe: Recipe) -> Iterator[_Candidate]:
    rollout = recipe.rollout
    prompts, size, sizes = rollout.prompts_per_step, rollout.group_size, rollout.allocation
    most, least = (256, 2) if sizes is None else (sizes.max_group_size, sizes.min_group_size)
    fewer = max(1, prompts // 2)
    if 2 * size <= most and _ppo_keeps_its_minibatches(recipe, fewer):
        yield _Candidate(
            change=f"rollout.group_size = {2 * size}, rollout.prompts_per_step = {fewer}",
            recipe=_with_rollout(recipe, group_size=2 * size, prompts_per_step=fewer),
            costs=f"{fewer} different prompts a step instead of {prompts}" if fewer < prompts else "",
        )
    yield _Candidate(
        change=f"rollout.prompts_per_step = {2 * prompts}",
        recipe=_with_rollout(recipe, prompts_per_step=2 * prompts),
    )
    minibatches = max(s.algorithm.loss.minibatches for s in recipe.stages if isinstance(s.algorithm, GrpoSection))
    if size // 2 >= least and minibatches <= prompts * (size // 2):
        yield _Candidate(change=f"rollout.group_size = {size // 2}", recipe=_with_rollout(recipe, group_size=size // 2))


def _ppo_keeps_its_minibatches(recipe: Recipe, prompts_per_step: int) -> bool:
    sections = [stage.algorithm for stage in recipe.stages if isinstance(stage.algorithm, PpoSection)]
    return all(section.minibatches <= prompts_per_step * section.completions_per_prompt for section in sections)


def _of_sampling(recipe: Recipe, lengths: Lengths) -> Iterator[_Candidate]:
    rollout = recipe.rollout
    shorter = math.ceil(1.25 * lengths.longest)
    penalties = [s.algorithm.length_penalty for s in recipe.stages if isinstance(s.algorithm, GrpoSection)]
    free = max((penalty.free_tokens for penalty in penalties if penalty is not None), default=0)
    if free < shorter < rollout.max_completion_tokens:
        yield _Candidate(
            change=f"rollout.max_completion_tokens = {shorter}",
            recipe=_with_rollout(recipe, max_completion_tokens=shorter),
            costs="answers longer than that are cut and count as wrong",
        )
    if rollout.max_rows > 1:
        rows = max(1, min(rollout.max_rows, rollout.prompts_per_step * rollout.group_size) // 2)
        yield _Candidate(change=f"rollout.max_rows = {rows}", recipe=_with_rollout(recipe, max_rows=rows))


def _of_memory(recipe: Recipe, lengths: Lengths) -> Iterator[_Candidate]:
    def with_model(**update: object) -> Recipe:
        return recipe.model_copy(update={"model": recipe.model.model_copy(update=update)})

    tokens = max(stage.optim.tokens_per_microbatch for stage in recipe.stages)
    half = math.ceil(max(tokens / 2, lengths.prompt + lengths.longest, sum(lengths.of_pairs)))
    if half < tokens:
        stages = tuple(
            s.model_copy(
                update={
                    "optim": s.optim.model_copy(
                        update={"tokens_per_microbatch": min(half, s.optim.tokens_per_microbatch)}
                    )
                }
            )
            for s in recipe.stages
        )
        yield _Candidate(
            change=f"optim.tokens_per_microbatch = {half}",
            recipe=recipe.model_copy(update={"stages": stages}),
            costs="prompts that fell into one micro-batch may be computed twice",
        )
    if not recipe.model.gradient_checkpointing:
        yield _Candidate(change="model.gradient_checkpointing = true", recipe=with_model(gradient_checkpointing=True))
    if recipe.model.lora is None:
        yield _Candidate(
            change="[model.lora] rank = 16",
            recipe=with_model(lora=LoraSection()),
            costs="another learning rate, about ten times as large; less capacity",
        )


def _of_steps(recipe: Recipe) -> Iterator[_Candidate]:
    if all(s.optim.warmup_steps < s.steps // 2 for s in recipe.stages):
        yield _Candidate(
            change="half the steps of every stage",
            recipe=recipe.model_copy(
                update={"stages": tuple(s.model_copy(update={"steps": s.steps // 2}) for s in recipe.stages)}
            ),
            costs="the second half of the learning; look at the curve at half time",
        )
    for stage in recipe.stages:
        name = {"sft": "tasks_per_step", "dpo": "pairs_per_step"}.get(method_of(stage.algorithm), "")
        size = getattr(stage.algorithm, name) if name else 0
        if size > 1:
            smaller = stage.model_copy(update={"algorithm": stage.algorithm.model_copy(update={name: size // 2})})
            yield _Candidate(
                change=f"{name} = {size // 2} in stage {stage.name!r}",
                recipe=recipe.model_copy(update={"stages": tuple(smaller if s is stage else s for s in recipe.stages)}),
                costs="noisier gradients; half as much is learned from",
            )
    samples = recipe.evaluation.samples_per_prompt
    if samples > 1:
        section = recipe.evaluation.model_copy(update={"samples_per_prompt": samples // 2})
        yield _Candidate(
            change=f"evaluation.samples_per_prompt = {samples // 2}",
            recipe=recipe.model_copy(update={"evaluation": section}),
            costs="only larger differences are seen on the held-out set",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    name: str
    number: Callable[[_Outcome], float]
    more_is_better: bool
    shown: Callable[[float], str]


_TIME = _Measure(name="time", number=lambda o: o.seconds, more_is_better=False, shown=lambda v: duration(v))
_MEMORY = _Measure(
    name="memory", number=lambda o: o.peak_bytes, more_is_better=False, shown=lambda v: f"{v / _GB:.2f} GB"
)
_GROUPS = _Measure(
    name="groups that teach something",
    number=lambda o: o.usable_groups,
    more_is_better=True,
    shown=lambda v: f"{v:.0f}",
)
_SHARE = _Measure(
    name="share of live groups", number=lambda o: o.live_share, more_is_better=True, shown=lambda v: f"{v:.0%}"
)
_EASES: dict[Limit, tuple[_Measure, ...]] = {"time": (_TIME,), "memory": (_MEMORY,), "signal": (_SHARE, _GROUPS)}


def _gain(measure: _Measure, before: _Outcome, after: _Outcome) -> float:
    """Relative improvement; negative where it became worse, 0 where there was nothing."""
    old, new = measure.number(before), measure.number(after)
    return 0.0 if old == 0 else (new - old) / old * (1 if measure.more_is_better else -1)


def _difference(before: _Outcome, after: _Outcome, costs: str) -> tuple[str, str]:
    """(what became better, what became worse), with both numbers."""
    better: list[str] = []
    worse = [costs] if costs else []
    for measure in (_TIME, _MEMORY, _GROUPS, _SHARE):
        gain = _gain(measure, before, after)
        if abs(gain) < LEAST_CHANGE:
            continue
        old, new = measure.shown(measure.number(before)), measure.shown(measure.number(after))
        (better if gain > 0 else worse).append(f"{measure.name} {new} instead of {old}")
    return "; ".join(better), "; ".join(worse) or "nothing that this plan counts"


def duration(seconds: float) -> str:
    """Seconds as a reader says them: "41 s", "12.3 min", "5.2 h"."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
