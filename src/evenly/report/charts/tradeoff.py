"""Accuracy against fairness: one mark per method, and lines from its lowest seed to its highest."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.table import Values

TITLES = {
    "variance": ("Accuracy and evenness", "Variance of client accuracy (%²): lower is more even"),
    "worst10": ("Accuracy and the worst-served clients", "Mean accuracy of the worst 10 % (%): higher is better"),
}
AVERAGE = "Average accuracy (%): further right is better"


def tradeoff(measured: Values, metric: str, labels: Sequence[str]) -> alt.LayerChart:
    """The average against "variance" or "worst10". All methods are drawn; `labels` in colour, the others in grey."""
    title, unit = TITLES[metric]
    coloured, grey = [], []
    for label in measured:
        row = _row(measured, label, metric)
        if row["average"] is not None:
            (coloured if label in labels else grey).append(row)
    layers = [*_marks(grey, unit, [], style="others"), *_marks(coloured, unit, labels)]
    return finish(alt.layer(*layers), title=title, description=f"{title}: one point for each of {len(measured)} methods.", height=300)


def _marks(rows: list[dict[str, Any]], unit: str, labels: Sequence[str], style: str | None = None) -> list[alt.Chart]:
    x = alt.X("average:Q", axis=alt.Axis(title=AVERAGE, tickCount=6), scale=alt.Scale(zero=False, padding=18))
    y = alt.Y("other:Q", axis=alt.Axis(title=unit, tickCount=5), scale=alt.Scale(zero=False, padding=18))
    base = alt.Chart(values(rows))
    if labels:
        base = base.encode(color=colour_of(labels))
    named = {"style": style} if style else {}
    across = base.mark_rule(opacity=0.55, strokeWidth=1.6, **named).encode(
        x=alt.X("average_low:Q", title=AVERAGE), x2="average_high:Q", y=y
    )
    along = base.mark_rule(opacity=0.55, strokeWidth=1.6, **named).encode(x=x, y=alt.Y("other_low:Q", title=unit), y2="other_high:Q")
    points = base.mark_point(filled=True, size=130 if labels else 40, opacity=1, **named).encode(x=x, y=y, tooltip=_tooltip(unit))
    return [across, along, points.encode(shape=shape_of(labels)) if labels else points] if rows else []


def _tooltip(unit: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("average:Q", title="Average accuracy (%)", format=".1f"),
        alt.Tooltip("average_span:N", title="… over seeds"),
        alt.Tooltip("other:Q", title=unit.partition(":")[0], format=".1f"),
        alt.Tooltip("other_span:N", title="… over seeds"),
    ]


def _row(measured: Values, label: str, metric: str) -> dict[str, Any]:
    return {"method": label, **_ends(measured, label, "average", "average"), **_ends(measured, label, metric, "other")}


def _ends(measured: Values, label: str, metric: str, name: str) -> dict[str, Any]:
    seeds = np.array([seed[metric] for seed in measured[label].values()])
    seeds = seeds[np.isfinite(seeds)]
    if not len(seeds):
        return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_span": ""}
    low, high = float(seeds.min()), float(seeds.max())
    span = f"{low:.1f} to {high:.1f}" if len(seeds) > 1 else "one seed"
    return {name: float(seeds.mean()), f"{name}_low": low, f"{name}_high": high, f"{name}_span": span}
