"""What a part of a method changes on one partition: a bar for each aggregation, and the 95 % interval over seeds."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from evenly.experiment.findings.pairs import Pair
from evenly.metrics import spread
from evenly.report.charts.theme import colour_of, finish, values

CHANGE = "Change of |EOD| (left: fairer)"


def study_change(changes: dict[str, list[Pair]], title: str, reach: tuple[float, float]) -> alt.LayerChart:
    """`changes`: the name of a series -> its pairs, one for each aggregation. `reach` is the axis, so that charts can share it."""
    names = list(changes)
    rows = [_row(name, pair) for name, own in changes.items() for pair in own]
    y = alt.Y("aggregation:N", sort=_order(changes), axis=alt.Axis(title=None, labelLimit=170))
    base = alt.Chart(values(rows)).encode(y=y, yOffset=alt.YOffset("method:N", sort=names), color=colour_of(names))
    x = alt.X("change:Q", axis=alt.Axis(title=CHANGE, tickCount=4), scale=alt.Scale(domain=list(reach)))
    tooltip = [
        alt.Tooltip("aggregation:N", title="Aggregation"),
        alt.Tooltip("method:N", title="Shown"),
        alt.Tooltip("change:Q", title="Change of |EOD|", format="+.3f"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("accuracy:Q", title="Change of accuracy (points)", format="+.2f"),
    ]
    layers = [
        base.mark_bar(opacity=0.55, height={"band": 0.8}).encode(x=x, tooltip=tooltip),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", tooltip=tooltip),
        alt.Chart(values([{"zero": 0}])).mark_rule(style="guide-line").encode(x=alt.X("zero:Q")),
    ]
    return finish(layers, title=title, description=f"{title}: change of |EOD| for each aggregation.", height=60 + 34 * len(_order(changes)))


def reach_of(found: Sequence[Pair]) -> tuple[float, float]:
    """From the lowest end of an interval to the highest, and 0 in any case."""
    spreads = [spread(pair.change("eod_abs")) for pair in found]
    ends = [s.mean + sign * np.nan_to_num(s.half_width) for s in spreads for sign in (-1, 1) if np.isfinite(s.mean)]
    return min(0.0, *ends), max(0.0, *ends)


def _order(changes: dict[str, list[Pair]]) -> Sequence[str]:
    return list(dict.fromkeys(pair.method.aggregation for own in changes.values() for pair in own))


def _row(name: str, pair: Pair) -> dict[str, object]:
    found = spread(pair.change("eod_abs"))
    low, high = found.mean - found.half_width, found.mean + found.half_width
    interval = f"{low:+.3f} to {high:+.3f}" if np.isfinite(found.half_width) else "one seed"
    accuracy = spread(pair.change("accuracy")).mean
    return {
        "aggregation": pair.method.aggregation, "method": name, "change": found.mean, "low": low, "high": high, "interval": interval,
        "accuracy": accuracy,
    }  # fmt: skip
