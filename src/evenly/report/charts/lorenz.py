"""Lorenz curves: which share of all accuracy the worst-served share of the clients gets, under each method."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison
from evenly.metrics import METRICS
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.served import client_accuracy
from evenly.report.table import SPLIT_WORDS

STEPS = 40
SHAPED = 5  # every so many steps a curve carries its method's shape
CLIENTS, SHARE = "Share of the clients, worst served first (%)", "Their share of all accuracy (%)"


def lorenz(accuracies: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """Shares of the sum held by the lowest 0, 1/steps, …, 1 of the values; straight lines between single clients. NaN if all are 0.

    >>> lorenz(np.array([3.0, 1.0]), steps=4).tolist()
    [0.0, 0.125, 0.25, 0.625, 1.0]
    """
    ordered = np.sort(accuracies[np.isfinite(accuracies)])
    if not ordered.any():
        return np.full(steps + 1, np.nan)
    held = np.concatenate([[0.0], np.cumsum(ordered)]) / ordered.sum()
    return np.interp(np.linspace(0, 1, steps + 1), np.linspace(0, 1, len(held)), held)


def gini_of(comparison: Comparison, label: str, split: str) -> float:
    """The Gini coefficient of the clients' accuracies, mean over the seeds that have one: twice the area above the curve."""
    found = [client_accuracy(run, split) for run in comparison.of(label)]
    known = [np.isfinite(a) for a, _ in found]
    each = [METRICS["gini"].function(a[k], n[k]) if k.any() else np.nan for (a, n), k in zip(found, known, strict=True)]
    defined = [value for value in each if np.isfinite(value)]
    return float(np.mean(defined)) if defined else float("nan")


def lorenz_chart(comparison: Comparison, labels: Sequence[str], split: str = "test") -> alt.LayerChart:
    """One curve per method, the mean over seeds, and the straight line of equal service."""
    ginis = {label: gini_of(comparison, label, split) for label in labels}
    rows = [row for label in labels for row in _rows(comparison, label, split, ginis[label])]
    whole = alt.Scale(domain=[0, 100], nice=False)
    ticks = [0, 20, 40, 60, 80, 100]
    x = alt.X("clients:Q", scale=whole, axis=alt.Axis(title=CLIENTS, values=ticks))
    y = alt.Y("share:Q", scale=whole, axis=alt.Axis(title=SHARE, values=ticks))
    equal = alt.Chart(values([{"clients": 0, "share": 0}, {"clients": 100, "share": 100}]))
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=colour_of(labels))
    shaped = base.transform_filter("datum.shaped")
    layers = [
        equal.mark_line(style="guide-line", strokeDash=[4, 3]).encode(x=x, y=y),
        base.mark_line(strokeWidth=2),
        shaped.mark_point(filled=True, size=46, opacity=1).encode(shape=shape_of(labels), tooltip=_tooltip()),
    ]
    title = "Lorenz curve of the clients"
    words = "; ".join(f"{label}: {gini:.3f}" for label, gini in ginis.items() if np.isfinite(gini))
    description = f"{title}, {SPLIT_WORDS[split]} accuracy. Gini coefficients: {words or 'undefined'}."
    return finish(layers, title=title, description=description, height=360)


def _rows(comparison: Comparison, label: str, split: str, gini: float) -> list[dict[str, Any]]:
    curves = [curve for run in comparison.of(label) if np.isfinite(curve := lorenz(client_accuracy(run, split)[0])).all()]
    if not curves:
        return []
    mean = 100 * np.mean(curves, axis=0)
    shaped = range(SHAPED, STEPS, SHAPED)
    return [
        {"method": label, "clients": 100 * i / STEPS, "share": float(share), "gini": f"{gini:.3f}", "shaped": i in shaped}
        for i, share in enumerate(mean)
    ]


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("clients:Q", title="Worst-served clients (%)", format=".3~f"),
        alt.Tooltip("share:Q", title=SHARE, format=".1f"),
        alt.Tooltip("gini:N", title="Gini coefficient"),
    ]
