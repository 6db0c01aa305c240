"""One rate of every group under every method: a point, and a line for its interval. Points on few rows are hollow."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.data.sensitive import FEW
from evenly.report.by_group import RATES, GroupRate
from evenly.report.charts.theme import colour_of, finish, shape_of, values

TITLES = {"accuracy": "Accuracy by group", "selection_rate": "Selection by group", "tpr": "TPR by group", "fpr": "FPR by group"}
MOST_GROUPS = 12  # drawn: the largest
NAME, LINE, GAP = 24, 17, 10  # pixels: a group's name, each method under it, and the space below


def rates_chart(found: Mapping[str, Sequence[GroupRate]], rate: str, shown: Sequence[int]) -> alt.LayerChart:
    """`found` has each method's rates of the same groups; `shown` are the numbers of those that are drawn."""
    labels = list(found)
    rows, names, y = [], [], 0.0
    for g in shown:
        names.append({"group": found[labels[0]][g].group, "y": y + NAME / 2, "at": 0})
        rows += [_row(label, found[label][g], y + NAME + (i + 0.5) * LINE) for i, label in enumerate(labels)]
        y += NAME + LINE * len(labels) + GAP
    scale = alt.Scale(domain=[0, y], reverse=True, nice=False)
    where = alt.Y("y:Q", scale=scale, axis=None)
    title = TITLES[rate]
    layers = [*_marks(rows, labels, where, rate), _text(names, "group", where, "method-name"), _text(_undefined(rows), "why", where)]
    return finish(layers, title=title, description=f"{title}: one point for each of {len(labels)} methods.", height=int(y))


def largest(rates: Sequence[GroupRate]) -> list[int]:
    """The groups that are drawn, in their own order: those with the most rows."""
    order = np.argsort([0 if rate.hidden else -rate.rows for rate in rates], kind="stable")[:MOST_GROUPS]
    return sorted(order.tolist())


def _marks(rows: list[dict[str, Any]], labels: Sequence[str], y: alt.Y, rate: str) -> list[alt.Chart]:
    base = alt.Chart(values(rows)).transform_filter("isValid(datum.value)").encode(y=y, color=colour_of(labels))
    x, shape = _x("value", rate), shape_of(labels)
    return [
        base.mark_rule(strokeWidth=2, opacity=0.55).encode(x=_x("low", rate), x2="high:Q"),
        base.transform_filter("!datum.few").mark_point(filled=True, size=70, opacity=1).encode(x=x, shape=shape, tooltip=_tooltip(rate)),
        base.transform_filter("datum.few")
        .mark_point(filled=False, size=70, strokeWidth=1.8, opacity=1)
        .encode(x=x, shape=shape, tooltip=_tooltip(rate)),
    ]


def _x(field: str, rate: str) -> alt.X:
    axis = alt.Axis(title=f"{RATES[rate]} (%)", values=list(range(0, 101, 20)))
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, 100]), axis=axis)


def _text(rows: list[dict[str, Any]], field: str, y: alt.Y, style: str = "guide-text") -> alt.Chart:
    shown = alt.Chart(values(rows)).mark_text(style=style, align="left", baseline="middle", limit=250)
    return shown.encode(x=alt.X("at:Q", scale=alt.Scale(domain=[0, 100])), y=y, text=f"{field}:N")


def _undefined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    words = {True: "– hidden: too few people", False: "– undefined: no such rows"}
    return [{"y": row["y"], "at": 0, "why": words[row["hidden"]]} for row in rows if not np.isfinite(row["value"])]


def _row(label: str, rate: GroupRate, y: float) -> dict[str, Any]:
    return {
        "method": label,
        "group": rate.group,
        "y": y,
        "value": rate.value,
        "low": rate.low,
        "high": rate.high,
        "span": f"{rate.low:.1f} to {rate.high:.1f}" if np.isfinite(rate.low) else "not known",
        "rows": "hidden" if rate.hidden else f"{rate.rows:,.0f}" + (f" (fewer than {FEW})" if rate.few else ""),
        "few": rate.few,
        "hidden": rate.hidden,
    }


def _tooltip(rate: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("group:N", title="Group"),
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("value:Q", title=f"{RATES[rate]} (%)", format=".1f"),
        alt.Tooltip("span:N", title="Interval"),
        alt.Tooltip("rows:N", title="Share of so many rows"),
    ]
