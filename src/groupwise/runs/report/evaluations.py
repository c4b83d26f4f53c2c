"""The held-out evaluations of a run as its report reads them, from the events of any version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.runs.comparison.paired import PairedDifference, paired_difference
from groupwise.runs.comparison.variety import PassAtKDifference, pass_at_differences
from groupwise.runs.intervals import Interval, clustered_wilson, wilson
from groupwise.runs.record import RunRecord
from groupwise.runs.report.reward_models import reward_model_stages
from groupwise.runs.report.steps import number
from groupwise.runs.report.words import interval_of
from groupwise.runs.summary import StageSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One evaluation.

    Example:
        Measured(name="sft", policy_version=30, rate=0.34, interval=Interval(0.26, 0.43), rates={"q1": 0.25}, ...)
    """

    name: str
    """base, the name of a stage, or "grpo step 40" within one."""
    policy_version: int
    rate: float | None
    """Mean over prompts at the sampling temperature; None where nothing was sampled."""
    interval: Interval | None
    greedy_rate: float | None
    greedy_interval: Interval | None
    rates: Mapping[str, float]
    """Share solved of each prompt's samples; empty where only a summary is left."""
    greedy: Mapping[str, float]
    """1 or 0 for each prompt."""
    num_prompts: int
    samples_per_prompt: int
    event: Mapping[str, Any]
    """The event itself; {} where only a summary is left."""
    summary: StageSummary | None = None

    @property
    def is_final(self) -> bool:
        """False within a stage."""
        return " step " not in self.name

    @property
    def best_known(self) -> tuple[float, Interval] | None:
        """The sampled rate, else the greedy one, with its interval."""
        if self.rate is not None and self.interval is not None:
            return self.rate, self.interval
        if self.greedy_rate is not None and self.greedy_interval is not None:
            return self.greedy_rate, self.greedy_interval
        return None

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """(solved, scored) of each prompt's samples."""
        scored = self.event.get("scored")
        of = scored if isinstance(scored, Mapping) else {}
        known = {task: int(number(of.get(task, self.samples_per_prompt)) or 0) for task in self.rates}
        return {task: (round(self.rates[task] * n), n) for task, n in known.items() if n}

    def length(self, *, right: bool) -> float | None:
        """Mean tokens of right or wrong answers."""
        name = "mean_length_right" if right else "mean_length_wrong"
        found = number(self.event.get(name))
        return found if found is not None or self.summary is None else getattr(self.summary, name)

    @property
    def truncated_frac(self) -> float | None:
        """Share of answers cut at the token limit."""
        found = number(self.event.get("truncated_frac"))
        return found if found is not None or self.summary is None else self.summary.truncated_frac


def evaluations_of(record: RunRecord) -> list[Measured]:
    """Every evaluation in the order made; those of the summary where no event is left. The latest of a name counts.

    A stage that trains a reward model has none: its row in the summary is that of the weights before it.
    """
    settings = record.recipe.get("evaluation") or {}
    samples = int(number(settings.get("samples_per_prompt")) or 1)
    summaries = {stage.name: stage for stage in record.summary.stages} if record.summary else {}
    found: dict[str, Measured] = {}
    for event in record.events_named("evaluation"):
        name = str(event.get("name", "?"))
        found.pop(name, None)
        found[name] = _from_event(event, name, samples, summaries.get(name))
    others = reward_model_stages(record)
    return list(found.values()) or [
        _from_summary(stage)
        for stage in summaries.values()
        if stage.name not in others and not stage.is_policy_unchanged
    ]


def sampled_difference(first: Measured, second: Measured) -> PairedDifference | None:
    """Second minus first on the prompts that both sampled; None where there is none."""
    return _paired(first.rates, second.rates)


def greedy_difference(first: Measured, second: Measured) -> PairedDifference | None:
    """Second minus first on the prompts that both answered greedily; None where there is none."""
    return _paired(first.greedy, second.greedy)


def pass_at_difference(first: Measured, second: Measured) -> tuple[PassAtKDifference, ...]:
    """pass@k for k > 1 of both on the prompts that both sampled; empty where nobody counted samples."""
    return pass_at_differences(first.counts, second.counts)


def _paired(first: Mapping[str, float], second: Mapping[str, float]) -> PairedDifference | None:
    both = [task for task in first if task in second]
    if not both:
        return None
    return paired_difference({task: first[task] for task in both}, {task: second[task] for task in both})


def _from_event(event: Mapping[str, Any], name: str, samples: int, summary: StageSummary | None) -> Measured:
    samples = int(number(event.get("samples_per_prompt")) or samples)
    rates = _rates(event.get("solved"), event.get("scored"), samples)
    greedy = _rates(event.get("greedy_solved"), event.get("greedy_scored"), 1)
    rate = number(event.get("pass_rate"))
    greedy_rate = number(event.get("greedy_pass_rate"))
    return Measured(
        name=name,
        policy_version=int(number(event.get("policy_version")) or 0),
        rate=rate,
        interval=interval_of(event.get("interval"))
        or (clustered_wilson(list(rates.values()), samples) if rates else None)
        if rate is not None
        else None,
        greedy_rate=greedy_rate,
        greedy_interval=interval_of(event.get("greedy_interval"))
        or (wilson(sum(greedy.values()), len(greedy)) if greedy else None),
        rates=rates,
        greedy=greedy,
        num_prompts=len(rates) or len(greedy),
        samples_per_prompt=samples,
        event=event,
        summary=summary,
    )


def _from_summary(stage: StageSummary) -> Measured:
    return Measured(
        name=stage.name,
        policy_version=0,
        rate=number(stage.pass_rate),
        interval=stage.interval,
        greedy_rate=stage.greedy_pass_rate,
        greedy_interval=stage.greedy_interval,
        rates={},
        greedy={},
        num_prompts=stage.num_prompts,
        samples_per_prompt=0,
        event={},
        summary=stage,
    )


def _rates(solved: Any, scored: Any, samples: int) -> dict[str, float]:
    """Solved of scored; where an older run did not count the scored ones, of all samples."""
    if not isinstance(solved, Mapping):
        return {}
    counted = scored if isinstance(scored, Mapping) else {}
    shares = {}
    for task, num_solved in solved.items():
        of = number(counted.get(task, samples))
        if of and number(num_solved) is not None:
            shares[str(task)] = min(1.0, num_solved / of)
    return shares
