"""Charts of how much clients count: over the rounds, in all of training, and under the
same losses.
"""

import itertools
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.comparison import Comparison, Run
from evenly.metrics import dual_weights, generalised_mean, slots_of_evaluated
from evenly.report.charts.convergence import rounds_axis, thin
from evenly.report.charts.theme import colour_of, finish, shape_of, tooltips, values
from evenly.report.values import NAMED, Influence, influence, training_rows

# Who counted when: the share of the weight that clients got over the rounds of training, as squares
# of that size.

BANDS = 10  # by size, of clients that are too many to be drawn one by one
HISTORY_BINS = 24
ROW = 38  # pixels
NAME, SQUARES = 0.24, 0.68  # in a row, so that a name is nearer to its own squares


class History(NamedTuple):
    """Shares of the weight by band of clients and part of training. The shares of each part sum to
    1, or to 0 if it gave no weight.
    """

    bands: list[str]
    rows: np.ndarray  # [bands] share of the training rows
    rounds: list[tuple[int, int]]  # first and last round of each part
    shares: np.ndarray  # [bands, parts]


def weight_history(
    comparison: Comparison, label: str, hidden: Collection[int] = ()
) -> History | None:
    """Shares of the weight over the rounds, mean over seeds; None without rounds, for one client,
    or for several models.

    Bands with hidden clients are left out if one of them holds a single hidden client: shares sum
    to 1, and those of visible clients are on the page, so its share could be computed.
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
    edges = np.unique(np.linspace(0, rounds, min(rounds, HISTORY_BINS) + 1).round().astype(int))
    shares = np.mean([_shares(run, band, len(parts), edges) for run in runs], axis=0)
    names = [_name(comparison, part, i, len(parts)) for i, part in enumerate(parts)]
    rows = np.array([sizes[part].sum() for part in parts]) / max(sizes.sum(), 1)
    held = [sum(int(k) in hidden for k in part) for part in parts]
    kept = [i for i, number in enumerate(held) if not number or 1 not in held]
    spans = [(int(a) + 1, int(b)) for a, b in itertools.pairwise(edges)]
    return History([names[i] for i in kept], rows[kept], spans, shares[kept]) if kept else None


def _shares(run: Run, band: np.ndarray, bands: int, edges: np.ndarray) -> np.ndarray:
    cohort, weights = slots_of_evaluated(run.trace)
    part = np.repeat(
        np.searchsorted(edges, np.arange(len(cohort)), side="right") - 1, cohort.shape[1]
    )
    total = np.zeros((bands, len(edges) - 1))
    np.add.at(total, (band[cohort.ravel()], part), np.abs(weights).ravel())
    return total / np.maximum(total.sum(0), 1e-12)


def _name(comparison: Comparison, part: np.ndarray, i: int, parts: int) -> str:
    if len(part) == 1:
        return comparison.federation.names[part[0]]
    where = {0: "largest tenth", parts - 1: "smallest tenth"}.get(i, f"tenth {i + 1} by size")
    return f"{where} ({len(part):,} clients)"


def weight_history_chart(history: History, label: str) -> alt.LayerChart:
    """One row for each band, the largest clients on top. The area of a square is the share of the
    weight.
    """
    end = history.rounds[-1][1]
    x = alt.X(
        "part:Q",
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=rounds_axis(end),
    )
    y = alt.Y(
        "y:Q", scale=alt.Scale(domain=[0, len(history.bands)], reverse=True, nice=False), axis=None
    )
    top = float(100 * history.shares.max())
    size = alt.Size(
        "share:Q", scale=alt.Scale(domain=[0, max(top, 1e-9)], range=[0, 190]), legend=None
    )
    squares = alt.Chart(values(_history_rows(history))).mark_point(
        shape="square", filled=True, opacity=0.85, style="weight"
    )
    names = alt.Chart(
        values([{"band": name, "y": i + NAME, "part": 0} for i, name in enumerate(history.bands)])
    )
    tip = {
        "band": "Clients",
        "rounds": "Rounds",
        "times": "Compared with their rows",
        "share": ("Share of the weight (%)", ".1f"),
    }
    text = names.mark_text(
        style="guide-text", align="left", baseline="middle", fontSize=11, limit=alt.ExprRef("width")
    )
    layers = [
        text.encode(x=x, y=y, text="band:N"),
        squares.encode(x=x, y=y, size=size, tooltip=tooltips(**tip)),
    ]
    title = f"Who counted when under {label}"
    description = (
        f"{title}: the share of weight of {len(history.bands)} parts of the clients by size, over"
        f" {end} rounds."
    )
    return finish(layers, title=title, description=description, height=ROW * len(history.bands))


def _history_rows(history: History) -> list[dict[str, Any]]:
    """One row for each square that is not empty."""
    return [
        {
            "band": name,
            "y": i + SQUARES,
            "part": (first + last) / 2,
            "rounds": f"{first:,} to {last:,}" if first < last else f"{first:,}",
            "share": float(100 * history.shares[i, j]),
            "times": (
                f"{history.shares[i, j] / history.rows[i]:.2f} times"
                if history.rows[i] > 0
                else "no rows"
            ),
        }
        for i, name in enumerate(history.bands)
        for j, (first, last) in enumerate(history.rounds)
        if history.shares[i, j] > 0
    ]


# Who shaped the model: each client's share of all weight given in training, against its share of
# the training rows.

MOST_POINTS = 3000  # beyond that clients of similar size are drawn as one
BINS = 40
ROWS, WEIGHT = "Share of all training rows (%)", "Share of all weight in training (%)"


def influence_chart(
    comparison: Comparison, labels: Sequence[str], hidden: Collection[int] = ()
) -> alt.LayerChart | None:
    """Each client's share of the weight against its share of the training rows; with very many
    clients, means of 40 bins by size.

    Hidden clients are not drawn. None for a single client, without known weights, or if no client
    is left.
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
    description = (
        f"{title}: its share of the training rows against its share of the weight, for each method."
    )
    return finish(
        [*_diagonal(rows), _points(rows, labels)], title=title, description=description, height=340
    )


