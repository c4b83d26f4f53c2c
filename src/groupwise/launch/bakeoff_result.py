"""One run of a bake-off in numbers: read from the folder that `groupwise train` wrote, nothing computed from plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from groupwise.launch.spending import SPENT
from groupwise.runs import RunDirectory, read_events, read_metrics, read_summary
from groupwise.training.signal_search import NO_SIGNAL

PHASES = ("generate", "judge", "score", "train", "evaluate", "other")
"""Where the wall-clock time of a run's process goes. score = forwards of networks on rollouts before the updates;
other = starting, loading, checking golds and numerics, saving, and what a stage computes before its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One arm with one seed.

    Example:
        RunResult(arm="ppo", seed=1, steps=12, ended_by="budget", spent={"rollout_tokens": 20480, ...}, ...)
    """

    arm: str
    seed: int
    method: str
    """The algorithm's name."""
    steps: int
    ended_by: str
    """budget, steps (all were done before the budget was used up), no signal, or failed."""
    failure: str = ""
    """What the run said where it failed."""
    spent: Mapping[str, float | None]
    """rollout_tokens, seconds and flops of learning; evaluations are no part of them."""
    samples_per_prompt: int
    """Held-out completions of each prompt; 1 where only the greedy one was measured."""
    solved: Mapping[str, int]
    """Held-out prompts: how many of those solve it."""
    scored: Mapping[str, int] = field(default_factory=dict)
    """How many of those could be judged; a prompt that is missing here had all of them judged."""
    greedy_solved: Mapping[str, int]
    """Of the one greedy completion, where it could be judged."""
    mean_length_right: float | None
    """Tokens of held-out answers after training."""
    mean_length_wrong: float | None
    wall_s: float
    """Of the whole process."""
    phases_s: Mapping[str, float]
    """By PHASES; they sum to wall_s."""
    peak_bytes: int
    """The most that the process held: resident memory, or on a GPU what torch had allocated."""
    held_bytes: Mapping[str, Mapping[str, int]]
    """By network and part, counted tensor by tensor after the first step; see training/memory.py."""
    trained_tokens: float
    """Completion tokens in optimizer steps of the policy, each time they were used."""
    num_rollouts: int
    """Sampled for learning."""
    wasted_rollouts: int
    """Of these, in groups of 2 or more whose outcomes are all equal."""
    wasted_tokens: int
    num_groups: int
    wasted_groups: int
    curve: tuple[Mapping[str, Any], ...]
    """Held-out evaluations in the order in which they were made, each with what was spent until then."""
    lengths: tuple[Mapping[str, Any], ...]
    """By step: mean tokens of right and wrong rollouts, and the rollout tokens spent until then."""

    @property
    def rates(self) -> dict[str, float]:
        """By held-out prompt: the share solved of what could be judged."""
        return solved_rates(self.solved, self.scored, self.samples_per_prompt)

    @property
    def networks(self) -> tuple[str, ...]:
        """Those that are held in memory."""
        return tuple(self.held_bytes)

    @property
    def trained_bytes(self) -> int:
        """Weights, gradients and optimizer states of all networks that learn."""
        return sum(sum(parts.values()) for parts in self.held_bytes.values() if "gradients" in parts)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunResult:
        """What `to_json` gave."""
        return cls(**{**values, "curve": tuple(values["curve"]), "lengths": tuple(values["lengths"])})


def failed_result(arm: str, seed: int, method: str, failure: str, wall_s: float) -> RunResult:
    """A run that ended with an error or without a step; it is part of no mean."""
    return RunResult(
        arm=arm,
        seed=seed,
        method=method,
        steps=0,
        ended_by="failed",
        failure=failure,
        spent={"rollout_tokens": 0, "seconds": 0.0, "flops": None},
        samples_per_prompt=1,
        solved={},
        greedy_solved={},
        mean_length_right=None,
        mean_length_wrong=None,
        wall_s=wall_s,
        phases_s=dict.fromkeys(PHASES[:-1], 0.0) | {"other": wall_s},
        peak_bytes=0,
        held_bytes={},
        trained_tokens=0.0,
        num_rollouts=0,
        wasted_rollouts=0,
        wasted_tokens=0,
        num_groups=0,
        wasted_groups=0,
        curve=(),
        lengths=(),
    )


