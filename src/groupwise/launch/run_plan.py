"""plan.json: what a run is expected to take, written before its first stage.

The same estimate as `groupwise plan`, from the prompts, demonstrations and pairs that the run has rendered already, so
that nothing is read or tokenized again. Seconds and price need rates that `groupwise doctor --measure` has found on
this machine, and a model whose time is in its operations; elsewhere they are null, and memory and the share of live
groups are told alone. Where planning does not know the model there is no plan. It never fails a run.

    {"seconds", "price", "peak_bytes", "live_share", "rates_source", "hardware", "evaluation_seconds",
     "stages": [{"name", "steps", "seconds", "step_seconds", "phases": {name: seconds a step}, "peak_bytes"}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from groupwise.config import Recipe
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.launch.assemble import Policy, RenderedSets
from groupwise.launch.device_memory import memory_limit_bytes
from groupwise.launch.forecast import SMALLEST_PARAMS, measured_hardware
from groupwise.launch.machine import resident_bytes
from groupwise.launch.plan import ASSUMED_RATES
from groupwise.launch.plan_inputs import lengths_of_run
from groupwise.launch.plan_ledger import Measured, read_measured
from groupwise.launch.plan_premises import Premises
from groupwise.launch.plan_stages import StagePlan
from groupwise.planning.hardware import GPU_PROCESS_BYTES, Hardware
from groupwise.planning.model_shape import from_config
from groupwise.runs import RunDirectory, write_atomic

_FAILURES = (GroupwiseError, OSError, ValueError, ArithmeticError, LookupError)
"""What an estimate of an odd recipe can raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The plan of a run, as plan.json holds it.

    Example:
        RunPlan(values={"seconds": 1180.0, "stages": [{"name": "sft", "steps": 30, "seconds": 170.0}], ...})
    """

    values: Mapping[str, Any]

    @property
    def seconds(self) -> float | None:
        """Of the whole run."""
        return self.values["seconds"]

    @property
    def evaluation_seconds(self) -> float | None:
        """Of one held-out evaluation."""
        return self.values["evaluation_seconds"]

    def seconds_after(self, stage_name: str) -> float | None:
        """Of the stages behind this one, without evaluations; None where nobody could plan them. 0 behind the last."""
        names = [stage["name"] for stage in self.values["stages"]]
        later = [stage["seconds"] for stage in self.values["stages"][names.index(stage_name) + 1 :]]
        return None if None in later else sum(later)


def plan_run(recipe: Recipe, policy: Policy, sets: RenderedSets) -> RunPlan | None:
    """The plan; None where there can be none."""
    try:
        return _plan(recipe, policy, sets)
    except _FAILURES:
        return None


def read_plan(directory: RunDirectory, recipe: Recipe) -> RunPlan | None:
    """The plan that the run was begun with; None where there is none, or it is one of other stages."""
    try:
        values = json.loads(directory.plan.read_text(encoding="utf-8"))
        stages = [(stage["name"], stage["steps"], stage["seconds"]) for stage in values["stages"]]
        is_whole = values.keys() >= {"seconds", "evaluation_seconds"}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    same = [(name, steps) for name, steps, _ in stages] == [(stage.name, stage.steps) for stage in recipe.stages]
    return RunPlan(values=values) if same and is_whole else None


def write_plan(directory: RunDirectory, plan: RunPlan | None) -> None:
    """Replaces plan.json; without a plan an older one is removed."""
    if plan is None:
        directory.plan.unlink(missing_ok=True)
    else:
        write_atomic(directory.plan, json.dumps(plan.values, indent=1) + "\n")


def _plan(recipe: Recipe, policy: Policy, sets: RenderedSets) -> RunPlan:
    shape = from_config(policy.loaded.model.config.to_dict())
    measured = measured_hardware()
    is_timed = measured is not None and shape.num_params >= SMALLEST_PARAMS
    lengths = lengths_of_run(
        [prompt.token_ids for prompt in (sets.train.prompts or sets.heldout.prompts)],
        [demonstration.num_trained for demonstration in sets.demonstrations],
        recipe.rollout.max_completion_tokens,
        pairs=[(pair.chosen.prompt_length, fmean(side.num_trained for side in pair)) for pair in sets.pairs],
    )
    ledger = _ledger(recipe, sets)
    premises = Premises(
        shape=shape,
        lengths=lengths if ledger is None else ledger.lengths(lengths),
        hardware=measured or _unmeasured(policy),
        rates=ASSUMED_RATES if ledger is None else ledger.rates,
        kept=() if ledger is None else ledger.kept,
        is_measured=ledger is not None,
        num_train=len(sets.train.tasks),
        num_pairs=len(sets.pairs),
        num_heldout=len(sets.heldout.tasks),
    )
    stages = premises.stages(recipe)
    seconds = premises.seconds(recipe, stages) if is_timed else None
    rate = premises.hardware.price_per_hour
    has_groups = any(stage.method == "grpo" for stage in stages)
    values = {
        "seconds": seconds,
        "price": None if seconds is None or rate is None else seconds / 3600 * rate,
        "peak_bytes": max(stage.memory.total for stage in stages),
        "live_share": premises.live_share(recipe) if has_groups else None,
        "rates_source": "assumed: a U shape, Beta(0.5, 0.5)" if ledger is None else ledger.source,
        "hardware": measured.name if measured is not None and is_timed else None,
        "evaluation_seconds": premises.evaluation_s(recipe) if is_timed else None,
        "stages": [_stage(stage, is_timed=is_timed) for stage in stages],
    }
    return RunPlan(values=values)


def _stage(stage: StagePlan, *, is_timed: bool) -> dict[str, Any]:
    return {
        "name": stage.name,
        "steps": stage.workload.steps,
        "seconds": stage.seconds if is_timed else None,
        "step_seconds": stage.compute.seconds if is_timed else None,
        "phases": {phase.name: phase.seconds for phase in stage.compute.phases} if is_timed else None,
        "peak_bytes": stage.memory.total,
    }


def _ledger(recipe: Recipe, sets: RenderedSets) -> Measured | None:
    """What `groupwise curate` measured, where the recipe names it; a ledger that does not fit was refused before."""
    path = recipe.curation.ledger
    if path is None:
        return None
    try:
        return read_measured(recipe, recipe.resolve(path), sets.train.tasks)
    except (GroupwiseError, ConfigError):
        return None


def _unmeasured(policy: Policy) -> Hardware:
    """This machine with made-up rates, of which nothing is told: its memory is counted alone."""
    model = policy.loaded.model
    weights = sum(weight.nbytes for weight in model.parameters())
    on_gpu = model.device.type == "cuda"
    return Hardware(
        name="not measured",
        memory_bytes=memory_limit_bytes(model.device),
        bytes_per_number=min(4, max(2, next(model.parameters()).element_size())),
        train_flops=1.0,
        prefill_flops=1.0,
        decode_flops=1.0,
        decode_bytes_per_s=1.0,
        update_bytes_per_s=1.0,
        process_bytes=GPU_PROCESS_BYTES if on_gpu else max(0, resident_bytes() - weights),
    )
