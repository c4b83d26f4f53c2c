"""What the runs of a bake-off say together: each arm pooled over its seeds, and the arms compared pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from groupwise.launch.bakeoff_result import PHASES, RunResult, judged_greedy, solved_rates
from groupwise.runs import Interval, PairedDifference, clustered_wilson, paired_difference

START = "start"
"""Stands among the arms for the model that all of them start from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The runs of one arm, pooled by held-out prompt: a prompt's rate is its mean over seeds and samples."""

    name: str
    method: str
    runs: tuple[RunResult, ...]
    """Those that did not fail."""
    num_failed: int
    rates: Mapping[str, float]
    """By prompt; empty where no run ended well."""
    interval: Interval
    """95 % of pass_rate, for new prompts."""
    greedy_pass_rate: float | None

    @property
    def pass_rate(self) -> float | None:
        """Mean over prompts; None where no run ended well."""
        return fmean(self.rates.values()) if self.rates else None

    @property
    def by_seed(self) -> dict[int, float]:
        """The pass rate of each run."""
        return {run.seed: fmean(run.rates.values()) for run in self.runs}

    def mean(self, name: str) -> float | None:
        """Mean over the runs of a number of RunResult."""
        values = [getattr(run, name) for run in self.runs]
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    def spent(self, unit: str) -> float | None:
        """Mean over the runs."""
        values = [run.spent[unit] for run in self.runs]
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    def phases_s(self) -> dict[str, float]:
        """Mean over the runs, by PHASES."""
        return {phase: fmean(run.phases_s[phase] for run in self.runs) if self.runs else 0.0 for phase in PHASES}

    def held_bytes(self) -> Mapping[str, Mapping[str, int]]:
        """The same in every run."""
        return self.runs[0].held_bytes if self.runs else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two arms on the same held-out prompts."""

    first: str
    second: str
    difference: PairedDifference
    """Second minus first, over prompts."""
    seeds_agree: bool
    """Every seed has the sign of the difference."""

    @property
    def verdict(self) -> str:
        """Which is better, or "not distinguishable": the interval holds 0, or seeds disagree."""
        if not (self.difference.is_distinguishable and self.seeds_agree):
            return "not distinguishable"
        return f"{self.second if self.difference.difference > 0 else self.first} is better"


def pooled(results: Sequence[RunResult]) -> tuple[Arm, ...]:
    """The arms in the order in which they first appear."""
    return tuple(
        _arm(name, [r for r in results if r.arm == name]) for name in dict.fromkeys(result.arm for result in results)
    )


def start_arm(start: Mapping[str, Any], samples_per_prompt: int) -> Arm:
    """The start model as an arm without runs: its evaluations with the seeds of the runs."""
    rows = start["evaluations"]
    samples = max(1, samples_per_prompt)
    rates = _mean_rates(
        [
            solved_rates(row["solved"], row.get("scored", {}), samples) if row["solved"] else judged_greedy(row)
            for row in rows
        ]
    )
    greedy = [n for row in rows for n in judged_greedy(row).values()]
    return Arm(
        name=START,
        method="",
        runs=(),
        num_failed=0,
        rates=rates,
        interval=clustered_wilson(list(rates.values()), samples * len(rows)),
        greedy_pass_rate=fmean(greedy) if greedy else None,
    )


def compared(arms: Sequence[Arm]) -> tuple[Comparison, ...]:
    """Every two arms that ended well."""
    usable = [arm for arm in arms if arm.rates]
    return tuple(_comparison(first, second) for first, second in combinations(usable, 2))


def value_network_share(arms: Sequence[Arm]) -> Mapping[str, Any] | None:
    """What a value network holds of the trained state, and an arm without one beside it; None where no arm has one.

    Example:
        {"arm": "ppo", "trained_bytes": 4e9, "critic_bytes": 2e9, "other": "grpo", "other_trained_bytes": 2e9}
    """
    with_critic = [arm for arm in arms if "critic" in arm.held_bytes()]
    others = [arm for arm in arms if arm.runs and arm.method == "grpo"]
    if not with_critic:
        return None
    arm = with_critic[0]
    found = {
        "arm": arm.name,
        "trained_bytes": arm.runs[0].trained_bytes,
        "critic_bytes": sum(arm.held_bytes()["critic"].values()),
    }
    if others:
        found |= {"other": others[0].name, "other_trained_bytes": others[0].runs[0].trained_bytes}
    return found


def report_json(
    start: Mapping[str, Any], results: Sequence[RunResult], budget: Mapping[str, Any], samples_per_prompt: int
) -> dict[str, Any]:
    """bakeoff.json."""
    arms = pooled(results)
    everything = (start_arm(start, samples_per_prompt), *arms)
    return {
        "model": start["model"],
        "budget": dict(budget),
        "seeds": sorted({result.seed for result in results}),
        "arms": [_arm_json(arm) for arm in everything],
        "comparisons": [
            {
                "first": c.first,
                "second": c.second,
                "difference": c.difference.difference,
                "interval": [c.difference.interval.low, c.difference.interval.high],
                "num_prompts": c.difference.num_prompts,
                "seeds_agree": c.seeds_agree,
                "verdict": c.verdict,
            }
            for c in compared(everything)
        ],
        "value_network": value_network_share(arms),
        "gradient": start["gradient"],
        "start": start["evaluations"],
        "runs": [result.to_json() for result in results],
    }


def _arm(name: str, results: Sequence[RunResult]) -> Arm:
    runs = tuple(result for result in results if result.ended_by != "failed")
    rates = _mean_rates([run.rates for run in runs])
    greedy = [n for run in runs for n in run.greedy_solved.values()]
    samples = sum(run.samples_per_prompt for run in runs)
    return Arm(
        name=name,
        method=results[0].method,
        runs=runs,
        num_failed=len(results) - len(runs),
        rates=rates,
        interval=clustered_wilson(list(rates.values()), max(1, samples)),
        greedy_pass_rate=fmean(greedy) if greedy else None,
    )


def _mean_rates(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over the runs, of the prompts that all of them measured."""
    shared = [task for task in rows[0] if all(task in row for row in rows)] if rows else []
    return {task: min(1.0, fmean(row[task] for row in rows)) for task in shared}


