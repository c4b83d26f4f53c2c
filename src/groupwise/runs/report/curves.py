"""The curves of a report: every number that a step leaves, on the axis of the whole run, each with its meaning.

`CURVES` says what is drawn together. What no curve shows stands in a table, so that a new metric is never invisible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from groupwise.pages import Cell, Chart, Section, Table, column_chart, line_chart
from groupwise.runs.metrics.metric import Metric
from groupwise.runs.metrics.of_costs import PHASES
from groupwise.runs.metrics.registry import describe_metric
from groupwise.runs.report.smoothing import course_of
from groupwise.runs.report.steps import Steps, curve, markers_from, number, spans, thinned_note

MAX_RUNS = 14
"""Curves of different runs in one chart: as many as it has colours and dashes."""
MAX_BANDS = 3
"""Runs in one chart up to which the band of a thinned curve is drawn: more of them hide the curves."""
MAX_COLUMNS = 60
_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Metrics of one unit that are read together.

    Example:
        Curve(title="Entropy", y_title="nats a token", metrics={"entropy": "of the policy", "sampler_nll": "sampled"})
    """

    title: str
    y_title: str
    metrics: Mapping[str, str]
    """Name of the metric and what the legend calls it; with several runs the first that is there is drawn."""
    format: str = ""
    log: bool = False
    by_stage: bool = False
    """One chart a stage: losses of different methods do not share a scale."""
    scale: float = 1.0
    """What a value is divided by."""
    caption: str = ""
    bounds: tuple[float, float] | None = None
    """What the axis shows at least."""
    is_smoothed: bool = False
    """The line is the moving mean, and steps are points: a rate over the few prompts of a step jumps."""


CURVES = (
    Curve(
        title="Pass rate of training answers",
        y_title="share solved",
        format=".2~%",
        bounds=(0, 1),
        is_smoothed=True,
        metrics={"pass_rate": "solved"},
    ),
    Curve(
        title="Reward of training answers",
        y_title="mean reward",
        is_smoothed=True,
        metrics={"reward_mean": "reward", "reward_with_kl_mean": "with the KL in it"},
    ),
    Curve(title="Loss", y_title="loss", by_stage=True, metrics={"loss": "loss"}),
    Curve(title="Preferred over rejected", y_title="share of pairs", format=".2~%", metrics={"accuracy": "accuracy"}),
    Curve(
        title="Margin between the two sides of a pair",
        y_title="implicit reward",
        metrics={
            "reward_margin": "margin",
            "chosen_reward": "chosen",
            "rejected_reward": "rejected",
            "margin": "score",
        },
    ),
    Curve(
        title="Entropy",
        y_title="nats a token",
        metrics={"entropy": "of the policy", "sampler_nll": "sampled, -log p"},
        caption="Near 0 the policy gives one answer only: then groups are alike and nothing is left to learn from.",
    ),
    Curve(
        title="Distance from the reference",
        y_title="KL, nats a token",
        metrics={"kl_to_ref": "to the reference", "kl_to_old": "to the weights that sampled"},
    ),
    Curve(
        title="Gap between sampler and trainer",
        y_title="nats a token",
        log=True,
        metrics={
            "logprob_gap_mean": "mean",
            "logprob_gap_p99": "99th percentile",
            "logprob_gap_max": "largest",
            "logprob_gap": "mean",
        },
    ),
    Curve(
        title="KL between sampler and trainer", y_title="nats a token", log=True, metrics={"kl_sampler_trainer": "KL"}
    ),
    Curve(
        title="Clipped tokens",
        y_title="share of trained tokens",
        format=".2~%",
        metrics={"clipped_low": "lower end", "clipped_high": "upper end"},
    ),
    Curve(
        title="Importance ratio",
        y_title="new probability / old one",
        metrics={"ratio_mean": "mean", "ratio": "mean", "ratio_p99": "99th percentile", "ratio_max": "largest"},
    ),
    Curve(title="Gradient norm", y_title="L2 norm before clipping", log=True, metrics={"grad_norm": "policy"}),
    Curve(title="Change of the weights", y_title="L2 norm a step", log=True, metrics={"update_norm": "policy"}),
    Curve(
        title="Weights that moved",
        y_title="share of trained weights",
        format=".5~%",
        metrics={"weights_moved_frac": "moved"},
    ),
    Curve(
        title="Answers out of the ordinary",
        y_title="share of answers",
        format=".2~%",
        metrics={
            "invalid_frac": "invalid",
            "truncated_frac": "cut at the limit",
            "unscored_frac": "not judged",
            "repeated_frac": "repeated in the group",
        },
    ),
    Curve(title="Critic: loss", y_title="value loss", metrics={"critic_value_loss": "critic", "value_loss": "head"}),
    Curve(
        title="Critic: explained variance",
        y_title="share of the variance of returns",
        metrics={"explained_variance": "explained"},
    ),
    Curve(title="Learning rate", y_title="learning rate", metrics={"lr": "policy"}),
    Curve(
        title="Tokens of a step",
        y_title="tokens",
        metrics={
            "num_prompt_tokens": "prompts",
            "num_generated_tokens": "sampled",
            "num_trained_tokens": "trained",
            "num_forward_nodes": "through the forward",
        },
    ),
    Curve(title="Memory", y_title="GB", scale=_GB, metrics={"memory_bytes": "at the end of the step"}),
)
_SHOWN_ELSEWHERE = frozenset(
    (
        *("stage", "step", "time", "event", "policy_version", "updated", "num_groups", "num_rollouts", "live_groups"),
        *("dead_groups_all_solved", "dead_groups_none_solved", "unscored_groups"),
        *("mean_length_right", "mean_length_wrong"),
    )
)


