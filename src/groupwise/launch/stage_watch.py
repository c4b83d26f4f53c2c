"""What a stage tells its display: time left, memory, spending and the last evaluation beside the numbers of a step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from groupwise.config.stage import StageSection
from groupwise.launch.cost import CostRecorder
from groupwise.launch.device_memory import memory_limit_bytes, memory_now_bytes
from groupwise.launch.display import HeldoutView, StageOutlook, StageScreen, StepView
from groupwise.launch.forecast import Forecast
from groupwise.launch.run_state import Run
from groupwise.rollout.engine import Progress
from groupwise.runs import StageSummary

RECENT_STEPS = 10
"""Time left is told from the mean seconds of so many steps."""


@dataclass(slots=True)
class StageWatch:
    """One stage of a run as its display sees it.

    Example:
        watch = StageWatch(run, stage)
        with run.display.training(watch.outlook(forecast)) as watch.screen:
            watch.step(1, metrics, "pass rate 0.50")
    """

    run: Run
    stage: StageSection
    screen: StageScreen | None = None
    """Set while the stage is shown."""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))

    def outlook(self, forecast: Forecast | None) -> StageOutlook:
        """What is known before the first step."""
        run, stage = self.run, self.stage
        names = [one.name for one in run.recipe.stages]
        expected = "" if forecast is None else f", {forecast}"
        left = None if forecast is None else forecast.seconds
        return StageOutlook(
            run=run.recipe.name,
            name=stage.name,
            title=f"{stage.name}: {stage.steps} steps{expected}",
            num_steps=stage.steps,
            number=names.index(stage.name) + 1,
            num_stages=len(names),
            stage_left_s=left,
            run_left_s=self._run_left(left),
            heldout=_heldout(run.heldout),
            memory_limit_bytes=memory_limit_bytes(run.policy.loaded.model.device),
        )

    def sampling(self, number: int) -> Progress:
        """Watches the sampling of a collection; see build_algorithm."""
        return self._sampled

    def step(self, step: int, metrics: Mapping[str, float], note: str) -> None:
        """Shows a step that has ended."""
        if self.screen is not None:
            self.screen.step(self.view(step, metrics, note))

    def view(self, step: int, metrics: Mapping[str, float], note: str) -> StepView:
        """What is known after a step."""
        run = self.run
        seconds = metrics.get("seconds_step", math.nan)
        if math.isfinite(seconds):
            self.seconds.append(seconds)
        left = self._stage_left(step)
        costs = run.recorder if isinstance(run.recorder, CostRecorder) else None
        return StepView(
            step=step,
            metrics=metrics,
            note=note,
            stage_left_s=left,
            run_left_s=self._run_left(left),
            heldout=_heldout(run.heldout),
            memory_bytes=memory_now_bytes(run.policy.loaded.model.device),
            spent_s=None if costs is None else costs.spent_seconds,
            planned_s=None if run.plan is None else run.plan.seconds,
            budget="" if run.recipe.budget is None else f"{run.spending.share:.0%} of the budget",
        )

    def _sampled(self, done: float, total: int) -> None:
        if self.screen is not None:
            self.screen.sampling(done, total)

    def _stage_left(self, step: int) -> float | None:
        """Steps that are left times what the last ones took, and evaluations between them."""
        if not self.seconds:
            return None
        every = self.run.recipe.evaluation.every
        inside = (self.stage.steps - 1) // every - step // every if every else 0
        evaluations = max(0, inside) * (self._evaluation_s() or 0.0)
        return (self.stage.steps - step) * fmean(self.seconds) + evaluations

    def _run_left(self, stage_left: float | None) -> float | None:
        """With the evaluation behind the stage, the later stages as planned, and theirs."""
        names = [one.name for one in self.run.recipe.stages]
        num_later = len(names) - 1 - names.index(self.stage.name)
        later = (
            0.0 if not num_later else None if self.run.plan is None else self.run.plan.seconds_after(self.stage.name)
        )
        evaluation = self._evaluation_s()
        if stage_left is None or later is None or evaluation is None:
            return None
        return stage_left + later + (1 + num_later) * evaluation

    def _evaluation_s(self) -> float | None:
        """As the last one took, else as planned."""
        if self.run.evaluation_s is not None:
            return self.run.evaluation_s
        return None if self.run.plan is None else self.run.plan.evaluation_seconds


def _heldout(summary: StageSummary | None) -> HeldoutView | None:
    if summary is None:
        return None
    return HeldoutView(name=summary.name, rate=summary.pass_rate, low=summary.interval.low, high=summary.interval.high)
