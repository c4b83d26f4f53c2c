"""What a run achieved, in numbers that can be compared: summary.json and the table at the end of a run.

A pass rate stands next to its interval and next to the number of prompts behind it. The first stage is "base": the
model before any training, measured the same way.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from groupwise.errors import DataError
from groupwise.runs.directory import write_atomic
from groupwise.runs.intervals import Interval
from groupwise.runs.recorder import finite

_PACKAGES = ("torch", "transformers", "groupwise")

UNSCORED_TOLD = 0.05
"""Share of completions without a verdict above which a rate says so beside itself. What is left out may move the rate
by as much; the interval of 200 prompts reaches 7 points to each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """The held-out evaluation after one stage.

    Example:
        StageSummary(name="grpo", pass_rate=0.62, interval=Interval(0.55, 0.69), greedy_pass_rate=0.66,
                     greedy_interval=Interval(0.56, 0.75), num_prompts=100, mean_length_right=31.0,
                     mean_length_wrong=44.5, truncated_frac=0.01, seconds=812.0)
    """

    name: str
    """base, or the name of a stage of the recipe."""
    pass_rate: float
    """Mean over prompts of the share of solved completions, sampled at the temperature of [evaluation]."""
    interval: Interval
    """95 % interval of pass_rate, clustered by prompt."""
    greedy_pass_rate: float | None
    """Share of prompts that the greedy completion solves; None where it was not measured."""
    greedy_interval: Interval | None
    """95 % interval of greedy_pass_rate."""
    num_prompts: int
    """Held-out prompts behind both rates."""
    mean_length_right: float | None
    """Tokens of solved completions; None when there are none."""
    mean_length_wrong: float | None
    """Tokens of completions that do not solve the task; None when there are none."""
    truncated_frac: float
    """Share of completions cut at the token limit, 0..1."""
    seconds: float
    """Wall-clock time of the stage, its evaluation included."""
    judged_frac: float = 1.0
    """Share of the sampled completions that have a verdict, 0..1: pass_rate is of these."""
    greedy_judged_frac: float = 1.0
    """The same of the greedy ones."""
    is_policy_unchanged: bool = False
    """True of a reward_model stage: nothing was measured, and the numbers are those of the row before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run.

    Example:
        RunSummary(stages=(base, sft, grpo), peak_memory_bytes=2**30, seeds={"run": 17}, versions=software_versions())
    """

    stages: tuple[StageSummary, ...]
    """In the order in which they ran, "base" first."""
    peak_memory_bytes: int | None
    """Largest memory in use at any time; None where it was not measured."""
    seeds: Mapping[str, int]
    """Every seed that the run drew from, by what it decides."""
    versions: Mapping[str, str]
    """From `software_versions`."""


def software_versions() -> dict[str, str]:
    """Python, the platform, and the packages that decide numbers, from package metadata: none of them is imported."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def write_summary(path: str | Path, summary: RunSummary) -> None:
    """Write summary.json atomically. An interval is [low, high]; a number that is not finite is null."""
    fields = asdict(summary) | {"stages": [_stage_fields(stage) for stage in summary.stages]}
    write_atomic(path, json.dumps(finite(fields), indent=2, allow_nan=False) + "\n")


def read_summary(path: str | Path) -> RunSummary:
    """The record that `write_summary` wrote.

    Raises:
        DataError: if the file is missing or is not a summary.
    """
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        stages = tuple(_stage(stage) for stage in fields.pop("stages"))
        return RunSummary(stages=stages, **fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{str(path)!r} is not the summary of a finished run ({type(error).__name__}: {error}); "
            "give the summary.json of a run folder"
        ) from error


def stage_table(stages: Sequence[StageSummary]) -> Table:
    """One row a stage, for the terminal."""
    rows = Table(
        title="Held-out pass rates, sampled and greedy, with 95 % intervals,\n"
        "mean tokens of right and wrong answers, share cut at the limit",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    rows.add_column("stage", no_wrap=True)
    for heading in ("pass rate", "greedy", "prompts", "right", "wrong", "cut", "time"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for stage in stages:
        if stage.is_policy_unchanged:
            rows.add_row(stage.name, "policy unchanged", *[""] * 5, _duration(stage.seconds))
            continue
        rows.add_row(
            stage.name,
            _rate(stage.pass_rate, stage.interval) + judged_note(stage.judged_frac),
            _rate(stage.greedy_pass_rate, stage.greedy_interval) + judged_note(stage.greedy_judged_frac),
            str(stage.num_prompts),
            _length(stage.mean_length_right),
            _length(stage.mean_length_wrong),
            f"{stage.truncated_frac:.0%}",
            _duration(stage.seconds),
        )
    return rows


def judged_note(judged_frac: float) -> str:
    """ " of 59% judged" behind a rate that leaves out more than UNSCORED_TOLD; else empty."""
    return f" of {judged_frac:.0%} judged" if judged_frac < 1 - UNSCORED_TOLD else ""


def _stage(fields: dict[str, Any]) -> StageSummary:
    greedy = fields.pop("greedy_interval")
    return StageSummary(
        interval=Interval(*fields.pop("interval")),
        greedy_interval=None if greedy is None else Interval(*greedy),
        **fields,
    )


def _stage_fields(stage: StageSummary) -> dict[str, Any]:
    greedy = stage.greedy_interval
    return asdict(stage) | {
        "interval": [stage.interval.low, stage.interval.high],
        "greedy_interval": None if greedy is None else [greedy.low, greedy.high],
    }


def _rate(rate: float | None, interval: Interval | None) -> str:
    if rate is None:
        return "-"
    if interval is None:
        return f"{rate:.1%}"
    return f"{rate:.1%} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def _length(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:.0f}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.1f} min"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