def curves_section(steps: Steps) -> Section:
    """All curves of one run, and the numbers that have none."""
    if not steps.rows:
        return Section(heading="Curves", text=("No step is on record yet.",))
    charts: list[Chart] = []
    for described in CURVES:
        stages = list(dict.fromkeys(s.stage for s in steps.rows)) if described.by_stage else [None]
        charts += [c for stage in stages if (c := metric_chart(described, [("", steps)], stage)) is not None]
    charts.append(phases_chart(steps))
    text = ("Move the pointer over a curve to read its numbers.", thinned_note(len(steps.rows)))
    tables = (table,) if (table := _others_table(steps)) is not None else ()
    return Section(heading="Curves", text=tuple(filter(None, text)), charts=tuple(charts), tables=tables)


def metric_chart(described: Curve, runs: Sequence[tuple[str, Steps]], stage: str | None = None) -> Chart | None:
    """One run: a line for each metric. Several: a line for each run, of the first metric that any of them has.

    None where no row has a number. With a stage the axis counts the steps of that stage.
    """
    single = len(runs) == 1
    present = [name for name in described.metrics if any(_points(steps, name, stage) for _, steps in runs)]
    if not present:
        return None
    drawn = present if single else present[:1]
    rows, widths = _rows(described, drawn, runs, stage)
    several = len({row["s"] for row in rows}) > 1
    has_points = single and bool(widths)
    made = line_chart(
        rows,
        title=_title(described, present, stage, single=single),
        x="x",
        y="y",
        band=("low", "high") if len(runs) <= MAX_BANDS and any(row["low"] is not None for row in rows) else None,
        single="single" if has_points else None,
        series="s" if several or has_points or not single else None,
        series_title="run" if not single else "",
        x_title="step of the run" if stage is None else f"step of {stage}",
        y_title=described.y_title,
        y_bounds=described.bounds,
        y_format=described.format or _tiny_format(rows),
        log_y=described.log and _spans_a_decade(rows),
        markers=markers_from(runs[0][1], min(row["x"] for row in rows)) if single and stage is None else (),
        caption=" ".join(filter(None, (_caption(described, drawn), _smoothing_note(widths, has_points=has_points)))),
    )
    title = "run" if not single else "faint points: single steps" if has_points else "metric" if several else None
    return replace(made, small=True, series_title=title, series_order=() if single else tuple(run for run, _ in runs))


def _rows(
    described: Curve, names: Sequence[str], runs: Sequence[tuple[str, Steps]], stage: str | None
) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    """What is drawn, and over how many steps it was averaged; the steps themselves stand in `single`."""
    rows: list[dict[str, Any]] = []
    widths: set[int] = set()
    for name in names:
        for run, steps in runs[:MAX_RUNS]:
            course = course_of(steps, name) if described.is_smoothed else None
            is_smooth = course is not None and bool(course.widths)
            label = run or described.metrics[name]
            if course is not None and is_smooth:
                widths |= set(course.widths)
                label += "" if run else f", mean of {_widths(course.widths)} steps"
            plain = curve(_points(steps, name, stage))
            means = curve(course.points) if course is not None and is_smooth else plain
            for row, mean in zip(plain, means, strict=True):
                values = {"y": mean["y"], "single": row["y"], "low": row["low"], "high": row["high"]}
                rows.append({key: _scaled(v, described) for key, v in values.items()} | {"x": row["x"], "s": label})
    return rows, tuple(sorted(widths))


