"""Charts of scores: calibration, and what other thresholds would do."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from evenly.auditing.scores import BINS, THRESHOLDS, Curves
from evenly.report.charts.theme import colour_of, finish, shape_of, values

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