def _comparison(first: Arm, second: Arm) -> Comparison:
    shared = first.rates.keys() & second.rates.keys()
    difference = paired_difference(
        {task: first.rates[task] for task in sorted(shared)}, {task: second.rates[task] for task in sorted(shared)}
    )
    return Comparison(
        first=first.name, second=second.name, difference=difference, seeds_agree=_agree(first, second, difference)
    )


def _agree(first: Arm, second: Arm, difference: PairedDifference) -> bool:
    """Seed by seed where both have it; the start model has one rate for all seeds."""
    ones, others = first.by_seed, second.by_seed
    seeds = (ones.keys() or others.keys()) & (others.keys() or ones.keys())
    signs = [others.get(s, second.pass_rate or 0.0) - ones.get(s, first.pass_rate or 0.0) for s in seeds]
    return all(sign * difference.difference > 0 for sign in signs)


def _arm_json(arm: Arm) -> dict[str, Any]:
    has_runs = bool(arm.runs)
    return {
        "name": arm.name,
        "method": arm.method,
        "num_runs": len(arm.runs),
        "num_failed": arm.num_failed,
        "pass_rate": arm.pass_rate,
        "interval": [arm.interval.low, arm.interval.high],
        "by_seed": {str(seed): rate for seed, rate in arm.by_seed.items()},
        "greedy_pass_rate": arm.greedy_pass_rate,
        "wall_s": arm.mean("wall_s"),
        "phases_s": arm.phases_s() if has_runs else None,
        "peak_bytes": arm.mean("peak_bytes"),
        "held_bytes": arm.held_bytes(),
        "networks": list(arm.held_bytes()),
        "spent": {unit: arm.spent(unit) for unit in ("rollout_tokens", "seconds", "flops")} if has_runs else None,
        "trained_tokens": arm.mean("trained_tokens"),
        "mean_length_right": arm.mean("mean_length_right"),
        "mean_length_wrong": arm.mean("mean_length_wrong"),
        "wasted_rollout_share": wasted_share(arm),
    }


def wasted_share(arm: Arm) -> float | None:
    """Share of the rollouts in groups whose outcomes are all equal; None where the arm samples no groups."""
    total = sum(run.num_rollouts for run in arm.runs)
    return sum(run.wasted_rollouts for run in arm.runs) / total if total else None
