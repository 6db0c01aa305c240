"""Charts of an audit: rates of groups, accuracies of clients, calibration and errors of scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.auditing.estimates import BINS, THRESHOLDS, Curves, Estimate
from evenly.data.sensitive import FEW
from evenly.report.charts.accuracy import TICKS, span_of
from evenly.report.charts.theme import colour_of, finish, shape_of, values

# Charts of an audit: figures with intervals, and how clients are spread.

OTHERS, CLIENTS = "others", "clients"
LINE, TALL = 22, 40  # pixels of a line with its name beside it, or above it
SHORT = 18  # letters of a name that stands beside the plot
CHARACTER = 6.6  # pixels of a letter, rather more than less


class Dot(NamedTuple):
    """A name with a figure; `marked` sets it apart."""

    name: str
    figure: Estimate
    marked: bool = False


def dots(found: Sequence[Dot], *, title: str, unit: str, middle: float, what: str, marked: str) -> alt.LayerChart:
    """One line per name, in this order: a point, its interval, and a rule at `middle`, the figure of everybody. In percent.

    Short names stand beside the plot, long ones above their lines. `marked` is what a legend calls those that are set apart, `what`
    what it calls one of them.
    """
    rows = [_row(dot, marked) for dot in found if dot.figure.known]
    beside = all(len(row["name"]) <= SHORT for row in rows)
    ends = [end for row in rows for end in (row["low"], row["high"])]
    span = span_of(np.array([*ends, middle], np.float64))
    scale = alt.Scale(domain=[span.low, span.high], nice=False, zero=False)
    x = alt.X("value:Q", scale=scale, axis=alt.Axis(title=unit, tickCount=5))
    y = _beside(rows) if beside else _line("y", len(rows))
    colour = colour_of((OTHERS, marked) if any(dot.marked for dot in found) else (OTHERS,))
    for i, row in enumerate(rows):
        row |= {"y": TALL * (i + 0.75), "name_y": TALL * (i + 0.32), "at": span.low}
    base = alt.Chart(values(rows)).encode(y=y, color=colour)
    point = base.encode(x=x, tooltip=_tooltip(unit, what))
    everybody = alt.Chart(values([{"value": middle}])).encode(x=x, tooltip=alt.Tooltip("value:Q", title="Everybody (%)", format=".1f"))
    layers = [
        everybody.mark_rule(style="guide-line", strokeDash=[4, 3]),
        base.mark_rule(strokeWidth=2, opacity=0.55).encode(x=alt.X("low:Q", scale=scale, title=unit), x2="high:Q"),
        point.transform_filter("!datum.few").mark_circle(size=64, opacity=1),
        point.transform_filter("datum.few").mark_point(filled=False, size=64, strokeWidth=1.8, opacity=1),
        *([] if beside else [_above(rows, scale)]),
    ]
    height = (LINE if beside else TALL) * len(rows) + 10
    return finish(layers, title=title, description=f"{title}: {len(rows)} with their intervals.", height=height)


def _beside(rows: list[dict[str, Any]]) -> alt.Y:
    return alt.Y("name:N", sort=[row["name"] for row in rows], axis=alt.Axis(title=None, labelOverlap=False, grid=False))


def _line(field: str, lines: int) -> alt.Y:
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, TALL * lines], reverse=True, nice=False), axis=None)


def _above(rows: list[dict[str, Any]], scale: alt.Scale) -> alt.Chart:
    """Names above their lines, as long as the plot is wide."""
    fits = f"length(datum.name) * {CHARACTER} <= width"
    text = alt.ExprRef(f"{fits} ? datum.name : slice(datum.name, 0, floor(width / {CHARACTER}) - 1) + '…'")
    shown = alt.Chart(values(rows)).mark_text(style="guide-text", align="left", baseline="middle", text=text)
    return shown.encode(x=alt.X("at:Q", scale=scale), y=_line("name_y", len(rows)), tooltip=alt.Tooltip("name:N", title="Name"))


def _tooltip(unit: str, what: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title=what),
        alt.Tooltip("value:Q", title=unit, format=".1f"),
        alt.Tooltip("span:N", title="95 % interval"),
        alt.Tooltip("people:N", title="Share of so many people"),
    ]


def _row(dot: Dot, marked: str) -> dict[str, Any]:
    low, high = (dot.figure.low, dot.figure.high) if dot.figure.ranged else (dot.figure.value, dot.figure.value)
    few = dot.figure.rows < FEW
    return {
        "name": dot.name,
        "value": dot.figure.value,
        "low": low,
        "high": high,
        "span": f"{low:.1f} to {high:.1f}" if dot.figure.ranged else "none",
        "people": f"{dot.figure.rows:,}" + (f" (fewer than {FEW})" if few else ""),
        "few": few,
        "method": marked if dot.marked else OTHERS,
    }


def histogram(accuracies: Sequence[float], *, mean: float, worst: float) -> alt.LayerChart:
    """How many clients have which accuracy, in percent; lines at their mean and at the mean of the worst tenth."""
    span = span_of(np.array(accuracies))
    heights, edges = np.histogram(np.array(accuracies).round(9), span.edges)
    rows = [
        {"from": edges[i], "to": edges[i + 1], "clients": int(n), "base": 0, "bin": f"{edges[i]} to {edges[i + 1]} %", "method": CLIENTS}
        for i, n in enumerate(heights)
        if n
    ]
    axis = alt.Axis(title="Accuracy of a client (%)", values=list(range(span.low, span.high + 1, TICKS[span.step])))
    scale = alt.Scale(domain=[span.low, span.high], nice=False, zero=False)
    bars = alt.Chart(values(rows)).mark_bar(opacity=0.75, binSpacing=1).encode(
        x=alt.X("from:Q", scale=scale, axis=axis),
        x2="to:Q",
        y=alt.Y("base:Q", axis=alt.Axis(title="Clients", tickMinStep=1, tickCount=4)),
        y2="clients:Q",
        color=colour_of((CLIENTS,)),
        tooltip=[alt.Tooltip("bin:N", title="Accuracy"), alt.Tooltip("clients:Q", title="Clients", format=",d")],
    )  # fmt: skip
    lines = [{"value": mean, "what": "mean of all clients"}, {"value": worst, "what": "mean of the worst tenth"}]
    marks = alt.Chart(values([line for line in lines if np.isfinite(line["value"])])).mark_rule(style="guide-line", strokeWidth=1.8).encode(
        x=alt.X("value:Q", scale=scale),
        strokeDash=alt.StrokeDash("what:N", scale=alt.Scale(domain=[line["what"] for line in lines], range=[[1, 0], [4, 3]])),
        tooltip=[alt.Tooltip("what:N", title="Line"), alt.Tooltip("value:Q", title="Accuracy (%)", format=".1f")],
    )  # fmt: skip
    return finish(
        [bars, marks], title="How accuracy is spread over clients", description="Histogram of the clients' accuracies.", height=220
    )


# Charts of scores: calibration, and what other thresholds would do.

MOST_LINES = 8  # groups in a chart of curves


def calibration(names: Sequence[str], groups: Sequence[int], curves: Curves) -> alt.LayerChart:
    """What share of people with a score around s have the favourable label; on the diagonal the score keeps its word."""
    rows = [
        {"method": names[g], "stated": 100 * curves.stated[g, b], "seen": 100 * curves.seen[g, b], "people": int(curves.rows[g, b])}
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
        base.mark_point(filled=True, size=54, opacity=1).encode(shape=shape_of(labels), tooltip=tooltip),
    ]
    return finish(layers, title="Do scores keep their word?", description="Share labelled favourable against mean score.", height=280)


def thresholds(name: str, spd: np.ndarray, eod: np.ndarray) -> alt.LayerChart:
    """The gaps between a group and all others, as fractions, if another score were the threshold."""
    labels = ["SPD", "EOD"]
    at = np.arange(THRESHOLDS) / THRESHOLDS
    rows = [
        {"method": label, "threshold": t, "gap": gap}
        for label, gaps in zip(labels, (spd, eod), strict=True)
        for t, gap in zip(at, gaps, strict=True)
        if np.isfinite(gap)
    ]
    x = alt.X("threshold:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title="Score from which on people are selected", tickCount=5))
    y = alt.Y("gap:Q", axis=alt.Axis(title=f"“{name}” less all others", tickCount=5))
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=colour_of(labels))
    tooltip = [
        alt.Tooltip("method:N", title="Gap in"),
        alt.Tooltip("threshold:Q", title="Threshold", format=".2f"),
        alt.Tooltip("gap:Q", title="Difference", format="+.3f"),
    ]
    layers = [
        alt.Chart(values([{"gap": 0}])).mark_rule(style="guide-line", strokeDash=[4, 3]).encode(y=y),
        base.mark_line(strokeWidth=1.8),
        base.mark_point(filled=True, size=40, opacity=1).encode(shape=shape_of(labels), tooltip=tooltip),
    ]
    return finish(layers, title="What another threshold would do", description="Gaps between groups by threshold.", height=280)