def _axes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    # Square-root axes spread out the many small clients and, unlike logarithms, have a place for 0.
    root = alt.Scale(type="sqrt", zero=False, nice=False, padding=8)
    ends = _ends(rows)
    seen = [*ends, *(row["weight"] for row in rows)]
    ticks = _ticks(min(seen), max(seen))
    wide = alt.Scale(type="sqrt", zero=False, nice=False, padding=8, domain=ends)
    return {
        "x": alt.X("rows:Q", scale=wide, axis=alt.Axis(title=ROWS, values=ticks, format=".2~r")),
        "y": alt.Y(
            "weight:Q", scale=root, axis=alt.Axis(title=WEIGHT, values=ticks, format=".2~r")
        ),
    }


def _ends(rows: list[dict[str, Any]]) -> list[float]:
    """The smallest and the largest share of rows; where all clients are alike, room on
    both sides.
    """
    low, high = min(row["rows"] for row in rows), max(row["rows"] for row in rows)
    return [low, high] if low < high else [high / 2, high * 2 or 1.0]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers: 0, 1, 2, 5, 10, … where shares differ by tenfold or more, else even steps."""
    if low * 10 < high:
        steps = [float(f"{digit}e{power}") for power in range(-7, 3) for digit in (1, 2, 5)]
        return [0.0, *(step for step in steps if max(low, high / 90) <= step <= high)]
    step = 10 ** np.floor(np.log10(high)) / 5 if high > 0 else 1.0
    return [float(v) for v in np.arange(np.ceil(low / step), high / step + 1) * step][
        :: max(1, int((high - low) / step) // 6)
    ]


def _diagonal(rows: list[dict[str, Any]]) -> list[alt.Chart]:
    ends = _ends(rows)
    line = alt.Chart(values([{"rows": end, "weight": end} for end in ends]))
    word = alt.Chart(
        values([{"rows": ends[1], "weight": ends[1], "text": "exactly its share of rows"}])
    )
    return [
        line.mark_line(style="guide-line", strokeDash=[4, 3]).encode(**_axes(rows)),
        word.mark_text(style="guide-text", align="right", baseline="bottom", dx=-14, dy=2).encode(
            **_axes(rows), text="text:N"
        ),
    ]


def _points(rows: list[dict[str, Any]], labels: Sequence[str]) -> alt.Chart:
    tip = tooltips(
        client="Client",
        method="Method",
        rows=(ROWS, ".2f"),
        weight=(WEIGHT, ".2f"),
        times="Compared with its rows",
    )
    points = alt.Chart(values(rows)).mark_point(filled=True, size=38, opacity=0.6)
    return points.encode(
        **_axes(rows), color=colour_of(labels), shape=shape_of(labels), tooltip=tip
    )


def _single(
    hidden: Collection[int], comparison: Comparison, label: str, share: Influence
) -> list[dict[str, Any]]:
    each = enumerate(zip(comparison.federation.names, share.rows, share.weight, strict=True))
    return [_influence_row(label, name, r, w) for k, (name, r, w) in each if k not in hidden]


def _joined(comparison: Comparison, label: str, share: Influence) -> list[dict[str, Any]]:
    order = np.argsort(share.rows, kind="stable")
    return [
        _influence_row(
            label,
            f"{len(part):,} clients of this size (mean)",
            share.rows[part].mean(),
            share.weight[part].mean(),
        )
        for part in np.array_split(order, BINS)
    ]


def _influence_row(label: str, name: str, rows: float, weight: float) -> dict[str, Any]:
    times = f"{weight / rows:.2f} times" if rows > 0 else "no rows"
    return {
        "method": label,
        "client": name,
        "rows": float(100 * rows),
        "weight": float(100 * weight),
        "times": times,
    }


# How fair methods would weigh the same losses: each client's weight against its loss, for every
# generalised mean.

WEIGHING_POINTS = 60
AFL = "AFL"
LOSS, RELATIVE_WEIGHT = "Loss of a client", "Weight, in equal shares (1: as under FedAvg)"


class LossWeights(NamedTuple):
    """How one method weighs given losses."""

    name: str
    mean: float  # the generalised mean that it minimises
    weights: np.ndarray  # [clients], in multiples of an equal share; their mean is 1


def weigh_losses(losses: np.ndarray) -> list[LossWeights]:
    """Weights of the same losses under FedAvg, q-FFL, TERM, PropFair and AFL with usual settings.

    PropFair's M is 1.25 times the largest loss. All weights are scaled to a mean of 1; a larger sum
    would be a longer step only.
    """
    # rounding moves it by 5 % at most, so it stays above every loss
    M = float(f"{1.25 * losses.max():.2g}")
    methods = (
        ("FedAvg", "fedavg", 0.0),
        ("q-FFL, q = 1", "q-ffl", 1.0),
        ("TERM, α = 1", "term", 1.0),
        (f"PropFair, M = {M:g}", "propfair", M),
        (AFL, "afl", 0.0),
    )
    found = []
    for name, kind, parameter in methods:
        weights = dual_weights(losses, kind, parameter)
        found.append(
            LossWeights(
                name,
                generalised_mean(losses, kind, parameter),
                len(losses) * weights / weights.sum(),
            )
        )
    return found


def weighing_chart(losses: np.ndarray) -> alt.LayerChart:
    """Weight against loss, one line for each method."""
    order = np.argsort(losses, kind="stable")
    kept = order[thin(len(order), WEIGHING_POINTS)]
    found = weigh_losses(losses)
    names, rows = [weighed.name for weighed in found], _weighing_rows(found, losses, kept)
    x = alt.X(
        "loss:Q", axis=alt.Axis(title=LOSS, tickCount=6), scale=alt.Scale(zero=False, padding=10)
    )
    y = alt.Y(
        "weight:Q",
        axis=alt.Axis(title=RELATIVE_WEIGHT, tickCount=5),
        scale=alt.Scale(zero=True, padding=6),
    )
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=colour_of(names))
    minimised = ("The mean that it minimises", ".3f")
    tip = {
        "method": "Method",
        "loss": (LOSS, ".3f"),
        "weight": ("Weight, in equal shares", ".2f"),
        "mean": minimised,
    }
    layers = [
        base.transform_filter(f"datum.method !== '{AFL}'").mark_line(strokeWidth=1.6, opacity=0.7),
        base.mark_point(filled=True, size=46, opacity=0.9).encode(
            shape=shape_of(names), tooltip=tooltips(**tip)
        ),
        *_worst(found[-1], float(losses.max()), names),
    ]
    title = "How each method would weigh the same losses"
    return finish(
        layers,
        title=title,
        description=f"{title}: weight against loss for {len(losses)} clients.",
        height=300,
    )


def _weighing_rows(
    found: Sequence[LossWeights], losses: np.ndarray, clients: np.ndarray
) -> list[dict[str, Any]]:
    """One row for each method and client, without AFL's one heavy client: it would compress all
    others, so a line marks it instead.
    """
    return [
        {
            "method": weighed.name,
            "loss": float(losses[k]),
            "weight": float(weighed.weights[k]),
            "mean": weighed.mean,
        }
        for weighed in found
        for k in clients
        if weighed.name != AFL or not weighed.weights[k]
    ]


def _worst(weighed: LossWeights, loss: float, names: list[str]) -> list[alt.Chart]:
    heavy = float(weighed.weights.max())
    base = alt.Chart(
        values([{"method": AFL, "loss": loss, "text": f"{AFL}: {heavy:,.0f}, off the chart ↑"}])
    ).encode(x="loss:Q")
    return [
        base.mark_rule(strokeWidth=1.6, strokeDash=[4, 3], opacity=0.7).encode(
            color=colour_of(names)
        ),
        base.mark_text(style="guide-text", align="right", baseline="top", dx=-8).encode(
            text="text:N", y=alt.value(2)
        ),
    ]
