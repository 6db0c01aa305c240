"""How fair methods would weigh the same losses: each client's weight against its loss, for every generalised mean."""

from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.metrics import dual_weights, generalised_mean
from evenly.report.charts.theme import colour_of, finish, shape_of, values

MOST_POINTS = 60
AFL = "AFL"
LOSS, WEIGHT = "Loss of a client", "Weight, in equal shares (1: as under FedAvg)"


class Weighed(NamedTuple):
    """One method's view of the same losses."""

    name: str
    mean: float  # the generalised mean that it minimises
    weights: np.ndarray  # [clients], in multiples of an equal share; their mean is 1


def weigh_alike(losses: np.ndarray) -> list[Weighed]:
    """Weights under FedAvg, q-FFL, TERM, PropFair and AFL with usual settings; PropFair's M is a quarter above the largest loss.

    PropFair's own weights sum to more than 1, which is a longer step and not another direction; here all sum to the same.
    """
    M = float(f"{1.25 * losses.max():.2g}")  # rounding moves it by 5 % at most, so it stays above every loss
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
        found.append(Weighed(name, generalised_mean(losses, kind, parameter), len(losses) * weights / weights.sum()))
    return found


def weighing_chart(losses: np.ndarray) -> alt.LayerChart:
    """One line per method over the clients in the order of their losses."""
    order = np.argsort(losses, kind="stable")
    kept = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_POINTS)).round().astype(int))]
    found = weigh_alike(losses)
    names = [weighed.name for weighed in found]
    rows = [_row(weighed, losses, int(k)) for weighed in found for k in kept]
    x = alt.X("loss:Q", axis=alt.Axis(title=LOSS, tickCount=6), scale=alt.Scale(zero=False, padding=10))
    y = alt.Y("weight:Q", axis=alt.Axis(title=WEIGHT, tickCount=5), scale=alt.Scale(zero=True, padding=6))
    # AFL's one heavy client would flatten all others: it is pointed at instead of drawn to scale.
    base = alt.Chart(values([row for row in rows if not (row["method"] == AFL and row["weight"])])).encode(x=x, y=y, color=colour_of(names))
    layers = [
        base.transform_filter(f"datum.method !== '{AFL}'").mark_line(strokeWidth=1.6, opacity=0.7),
        base.mark_point(filled=True, size=46, opacity=0.9).encode(shape=shape_of(names), tooltip=_tooltip()),
        *_worst(found[-1], float(losses.max()), names),
    ]
    title = "How each method would weigh the same losses"
    return finish(layers, title=title, description=f"{title}: weight against loss for {len(losses)} clients.", height=300)


def _worst(weighed: Weighed, loss: float, names: list[str]) -> list[alt.Chart]:
    heavy = float(weighed.weights.max())
    base = alt.Chart(values([{"method": AFL, "loss": loss, "text": f"{AFL}: {heavy:,.0f}, off the chart ↑"}])).encode(x="loss:Q")
    return [
        base.mark_rule(strokeWidth=1.6, strokeDash=[4, 3], opacity=0.7).encode(color=colour_of(names)),
        base.mark_text(style="guide-text", align="right", baseline="top", dx=-8).encode(text="text:N", y=alt.value(2)),
    ]


def _row(weighed: Weighed, losses: np.ndarray, k: int) -> dict[str, Any]:
    return {"method": weighed.name, "loss": float(losses[k]), "weight": float(weighed.weights[k]), "mean": weighed.mean}


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("loss:Q", title=LOSS, format=".3f"),
        alt.Tooltip("weight:Q", title="Weight, in equal shares", format=".2f"),
        alt.Tooltip("mean:Q", title="The mean that it minimises", format=".3f"),
    ]
