"""One line per client with its name, where there are few enough clients to read: a mark for each method, and what they are compared with.

Histograms, curves and clouds of dots say little about eight clients. Names do.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison
from evenly.report.charts.distribution import span_of
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.served import influence, served
from evenly.report.table import SPLIT_WORDS

LINE = 30  # pixels of a client
BESIDE = 140  # pixels of a name beside the plot; a longer one is cut, and whole in tables and on hovering
SHARE = "Share of all weight in training (%)"


class Named(NamedTuple):
    """What is drawn of each client."""

    title: str
    unit: str
    marks: Mapping[str, np.ndarray]  # method -> [clients]
    rows: np.ndarray  # [clients] rows that a mark rests on
    rule: float = np.nan  # where a line for everybody stands
    ticks: np.ndarray | None = None  # [clients] what each client's marks are compared with
    tick: str = ""  # what that is


def named_accuracy(comparison: Comparison, labels: Sequence[str], split: str, hidden: Collection[int], average: float) -> alt.LayerChart:
    """Every client's accuracy under each method, means over seeds, the worst served by the first method on top."""
    found = {label: served(comparison, label, split) for label in labels}
    title = f"{SPLIT_WORDS[split].capitalize()} accuracy of every client"
    marks = {label: own.accuracy for label, own in found.items()}
    own = Named(title, "Accuracy (%)", marks, found[labels[0]].rows, rule=average)
    return _chart(comparison, own, np.argsort(found[labels[0]].accuracy, kind="stable"), hidden)


def named_influence(comparison: Comparison, labels: Sequence[str], hidden: Collection[int]) -> alt.LayerChart | None:
    """Every client's share of the weight under each method beside its share of the training rows; None where no weights are known."""
    found = {label: influence(comparison, label) for label in labels}
    known = {label: own for label, own in found.items() if np.isfinite(own.weight).all()}
    if not known or comparison.federation.clients < 2 or len(hidden) == comparison.federation.clients:
        return None
    first = next(iter(known.values()))
    marks = {label: 100 * own.weight for label, own in known.items()}
    rows = comparison.federation.train.counts
    title = "How much each client counted in training"
    own = Named(title, SHARE, marks, rows, ticks=100 * first.rows, tick="Share of all training rows (%)")
    return _chart(comparison, own, np.argsort(-first.rows, kind="stable"), hidden, labels)


def _chart(
    comparison: Comparison, own: Named, order: np.ndarray, hidden: Collection[int], labels: Sequence[str] | None = None
) -> alt.LayerChart:
    labels = list(own.marks) if labels is None else labels
    shown = [k for k in order.tolist() if k not in hidden and any(np.isfinite(mark[k]) for mark in own.marks.values())]
    names = [comparison.federation.names[k] for k in shown]
    rows = [_row(names[i], label, float(mark[k]), float(own.rows[k])) for i, k in enumerate(shown) for label, mark in own.marks.items()]
    rows = [row for row in rows if np.isfinite(row["value"])]
    ticks = [] if own.ticks is None else [{"client": names[i], "value": float(own.ticks[k])} for i, k in enumerate(shown)]
    ends = [row["value"] for row in (*rows, *ticks)] + ([own.rule] if np.isfinite(own.rule) else [])
    x, y = _x(own, ends), _y(names)
    base = alt.Chart(values(rows)).encode(y=y)
    reach = {name: [row["value"] for row in rows if row["client"] == name] for name in names}
    span = [{"client": name, "low": min(seen), "high": max(seen)} for name, seen in reach.items()]
    layers = [
        *([alt.Chart(values([{"value": own.rule}])).mark_rule(style="guide-line", strokeDash=[4, 3]).encode(x=x)] if not ticks else []),
        alt.Chart(values(span)).mark_rule(style="guide-line", opacity=0.5).encode(x=_x(own, ends, "low"), x2="high:Q", y=y),
        *([_ticks(ticks, own, x, y)] if ticks else []),
        base.mark_point(filled=True, size=80, opacity=0.9).encode(
            x=x, color=colour_of(labels), shape=shape_of(labels), tooltip=_tooltip(own)
        ),
    ]
    words = f"{own.title}: one line for each of {len(names)} clients, one mark for each of {len(own.marks)} methods."
    return finish(layers, title=own.title, description=words, height=LINE * len(names) + 10)


def _row(name: str, label: str, value: float, rows: float) -> dict[str, Any]:
    return {"client": name, "method": label, "value": value, "rows": rows}


def _x(own: Named, ends: list[float], field: str = "value") -> alt.X:
    span = span_of(np.array(ends, np.float64))
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[span.low, span.high], nice=False), axis=alt.Axis(title=own.unit, tickCount=5))


def _y(names: list[str]) -> alt.Y:
    axis = alt.Axis(title=None, labelOverlap=False, labelLimit=BESIDE, grid=False)
    return alt.Y("client:N", sort=names, axis=axis)


def _ticks(ticks: list[dict[str, Any]], own: Named, x: alt.X, y: alt.Y) -> alt.Chart:
    tip = [alt.Tooltip("client:N", title="Client"), alt.Tooltip("value:Q", title=own.tick, format=".1f")]
    return alt.Chart(values(ticks)).mark_tick(style="guide-line", thickness=2, size=16).encode(x=x, y=y, tooltip=tip)


def _tooltip(own: Named) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("client:N", title="Client"),
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("value:Q", title=own.unit, format=".1f"),
        alt.Tooltip("rows:Q", title="Rows", format=",.0f"),
    ]
