"""Charts of an audit: rates of groups, accuracies of clients, calibration curves and gaps by
threshold.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.auditing.estimates import BINS, THRESHOLDS, Curves, Estimate
from evenly.data.sensitive import FEW
from evenly.report.charts.accuracy import TICKS, Span, span_of
from evenly.report.charts.theme import colour_of, finish, shape_of, values

OTHERS, CLIENTS = "others", "clients"
LINE, TALL = 22, 40  # height in pixels of a line with its name beside it, or above it
SHORT = 18  # longest name beside the plot, in letters
CHARACTER = 6.6  # width of a letter in pixels, estimated generously


class Dot(NamedTuple):
    """A name with a figure, drawn in colour with `highlight`."""

    name: str
    figure: Estimate
    highlight: bool = False


def dots(
    entries: Sequence[Dot], *, title: str, unit: str, middle: float, what: str, highlight: str
) -> alt.LayerChart:
    """Draw one line per name, with a point and its interval in percent, and a rule at `middle`, the
    figure of everybody.

    Short names are beside the plot, long ones above their lines. `what` is the title of names in
    tooltips, and `highlight` the name of the highlighted lines in the legend.
    """
    rows = [_row(dot, highlight) for dot in entries if dot.figure.has_value]
    beside = all(len(row["name"]) <= SHORT for row in rows)
    ends = [end for row in rows for end in (row["low"], row["high"])]
    span = span_of(np.array([*ends, middle], np.float64))
    scale = alt.Scale(domain=[span.low, span.high], nice=False, zero=False)
    x = alt.X("value:Q", scale=scale, axis=alt.Axis(title=unit, tickCount=5))
    y = _beside(rows) if beside else _line("y", len(rows))
    colour = colour_of((OTHERS, highlight) if any(dot.highlight for dot in entries) else (OTHERS,))
    for i, row in enumerate(rows):
        # nearer to its own line than to the one before
        row |= {"y": TALL * (i + 0.75), "name_y": TALL * (i + 0.42), "at": span.low}
    base = alt.Chart(values(rows)).encode(y=y, color=colour)
    point = base.encode(x=x, tooltip=_tooltip(unit, what))
    everybody = alt.Chart(values([{"value": middle}])).encode(
        x=x, tooltip=alt.Tooltip("value:Q", title="Everybody (%)", format=".1f")
    )
    layers = [
        everybody.mark_rule(style="guide-line", strokeDash=[4, 3]),
        base.mark_rule(strokeWidth=2, opacity=0.55).encode(
            x=alt.X("low:Q", scale=scale, title=unit), x2="high:Q"
        ),
        point.transform_filter("!datum.few").mark_circle(size=64, opacity=1),
        point.transform_filter("datum.few").mark_point(
            filled=False, size=64, strokeWidth=1.8, opacity=1
        ),
        *([] if beside else [_above(rows, scale)]),
    ]
    height = (LINE if beside else TALL) * len(rows) + 10
    return finish(
        layers,
        title=title,
        description=f"{title}: {len(rows)} with their intervals.",
        height=height,
    )


def _beside(rows: list[dict[str, Any]]) -> alt.Y:
    return alt.Y(
        "name:N",
        sort=[row["name"] for row in rows],
        axis=alt.Axis(title=None, labelOverlap=False, grid=False),
    )


def _line(field: str, lines: int) -> alt.Y:
    return alt.Y(
        f"{field}:Q", scale=alt.Scale(domain=[0, TALL * lines], reverse=True, nice=False), axis=None
    )


def _above(rows: list[dict[str, Any]], scale: alt.Scale) -> alt.Chart:
    """Names above their lines, shortened to the width of the plot."""
    fits = f"length(datum.name) * {CHARACTER} <= width"
    text = alt.ExprRef(
        f"{fits} ? datum.name : slice(datum.name, 0, floor(width / {CHARACTER}) - 1) + '…'"
    )
    shown = alt.Chart(values(rows)).mark_text(
        style="guide-text", align="left", baseline="middle", text=text
    )
    return shown.encode(
        x=alt.X("at:Q", scale=scale),
        y=_line("name_y", len(rows)),
        tooltip=alt.Tooltip("name:N", title="Name"),
    )


def _tooltip(unit: str, what: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title=what),
        alt.Tooltip("value:Q", title=unit, format=".1f"),
        alt.Tooltip("span:N", title="95 % interval"),
        alt.Tooltip("people:N", title="People"),
    ]


def _row(dot: Dot, highlight: str) -> dict[str, Any]:
    low, high = (
        (dot.figure.low, dot.figure.high)
        if dot.figure.has_interval
        else (dot.figure.value, dot.figure.value)
    )
    few = dot.figure.rows < FEW
    return {
        "name": dot.name,
        "value": dot.figure.value,
        "low": low,
        "high": high,
        "span": f"{low:.1f} to {high:.1f}" if dot.figure.has_interval else "none",
        "people": f"{dot.figure.rows:,}" + (f" (fewer than {FEW})" if few else ""),
        "few": few,
        "method": highlight if dot.highlight else OTHERS,
    }


def histogram(accuracies: Sequence[float], *, mean: float, worst: float) -> alt.LayerChart:
    """Draw the distribution of the clients' accuracies in percent, with lines at their mean and at
    the mean of the worst tenth.
    """
    span = span_of(np.array(accuracies))
    scale = alt.Scale(domain=[span.low, span.high], nice=False, zero=False)
    axis = alt.Axis(
        title="Accuracy of a client (%)",
        values=list(range(span.low, span.high + 1, TICKS[span.step])),
    )
    layers = [
        _bars(accuracies, span, alt.X("from:Q", scale=scale, axis=axis)),
        _mean_lines(mean, worst, alt.X("value:Q", scale=scale)),
    ]
    title = "How accuracy is spread over clients"
    return finish(
        layers, title=title, description="Histogram of the clients' accuracies.", height=220
    )


def _bars(accuracies: Sequence[float], span: Span, x: alt.X) -> alt.Chart:
    heights, edges = np.histogram(np.array(accuracies).round(9), span.edges)
    rows = [
        {
            "from": edges[i],
            "to": edges[i + 1],
            "clients": int(n),
            "base": 0,
            "bin": f"{edges[i]} to {edges[i + 1]} %",
            "method": CLIENTS,
        }
        for i, n in enumerate(heights)
        if n
    ]
    return (
        alt.Chart(values(rows))
        .mark_bar(opacity=0.75, binSpacing=1)
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("base:Q", axis=alt.Axis(title="Clients", tickMinStep=1, tickCount=4)),
            y2="clients:Q",
            color=colour_of((CLIENTS,)),
            tooltip=[
                alt.Tooltip("bin:N", title="Accuracy"),
                alt.Tooltip("clients:Q", title="Clients", format=",d"),
            ],
        )
    )


def _mean_lines(mean: float, worst: float, x: alt.X) -> alt.Chart:
    lines = [
        {"value": mean, "what": "mean of all clients"},
        {"value": worst, "what": "mean of the worst tenth"},
    ]
    return (
        alt.Chart(values([line for line in lines if np.isfinite(line["value"])]))
        .mark_rule(style="guide-line", strokeWidth=1.8)
        .encode(
            x=x,
            strokeDash=alt.StrokeDash(
                "what:N",
                scale=alt.Scale(domain=[line["what"] for line in lines], range=[[1, 0], [4, 3]]),
            ),
            tooltip=[
                alt.Tooltip("what:N", title="Line"),
                alt.Tooltip("value:Q", title="Accuracy (%)", format=".1f"),
            ],
        )
    )


# Charts of scores: calibration, and gaps at other thresholds.

MOST_LINES = 8  # groups in a chart of curves


def calibration(names: Sequence[str], groups: Sequence[int], curves: Curves) -> alt.LayerChart:
    """Draw calibration curves: the share of people with the favourable label against the mean
    score. The diagonal is ideal.
    """
    rows = [
        {
            "method": names[g],
            "stated": 100 * curves.score[g, b],
            "seen": 100 * curves.frequency[g, b],
            "people": int(curves.rows[g, b]),
        }
        for g in groups
        for b in range(BINS)
        if curves.rows[g, b]
    ]
    labels = [names[g] for g in groups]
    scale = alt.Scale(domain=[0, 100])
    x, y = (
        alt.X("stated:Q", scale=scale, axis=alt.Axis(title="Mean score (%)", tickCount=5)),
        alt.Y("seen:Q", scale=scale, title="Labelled favourable (%)"),
    )
    even = alt.Chart(values([{"stated": 0, "seen": 0}, {"stated": 100, "seen": 100}]))
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=colour_of(labels))
    tooltip = [
        alt.Tooltip("method:N", title="Group"),
        alt.Tooltip("stated:Q", title="Mean score (%)", format=".1f"),
        alt.Tooltip("seen:Q", title="Labelled favourable (%)", format=".1f"),
        alt.Tooltip("people:Q", title="People", format=",d"),
    ]
    layers = [
        even.mark_line(style="guide-line", strokeDash=[4, 3], strokeWidth=1.2).encode(x=x, y=y),
        base.mark_line(strokeWidth=1.8, opacity=0.7),
        base.mark_point(filled=True, size=54, opacity=1).encode(
            shape=shape_of(labels), tooltip=tooltip
        ),
    ]
    return finish(
        layers,
        title="Are the scores calibrated?",
        description="Share labelled favourable against mean score.",
        height=280,
    )


def thresholds(name: str, spd: np.ndarray, eod: np.ndarray) -> alt.LayerChart:
    """Draw the gaps between a group and all others, as fractions, at other thresholds of
    the score.
    """
    labels = ["SPD", "EOD"]
    at = np.arange(THRESHOLDS) / THRESHOLDS
    rows = [
        {"method": label, "threshold": t, "gap": gap}
        for label, gaps in zip(labels, (spd, eod), strict=True)
        for t, gap in zip(at, gaps, strict=True)
        if np.isfinite(gap)
    ]
    x = alt.X(
        "threshold:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(title="Threshold of the score", tickCount=5),
    )
    y = alt.Y("gap:Q", axis=alt.Axis(title=f"“{name}” minus all others", tickCount=5))
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=colour_of(labels))
    tooltip = [
        alt.Tooltip("method:N", title="Gap"),
        alt.Tooltip("threshold:Q", title="Threshold", format=".2f"),
        alt.Tooltip("gap:Q", title="Difference", format="+.3f"),
    ]
    layers = [
        alt.Chart(values([{"gap": 0}]))
        .mark_rule(style="guide-line", strokeDash=[4, 3])
        .encode(y=y),
        base.mark_line(strokeWidth=1.8),
        base.mark_point(filled=True, size=40, opacity=1).encode(
            shape=shape_of(labels), tooltip=tooltip
        ),
    ]
    return finish(
        layers,
        title="Gaps at other thresholds",
        description="Gaps between groups by threshold.",
        height=280,
    )
