"""How client accuracy is distributed under each method: a histogram, the clients below it, and two lines to compare."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison, Run
from evenly.metrics import METRICS, measure
from evenly.report.charts.theme import colour_of, finish, values
from evenly.report.served import client_accuracy
from evenly.report.table import SPLIT_WORDS

MOST_BINS = 20
LEAST_WIDTH = 10  # percentage points: an axis that shows less would make much of little
TICKS = {1: 5, 2: 10, 5: 20}  # by the width of a bin, in percentage points
MOST_POINTS = 4000  # beyond that single clients cannot be seen, and the page would grow without bound
ROW_HEIGHT = 124
BAR, LINE, NAME, STRIP = 0.46, 0.5, 0.56, 0.16  # heights above and below a method's base line, in rows
GOLDEN = 0.618
CHARACTER = 7.8  # pixels of a name's letter, rather more than less


class Span(NamedTuple):
    """The accuracies that the chart shows, in percent, and the width of its bins."""

    low: int
    high: int
    step: int

    @property
    def edges(self) -> np.ndarray:
        return np.arange(self.low, self.high + 1, self.step)


def span_of(accuracies: np.ndarray) -> Span:
    """Round bounds around all values, at least ten points apart, and at most twenty bins between them.

    >>> span_of(np.array([73.2, 84.0]))
    Span(low=70, high=85, step=1)
    """
    known = accuracies[np.isfinite(accuracies)].round(9)  # 100 * 0.7 is a little less than 70
    least, most = (known.min(), known.max()) if len(known) else (0.0, 100.0)
    spans = (_around(least, most, step) for step in TICKS)
    return next(span for span in spans if span.high - span.low <= MOST_BINS * span.step)  # the widest bins always do


def _around(least: float, most: float, step: int) -> Span:
    tick = TICKS[step]
    low, high = int(least // tick * tick), int(-(-most // tick) * tick)
    while high - low < LEAST_WIDTH:  # grow where the values are nearer to the end
        up = high < 100 and (low == 0 or high - most <= least - low)
        low, high = (low, high + tick) if up else (low - tick, high)
    return Span(low, high, step)


def shown_span(comparison: Comparison, labels: Sequence[str], split: str = "test") -> Span:
    found = [client_accuracy(run, split)[0] for label in labels for run in comparison.of(label)]
    return span_of(np.concatenate(found))


def distribution(comparison: Comparison, labels: Sequence[str], split: str = "test", hidden: Collection[int] = ()) -> alt.LayerChart:
    """One row per method. Bars: clients per step of accuracy, mean over seeds. Dots: single clients, where they can be seen.

    Hidden clients are counted and have no dot.
    """
    span, word = shown_span(comparison, labels, split), SPLIT_WORDS[split]
    layers = [_bars(comparison, labels, split, span)]
    if sum(len(comparison.of(label)) for label in labels) * comparison.federation.clients <= MOST_POINTS:
        layers.append(_clients(comparison, labels, split, span, hidden))
    layers += [_marks(comparison, labels, split, span), _names(labels, span)]
    return finish(
        layers,
        title=f"How {word} accuracy is spread over the clients",
        description=f"Histogram of the clients' {word} accuracy for each of {len(labels)} methods.",
        height=ROW_HEIGHT * len(labels),
    )


def _x(field: str, span: Span) -> alt.X:
    axis = alt.Axis(title="Accuracy of a client (%)", values=list(range(span.low, span.high + 1, TICKS[span.step])))
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[span.low, span.high], nice=False, zero=False), axis=axis)


def _y(field: str, rows: int) -> alt.Y:
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0.76 - rows, 0.74], nice=False, zero=False), axis=None)


def _bars(comparison: Comparison, labels: Sequence[str], split: str, span: Span) -> alt.Chart:
    return (
        alt.Chart(values(_bins(comparison, labels, split, span.edges)))
        .mark_bar(opacity=0.75, binSpacing=1)
        .encode(
            x=_x("from", span),
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


def _bins(comparison: Comparison, labels: Sequence[str], split: str, edges: np.ndarray) -> list[dict[str, Any]]:
    heights = {label: _heights([client_accuracy(run, split)[0] for run in comparison.of(label)], edges) for label in labels}
    tallest = max((h.max() for h in heights.values()), default=0) or 1
    return [
        {
            "method": label,
            "from": edges[j],
            "to": edges[j + 1],
            "base": -i,
            "top": -i + BAR * height / tallest,
            "clients": height,
            "bin": f"{edges[j]} to {edges[j + 1]} %",
        }
        for i, label in enumerate(labels)
        for j, height in enumerate(heights[label])
        if height > 0
    ]


def _heights(seeds: list[np.ndarray], edges: np.ndarray) -> np.ndarray:
    """Clients in each bin, mean over seeds."""
    return np.mean([np.histogram(a[np.isfinite(a)].round(9), edges)[0] for a in seeds], axis=0)


def _clients(comparison: Comparison, labels: Sequence[str], split: str, span: Span, hidden: Collection[int]) -> alt.Chart:
    rows = [row for i, label in enumerate(labels) for run in comparison.of(label) for row in _points(comparison, run, i, split, hidden)]
    return (
        alt.Chart(values(rows))
        .mark_circle(size=22, opacity=0.45)
        .encode(
            x=_x("accuracy", span),
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


def _points(comparison: Comparison, run: Run, row: int, split: str, hidden: Collection[int]) -> list[dict[str, Any]]:
    accuracies, counts = client_accuracy(run, split)
    names = comparison.federation.names
    # Spread evenly instead of at random, so that the same results give the same page.
    return [
        {"method": run.label, "client": names[k], "accuracy": accuracies[k], "rows": counts[k], "seed": run.seed, "y": _strip(row, k)}
        for k in np.flatnonzero(np.isfinite(accuracies)).tolist()
        if k not in hidden
    ]


def _strip(row: int, k: int) -> float:
    return -row - 0.05 - STRIP * ((k * GOLDEN) % 1)


def _marks(comparison: Comparison, labels: Sequence[str], split: str, span: Span) -> alt.Chart:
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
        .encode(
            x=_x("value", span), y=_y("base", len(labels)), y2="top:Q", strokeDash=dash, tooltip=["method:N", alt.Tooltip("what:N"), where]
        )
    )


def _names(labels: Sequence[str], span: Span) -> alt.Chart:
    rows = [{"method": label, "at": span.low, "y": -i + NAME} for i, label in enumerate(labels)]
    # The names stand above the rows, not beside them: long ones would leave no room for the plot on a phone. Where they are wider
    # than the plot, the middle is left out, since labels often differ at their ends; the whole label appears on hovering.
    half = f"floor(width / {2 * CHARACTER})"
    fits = f"length(datum.method) * {CHARACTER} <= width"
    text = alt.ExprRef(f"{fits} ? datum.method : slice(datum.method, 0, {half} - 1) + '…' + slice(datum.method, -{half})")
    return (
        alt.Chart(values(rows))
        .mark_text(style="method-name", align="left", baseline="bottom", text=text)
        .encode(x=_x("at", span), y=_y("y", len(labels)), tooltip=alt.Tooltip("method:N", title="Method"))
    )
