"""Charts of clients: the distribution of accuracies, the Lorenz curve, and one line per client
where there are few.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.comparison import Comparison, Run
from evenly.metrics import METRICS, measure
from evenly.report.charts.theme import colour_of, finish, shape_of, tooltips, values
from evenly.report.values import SPLIT_WORDS, client_accuracy, client_means, influence

# How client accuracy is distributed under each method: a histogram, the clients below it, and two
# lines to compare.

MOST_BINS = 20
LEAST_WIDTH = 10  # percentage points: an axis that shows less would make much of little
TICKS = {1: 5, 2: 10, 5: 20}  # by the width of a bin, in percentage points
# beyond that single clients cannot be seen, and the page would grow without bound
MOST_POINTS = 4000
ROW_HEIGHT = 124
# heights above and below a method's base line, in rows
BAR, LINE, NAME, STRIP = 0.46, 0.5, 0.56, 0.16
GOLDEN = 0.618
CHARACTER = 7.8  # pixels of a name's letter, rather more than less


class Span(NamedTuple):
    """The range of an accuracy axis in percent, and the width of its bins."""

    low: int
    high: int
    step: int

    @property
    def edges(self) -> np.ndarray:
        return np.arange(self.low, self.high + 1, self.step)


def span_of(accuracies: np.ndarray) -> Span:
    """Round bounds around all values, at least ten points apart, and at most twenty bins between
    them.

    >>> span_of(np.array([73.2, 84.0]))
    Span(low=70, high=85, step=1)
    """
    known = accuracies[np.isfinite(accuracies)].round(9)  # 100 * 0.7 is a little less than 70
    least, most = (known.min(), known.max()) if len(known) else (0.0, 100.0)
    spans = (_around(least, most, step) for step in TICKS)
    # the widest bins always do
    return next(span for span in spans if span.high - span.low <= MOST_BINS * span.step)


def _around(least: float, most: float, step: int) -> Span:
    tick = TICKS[step]
    low, high = int(least // tick * tick), int(-(-most // tick) * tick)
    while high - low < LEAST_WIDTH:  # grow where the values are nearer to the end
        up = high < 100 and (low == 0 or high - most <= least - low)
        low, high = (low, high + tick) if up else (low - tick, high)
    return Span(low, high, step)


def accuracy_span(comparison: Comparison, labels: Sequence[str], split: str = "test") -> Span:
    """The axis range that holds the accuracies of all clients under these methods."""
    found = [client_accuracy(run, split)[0] for label in labels for run in comparison.of(label)]
    return span_of(np.concatenate(found))


def distribution(
    comparison: Comparison, labels: Sequence[str], split: str = "test", hidden: Collection[int] = ()
) -> alt.LayerChart:
    """A histogram of the clients' accuracies for each method, mean over seeds, with a dot for each
    client if there are not too many.

    Hidden clients count in the histogram and have no dot.
    """
    span, word = accuracy_span(comparison, labels, split), SPLIT_WORDS[split]
    layers = [_bars(comparison, labels, split, span)]
    if (
        sum(len(comparison.of(label)) for label in labels) * comparison.federation.clients
        <= MOST_POINTS
    ):
        layers.append(_clients(comparison, labels, split, span, hidden))
    layers += [_marks(comparison, labels, split, span), _names(labels, span)]
    return finish(
        layers,
        title=f"How {word} accuracy is spread over the clients",
        description=f"Histogram of the clients' {word} accuracy for each of {len(labels)} methods.",
        height=ROW_HEIGHT * len(labels),
    )


def _x(field: str, span: Span) -> alt.X:
    axis = alt.Axis(
        title="Accuracy of a client (%)",
        values=list(range(span.low, span.high + 1, TICKS[span.step])),
    )
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(domain=[span.low, span.high], nice=False, zero=False),
        axis=axis,
    )


def _y(field: str, rows: int) -> alt.Y:
    return alt.Y(
        f"{field}:Q", scale=alt.Scale(domain=[0.76 - rows, 0.74], nice=False, zero=False), axis=None
    )


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
            tooltip=tooltips(method="Method", bin="Accuracy", clients=("Clients", ",.3~f")),
        )
    )


def _bins(
    comparison: Comparison, labels: Sequence[str], split: str, edges: np.ndarray
) -> list[dict[str, Any]]:
    heights = {
        label: _heights([client_accuracy(run, split)[0] for run in comparison.of(label)], edges)
        for label in labels
    }
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


def _clients(
    comparison: Comparison, labels: Sequence[str], split: str, span: Span, hidden: Collection[int]
) -> alt.Chart:
    rows = [
        row
        for i, label in enumerate(labels)
        for run in comparison.of(label)
        for row in _points(comparison, run, i, split, hidden)
    ]
    tested = f"{split.capitalize()} rows"
    return (
        alt.Chart(values(rows))
        .mark_circle(size=22, opacity=0.45)
        .encode(
            x=_x("accuracy", span),
            y=_y("y", len(labels)),
            color=colour_of(labels),
            tooltip=tooltips(
                client="Client",
                method="Method",
                accuracy=("Accuracy (%)", ".1f"),
                rows=(tested, ",d"),
                seed="Seed",
            ),
        )
    )


def _points(
    comparison: Comparison, run: Run, row: int, split: str, hidden: Collection[int]
) -> list[dict[str, Any]]:
    accuracies, counts = client_accuracy(run, split)
    names = comparison.federation.names
    # Spread evenly instead of at random, so that the same results give the same page.
    return [
        {
            "method": run.label,
            "client": names[k],
            "accuracy": accuracies[k],
            "rows": counts[k],
            "seed": run.seed,
            "y": _strip(row, k),
        }
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
                rows.append(
                    {
                        "method": label,
                        "what": METRICS[name].title,
                        "value": value,
                        "base": -i - STRIP - 0.05,
                        "top": -i + LINE,
                    }
                )
    domain = [METRICS["average_devices"].title, METRICS["worst10"].title]
    dash = alt.StrokeDash("what:N", scale=alt.Scale(domain=domain, range=[[1, 0], [4, 3]]))
    tip = ["method:N", "what:N", *tooltips(value=("Accuracy (%)", ".1f"))]
    lines = alt.Chart(values(rows)).mark_rule(style="guide-line", strokeWidth=1.8)
    return lines.encode(
        x=_x("value", span), y=_y("base", len(labels)), y2="top:Q", strokeDash=dash, tooltip=tip
    )


def _names(labels: Sequence[str], span: Span) -> alt.Chart:
    rows = [{"method": label, "at": span.low, "y": -i + NAME} for i, label in enumerate(labels)]
    # The names stand above the rows, not beside them: long ones would leave no room for the plot on
    # a phone. Where they are wider than the plot, the middle is left out, since labels often differ
    # at their ends; the whole label appears on hovering.
    half = f"floor(width / {2 * CHARACTER})"
    fits = f"length(datum.method) * {CHARACTER} <= width"
    text = alt.ExprRef(
        f"{fits} ? datum.method : slice(datum.method, 0, {half} - 1) + '…' + slice(datum.method,"
        f" -{half})"
    )
    return (
        alt.Chart(values(rows))
        .mark_text(style="method-name", align="left", baseline="bottom", text=text)
        .encode(
            x=_x("at", span),
            y=_y("y", len(labels)),
            tooltip=alt.Tooltip("method:N", title="Method"),
        )
    )


# Lorenz curves: which share of all accuracy the worst-served share of the clients gets, under each
# method.

STEPS = 40
SHAPED = 5  # every so many steps a curve carries its method's shape
CLIENTS, SHARE = "Share of the clients, worst served first (%)", "Their share of all accuracy (%)"


def lorenz(accuracies: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """The Lorenz curve: the share of the sum that the lowest 0, 1/steps, …, 1 of the values hold,
    interpolated linearly. NaN if all are 0.

    >>> lorenz(np.array([3.0, 1.0]), steps=4).tolist()
    [0.0, 0.125, 0.25, 0.625, 1.0]
    """
    ordered = np.sort(accuracies[np.isfinite(accuracies)])
    if not ordered.any():
        return np.full(steps + 1, np.nan)
    held = np.concatenate([[0.0], np.cumsum(ordered)]) / ordered.sum()
    return np.interp(np.linspace(0, 1, steps + 1), np.linspace(0, 1, len(held)), held)


def gini_of(comparison: Comparison, label: str, split: str) -> float:
    """The Gini coefficient of the clients' accuracies, mean over the seeds in which it is
    defined.
    """
    found = [client_accuracy(run, split) for run in comparison.of(label)]
    known = [np.isfinite(a) for a, _ in found]
    each = [
        METRICS["gini"].function(a[k], n[k]) if k.any() else np.nan
        for (a, n), k in zip(found, known, strict=True)
    ]
    defined = [value for value in each if np.isfinite(value)]
    return float(np.mean(defined)) if defined else float("nan")


def lorenz_chart(
    comparison: Comparison, labels: Sequence[str], split: str = "test"
) -> alt.LayerChart:
    """One Lorenz curve for each method, the mean over seeds, and the diagonal of equal accuracy."""
    ginis = {label: gini_of(comparison, label, split) for label in labels}
    rows = [row for label in labels for row in _rows(comparison, label, split, ginis[label])]
    whole = alt.Scale(domain=[0, 100], nice=False)
    ticks = [0, 20, 40, 60, 80, 100]
    x = alt.X("clients:Q", scale=whole, axis=alt.Axis(title=CLIENTS, values=ticks))
    y = alt.Y("share:Q", scale=whole, axis=alt.Axis(title=SHARE, values=ticks))
    equal = alt.Chart(values([{"clients": 0, "share": 0}, {"clients": 100, "share": 100}]))
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=colour_of(labels))
    shaped = base.transform_filter("datum.shaped")
    tip = {
        "method": "Method",
        "clients": ("Worst-served clients (%)", ".3~f"),
        "share": (SHARE, ".1f"),
        "gini": "Gini coefficient",
    }
    layers = [
        equal.mark_line(style="guide-line", strokeDash=[4, 3]).encode(x=x, y=y),
        base.mark_line(strokeWidth=2),
        shaped.mark_point(filled=True, size=46, opacity=1).encode(
            shape=shape_of(labels), tooltip=tooltips(**tip)
        ),
    ]
    title = "Lorenz curve of the clients"
    words = "; ".join(f"{label}: {gini:.3f}" for label, gini in ginis.items() if np.isfinite(gini))
    description = (
        f"{title}, {SPLIT_WORDS[split]} accuracy. Gini coefficients: {words or 'undefined'}."
    )
    return finish(layers, title=title, description=description, height=360)


def _rows(comparison: Comparison, label: str, split: str, gini: float) -> list[dict[str, Any]]:
    curves = [
        curve
        for run in comparison.of(label)
        if np.isfinite(curve := lorenz(client_accuracy(run, split)[0])).all()
    ]
    if not curves:
        return []
    mean = 100 * np.mean(curves, axis=0)
    shaped = range(SHAPED, STEPS, SHAPED)
    return [
        {
            "method": label,
            "clients": 100 * i / STEPS,
            "share": float(share),
            "gini": f"{gini:.3f}",
            "shaped": i in shaped,
        }
        for i, share in enumerate(mean)
    ]


# One line per client with its name, where there are few enough clients to read: a mark for each
# method, and what they are compared with.
#
# Histograms, curves and clouds of dots say little about eight clients. Names do.

NAMED_LINE = 30  # pixels of a client
# The pixels of a name beside the plot: a third of the page, and 140 on a phone. A longer name is
# cut, and whole in tables and on hovering. A saved chart has no page around it.
BESIDE = "max(140, (isFinite(containerSize()[0]) ? containerSize()[0] : 700) / 3)"
WEIGHT_SHARE = "Share of all weight in training (%)"


class NamedClient(NamedTuple):
    """The values of a chart with one line for each client."""

    title: str
    unit: str
    marks: Mapping[str, np.ndarray]  # method -> [clients]
    rows: np.ndarray  # [clients] rows that a mark rests on
    rule: float = np.nan  # where a line for everybody stands
    ticks: np.ndarray | None = None  # [clients] what each client's marks are compared with
    tick: str = ""  # what that is


def named_accuracy(
    comparison: Comparison,
    labels: Sequence[str],
    split: str,
    hidden: Collection[int],
    average: float,
) -> alt.LayerChart:
    """Every client's accuracy under each method, means over seeds. The client with the lowest
    accuracy under the first method is on top.
    """
    found = {label: client_means(comparison, label, split) for label in labels}
    title = f"{SPLIT_WORDS[split].capitalize()} accuracy of every client"
    marks = {label: own.accuracy for label, own in found.items()}
    own = NamedClient(title, "Accuracy (%)", marks, found[labels[0]].rows, rule=average)
    return _chart(comparison, own, np.argsort(found[labels[0]].accuracy, kind="stable"), hidden)


def named_influence(
    comparison: Comparison, labels: Sequence[str], hidden: Collection[int]
) -> alt.LayerChart | None:
    """Every client's share of the weight under each method, and its share of the training rows.
    None if no weights are known.
    """
    found = {label: influence(comparison, label) for label in labels}
    known = {label: own for label, own in found.items() if np.isfinite(own.weight).all()}
    if (
        not known
        or comparison.federation.clients < 2
        or len(hidden) == comparison.federation.clients
    ):
        return None
    first = next(iter(known.values()))
    marks = {label: 100 * own.weight for label, own in known.items()}
    rows = comparison.federation.train.counts
    title = "How much each client counted in training"
    own = NamedClient(
        title,
        WEIGHT_SHARE,
        marks,
        rows,
        ticks=100 * first.rows,
        tick="Share of all training rows (%)",
    )
    return _chart(comparison, own, np.argsort(-first.rows, kind="stable"), hidden, labels)


def _chart(
    comparison: Comparison,
    own: NamedClient,
    order: np.ndarray,
    hidden: Collection[int],
    labels: Sequence[str] | None = None,
) -> alt.LayerChart:
    shown = [
        k
        for k in order.tolist()
        if k not in hidden and any(np.isfinite(mark[k]) for mark in own.marks.values())
    ]
    names = {k: comparison.federation.names[k] for k in shown}
    rows = _mark_rows(own, names)
    ticks = (
        []
        if own.ticks is None
        else [{"client": name, "value": float(own.ticks[k])} for k, name in names.items()]
    )
    ends = [row["value"] for row in (*rows, *ticks)] + ([own.rule] if np.isfinite(own.rule) else [])
    x = _named_x(own, ends)
    y = alt.Y(
        "client:N",
        sort=[*names.values()],
        axis=alt.Axis(title=None, labelOverlap=False, labelLimit=alt.ExprRef(BESIDE), grid=False),
    )
    layers = [
        _reach(rows).encode(x=_named_x(own, ends, "low"), x2="high:Q", y=y),
        _named_marks(rows, own, labels or [*own.marks]).encode(x=x, y=y),
    ]
    layers.insert(*((1, _ticks(ticks, own, x, y)) if ticks else (0, _rule(own.rule, x))))
    words = (
        f"{own.title}: one line for each of {len(names)} clients, one mark for each of"
        f" {len(own.marks)} methods."
    )
    return finish(layers, title=own.title, description=words, height=NAMED_LINE * len(names) + 10)


def _reach(rows: list[dict[str, Any]]) -> alt.Chart:
    """A line from the lowest to the highest value of each client."""
    marks: dict[str, list[float]] = {}
    for row in rows:
        marks.setdefault(row["client"], []).append(row["value"])
    spans = [{"client": name, "low": min(ends), "high": max(ends)} for name, ends in marks.items()]
    return alt.Chart(values(spans)).mark_rule(style="guide-line", opacity=0.5)


def _rule(value: float, x: alt.X) -> alt.Chart:
    return (
        alt.Chart(values([{"value": value}]))
        .mark_rule(style="guide-line", strokeDash=[4, 3])
        .encode(x=x)
    )


def _named_marks(rows: list[dict[str, Any]], own: NamedClient, labels: Sequence[str]) -> alt.Chart:
    tip = tooltips(client="Client", method="Method", value=(own.unit, ".1f"), rows=("Rows", ",.0f"))
    marks = alt.Chart(values(rows)).mark_point(filled=True, size=80, opacity=0.9)
    return marks.encode(color=colour_of(labels), shape=shape_of(labels), tooltip=tip)


def _mark_rows(own: NamedClient, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """One row for each client and each method under which its value is defined."""
    return [
        {"client": name, "method": label, "value": float(mark[k]), "rows": float(own.rows[k])}
        for k, name in names.items()
        for label, mark in own.marks.items()
        if np.isfinite(mark[k])
    ]


def _named_x(own: NamedClient, ends: list[float], field: str = "value") -> alt.X:
    span = span_of(np.array(ends, np.float64))
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(domain=[span.low, span.high], nice=False),
        axis=alt.Axis(title=own.unit, tickCount=5),
    )


def _ticks(ticks: list[dict[str, Any]], own: NamedClient, x: alt.X, y: alt.Y) -> alt.Chart:
    marks = alt.Chart(values(ticks)).mark_tick(style="guide-line", thickness=2, size=16)
    return marks.encode(x=x, y=y, tooltip=tooltips(client="Client", value=(own.tick, ".1f")))
