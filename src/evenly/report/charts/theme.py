"""Colours and type of the charts and of the page, in one place.

On the page, charts name colours as CSS variables, so that light, dark and print are one drawing.
Saved charts have the light colours themselves. The series are Okabe and Ito's palette, safe for
colour-blind readers, in shades that keep 3:1 contrast with the background; every series also has
its own shape.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import altair as alt
import numpy as np

LIGHT = {
    "paper": "#ffffff",
    "card": "#f6f7f9",
    "ink": "#16191d",
    "soft": "#545b66",
    "line": "#dfe3e8",
    "accent": "#0b62a4",
    "tint": "#dcecf9",
    "muted": "#7f8792",
    "series-1": "#3c4654",
    "series-2": "#0072b2",
    "series-3": "#d55e00",
    "series-4": "#008a64",
    "series-5": "#b8598f",
    "series-6": "#b57d00",
    "series-7": "#2f8fcc",
    "series-8": "#7a5cc0",
}
DARK = {
    "paper": "#14171b",
    "card": "#1d2126",
    "ink": "#eceff3",
    "soft": "#a9b2bd",
    "line": "#343a42",
    "accent": "#7cc0f2",
    "tint": "#173a55",
    "muted": "#6d7681",
    "series-1": "#c3cad3",
    "series-2": "#4aa3df",
    "series-3": "#f0843c",
    "series-4": "#2fbf94",
    "series-5": "#e08cbb",
    "series-6": "#e6b035",
    "series-7": "#8fd0f7",
    "series-8": "#ab92ec",
}
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
SAVED_WIDTH = 640
AXIS = {
    "domain": False,
    "ticks": False,
    "labelPadding": 6,
    "labelFlush": False,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
# between names: drawn with one font and seen with another, they may be a fifth wider than what was
# left for them
ROOM = 26
LEGEND = {
    "orient": "top",
    "offset": 30,
    "columns": 3,
    "columnPadding": ROOM,
    "symbolOpacity": 1,
    "labelLimit": 240,
    "title": None,
    "padding": ROOM / 2,  # for the same reason, between two legends
}
# Upright and above the axis, a title takes no width from the plot: phones have none to spare.
AXIS_Y = {
    "titleAngle": 0,
    "titleAnchor": "end",
    "titleAlign": "left",
    "titleBaseline": "bottom",
    "titleX": 0,
    "titleY": -10,
}


def config(colour: Callable[[str], str]) -> dict[str, Any]:
    """The Vega-Lite configuration, with colours looked up by name."""
    ink = {"labelColor": colour("soft"), "titleColor": colour("ink"), "gridColor": colour("line")}
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "range": {"category": [colour(f"series-{i}") for i in range(1, 9)], "symbol": list(SHAPES)},
        "axis": AXIS | ink,
        "axisY": AXIS_Y,
        "legend": LEGEND | {"labelColor": colour("ink")},
        "title": {
            "anchor": "start",
            "color": colour("ink"),
            "fontSize": 15,
            "fontWeight": 600,
            "offset": 14,
        },
        "style": {
            "guide-line": {"color": colour("soft"), "strokeWidth": 1.2},
            "guide-text": {"color": colour("soft"), "fontSize": 12},
            "method-name": {"color": colour("ink"), "fontSize": 13, "fontWeight": 600},
            "others": {"color": colour("muted")},
            "front": {"color": colour("ink")},
            "weight": {"color": colour("accent")},
        },
    }


def page_config() -> dict[str, Any]:
    """The configuration for the page: colours are CSS variables, and the legend is part of the
    page, where it wraps.
    """
    found = config(lambda name: f"var(--{name})")
    return found | {"legend": {"disable": True}}


def saved_config() -> dict[str, Any]:
    """The configuration for a saved chart: light colours on white."""
    return config(LIGHT.__getitem__) | {"background": LIGHT["paper"]}


def colour_of(labels: Sequence[str]) -> alt.Color:
    """The colour encoding of methods: the same labels have the same colours in every chart."""
    return alt.Color("method:N", scale=alt.Scale(domain=list(labels)))


def shape_of(labels: Sequence[str]) -> alt.Shape:
    """The shape encoding of methods."""
    return alt.Shape("method:N", scale=alt.Scale(domain=list(labels)))


def tooltips(**fields: str | tuple[str, str]) -> list[alt.Tooltip]:
    """Tooltips by field: a title for text, or a title and a format for a number."""
    return [
        (
            alt.Tooltip(f"{name}:N", title=title)
            if isinstance(title, str)
            else alt.Tooltip(f"{name}:Q", title=title[0], format=title[1])
        )
        for name, title in fields.items()
    ]


def values(rows: list[dict[str, Any]]) -> alt.InlineData:
    """Rows as chart data: rounded, and undefined numbers as null, since JSON has no NaN."""
    return alt.InlineData(
        values=[{key: _plain(value) for key, value in row.items()} for row in rows]
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def finish(
    layers: Sequence[alt.Chart], *, title: str, description: str, height: int
) -> alt.LayerChart:
    """Combine layers into one chart with a title, a height and a description for screen readers."""
    fitted = alt.AutoSizeParams(type="fit-x", contains="padding")
    # it would be a FacetChart only if a layer were one
    chart = cast("alt.LayerChart", alt.layer(*layers))
    return chart.properties(
        title=title, description=description, width="container", height=height, autosize=fitted
    )


def standalone(chart: alt.LayerChart) -> alt.LayerChart:
    """The chart outside of a page: with a width, light colours and a legend of its own."""
    # Room at the sides: whoever looks at it may have wider letters than the renderer measured.
    fixed = chart.properties(
        width=SAVED_WIDTH, padding={"left": 32, "right": 24, "top": 5, "bottom": 5}
    )
    fixed.config = alt.Config(**saved_config())
    return fixed


def save_chart(chart: alt.LayerChart, path: str | Path) -> None:
    """Write a chart as .svg, .png, .pdf, .html or .json, depending on the suffix of the path."""
    standalone(chart).save(str(path))
