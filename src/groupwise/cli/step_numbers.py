"""The numbers of a step in words, for the live view and for plain lines: which ones, by what the algorithm reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.cli.trend import smoothed, sparkline, trend
from groupwise.launch.display import HeldoutView, StepView

_GB = 1e9
_ARROWS = {1: ("\u2191", "up"), 0: ("\u2192", "="), -1: ("\u2193", "down")}
"""Arrows, and what stands for them in encodings without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MainNumber:
    """What a stage is about: MainNumber(metric="pass_rate", label="pass rate", is_share=True)."""

    metric: str
    label: str
    is_share: bool


MAIN_NUMBERS = (
    MainNumber(metric="pass_rate", label="pass rate", is_share=True),
    MainNumber(metric="accuracy", label="accuracy", is_share=True),
    MainNumber(metric="nll", label="loss", is_share=False),
    MainNumber(metric="loss", label="loss", is_share=False),
)
"""The first that a step reports is drawn as a curve."""
LEAST_SHARE_SPAN = 0.2
"""A curve of shares is at least this high."""


def main_number(metrics: Mapping[str, float]) -> MainNumber | None:
    """What to draw of these metrics."""
    return next((main for main in MAIN_NUMBERS if known(metrics, main.metric)), None)


def known(metrics: Mapping[str, float], *names: str) -> bool:
    """True where all of these are there, and are numbers."""
    return all((value := metrics.get(name)) is not None and math.isfinite(value) for name in names)


def curve(main: MainNumber, history: Sequence[float], *, num_shown: int, ascii_only: bool = False) -> str:
    """The last value, the last num_shown steps as a sparkline, and where all of them go.

    "77.0%  <sparkline>  up 12.5 points in 12 steps"
    """
    points = smoothed(history)[len(history) - min(num_shown, len(history)) :]
    line = sparkline(points, least_span=LEAST_SHARE_SPAN if main.is_share else 0.0, ascii_only=ascii_only)
    parts = [f"{history[-1]:.1%}" if main.is_share else f"{history[-1]:.3f}", *([line] if line else [])]
    found = trend(history)
    if found is not None:
        arrow = _ARROWS[found.direction][ascii_only]
        change = f"{100 * found.change:+.1f} points" if main.is_share else f"{found.change:+.3f}"
        parts.append(f"{arrow} {change if found.direction else 'level'} in {found.steps} steps")
    return "  ".join(parts)


def heldout_text(heldout: HeldoutView) -> str:
    """The last held-out evaluation with its interval, and of what it was."""
    return f"{heldout.rate:.1%}  [{heldout.low:.1%}, {heldout.high:.1%}]  after {heldout.name}"


def group_text(metrics: Mapping[str, float]) -> str:
    """Groups that train and groups that do not, by what they collapsed to; empty where groups are no part of it."""
    if not known(metrics, "live_groups", "num_groups") or metrics["num_groups"] == metrics.get("num_rollouts"):
        return ""
    parts = [f"{metrics['live_groups']:.0f} of {metrics['num_groups']:.0f} live"]
    for name, words in (
        ("dead_groups_all_solved", "all solved"),
        ("dead_groups_none_solved", "none solved"),
        ("unscored_groups", "unscored"),
    ):
        if metrics.get(name):
            parts.append(f"{metrics[name]:.0f} {words}")
    return ", ".join(parts)


def answer_text(metrics: Mapping[str, float]) -> str:
    """Mean length and how many were cut, invalid, or could not be judged."""
    parts = []
    if known(metrics, "mean_length"):
        parts.append(f"{metrics['mean_length']:.0f} tokens")
    elif known(metrics, "num_generated_tokens", "num_rollouts") and metrics["num_rollouts"]:
        parts.append(f"{metrics['num_generated_tokens'] / metrics['num_rollouts']:.0f} tokens")
    for name, words in (("truncated_frac", "cut"), ("invalid_frac", "invalid"), ("unscored_frac", "unscored")):
        if known(metrics, name) and (metrics[name] or name == "truncated_frac"):
            parts.append(f"{metrics[name]:.0%} {words}")
    return ", ".join(parts)


def learning_text(metrics: Mapping[str, float]) -> str:
    """Reward, KL, entropy, and what else tells how the policy moves."""
    shown = (
        ("reward_mean", "reward {:.2f}"),
        ("reward_margin", "margin {:+.3f}"),
        ("margin", "margin {:+.3f}"),
        ("explained_variance", "explained variance {:+.2f}"),
        ("kl_to_ref_sum", "KL {:.2f} nats"),
        ("kl_to_ref", "KL {:.4f} a token"),
        ("kl_in_reward", "KL {:.2f} nats"),
        ("entropy", "entropy {:.2f}"),
        ("sampler_nll", "entropy about {:.2f}"),
        ("grad_norm", "gradient {:.2g}"),
    )
    parts: list[str] = []
    for name, pattern in shown:
        word = pattern.split(" ")[0]
        if known(metrics, name) and not any(part.startswith(f"{word} ") for part in parts):
            parts.append(pattern.format(metrics[name]))
    return ", ".join(parts)


def speed_text(metrics: Mapping[str, float]) -> str:
    """Tokens a second, sampled and trained."""
    parts = []
    for tokens, seconds, word in (
        ("num_generated_tokens", "seconds_generate", "sampled"),
        ("num_trained_tokens", "seconds_train", "trained"),
    ):
        if known(metrics, tokens, seconds) and metrics[seconds] > 0:
            parts.append(f"{_rounded(metrics[tokens] / metrics[seconds])} {word}")
    return ", ".join(parts) + (" tokens a second" if parts else "")


def memory_text(view: StepView, limit_bytes: int | None) -> str:
    """Memory now and what there is, in GB."""
    if view.memory_bytes is None:
        return ""
    now = view.memory_bytes / _GB
    if not limit_bytes:
        return f"{now:.1f} GB"
    return f"{now:.1f} of {limit_bytes / _GB:.1f} GB ({view.memory_bytes / limit_bytes:.0%})"


def spent_text(spent_s: float | None, planned_s: float | None, budget: str) -> str:
    """Time spent against the plan and the budget."""
    if spent_s is None:
        return budget
    parts = [duration(spent_s)]
    if planned_s:
        parts = [f"{duration(spent_s)} of {duration(planned_s)} planned ({spent_s / planned_s:.0%})"]
    return ", ".join([*parts, *([budget] if budget else [])])


def duration(seconds: float) -> str:
    """ "8 s", "2 min 26 s", "3 h 05 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def step_seconds(seconds: float) -> str:
    """Seconds with as many digits as they are worth."""
    return f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