def run_result(
    folder: Path, *, arm: str, seed: int, method: str, num_steps: int, samples_per_prompt: int, wall_s: float
) -> RunResult:
    """Reads a finished run whose one stage is the arm.

    Raises:
        DataError: if the folder is no finished run.
    """
    directory = RunDirectory.open(folder)
    metrics = read_metrics(directory.metrics)
    events = read_events(directory.events)
    summary = read_summary(directory.summary)
    steps = [row for row in metrics if row["stage"] == arm]
    spent = next(e for e in reversed(events) if e["event"] == SPENT)
    evaluations = [e for e in events if e["event"] == "evaluation"]
    last, final = evaluations[-1], summary.stages[-1]
    memory: dict[str, dict[str, int]] = next((e["bytes"] for e in events if e["event"] == "memory"), {})
    waste = _waste(directory.rollouts)
    ended_early = any(e["event"] in ("no_signal", "nothing_left") for e in events)
    return RunResult(
        arm=arm,
        seed=seed,
        method=method,
        steps=len(steps),
        ended_by="steps" if len(steps) == num_steps else "no signal" if ended_early else "budget",
        spent={name: spent[name] for name in ("rollout_tokens", "seconds", "flops")},
        samples_per_prompt=max(1, samples_per_prompt),
        solved=last["solved"] or last["greedy_solved"],
        scored=last.get("scored" if last["solved"] else "greedy_scored", {}),
        greedy_solved=judged_greedy(last),
        mean_length_right=final.mean_length_right,
        mean_length_wrong=final.mean_length_wrong,
        wall_s=wall_s,
        phases_s=_phases(metrics, arm, spent["seconds_generate"], evaluations, wall_s),
        peak_bytes=summary.peak_memory_bytes or 0,
        held_bytes=memory,
        trained_tokens=sum(row.get("num_trained_tokens") or 0.0 for row in steps),
        num_rollouts=waste["num_rollouts"],
        wasted_rollouts=waste["wasted_rollouts"],
        wasted_tokens=waste["wasted_tokens"],
        num_groups=waste["num_groups"],
        wasted_groups=waste["wasted_groups"],
        curve=tuple(_point(event, samples_per_prompt) for event in evaluations),
        lengths=_lengths(steps),
    )


def solved_rates(solved: Mapping[str, int], scored: Mapping[str, int], num_samples: int) -> dict[str, float]:
    """By prompt: solved / scored, for prompts with a scored sample; num_samples were scored where nothing is said."""
    trials = {task: scored.get(task, max(1, num_samples)) for task in solved}
    return {task: num / trials[task] for task, num in solved.items() if trials[task]}


def judged_greedy(evaluation: Mapping[str, Any]) -> dict[str, int]:
    """By prompt: whether its greedy completion solves it, where that could be judged."""
    scored = evaluation.get("greedy_scored", {})
    return {task: num for task, num in evaluation["greedy_solved"].items() if scored.get(task, 1)}


def _phases(
    metrics: Sequence[Mapping[str, Any]],
    arm: str,
    generate_s: float,
    evaluations: Sequence[Mapping[str, Any]],
    wall_s: float,
) -> dict[str, float]:
    """The engine's own clock gives generate: pass rates, pairs and demonstrations are sampled outside steps."""
    rows = [row for row in metrics if row["stage"] in (arm, arm + NO_SIGNAL)]
    seconds = {"generate": generate_s}
    for phase in ("judge", "score", "train"):
        seconds[phase] = math.fsum(row.get(f"seconds_{phase}") or 0.0 for row in rows)
    seconds["evaluate"] = math.fsum(event["seconds"] for event in evaluations)
    seconds["other"] = max(0.0, wall_s - math.fsum(seconds.values()))
    return {phase: seconds[phase] for phase in PHASES}


def _waste(rollouts: Path) -> dict[str, int]:
    """Counts over everything that was sampled for learning and is on record."""
    counts = dict.fromkeys(("num_rollouts", "wasted_rollouts", "wasted_tokens", "num_groups", "wasted_groups"), 0)
    for path in sorted(rollouts.glob("*.parquet")):
        if path.name.startswith("evaluation-"):
            continue
        groups: dict[int, list[Mapping[str, Any]]] = {}
        for row in pq.read_table(path, columns=["group", "outcome", "num_tokens"]).to_pylist():
            groups.setdefault(row["group"], []).append(row)
        for members in groups.values():
            counts["num_groups"] += 1
            counts["num_rollouts"] += len(members)
            if len(members) > 1 and len({row["outcome"] for row in members} - {None}) < 2:
                counts["wasted_groups"] += 1
                counts["wasted_rollouts"] += len(members)
                counts["wasted_tokens"] += sum(row["num_tokens"] for row in members)
    return counts


def _point(event: Mapping[str, Any], samples_per_prompt: int) -> dict[str, Any]:
    if event["solved"]:
        rates = solved_rates(event["solved"], event.get("scored", {}), samples_per_prompt)
    else:
        rates = {task: float(num) for task, num in judged_greedy(event).items()}
    return {
        "name": event["name"],
        **{name: event[SPENT][name] for name in ("rollout_tokens", "seconds", "flops")},
        "rates": rates,
        "greedy_pass_rate": event["greedy_pass_rate"],
    }


def _lengths(steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    rows, tokens = [], 0.0
    for row in steps:
        tokens += row.get("num_generated_tokens") or 0.0
        if "mean_length_wrong" in row:
            lengths = {side: row.get(f"mean_length_{side}") for side in ("right", "wrong")}
            rows.append({"step": row["step"], "rollout_tokens": tokens, **lengths})
    return tuple(rows)
