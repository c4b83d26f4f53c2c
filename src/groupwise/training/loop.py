"""The one loop: collect, learn, record, evaluate, save; for every algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.optim import Optimizer
from transformers import PreTrainedModel

from groupwise.errors import EngineError
from groupwise.models.loading import LoadedModel
from groupwise.models.reference import Reference, frozen_reference
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.batch import Batch
from groupwise.training.checkpoint import save_checkpoint
from groupwise.training.numerics import GapBounds, refuse_gap
from groupwise.training.optim import OptimOptions, build_optimizer, learning_rate
from groupwise.training.step import LogprobsFunction, optimizer_step
from groupwise.types import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """What the loop itself needs to know of a stage."""

    name: str
    num_steps: int
    optim: OptimOptions
    checkpoints: Path
    """Folder that receives the stage's checkpoints."""
    checkpoint_every: int = 0
    """0 = only at the end."""
    gap_bounds: GapBounds | None = None
    """A step whose sampler and trainer differ by more is refused; None = every step is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """How a stage ended."""

    checkpoint: Path
    policy_version: int
    """Optimizer steps in the weights, earlier stages included."""
    steps_done: int
    stopped: bool
    """True where the user asked to stop."""


def run_stage(
    options: StageOptions,
    algorithm: Algorithm,
    loaded: LoadedModel,
    *,
    logprobs: LogprobsFunction,
    recorder: Recorder,
    policy_version: int,
    on_new_weights: Callable[[int], None],
    on_step: Callable[[int, dict[str, float]], None],
    should_stop: Callable[[], bool],
) -> StageOutcome:
    """Runs a stage and leaves the trained weights in `loaded`.

    on_new_weights(version) is called after each update, on_step(step from 1, metrics) after each step, evaluation
    included. should_stop is asked between steps: the step under way is finished and its checkpoint written.

    Raises:
        EngineError: if a step's rollouts were not sampled from these weights (options.gap_bounds). Its rollouts are
            recorded, the weights are those of the step before, and a checkpoint of them is written where this stage
            has changed them.
    """
    model = loaded.model
    reference = frozen_reference(model) if algorithm.needs_reference else None
    optimizer = build_optimizer(model, options.optim)
    step = 0
    for step in range(1, options.num_steps + 1):
        started = time.monotonic()
        collected = algorithm.collect(step - 1)
        if collected is None:
            recorder.event("nothing_left", {"stage": options.name, "step": step})
            step -= 1
            break
        metrics = dict(collected.metrics)
        train_started = time.monotonic()
        if collected.batch is not None:
            try:
                metrics |= _update(
                    options,
                    algorithm,
                    model,
                    optimizer,
                    collected.batch,
                    step=step,
                    logprobs=logprobs,
                    reference=reference,
                )
            except EngineError as error:
                optimizer.zero_grad(set_to_none=True)
                _record_refusal(options, step, collected, str(error), recorder)
                if step > 1:
                    _save(options, loaded, algorithm, step - 1, policy_version, recorder)
                raise
            policy_version += 1
            on_new_weights(policy_version)
        metrics["updated"] = float(collected.batch is not None)
        metrics["policy_version"] = policy_version
        metrics["seconds_train"] = time.monotonic() - train_started
        metrics["seconds_step"] = time.monotonic() - started
        if collected.groups:
            recorder.rollouts(options.name, step, collected.groups, collected.advantages)
        recorder.metrics(options.name, step, metrics)
        on_step(step, metrics)
        if should_stop():
            break
        if options.checkpoint_every and step % options.checkpoint_every == 0 and step < options.num_steps:
            _save(options, loaded, algorithm, step, policy_version, recorder)
    optimizer.zero_grad(set_to_none=True)
    return StageOutcome(
        checkpoint=_save(options, loaded, algorithm, step, policy_version, recorder),
        policy_version=policy_version,
        steps_done=step,
        stopped=should_stop(),
    )


def _update(
    options: StageOptions,
    algorithm: Algorithm,
    model: PreTrainedModel,
    optimizer: Optimizer,
    batch: Batch,
    *,
    step: int,
    logprobs: LogprobsFunction,
    reference: Reference | None,
) -> dict[str, float]:
    """One optimizer step at the learning rate of step number `step`, from 1."""
    lr = learning_rate(options.optim, step - 1, options.num_steps)
    for group in optimizer.param_groups:
        group["lr"] = lr
    metrics = optimizer_step(
        model,
        optimizer,
        batch,
        algorithm.loss,
        normalize=algorithm.normalize,
        logprobs=logprobs,
        temperature=algorithm.temperature,
        tokens_per_microbatch=options.optim.tokens_per_microbatch,
        max_grad_norm=options.optim.max_grad_norm,
        reference=reference,
        min_kept_mass=algorithm.min_kept_mass,
        before_update=_gap_check(options, step),
    )
    return {**metrics, "lr": lr}


def _gap_check(options: StageOptions, step: int) -> Callable[[Mapping[str, float]], None] | None:
    bounds = options.gap_bounds
    if bounds is None:
        return None
    return lambda metrics: refuse_gap(metrics, bounds, where=f"{options.name}, step {step}")


def _record_refusal(options: StageOptions, step: int, collected: Collected, reason: str, recorder: Recorder) -> None:
    if collected.groups:
        recorder.rollouts(options.name, step, collected.groups, collected.advantages)
    recorder.event("step_refused", {"stage": options.name, "step": step, "reason": reason})


def _save(
    options: StageOptions,
    loaded: LoadedModel,
    algorithm: Algorithm,
    step: int,
    policy_version: int,
    recorder: Recorder,
) -> Path:
    state = {"stage": options.name, "step": step, "policy_version": policy_version, "algorithm": algorithm.state()}
    folder = save_checkpoint(options.checkpoints / f"{options.name}-{step}", loaded, state)
    recorder.event("checkpoint", {"stage": options.name, "step": step, "folder": str(folder)})
    return folder
