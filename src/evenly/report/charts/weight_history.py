"""Who counted when: the share of the weight that clients got over the rounds of training, as squares of that size."""

import itertools
from collections.abc import Collection
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison, Run
from evenly.metrics import seated
from evenly.report.charts.theme import finish, values
from evenly.report.served import NAMED, influence, training_rows

BANDS = 10  # by size, of clients that are too many to be drawn one by one
BINS = 24
ROW = 38  # pixels


class History(NamedTuple):
    """Shares of weight by band of clients and part of training; every part that gave any weight sums to 1."""

    bands: list[str]
    rows: np.ndarray  # [bands] share of the training rows
    rounds: list[tuple[int, int]]  # first and last round of each part
    shares: np.ndarray  # [bands, parts]


def weight_history(comparison: Comparison, label: str, hidden: Collection[int] = ()) -> History | None:
    """Mean over seeds, without rows of hidden clients. All shares sum to 1, and those of shown clients are known from elsewhere: so
    where a band holds a single hidden client, all bands with hidden ones are left out.

    None where there is nothing to show: no rounds, one client, or several models with weights of their own.
    """
    runs, clients = comparison.of(label), comparison.federation.clients
    rounds = len(runs[0].trace.cohort)
    if clients < 2 or not rounds or not np.isfinite(influence(comparison, label).weight).all():
        return None
    sizes = np.mean([training_rows(comparison, run) for run in runs], axis=0)
    order = np.argsort(-sizes, kind="stable")
    parts = np.array_split(order, clients if clients < NAMED else BANDS)
    band = np.empty(clients, int)
    for i, part in enumerate(parts):
        band[part] = i
    edges = np.unique(np.linspace(0, rounds, min(rounds, BINS) + 1).round().astype(int))
    shares = np.mean([_shares(run, band, len(parts), edges) for run in runs], axis=0)
    names = [_name(comparison, part, i, len(parts)) for i, part in enumerate(parts)]
    rows = np.array([sizes[part].sum() for part in parts]) / max(sizes.sum(), 1)
    held = [sum(int(k) in hidden for k in part) for part in parts]
    kept = [i for i, number in enumerate(held) if not number or 1 not in held]
    spans = [(int(a) + 1, int(b)) for a, b in itertools.pairwise(edges)]
    return History([names[i] for i in kept], rows[kept], spans, shares[kept]) if kept else None


def _shares(run: Run, band: np.ndarray, bands: int, edges: np.ndarray) -> np.ndarray:
    cohort, weights = seated(run.trace)
    part = np.repeat(np.searchsorted(edges, np.arange(len(cohort)), side="right") - 1, cohort.shape[1])
    total = np.zeros((bands, len(edges) - 1))
    np.add.at(total, (band[cohort.ravel()], part), np.abs(weights).ravel())
    return total / np.maximum(total.sum(0), 1e-12)


def _name(comparison: Comparison, part: np.ndarray, i: int, parts: int) -> str:
    if len(part) == 1:
        return comparison.federation.names[part[0]]
    where = {0: "largest tenth", parts - 1: "smallest tenth"}.get(i, f"tenth {i + 1} by size")
    return f"{where} ({len(part):,} clients)"


def weight_history_chart(history: History, label: str) -> alt.LayerChart:
    """A row for each band, the largest clients on top; a square is as large as the share of the weight that went there."""
    rows = [
        {
            "band": name,
            "y": i + 0.62,
            "part": (first + last) / 2,
            "rounds": f"{first:,} to {last:,}" if first < last else f"{first:,}",
            "share": float(100 * history.shares[i, j]),
            "times": f"{history.shares[i, j] / history.rows[i]:.2f} times" if history.rows[i] > 0 else "no rows",
        }
        for i, name in enumerate(history.bands)
        for j, (first, last) in enumerate(history.rounds)
        if history.shares[i, j] > 0
    ]
    end = history.rounds[-1][1]
    x = alt.X("part:Q", scale=alt.Scale(domain=[0, end], nice=False), axis=alt.Axis(title="Rounds of training", tickCount=5, format=",d"))
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, len(history.bands)], reverse=True, nice=False), axis=None)
    top = float(100 * history.shares.max())
    size = alt.Size("share:Q", scale=alt.Scale(domain=[0, max(top, 1e-9)], range=[0, 190]), legend=None)
    squares = alt.Chart(values(rows)).mark_point(shape="square", filled=True, opacity=0.85, style="weight")
    names = alt.Chart(values([{"band": name, "y": i + 0.1, "part": 0} for i, name in enumerate(history.bands)]))
    layers = [
        names.mark_text(style="guide-text", align="left", baseline="middle", fontSize=11, limit=alt.ExprRef("width")).encode(
            x=x, y=y, text="band:N"
        ),
        squares.encode(x=x, y=y, size=size, tooltip=_tooltip()),
    ]
    title = f"Who counted when under {label}"
    description = f"{title}: the share of weight of {len(history.bands)} parts of the clients by size, over {end} rounds."
    return finish(layers, title=title, description=description, height=ROW * len(history.bands))


def _tooltip() -> list[alt.Tooltip]:
    words: dict[str, Any] = {"band": "Clients", "rounds": "Rounds", "times": "Compared with their rows"}
    found = [alt.Tooltip(f"{name}:N", title=title) for name, title in words.items()]
    return [*found, alt.Tooltip("share:Q", title="Share of the weight (%)", format=".1f")]
