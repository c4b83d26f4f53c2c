"""Charts as records: what is drawn, checked before anything is drawn, without a drawing library.

Each function takes rows (mappings from column name to value) and the names of the columns to use, and keeps only what
the drawing needs, under the names x, y, low, high, series and label. Numbers that cannot be drawn (missing, not finite,
zero or less on a logarithmic axis) are left out and counted in a note below the chart. A chart that is left without
rows is shown as a sentence. `drawing.py` makes a picture of the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from groupwise.pages.chart import MAX_ROWS, MAX_SERIES, Axis, Chart, Row


def line_chart(
    rows: Sequence[Row],
    *,
    title: str,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    series: str | None = None,
    series_title: str = "",
    band: tuple[str, str] | None = None,
    single: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    x_format: str = "",
    y_format: str = "",
    y_bounds: tuple[float, float] | None = None,
    markers: Sequence[tuple[float, str]] = (),
    tooltips: Sequence[str] = (),
    caption: str = "",
) -> Chart:
    """Lines through the points (x, y), one for each value of `series`; `band` names the columns of an interval of y.

    `single` names the values of which y is the smoothed course: they are faint points of the line's colour. A row whose
    band or single value is missing or cannot be drawn keeps its place on the line. `markers` are (x, name) of vertical
    lines.

    Raises:
        ValueError: empty title, a column that a row lacks, more than MAX_ROWS rows or MAX_SERIES series.
    """
    _check(title, (x_title, y_title), rows, [x, y, *(band or ()), *(n for n in (series, single) if n), *tooltips])
    drawn = []
    for row in rows:
        kept = {"x": _number(row[x], log=log_x), "y": _number(row[y], log=log_y)}
        if None in kept.values():
            continue
        if band is not None:
            low, high = _number(row[band[0]], log=log_y), _number(row[band[1]], log=log_y)
            if low is not None and high is not None:
                kept |= {"low": low, "high": high}
        if single is not None and (point := _number(row[single], log=log_y)) is not None:
            kept["single"] = point
        drawn.append(kept | _series(row, series) | _tips(row, tooltips))
    return Chart(
        mark="line",
        title=title,
        caption=caption,
        x=Axis(title=x_title, log=log_x, format=x_format),
        y=Axis(title=y_title, log=log_y, format=y_format, bounds=y_bounds),
        rows=_limited(drawn, title),
        series_title=(series_title or series) if series else None,
        has_band=any("low" in row for row in drawn),
        has_points=any("single" in row for row in drawn),
        tooltips=tuple(tooltips),
        notes=_left_out(len(rows) - len(drawn), log=log_x or log_y),
        markers=tuple(markers),
    )


def column_chart(
    rows: Sequence[Row],
    *,
    title: str,
    low: str,
    high: str,
    y: str,
    series: str,
    x_title: str,
    y_title: str,
    series_title: str = "",
    x_format: str = "",
    y_format: str = "",
    markers: Sequence[tuple[float, str]] = (),
    tooltips: Sequence[str] = (),
    caption: str = "",
) -> Chart:
    """Columns from `low` to `high` on the x axis; those with the same `low` stand on top of each other, first below.

    Raises:
        ValueError: empty title, a column that a row lacks, more than MAX_ROWS rows or MAX_SERIES series, a part below
            zero, or low that is not below high.
    """
    _check(title, (x_title, y_title), rows, [low, high, y, series, *tooltips])
    drawn: list[dict[str, Any]] = []
    tops: dict[float, float] = {}
    for row in rows:
        edges, part = (_number(row[low]), _number(row[high])), _number(row[y])
        if edges[0] is None or edges[1] is None or part is None:
            continue
        if part < 0 or not edges[0] < edges[1]:
            raise ValueError(f"column_chart {title!r}: a part is 0 or more and low < high, got {part} from {edges}")
        bottom = tops.get(edges[0], 0)
        tops[edges[0]] = bottom + part
        place = {"low": edges[0], "high": edges[1], "bottom": bottom, "top": bottom + part, "y": part}
        drawn.append(place | _series(row, series) | _tips(row, tooltips))
    return Chart(
        mark="column",
        title=title,
        caption=caption,
        x=Axis(
            title=x_title, format=x_format, bounds=(min(tops), max(row["high"] for row in drawn)) if drawn else None
        ),
        y=Axis(title=y_title, format=y_format),
        rows=_limited(drawn, title),
        series_title=series_title or series,
        stacked=True,
        tooltips=tuple(tooltips),
        notes=_left_out(len(rows) - len(drawn)),
        markers=tuple(markers),
    )


def bar_chart(
    rows: Sequence[Row],
    *,
    title: str,
    label: str,
    value: str,
    label_title: str,
    value_title: str,
    series: str | None = None,
    series_title: str = "",
    stacked: bool = True,
    value_format: str = "",
    tooltips: Sequence[str] = (),
    caption: str = "",
) -> Chart:
    """One horizontal bar for each label, from zero; its parts by `series` on top of each other, or beside each other.

    Labels and series keep the order of the rows.

    Raises:
        ValueError: empty title, a column that a row lacks, more than MAX_ROWS rows or MAX_SERIES series; stacked bars
            with a part below zero, or two rows for the same bar or part.
    """
    _check(title, (label_title, value_title), rows, [label, value, *([series] if series else []), *tooltips])
    drawn: list[dict[str, Any]] = []
    for row in rows:
        number = _number(row[value])
        if number is not None:
            drawn.append({"label": str(row[label]), "x": number} | _series(row, series) | _tips(row, tooltips))
    stacked = stacked and series is not None
    if stacked and any(row["x"] < 0 for row in drawn):
        raise ValueError(f"bar_chart {title!r}: stacked parts must not be negative; give stacked=False")
    places = [(row["label"], row.get("series")) for row in drawn]
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise ValueError(f"bar_chart {title!r}: {twice[0]!r} has two rows for the same bar; add them first")
    return Chart(
        mark="bar",
        title=title,
        caption=caption,
        x=Axis(title=value_title, format=value_format),
        y=Axis(title=label_title),
        rows=_limited(drawn, title),
        series_title=(series_title or series) if series else None,
        stacked=stacked,
        tooltips=tuple(tooltips),
        notes=_left_out(len(rows) - len(drawn)),
    )


def histogram(
    values: Sequence[float | None],
    *,
    title: str,
    x_title: str,
    y_title: str = "count",
    num_bins: int = 20,
    bounds: tuple[float, float] | None = None,
    series: Sequence[str] | None = None,
    series_title: str = "",
    x_format: str = "",
    caption: str = "",
) -> Chart:
    """How many values fall into each of `num_bins` equal bins [low, high); the last bin includes its upper edge.

    `bounds` are the outer edges, by default the smallest and the largest value; values outside them are left out and
    counted in the note. Only the counts go into the page. `series` names the set of each value: the sets are then
    drawn over each other in the same bins, each as shares of its own values, so that a small one is seen as well.

    Raises:
        ValueError: empty title, num_bins outside 1..200, bounds that are not low < high, series of another length.
    """
    _check(title, (x_title, y_title), (), ())
    if not 1 <= num_bins <= 200:
        raise ValueError(f"histogram {title!r}: num_bins must lie in 1..200, got {num_bins}")
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"histogram {title!r}: bounds must be (low, high) with low < high, got {bounds}")
    if series is not None and len(series) != len(values):
        raise ValueError(
            f"histogram {title!r}: {len(values)} values and {len(series)} names of sets; give one for each"
        )
    named = [
        (number, name)
        for value, name in zip(values, series or [""] * len(values), strict=True)
        if (number := _number(value)) is not None
    ]
    numbers = [number for number, _ in named]
    low, high = bounds or ((min(numbers), max(numbers)) if numbers else (0.0, 1.0))
    if low == high:  # all values equal: one bin around them
        low, high, num_bins = low - 0.5, high + 0.5, 1
    inside = [(number, name) for number, name in named if low <= number <= high]
    width = (high - low) / num_bins
    counts: dict[str, list[int]] = {name: [0] * num_bins for _, name in inside}
    for number, name in inside:
        counts[name][min(num_bins - 1, int((number - low) / width))] += 1
    edges = [low + width * i for i in range(num_bins)] + [high]
    drawn: list[dict[str, Any]] = []
    for name, of_name in counts.items():
        for i, count in enumerate(of_name):
            place = {"low": edges[i], "high": edges[i + 1]}
            drawn.append(
                place | ({"y": count} if series is None else {"y": count / sum(of_name), "series": name, "tip0": count})
            )
    return Chart(
        mark="histogram",
        title=title,
        caption=caption,
        x=Axis(title=x_title, format=x_format, bounds=(low, high)),
        y=Axis(title=y_title, format="" if series is None else ".0%"),
        rows=tuple(drawn) if series is None else _limited(drawn, title),
        series_title=None if series is None else series_title or "set",
        tooltips=() if series is None else ("count",),
        notes=_left_out(len(values) - len(inside), outside=bounds),
    )


def points_with_intervals(
    rows: Sequence[Row],
    *,
    title: str,
    label: str,
    value: str,
    low: str,
    high: str,
    label_title: str,
    value_title: str,
    series: str | None = None,
    series_title: str = "",
    reference: float | None = None,
    value_format: str = "",
    value_bounds: tuple[float, float] | None = None,
    tooltips: Sequence[str] = (),
    caption: str = "",
) -> Chart:
    """One line for each label: the value as a point, its interval as a bar; `reference` draws a vertical line.

    Raises:
        ValueError: empty title, a column that a row lacks, more than MAX_ROWS rows or MAX_SERIES series, or an interval
            that does not hold its value.
    """
    needed = [label, value, low, high, *([series] if series else []), *tooltips]
    _check(title, (label_title, value_title), rows, needed)
    drawn: list[dict[str, Any]] = []
    for row in rows:
        center, lower, upper = (_number(row[name]) for name in (value, low, high))
        if center is None or lower is None or upper is None:
            continue
        if not lower <= center <= upper:
            raise ValueError(
                f"points_with_intervals {title!r}: {row[label]!r} has the interval {lower} to {upper}, which does not "
                f"hold its value {center}"
            )
        kept = {"label": str(row[label]), "x": center, "low": lower, "high": upper}
        drawn.append(kept | _series(row, series) | _tips(row, tooltips))
    return Chart(
        mark="interval",
        title=title,
        caption=caption,
        x=Axis(title=value_title, format=value_format, bounds=value_bounds),
        y=Axis(title=label_title),
        rows=_limited(drawn, title),
        series_title=(series_title or series) if series else None,
        reference=_number(reference),
        tooltips=tuple(tooltips),
        notes=_left_out(len(rows) - len(drawn)),
    )


def distinct(rows: Sequence[Row], column: str) -> list[str]:
    """The values of a text column in the order in which they first appear."""
    return list(dict.fromkeys(row[column] for row in rows if column in row))


def _check(title: str, axis_titles: Sequence[str], rows: Sequence[Row], columns: Sequence[str]) -> None:
    if not title.strip() or not all(axis_title.strip() for axis_title in axis_titles):
        raise ValueError(f"chart {title!r}: give a title and a title for each axis, with the unit")
    for number, row in enumerate(rows, start=1):
        missing = [column for column in columns if column not in row]
        if missing:
            raise ValueError(
                f"chart {title!r}: row {number} lacks the column {missing[0]!r}; it has {', '.join(map(repr, row))}. "
                f"Give None where there is no number"
            )


def _number(value: Any, *, log: bool = False) -> float | None:
    """The value where it can be drawn, else None. Whole numbers stay whole."""
    if value is None:
        return None
    number = int(value) if isinstance(value, int) else float(value)
    if not math.isfinite(number) or (log and number <= 0):
        return None
    return number


def _series(row: Row, series: str | None) -> dict[str, Any]:
    return {} if series is None else {"series": str(row[series])}


def _tips(row: Row, tooltips: Sequence[str]) -> dict[str, Any]:
    tips: dict[str, Any] = {}
    for i, column in enumerate(tooltips):
        value = row[column]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        tips[f"tip{i}"] = _number(value) if is_number else None if value is None else str(value)
    return tips


def _limited(drawn: Sequence[dict[str, Any]], title: str) -> tuple[dict[str, Any], ...]:
    if len(drawn) > MAX_ROWS:
        raise ValueError(f"chart {title!r}: {len(drawn)} rows, at most {MAX_ROWS}; average them first")
    num_series = len(distinct(drawn, "series"))
    if num_series > MAX_SERIES:
        raise ValueError(f"chart {title!r}: {num_series} series, at most {MAX_SERIES}; join the small ones")
    return tuple(drawn)


def _left_out(count: int, *, log: bool = False, outside: tuple[float, float] | None = None) -> tuple[str, ...]:
    if count == 0:
        return ()
    reasons = ["without a finite number"]
    if log:
        reasons.append("at or below 0 on a logarithmic axis")
    if outside is not None:
        reasons.append(f"outside {outside[0]:g} to {outside[1]:g}")
    return (f"Left out: {count} {'value' if count == 1 else 'values'} {' or '.join(reasons)}.",)
