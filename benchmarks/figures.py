"""The figures of the suite: which script measures each, what it is meant to reach, and the one table of all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One call of a script: Measurement(name="step-a", script="step_vs_trl.py", options=("--job", "a"), minutes=5)."""

    name: str
    script: str
    options: tuple[str, ...]
    minutes: float
    """A rough duration on two cores, at the script's default number of repetitions."""

    @property
    def result_name(self) -> str:
        """Of its JSON file."""
        return f"{self.name}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table.

    Example:
        Figure(title="memory", measurement="step-a", path=("trl_over_groupwise", "peak_rss_bytes"), target=3.0)
    """

    title: str
    measurement: str
    path: tuple[str, ...]
    """Where the spread stands in the summary of the measurement."""
    target: float
    at_least: bool = True
    """True: the figure should be the target or more; False: less than the target."""
    unit: str = ""
    scale: float = 1.0
    digits: int = 2


MEASUREMENTS = (
    Measurement(name="step-a", script="step_vs_trl.py", options=("--job", "a"), minutes=5),
    Measurement(name="generation-vllm-c", script="generation_vs_peers.py", options=("--job", "c"), minutes=10),
    Measurement(name="training-a", script="training_flops.py", options=("--job", "a"), minutes=4),
    Measurement(name="growth-b", script="cost_growth.py", options=("--job", "b"), minutes=6),
    Measurement(name="overhead-a", script="overhead.py", options=("--job", "a"), minutes=6),
    Measurement(
        name="generation-transformers-a",
        script="generation_vs_peers.py",
        options=("--peer", "transformers", "--job", "a"),
        minutes=5,
    ),
    Measurement(name="step-d", script="step_vs_trl.py", options=("--job", "d"), minutes=5),
    Measurement(name="step-b", script="step_vs_trl.py", options=("--job", "b", "--warm-up-steps", "0"), minutes=15),
    Measurement(name="step-c", script="step_vs_trl.py", options=("--job", "c", "--warm-up-steps", "0"), minutes=40),
)
"""The most telling first, the longest last."""

TRL_SECONDS = ("trl_over_groupwise", "seconds")

FIGURES = (
    Figure(title="GRPO step, TRL / Groupwise, job a", measurement="step-a", path=TRL_SECONDS, target=10, unit="x"),
    Figure(title="GRPO step, TRL / Groupwise, job b", measurement="step-b", path=TRL_SECONDS, target=15, unit="x"),
    Figure(title="GRPO step, TRL / Groupwise, job c", measurement="step-c", path=TRL_SECONDS, target=15, unit="x"),
    Figure(title="GRPO step, TRL / Groupwise, job d", measurement="step-d", path=TRL_SECONDS, target=1.5, unit="x"),
    Figure(
        title="peak memory, TRL / Groupwise, job a",
        measurement="step-a",
        path=("trl_over_groupwise", "peak_rss_bytes"),
        target=3,
        unit="x",
    ),
    Figure(
        title="tokens/s, Groupwise / vLLM, job c",
        measurement="generation-vllm-c",
        path=("groupwise_over_peer",),
        target=2,
        unit="x",
    ),
    Figure(
        title="tokens/s, Groupwise / transformers, job a",
        measurement="generation-transformers-a",
        path=("groupwise_over_peer",),
        target=5,
        unit="x",
    ),
    Figure(
        title="training phase, share of the fastest products, job a",
        measurement="training-a",
        path=("warm_share_of_peak",),
        target=70,
        unit="%",
        scale=100,
        digits=0,
    ),
    Figure(
        title="step time, group of 32 / group of 16, job b",
        measurement="growth-b",
        path=("growth",),
        target=1.6,
        at_least=False,
        unit="x",
    ),
    Figure(
        title="step outside the model's arithmetic, job a",
        measurement="overhead-a",
        path=("share_outside",),
        target=5,
        at_least=False,
        unit="%",
        scale=100,
        digits=1,
    ),
)

TINY = ("--num-prompts", "2", "--group-size", "2", "--prompt-tokens", "60", "--shared-tokens", "0")
QUICK_OPTIONS = (*TINY, "--completion-tokens", "4", "--repetitions", "1")
"""Every script once on a tiny step: shows that it runs; the numbers mean nothing."""


def read_summary(path: Path) -> dict[str, Any]:
    """The summary in a result file; empty where there is no file or no complete repetition."""
    if not path.is_file():
        return {}
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["summary"]
    return summary


def line_of(figure: Figure, summary: dict[str, Any], *, judged: bool = True) -> str:
    """One line of the table: what, target, median, range, and, if judged, whether the median reaches the target."""
    sign, unit = ("" if figure.at_least else "< "), f" {figure.unit}" if figure.unit == "%" else figure.unit
    target = f"{sign}{figure.target:g}{unit}"
    values: Any = summary
    for key in figure.path:
        values = values.get(key) if isinstance(values, dict) else None
    if values is None:
        return f"| {figure.title} | {target} | not measured | | |"
    median, least, most = (values[key] * figure.scale for key in ("median", "min", "max"))
    reached = median >= figure.target if figure.at_least else median < figure.target
    digits = figure.digits
    verdict = ("yes" if reached else "no") if judged else "-"
    shown = f"{median:.{digits}f}{unit} | {least:.{digits}f} - {most:.{digits}f}"
    return f"| {figure.title} | {target} | {shown} | {verdict} |"


def table(folder: Path, *, judged: bool = True) -> str:
    """All figures from the result files in a folder, as a Markdown table."""
    results = {m.name: folder / m.result_name for m in MEASUREMENTS}
    lines = ["| figure | target | measured (median) | min - max | reached |", "|---|---|---|---|---|"]
    for figure in FIGURES:
        lines.append(line_of(figure, read_summary(results[figure.measurement]), judged=judged))
    return "\n".join(lines)
