"""From a chart record to a Vega-Lite description, and the script that draws it.

altair builds the description and checks it against the Vega-Lite schema; vl-convert carries the JavaScript libraries.
Both take a second to load. They are therefore imported by the functions that need them, and a command that writes no
page never waits for them.

Text, axes and grid lines have the colour "currentColor": they follow the style sheet of the page, in light, dark and
print alike.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from groupwise.pages.chart import Axis, Chart
from groupwise.pages.charts import distinct

if TYPE_CHECKING:
    import altair as alt

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
"""Told apart by colour-blind readers (Okabe and Ito, 2008); grey in place of yellow and black, which vanish on a light
or on a dark page."""
DASHES = ((1, 0), (6, 3))
"""The first seven series are whole lines, the next seven dashed ones."""

_HEIGHT = 260
_SMALL_HEIGHT = 170
_ROW_HEIGHT = 26
_LABEL_WIDTH = 150
"""Pixels for the labels of bars: less than half of a phone. Longer ones are cut; the tooltip has the whole."""
_LEGEND_CHARACTERS = 44
"""What fits beside each other in the legend on a phone."""
_FEW_POINTS = 40
"""Per series: up to here every point is marked."""
_FAINT = 0.3
"""Opacity of single values behind their smoothed course."""
_FEW_TICKS = 8
"""Up to here a logarithmic axis marks the values that were given."""


def vega_lite(chart: Chart) -> dict[str, Any]:
    """The Vega-Lite description of a chart with one row or more, as wide as its place on the page."""
    import altair as alt

    drawings = {"line": _lines, "bar": _bars, "histogram": _histogram, "interval": _intervals, "column": _columns}
    picture = drawings[chart.mark](chart, alt.Chart(alt.NamedData(name="rows")))
    height: Any = _SMALL_HEIGHT if chart.small else _HEIGHT
    if chart.mark in ("bar", "interval"):
        height = alt.Step(_ROW_HEIGHT if chart.stacked or chart.series_title is None else _ROW_HEIGHT // 2)
    description = picture.properties(width="container", height=height, description=chart.title).to_dict()
    # The rows are put in afterwards: altair would check every one of them against the schema, and hash them.
    datasets = description.get("datasets", {}) | {"rows": list(chart.rows)}
    return description | {"config": _CONFIG, "datasets": datasets}


@functools.cache
def javascript() -> str:
    """vega, vega-lite and vega-embed as one script without imports, about 0.9 MB; it sets window.vegaEmbed."""
    import altair as alt
    import vl_convert

    # The library must read the version that altair writes: "v6.4.1" is known to vl-convert as "6.4".
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)


def _lines(chart: Chart, base: alt.Chart) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    x, y = _x(chart), _y(chart, "y:Q")
    shared: list[Any] = [x, *_color(chart)]
    points_per_series = len(chart.rows) / max(1, len(distinct(chart.rows, "series")))
    # Points that cannot be seen still answer the pointer; a line alone would show its first point everywhere.
    opacity = 1.0 if points_per_series <= _FEW_POINTS and not chart.has_points else 0.0
    layers: list[Any] = []
    if chart.has_band:
        area = base.mark_area(opacity=0.18)
        layers.append(area.encode(*shared, _y(chart, "low:Q"), alt.Y2("high:Q")))
    told = _tooltips(chart, ("series", "x", "y", "single", "low", "high"))
    if chart.has_points:
        singles = base.mark_circle(size=22, opacity=_FAINT)
        layers.append(singles.encode(*shared, _y(chart, "single:Q"), tooltip=told))
    layers.append(base.mark_line(strokeWidth=2).encode(*shared, y, *_dash(chart)))
    layers.append(base.mark_circle(size=36, opacity=opacity).encode(*shared, y, tooltip=told))
    return alt.layer(*_markers(chart), *layers)


def _columns(chart: Chart, base: alt.Chart) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    whole = {"tickMinStep": 1} if all(isinstance(row["y"], int) for row in chart.rows) else {}
    columns = base.mark_bar().encode(
        _scaled(alt.X("low:Q"), chart.x, zero=False, **_whole_ticks(*(chart.x.bounds or (0, 0)))),
        alt.X2("high:Q"),
        _scaled(alt.Y("bottom:Q"), chart.y, zero=True, **whole),
        alt.Y2("top:Q"),
        *_color(chart),
        tooltip=_tooltips(chart, ("series", "y")),
    )
    return alt.layer(columns, *_markers(chart, "low"))


def _markers(chart: Chart, column: str = "x") -> list[Any]:
    """A dashed line and a name at each marker; nothing where there is none."""
    import altair as alt

    if not chart.markers:
        return []
    data = alt.InlineData(values=[{column: x, "name": name} for x, name in chart.markers])
    base = alt.Chart(data).encode(_scaled(alt.X(f"{column}:Q"), chart.x, zero=False))
    line = base.mark_rule(strokeDash=[2, 3], color="currentColor", opacity=0.5)
    style: dict[str, Any] = {"align": "left", "baseline": "bottom", "dy": -3, "color": "currentColor", "opacity": 0.75}
    return [line, base.mark_text(fontSize=11, **style).encode(alt.YValue(0), alt.Text("name:N"))]


def _bars(chart: Chart, base: alt.Chart) -> alt.Chart:
    import altair as alt

    encodings: list[Any] = [_labels(chart), *_color(chart)]
    value = _scaled(alt.X("x:Q"), chart.x, zero=True)
    if chart.series_title is not None and not chart.stacked:
        encodings.append(alt.YOffset("series:N").sort(distinct(chart.rows, "series")))
        value = value.stack(None)
    tooltips = _tooltips(chart, ("label", "series", "x"))
    return base.mark_bar().encode(value, *encodings, tooltip=tooltips)


def _histogram(chart: Chart, base: alt.Chart) -> alt.Chart:
    import altair as alt

    opacity = 1.0 if chart.series_title is None else 0.55  # several sets lie over each other
    value_format = chart.y.format or ",d"
    counted = [] if chart.series_title is None else [alt.Tooltip("series:N", title=chart.series_title)]
    counted += [alt.Tooltip(f"tip{i}:Q", title=name, format=",d") for i, name in enumerate(chart.tooltips)]
    return base.mark_bar(color=PALETTE[0], stroke="white", strokeWidth=0.5, opacity=opacity).encode(
        _scaled(alt.X("low:Q"), chart.x, zero=False),
        alt.X2("high:Q"),
        _scaled(alt.Y("y:Q"), chart.y, zero=True),
        alt.Y2Datum(0),
        *_color(chart),
        tooltip=[
            alt.Tooltip("low:Q", title="from", format=chart.x.format or _number_format(chart, "low")),
            alt.Tooltip("high:Q", title="to", format=chart.x.format or _number_format(chart, "high")),
            alt.Tooltip("y:Q", title=chart.y.title, format=value_format),
            *counted,
        ],
    )


def _intervals(chart: Chart, base: alt.Chart) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    shared: list[Any] = [_labels(chart), *_color(chart)]
    if chart.series_title is not None:
        shared.append(alt.YOffset("series:N").sort(distinct(chart.rows, "series")))
    tooltips = _tooltips(chart, ("label", "series", "x", "low", "high"))
    low = _scaled(alt.X("low:Q"), chart.x, zero=False)
    bars = base.mark_rule(strokeWidth=2, color=PALETTE[0]).encode(low, alt.X2("high:Q"), *shared, tooltip=tooltips)
    points = base.mark_circle(size=70, opacity=1, color=PALETTE[0])
    layers: list[Any] = [bars, points.encode(_scaled(alt.X("x:Q"), chart.x, zero=False), *shared, tooltip=tooltips)]
    if chart.reference is not None:
        once = alt.Chart(alt.InlineData(values=[{}]))  # with the rows it would be drawn once for each
        line = once.mark_rule(strokeDash=[4, 3], color="currentColor", opacity=0.6)
        layers.insert(0, line.encode(alt.XDatum(chart.reference)))
    return alt.layer(*layers)


def _x(chart: Chart) -> alt.X:
    import altair as alt

    ticks: dict[str, Any] = {}
    values = sorted({row["x"] for row in chart.rows})
    if chart.x.log and len(values) <= _FEW_TICKS:
        # group sizes 4, 8, 16 are marked as such, not at 5, 10, 20
        ticks |= {"values": values, "tickCount": len(values), "labelOverlap": False}
    elif not chart.x.log and all(isinstance(value, int) for value in values):
        ticks = _whole_ticks(values[0], values[-1])
    return _scaled(alt.X("x:Q"), chart.x, zero=False, **ticks)


def _whole_ticks(low: float, high: float) -> dict[str, Any]:
    """Ticks for steps, between which nothing stands."""
    ticks: dict[str, Any] = {"tickMinStep": 1}
    if high - low <= _FEW_TICKS:  # where a tick for every step fits, Vega does not heed tickMinStep
        ticks |= {"values": list(range(math.ceil(low), math.floor(high) + 1)), "format": ",d"}
    return ticks


def _y(chart: Chart, field: str) -> alt.Y:
    import altair as alt

    axis, values = chart.y, {row["y"] for row in chart.rows}
    if len(values) == 1 and axis.bounds is None and not (axis.log or chart.has_band or chart.has_points):
        # a constant alone leaves the axis without a width, and its one tick reads 0 whatever it is
        (value,) = values
        axis = replace(axis, bounds=(min(0.0, 2 * value), max(0.0, 2 * value) if value else 1.0))
    return _scaled(alt.Y(field), axis, zero=False)


def _scaled(channel: Any, axis: Axis, *, zero: bool, **ticks: Any) -> Any:
    """The channel with the title, number format, ticks and scale of the axis."""
    options: dict[str, Any] = {"format": axis.format} if axis.format else {}
    channel = channel.title(axis.title).axis(**options | ticks) if options or ticks else channel.title(axis.title)
    if axis.log:
        return channel.scale(type="log", nice=False)
    if axis.bounds is not None:
        return channel.scale(domain={"unionWith": list(axis.bounds)}, nice=False, zero=False)
    return channel.scale(zero=zero)


def _labels(chart: Chart) -> alt.Y:
    import altair as alt

    channel = alt.Y("label:N").sort(distinct(chart.rows, "label")).title(chart.y.title)
    # Above the labels, where it does not take width from the chart.
    return channel.axis(labelLimit=_LABEL_WIDTH, titleAngle=0, titleAlign="left", titleAnchor="start", titleY=-8)


def _color(chart: Chart) -> list[Any]:
    import altair as alt

    if chart.series_title is None:
        return []
    names, places = _series_places(chart)
    colors = [PALETTE[place % len(PALETTE)] for place in places]
    columns = max(1, min(len(names), _LEGEND_CHARACTERS // (max(map(len, names)) + 4)))
    legend = alt.Legend(
        title=chart.series_title,
        orient="top",
        offset=_legend_offset(chart),
        columns=columns,
        labelLimit=280,
        symbolType="stroke" if chart.mark == "line" else "square",
        symbolStrokeWidth=3,
        symbolOpacity=1,
    )
    return [alt.Color("series:N").sort(names).scale(domain=names, range=colors).legend(legend)]


def _series_places(chart: Chart) -> tuple[list[str], list[int]]:
    """The series that are drawn, and the place of each in the order of colours."""
    drawn = distinct(chart.rows, "series")
    order = [*chart.series_order, *(name for name in drawn if name not in chart.series_order)]
    names = [name for name in order if name in set(drawn)]
    return names, [order.index(name) for name in names]


def _legend_offset(chart: Chart) -> int:
    """Room for what stands between legend and chart: the title of the labels, or the names of markers."""
    if chart.mark in ("bar", "interval"):
        return 28
    return 22 if chart.markers else 12


def _dash(chart: Chart) -> list[Any]:
    import altair as alt

    names, places = _series_places(chart)
    if not places or max(places) < len(PALETTE):
        return []
    dashes = [list(DASHES[place // len(PALETTE) % len(DASHES)]) for place in places]
    return [alt.StrokeDash("series:N").sort(names).scale(domain=names, range=dashes).title(chart.series_title)]


def _tooltips(chart: Chart, columns: tuple[str, ...]) -> list[alt.Tooltip]:
    import altair as alt

    value = chart.x.title if chart.mark in ("bar", "interval") else chart.y.title
    value_format = chart.x.format if chart.mark in ("bar", "interval") else chart.y.format
    titles = {
        "x": (chart.x.title, chart.x.format),
        "y": (chart.y.title, chart.y.format),
        "low": (f"{value}, from", value_format),
        "high": (f"{value}, to", value_format),
        "single": (f"{value}, this step alone", value_format),
        "series": (chart.series_title or "", ""),
        "label": (chart.y.title, ""),
    }
    present = [column for column in columns if any(column in row for row in chart.rows)]
    shown = [(column, *titles[column]) for column in present]
    shown += [(f"tip{i}", title, "") for i, title in enumerate(chart.tooltips)]
    return [
        alt.Tooltip(f"{column}:N", title=title)
        if _is_text(chart, column)
        else alt.Tooltip(f"{column}:Q", title=title, format=number_format or _number_format(chart, column))
        for column, title, number_format in shown
    ]


def _is_text(chart: Chart, column: str) -> bool:
    return any(isinstance(row.get(column), str) for row in chart.rows)


def _number_format(chart: Chart, column: str) -> str:
    """A d3 format: whole numbers keep all digits, others 4 significant ones."""
    values = [row[column] for row in chart.rows if row.get(column) is not None]
    return ",d" if all(isinstance(value, int) for value in values) else ",.4~r"


_TEXT = {"labelColor": "currentColor", "titleColor": "currentColor", "titleFontWeight": "normal"}
_CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "autosize": {"type": "fit-x", "contains": "padding"},
    "view": {"stroke": None},
    "axis": _TEXT
    | {
        "gridColor": "currentColor",
        "gridOpacity": 0.13,
        "domainColor": "currentColor",
        "domainOpacity": 0.4,
        "tickColor": "currentColor",
        "tickOpacity": 0.4,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelOverlap": "greedy",
    },
    "axisX": {"tickCount": {"expr": "max(3, width / 80)"}},
    "legend": _TEXT | {"labelFontSize": 12, "titleFontSize": 12},
    "line": {"color": PALETTE[0]},
    "circle": {"color": PALETTE[0]},
    "area": {"color": PALETTE[0]},
    "bar": {"color": PALETTE[0]},
}