def _widths(widths: Sequence[int]) -> str:
    return f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}"


def _smoothing_note(widths: Sequence[int], *, has_points: bool) -> str:
    if not widths:
        return ""
    points = "; the points are single steps" if has_points else ""
    return (
        f"The line is the mean of {_widths(widths)} neighbouring steps of a stage, weighted by their groups{points}: "
        "a step sees a few prompts, and jumps."
    )


def _title(described: Curve, present: Sequence[str], stage: str | None, *, single: bool) -> str:
    if stage is not None:
        return f"{described.title} of {stage}"
    is_part = not single and len(described.metrics) > 1 and len(present) > 1
    return f"{described.title}: {described.metrics[present[0]]}" if is_part else described.title


def _spans_a_decade(rows: Sequence[Mapping[str, Any]]) -> bool:
    values = [row["y"] for row in rows]
    return min(values) > 0 and max(values) >= 10 * min(values)


def _tiny_format(rows: Sequence[Mapping[str, Any]]) -> str:
    """Powers of ten where all values are far below 1; empty: chosen from the numbers."""
    return ".3~e" if 0 < max(abs(row["y"]) for row in rows) < 1e-3 else ""


def phases_chart(steps: Steps) -> Chart:
    """Where the seconds of a step go, as columns: one for each step, or the mean of neighbours in a long run."""
    rows = []
    timed = {name for s in steps.rows for name in _phases(s.row)}
    for group in spans(steps.rows, MAX_COLUMNS):
        known = [_phases(s.row) for s in group]
        for name in (name for name in PHASES if name in timed):
            mean = fmean(phases.get(name, 0.0) for phases in known)
            edges = {"low": group[0].at - 0.5, "high": group[-1].at + 0.5}
            label = f"{group[0].at}" if len(group) == 1 else f"{group[0].at} to {group[-1].at}"
            rows.append(edges | {"phase": name, "seconds": mean, "steps": label})
    return column_chart(
        rows,
        title="Where the time of a step goes",
        low="low",
        high="high",
        y="seconds",
        series="phase",
        x_title="step of the run",
        y_title="wall-clock time (s)",
        markers=[(at - 0.5, name) for at, name in steps.markers],
        tooltips=("steps",),
        caption="Mean seconds of a step by phase; they sum to the whole step.",
    )


def _phases(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase; what older runs did not time is other."""
    known = {name: value for name in PHASES if (value := number(row.get(f"seconds_{name}"))) is not None and value >= 0}
    rest = (number(row.get("seconds_step")) or 0.0) - sum(known.values())
    if "other" not in known and rest > 0:
        known["other"] = rest
    return known


def _points(steps: Steps, name: str, stage: str | None) -> list[tuple[int, Any]]:
    chosen = [s for s in steps.rows if stage is None or s.stage == stage]
    return [(s.at if stage is None else s.step, s.row[name]) for s in chosen if number(s.row.get(name)) is not None]


def _scaled(value: float | None, described: Curve) -> float | None:
    return None if value is None else value / described.scale


def _caption(described: Curve, names: Sequence[str]) -> str:
    """What the drawn numbers mean, in the words of the metrics registry, and what the curve adds to it."""
    known = [(described.metrics[name], metric) for name in names if (metric := describe_metric(name)) is not None]
    if len(known) == 1:
        told = _meaning(known[0][1])
        meaning = f"{told[:1].upper()}{told[1:]}."
    else:
        meaning = " ".join(f"{label.capitalize()}: {_meaning(metric)}." for label, metric in known)
    return f"{meaning} {described.caption}".strip()


def _meaning(metric: Metric) -> str:
    return metric.meaning if metric.over == "value" else f"{metric.meaning} ({metric.over})"


def _others_table(steps: Steps) -> Table | None:
    """First, last, smallest and largest of every number without a curve."""
    drawn = _SHOWN_ELSEWHERE | {name for described in CURVES for name in described.metrics}
    names = dict.fromkeys(name for s in steps.rows for name in s.row if name not in drawn)
    rows: list[tuple[Cell, ...]] = []
    for name in sorted(name for name in names if not name.startswith(("seconds_", "set_aside_", "spent_"))):
        values = [value for s in steps.rows if (value := number(s.row.get(name))) is not None]
        if values:
            metric = describe_metric(name)
            meaning = _meaning(metric) if metric else ""
            rows.append((name, values[0], values[-1], min(values), max(values), meaning))
    columns = ("metric", "first", "last", "smallest", "largest", "meaning")
    return Table(columns=columns, rows=tuple(rows), caption="Other numbers of the steps.") if rows else None
