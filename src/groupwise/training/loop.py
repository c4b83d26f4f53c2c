"""The one loop: collect, learn, record, evaluate, save; for every algorithm.

A step is what is learned from one collection, by one update or several: updates.py. Collections without any gradient
are no step, and too many in a row end the stage: signal_search.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import EngineError
from groupwise.models.loading import LoadedModel
from groupwise.models.logprobs import ScoreFunction
from groupwise.models.reference import frozen_reference
from groupwise.training.algorithm import Algorithm, Collected
from groupwise.training.checkpoint import save_checkpoint
from groupwise.training.memory import held_bytes
from groupwise.training.numerics import GapBounds, refuse_gap
from groupwise.training.optim import OptimOptions
from groupwise.training.phases import PhaseClock
from groupwise.training.signal_search import OnEmpty, SignalSearch, standing
from groupwise.training.updates import Learner
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
    max_empty_steps: int = 8
    """The stage ends after this many collections in a row without any gradient, 1 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """How a stage ended."""

    checkpoint: Path
    policy_version: int
    """Optimizer steps in the weights, earlier stages included."""
    steps_done: int
    stopped: bool
    """True where the user asked to stop."""
    diagnosis: str = ""
    """Why the stage ended before its last step, and what to change; empty where it did not, or was asked to stop."""


def run_stage(
    options: StageOptions,
    algorithm: Algorithm,
    loaded: LoadedModel,
    *,
    scores: ScoreFunction,
    recorder: Recorder,
    policy_version: int,
    on_new_weights: Callable[[int], None],
    on_step: Callable[[int, dict[str, float]], None],
    should_stop: Callable[[], bool],
    on_empty: OnEmpty | None = None,
) -> StageOutcome:
    """Runs a stage and leaves the trained weights in `loaded`.

    on_new_weights(version) is called after the updates of each step, on_step(step from 1, metrics) after each step,
    evaluation included, on_empty(how many in a row, metrics) after each collection that is no step. should_stop is
    asked between steps: the step under way is finished and its checkpoint written.

    Raises:
        EngineError: if a step's rollouts were not sampled from these weights (options.gap_bounds). Its rollouts are
            recorded, the weights are those of the step before, and a checkpoint of them is written where this stage
            has changed them.
    """
    clock, model = PhaseClock(), loaded.model
    reference = frozen_reference(model) if algorithm.needs_reference else None
    learner = Learner.of(
        algorithm, model, options.optim, num_steps=options.num_steps, scores=scores, reference=reference
    )
    search = SignalSearch(
        stage=options.name,
        algorithm=algorithm,
        recorder=recorder,
        max_empty_steps=options.max_empty_steps,
        should_stop=should_stop,
        clock=clock,
        on_empty=on_empty,
    )
    step = 0
    while step < options.num_steps:
        collected = search.next(step + 1, policy_version)
        if collected is None:
            break
        step += 1
        assert collected.batch is not None, "a step has something to learn from"
        try:
            found, num_updates = learner.learn(collected.batch, step, _gap_check(options, step))
        except EngineError as error:
            learner.forget_gradients()
            _record_rollouts(options, step, collected, recorder)
            recorder.event("step_refused", {"stage": options.name, "step": step, "reason": str(error)})
            if step > 1:
                _save(options, loaded, algorithm, step - 1, policy_version, recorder)
            raise
        clock.lap("train", inside=found)
        if step == 1:
            recorder.event("memory", {"stage": options.name, "bytes": held_bytes(learner)})
        clock.lap("other")
        policy_version += num_updates
        on_new_weights(policy_version)
        clock.lap("sync")
        _record_rollouts(options, step, collected, recorder)
        metrics = {**collected.metrics, **found, **standing(policy_version, updated=True), **clock.row("record")}
        recorder.metrics(options.name, step, metrics)
        clock.lap("record")
        on_step(step, metrics)
        if should_stop():
            break
        if options.checkpoint_every and step % options.checkpoint_every == 0 and step < options.num_steps:
            _save(options, loaded, algorithm, step, policy_version, recorder)
        clock.skip()
    return StageOutcome(
        checkpoint=_save(options, loaded, algorithm, step, policy_version, recorder),
        policy_version=policy_version,
        steps_done=step,
        stopped=should_stop(),
        diagnosis=search.ended_by,
    )


def _gap_check(options: StageOptions, step: int) -> Callable[[Mapping[str, float]], None] | None:
    bounds = options.gap_bounds
    if bounds is None:
        return None
    return lambda metrics: refuse_gap(metrics, bounds, where=f"{options.name}, step {step}")


def _record_rollouts(options: StageOptions, step: int, collected: Collected, recorder: Recorder) -> None:
    if collected.groups:
        recorder.rollouts(options.name, step, collected.groups, collected.advantages, left_out=collected.left_out)


def _save(
    options: StageOptions,
    loaded: LoadedModel,
    algorithm: Algorithm,
    step: int,
    policy_version: int,
    recorder: Recorder,
) -> Path:
    started = time.monotonic()
    state = {"stage": options.name, "step": step, "policy_version": policy_version, "algorithm": algorithm.state()}
    folder = save_checkpoint(options.checkpoints / f"{options.name}-{step}", loaded, state, save_beside=algorithm.save)
    seconds = time.monotonic() - started
    recorder.event("checkpoint", {"stage": options.name, "step": step, "folder": str(folder), "seconds": seconds})
    return folder
