"""How client accuracy is distributed under each method: a histogram, the clients below it, and two lines to compare."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison, Run
from evenly.metrics import METRICS, measure
from evenly.report.charts.theme import colour_of, finish, values
from evenly.report.served import client_accuracy
from evenly.report.table import SPLIT_WORDS

EDGES = np.arange(0, 101, 5)  # bins of five percentage points
MOST_POINTS = 4000  # beyond that single clients cannot be seen, and the page would grow without bound
ROW_HEIGHT = 124
BAR, LINE, NAME, STRIP = 0.46, 0.5, 0.56, 0.16  # heights above and below a method's base line, in rows
GOLDEN = 0.618


def distribution(comparison: Comparison, labels: Sequence[str], split: str = "test") -> alt.LayerChart:
    """One row per method. Bars: clients per 5 points of accuracy, mean over seeds. Dots: single clients, where they can be seen."""
    layers, word = [_bars(comparison, labels, split)], SPLIT_WORDS[split]
    if sum(len(comparison.of(label)) for label in labels) * comparison.federation.clients <= MOST_POINTS:
        layers.append(_clients(comparison, labels, split))
    layers += [_marks(comparison, labels, split), _names(labels)]
    return finish(
        layers,
        title=f"How {word} accuracy is spread over the clients",
        description=f"Histogram of the clients' {word} accuracy for each of {len(labels)} methods.",
        height=ROW_HEIGHT * len(labels),
    )


def _x(field: str) -> alt.X:
    axis = alt.Axis(title="Accuracy of a client (%)", values=list(range(0, 101, 20)))
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, 100]), axis=axis)


def _y(field: str, rows: int) -> alt.Y:
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0.76 - rows, 0.74], nice=False, zero=False), axis=None)


def _bars(comparison: Comparison, labels: Sequence[str], split: str) -> alt.Chart:
    return (
        alt.Chart(values(_bins(comparison, labels, split)))
        .mark_bar(opacity=0.75, binSpacing=1)
        .encode(
            x=_x("from"),
            x2="to:Q",
            y=_y("base", len(labels)),
            y2="top:Q",
            color=colour_of(labels),
            tooltip=[
                alt.Tooltip("method:N", title="Method"),
                alt.Tooltip("bin:N", title="Accuracy"),
                alt.Tooltip("clients:Q", title="Clients", format=",.3~f"),
            ],
        )
    )


def _bins(comparison: Comparison, labels: Sequence[str], split: str) -> list[dict[str, Any]]:
    heights = {label: _heights([client_accuracy(run, split)[0] for run in comparison.of(label)]) for label in labels}
    tallest = max((h.max() for h in heights.values()), default=0) or 1
    return [
        {
            "method": label,
            "from": EDGES[j],
            "to": EDGES[j + 1],
            "base": -i,
            "top": -i + BAR * height / tallest,
            "clients": height,
            "bin": f"{EDGES[j]} to {EDGES[j + 1]} %",
        }
        for i, label in enumerate(labels)
        for j, height in enumerate(heights[label])
        if height > 0
    ]


def _heights(seeds: list[np.ndarray]) -> np.ndarray:
    """Clients in each bin, mean over seeds."""
    return np.mean([np.histogram(a[np.isfinite(a)], EDGES)[0] for a in seeds], axis=0)


def _clients(comparison: Comparison, labels: Sequence[str], split: str) -> alt.Chart:
    rows = [row for i, label in enumerate(labels) for run in comparison.of(label) for row in _points(comparison, run, i, split)]
    return (
        alt.Chart(values(rows))
        .mark_circle(size=22, opacity=0.45)
        .encode(
            x=_x("accuracy"),
            y=_y("y", len(labels)),
            color=colour_of(labels),
            tooltip=[
                alt.Tooltip("client:N", title="Client"),
                alt.Tooltip("method:N", title="Method"),
                alt.Tooltip("accuracy:Q", title="Accuracy (%)", format=".1f"),
                alt.Tooltip("rows:Q", title=f"{split.capitalize()} rows", format=",d"),
                alt.Tooltip("seed:N", title="Seed"),
            ],
        )
    )


def _points(comparison: Comparison, run: Run, row: int, split: str) -> list[dict[str, Any]]:
    accuracies, counts = client_accuracy(run, split)
    names = comparison.federation.names
    # Spread evenly instead of at random, so that the same results give the same page.
    return [
        {"method": run.label, "client": names[k], "accuracy": accuracies[k], "rows": counts[k], "seed": run.seed, "y": _strip(row, k)}
        for k in np.flatnonzero(np.isfinite(accuracies)).tolist()
    ]


def _strip(row: int, k: int) -> float:
    return -row - 0.05 - STRIP * ((k * GOLDEN) % 1)


def _marks(comparison: Comparison, labels: Sequence[str], split: str) -> alt.Chart:
    """A solid line at the clients' mean and a dashed one at the mean of the worst tenth."""
    rows = []
    for i, label in enumerate(labels):
        found = [client_accuracy(run, split) for run in comparison.of(label)]
        metrics = [measure(a / 100, n) for a, n in found]
        for name in ("average_devices", "worst10"):
            value = float(np.mean([m[name] for m in metrics]))
            if np.isfinite(value):
                rows.append({"method": label, "what": METRICS[name].title, "value": value, "base": -i - STRIP - 0.05, "top": -i + LINE})
    domain = [METRICS["average_devices"].title, METRICS["worst10"].title]
    dash = alt.StrokeDash("what:N", scale=alt.Scale(domain=domain, range=[[1, 0], [4, 3]]))
    where = alt.Tooltip("value:Q", title="Accuracy (%)", format=".1f")
    return (
        alt.Chart(values(rows))
        .mark_rule(style="guide-line", strokeWidth=1.8)
        .encode(x=_x("value"), y=_y("base", len(labels)), y2="top:Q", strokeDash=dash, tooltip=["method:N", alt.Tooltip("what:N"), where])
    )


def _names(labels: Sequence[str]) -> alt.Chart:
    rows = [{"method": label, "at": 0, "y": -i + NAME} for i, label in enumerate(labels)]
    # The names stand above the rows, not beside them: long ones would leave no room for the plot on a phone.
    return (
        alt.Chart(values(rows))
        .mark_text(style="method-name", align="left", baseline="bottom", limit=260)
        .encode(x=_x("at"), y=_y("y", len(labels)), text="method:N")
    )
