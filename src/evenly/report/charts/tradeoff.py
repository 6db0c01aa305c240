"""Accuracy against fairness: one mark per method, and lines from its lowest seed to its highest."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.table import Values

TITLES = {
    "variance": ("Accuracy and evenness", "Variance (%²): lower is more even"),
    "worst10": ("Accuracy and the worst-served clients", "Worst-served 10 % (%): higher is better"),
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
    layers = (_others(grey, unit) if grey else []) + _named(coloured, unit, labels)
    return finish(layers, title=title, description=f"{title}: one point for each of {len(measured)} methods.", height=300)


def _others(rows: list[dict[str, Any]], unit: str) -> list[alt.Chart]:
    x, y = _axes(unit)
    return [alt.Chart(values(rows)).mark_point(filled=True, size=36, opacity=0.8, style="others").encode(x=x, y=y, tooltip=_tooltip(unit))]


def _named(rows: list[dict[str, Any]], unit: str, labels: Sequence[str]) -> list[alt.Chart]:
    x, y = _axes(unit)
    base = alt.Chart(values(rows)).encode(color=colour_of(labels))
    lines = base.mark_rule(opacity=0.55, strokeWidth=1.6)
    return [
        lines.encode(x=alt.X("average_low:Q", title=AVERAGE), x2="average_high:Q", y=y),
        lines.encode(x=x, y=alt.Y("other_low:Q", title=unit), y2="other_high:Q"),
        base.mark_point(filled=True, size=130, opacity=1).encode(x=x, y=y, shape=shape_of(labels), tooltip=_tooltip(unit)),
    ]


def _axes(unit: str) -> tuple[alt.X, alt.Y]:
    room = alt.Scale(zero=False, padding=18)
    return alt.X("average:Q", axis=alt.Axis(title=AVERAGE, tickCount=6), scale=room), alt.Y(
        "other:Q", axis=alt.Axis(title=unit, tickCount=5), scale=room
    )


def _tooltip(unit: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("average:Q", title="Average accuracy (%)", format=".1f"),
        alt.Tooltip("average_span:N", title="… over seeds"),
        alt.Tooltip("other:Q", title=unit.partition(":")[0], format=".1f"),
        alt.Tooltip("other_span:N", title="… over seeds"),
    ]


def _row(measured: Values, label: str, metric: str) -> dict[str, Any]:
    return {"method": label, **ends(measured, label, "average", "average"), **ends(measured, label, metric, "other")}


def ends(measured: Values, label: str, metric: str, name: str, *, digits: int = 1) -> dict[str, Any]:
    """The mean over seeds under `name`, its lowest and highest seed, and both in words; None where undefined."""
    seeds = np.array([seed[metric] for seed in measured[label].values()])
    seeds = seeds[np.isfinite(seeds)]
    if not len(seeds):
        return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_span": ""}
    low, high = float(seeds.min()), float(seeds.max())
    span = f"{low:.{digits}f} to {high:.{digits}f}" if len(seeds) > 1 else "one seed"
    return {name: float(seeds.mean()), f"{name}_low": low, f"{name}_high": high, f"{name}_span": span}
