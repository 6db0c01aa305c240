"""Who shaped the model: each client's share of all weight given in training, against its share of the training rows."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.served import Influence, influence

MOST_POINTS = 3000  # beyond that clients of similar size are drawn as one
BINS = 40
ROWS, WEIGHT = "Share of all training rows (%)", "Share of all weight in training (%)"


def influence_chart(comparison: Comparison, labels: Sequence[str], hidden: Collection[int] = ()) -> alt.LayerChart | None:
    """One point per client and method; with very many clients, one per fortieth of them by size.

    Hidden clients have no point. None for a single client, or where no weights are known or nobody is left.
    """
    found = {label: influence(comparison, label) for label in labels}
    found = {label: share for label, share in found.items() if np.isfinite(share.weight).all()}
    if not found or comparison.federation.clients < 2:
        return None
    joined = len(found) * comparison.federation.clients > MOST_POINTS
    draw = _joined if joined else partial(_single, hidden)
    rows = [row for label, share in found.items() for row in draw(comparison, label, share)]
    if not rows:
        return None
    title = "How much each client counted in training"
    description = f"{title}: its share of the training rows against its share of the weight, for each method."
    return finish([*_diagonal(rows), _points(rows, labels)], title=title, description=description, height=340)


def _axes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    # Square-root axes spread out the many small clients and, unlike logarithms, have a place for 0.
    root = alt.Scale(type="sqrt", zero=False, nice=False, padding=8)
    ends = _ends(rows)
    seen = [*ends, *(row["weight"] for row in rows)]
    ticks = _ticks(min(seen), max(seen))
    wide = alt.Scale(type="sqrt", zero=False, nice=False, padding=8, domain=ends)
    return {
        "x": alt.X("rows:Q", scale=wide, axis=alt.Axis(title=ROWS, values=ticks, format=".2~r")),
        "y": alt.Y("weight:Q", scale=root, axis=alt.Axis(title=WEIGHT, values=ticks, format=".2~r")),
    }


def _ends(rows: list[dict[str, Any]]) -> list[float]:
    """The smallest and the largest share of rows; where all clients are alike, room on both sides."""
    low, high = min(row["rows"] for row in rows), max(row["rows"] for row in rows)
    return [low, high] if low < high else [high / 2, high * 2 or 1.0]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers: 0, 1, 2, 5, 10, … where shares differ by tenfold or more, else even steps."""
    if low * 10 < high:
        steps = [float(f"{digit}e{power}") for power in range(-7, 3) for digit in (1, 2, 5)]
        return [0.0, *(step for step in steps if max(low, high / 90) <= step <= high)]
    step = 10 ** np.floor(np.log10(high)) / 5 if high > 0 else 1.0
    return [float(v) for v in np.arange(np.ceil(low / step), high / step + 1) * step][:: max(1, int((high - low) / step) // 6)]


def _diagonal(rows: list[dict[str, Any]]) -> list[alt.Chart]:
    ends = _ends(rows)
    line = alt.Chart(values([{"rows": end, "weight": end} for end in ends]))
    word = alt.Chart(values([{"rows": ends[1], "weight": ends[1], "text": "exactly its share of rows"}]))
    return [
        line.mark_line(style="guide-line", strokeDash=[4, 3]).encode(**_axes(rows)),
        word.mark_text(style="guide-text", align="right", baseline="bottom", dx=-14, dy=2).encode(**_axes(rows), text="text:N"),
    ]


def _points(rows: list[dict[str, Any]], labels: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart(values(rows))
        .mark_point(filled=True, size=38, opacity=0.6)
        .encode(
            **_axes(rows),
            color=colour_of(labels),
            shape=shape_of(labels),
            tooltip=[
                alt.Tooltip("client:N", title="Client"),
                alt.Tooltip("method:N", title="Method"),
                alt.Tooltip("rows:Q", title=ROWS, format=".2f"),
                alt.Tooltip("weight:Q", title=WEIGHT, format=".2f"),
                alt.Tooltip("times:N", title="Compared with its rows"),
            ],
        )
    )


def _single(hidden: Collection[int], comparison: Comparison, label: str, share: Influence) -> list[dict[str, Any]]:
    each = enumerate(zip(comparison.federation.names, share.rows, share.weight, strict=True))
    return [_row(label, name, r, w) for k, (name, r, w) in each if k not in hidden]


def _joined(comparison: Comparison, label: str, share: Influence) -> list[dict[str, Any]]:
    order = np.argsort(share.rows, kind="stable")
    return [
        _row(label, f"{len(part):,} clients of this size (mean)", share.rows[part].mean(), share.weight[part].mean())
        for part in np.array_split(order, BINS)
    ]


def _row(label: str, name: str, rows: float, weight: float) -> dict[str, Any]:
    times = f"{weight / rows:.2f} times" if rows > 0 else "no rows"
    return {"method": label, "client": name, "rows": float(100 * rows), "weight": float(100 * weight), "times": times}
