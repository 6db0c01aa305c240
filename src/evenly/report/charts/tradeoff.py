"""Charts of trade-offs: the front of accuracy and fairness, and the rates of groups."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.data.sensitive import FEW
from evenly.metrics import EVERY_METRIC, GROUP_METRICS, on_front
from evenly.report.charts.theme import colour_of, finish, shape_of, tooltips, values
from evenly.report.group_values import RATES, GroupRate
from evenly.report.values import Values, capitalise, count_text, unit_of

# Accuracy against a measure of fairness: one mark per method, and a line through those that no
# other method beats in both.

CLIENT_MEASURES = ("variance", "variance_true", "worst10", "gini")
GROUP_MEASURES = ("eod_abs", "spd_abs", "aod_abs", "acc_diff_abs", "odds_range", "acc_range")


class FrontPoint(NamedTuple):
    """One method's accuracy and fairness, and whether it is on the front."""

    label: str
    accuracy: float
    measure: float
    front: bool


def accuracy_beside(metric: str) -> str:
    """The accuracy that a measure is plotted against, on the same rows: of people for group
    metrics, else of clients.
    """
    return "accuracy" if metric in GROUP_METRICS else "average"


def points(measured: Values, metric: str) -> list[FrontPoint]:
    """Accuracy and measure of every method for which both are defined, means over seeds."""
    x, y = accuracy_beside(metric), metric
    means = np.array(
        [[_mean(measured, label, name) for name in (x, y)] for label in measured]
    ).reshape(-1, 2)
    front = on_front(means * [1, EVERY_METRIC[metric].better])
    rows = zip(measured, means.tolist(), front.tolist(), strict=True)
    return [
        FrontPoint(label, a, m, own) for label, (a, m), own in rows if np.isfinite([a, m]).all()
    ]


def _mean(measured: Values, label: str, metric: str) -> float:
    seeds = np.array([seed[metric] for seed in measured[label].values()])
    seeds = seeds[np.isfinite(seeds)]
    return float(seeds.mean()) if len(seeds) else float("nan")


def front_chart(measured: Values, metric: str, labels: Sequence[str]) -> alt.LayerChart:
    """All methods; `labels` in colour, the others in grey. Filled marks are on the front, hollow
    marks are beaten.
    """
    found, other = points(measured, metric), EVERY_METRIC[metric]
    rows = [_row(measured, point, metric) for point in found]
    better = "lower is fairer" if other.better < 0 else "higher is better"
    unit = f"{capitalise(other.title)}{f' ({unit_of(other)})' if unit_of(other) else ''}: {better}"
    axes = _axes(rows, unit)
    coloured = alt.Chart(values([row for row in rows if row["method"] in labels])).encode(
        color=colour_of(labels)
    )
    grey = [row for row in rows if row["method"] not in labels]
    lines = coloured.mark_rule(opacity=0.4, strokeWidth=1.4)
    layers = [
        _line(rows, axes),
        *(_others(grey, axes, unit) if grey else []),
        lines.encode(x=alt.X("average_low:Q", title=ACCURACY), x2="average_high:Q", y=axes["y"]),
        lines.encode(
            x=axes["x"], y=alt.Y("other_low:Q", title=unit.split(": ")), y2="other_high:Q"
        ),
        *(_marks(coloured, on, axes, unit, labels) for on in (False, True)),
    ]
    title = f"Accuracy and {other.title}"
    names = ", ".join(
        point.label for point in sorted(found, key=lambda point: point.accuracy) if point.front
    )
    description = (
        f"{title}: one point for each of {len(found)} methods. On the front, from the least"
        f" accurate: {names or 'none'}."
    )
    return finish(layers, title=title, description=description, height=360)


ACCURACY = "Accuracy (%): further right is better"


def _axes(rows: list[dict[str, Any]], unit: str) -> dict[str, Any]:
    # The axes are those of all methods, so that they stay while some are filtered out. Titles in
    # two lines fit on a phone.
    return {
        "x": alt.X(
            "average:Q", axis=alt.Axis(title=ACCURACY, tickCount=6), scale=_room(rows, "average")
        ),
        "y": alt.Y(
            "other:Q",
            axis=alt.Axis(title=unit.split(": "), titleY=-24, tickCount=5),
            scale=_room(rows, "other"),
        ),
    }


def _room(rows: list[dict[str, Any]], name: str) -> alt.Scale:
    seen = [row[f"{name}_{end}"] for row in rows for end in ("low", "high")]
    low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
    apart = 0.0 if high > low else abs(low) / 10 or 1.0
    return alt.Scale(domain=[low - apart, high + apart], zero=False, nice=False, padding=18)


def _line(rows: list[dict[str, Any]], axes: dict[str, Any]) -> alt.Chart:
    # Without the name of a method: the line stays while methods are filtered.
    joined = [{"average": row["average"], "other": row["other"]} for row in rows if row["front"]]
    return (
        alt.Chart(values(joined))
        .mark_line(style="guide-line", strokeWidth=1.6)
        .encode(**axes, order="average:Q")
    )


def _others(rows: list[dict[str, Any]], axes: dict[str, Any], unit: str) -> list[alt.Chart]:
    base = alt.Chart(values(rows)).encode(**axes, tooltip=_tooltip(unit))
    return [
        base.transform_filter("!datum.front").mark_point(
            filled=True, size=36, opacity=0.8, style="others"
        ),
        base.transform_filter("datum.front").mark_point(
            filled=True, size=64, opacity=1, style="front"
        ),
    ]


def _marks(
    base: alt.Chart, front: bool, axes: dict[str, Any], unit: str, labels: Sequence[str]
) -> alt.Chart:
    shown = base.transform_filter("datum.front" if front else "!datum.front")
    return shown.mark_point(filled=front, size=130, opacity=1, strokeWidth=2).encode(
        **axes, shape=shape_of(labels), tooltip=_tooltip(unit)
    )


def _tooltip(unit: str) -> list[alt.Tooltip]:
    accuracy, measure = ("Accuracy (%)", ".1f"), unit.partition(":")[0]
    seeds = "… over seeds"
    return tooltips(
        method="Method",
        average=accuracy,
        average_span=seeds,
        shown=measure,
        other_span=seeds,
        beaten="On the front",
    )


def _row(measured: Values, point: FrontPoint, metric: str) -> dict[str, Any]:
    digits = 1 if unit_of(EVERY_METRIC[metric]) else 3
    return {
        "method": point.label,
        "front": point.front,
        "beaten": "yes: no other method is better in both" if point.front else "no",
        **_ends(measured, point.label, accuracy_beside(metric), "average", 1),
        **_ends(measured, point.label, metric, "other", digits),
        "shown": f"{point.measure:.{digits}f}",
    }


def _ends(measured: Values, label: str, metric: str, name: str, digits: int) -> dict[str, Any]:
    """The mean over seeds under `name`, the lowest and the highest seed, and both as text."""
    seeds = np.array([seed[metric] for seed in measured[label].values()])
    seeds = seeds[np.isfinite(seeds)]
    low, high = float(seeds.min()), float(seeds.max())
    span = f"{low:.{digits}f} to {high:.{digits}f}" if len(seeds) > 1 else "one seed"
    return {
        name: float(seeds.mean()),
        f"{name}_low": low,
        f"{name}_high": high,
        f"{name}_span": span,
    }


# One rate of every group under every method: a point, and a line for its interval. Points on few
# rows are hollow.

TITLES = {
    "accuracy": "Accuracy by group",
    "selection_rate": "Selection by group",
    "tpr": "TPR by group",
    "fpr": "FPR by group",
}
MOST_GROUPS = 12  # drawn: the largest
NAME, LINE, GAP = 24, 17, 10  # pixels: a group's name, each method under it, and the space below


def rates_chart(
    found: Mapping[str, Sequence[GroupRate]], rate: str, shown: Sequence[int]
) -> alt.LayerChart:
    """One rate of the groups numbered `shown`, under each method. `found` maps a method to its
    rates of all groups.
    """
    labels = list(found)
    rows, names, y = [], [], 0.0
    for g in shown:
        names.append({"group": found[labels[0]][g].group, "y": y + NAME / 2, "at": 0})
        rows += [
            _rate_row(label, found[label][g], y + NAME + (i + 0.5) * LINE)
            for i, label in enumerate(labels)
        ]
        y += NAME + LINE * len(labels) + GAP
    scale = alt.Scale(domain=[0, y], reverse=True, nice=False)
    where = alt.Y("y:Q", scale=scale, axis=None)
    title = TITLES[rate]
    layers = [
        *_rate_marks(rows, labels, where, rate),
        _text(names, "group", where, "method-name"),
        _text(_undefined(rows), "why", where),
    ]
    return finish(
        layers,
        title=title,
        description=f"{title}: one point for each of {len(labels)} methods.",
        height=int(y),
    )


def largest(rates: Sequence[GroupRate]) -> list[int]:
    """The numbers of the largest groups, in the order of the groups."""
    order = np.argsort([0 if rate.hidden else -rate.rows for rate in rates], kind="stable")[
        :MOST_GROUPS
    ]
    return sorted(order.tolist())


def _rate_marks(
    rows: list[dict[str, Any]], labels: Sequence[str], y: alt.Y, rate: str
) -> list[alt.Chart]:
    base = (
        alt.Chart(values(rows))
        .transform_filter("isValid(datum.value)")
        .encode(y=y, color=colour_of(labels))
    )
    tip = tooltips(
        group="Group",
        method="Method",
        value=(f"{RATES[rate]} (%)", ".1f"),
        span="Interval",
        rows="Share of so many rows",
    )
    marks = [
        base.transform_filter("!datum.few").mark_point(filled=True, size=70, opacity=1),
        base.transform_filter("datum.few").mark_point(
            filled=False, size=70, strokeWidth=1.8, opacity=1
        ),
    ]
    interval = base.mark_rule(strokeWidth=2, opacity=0.55).encode(x=_x("low", rate), x2="high:Q")
    return [
        interval,
        *(mark.encode(x=_x("value", rate), shape=shape_of(labels), tooltip=tip) for mark in marks),
    ]


def _x(field: str, rate: str) -> alt.X:
    axis = alt.Axis(title=f"{RATES[rate]} (%)", values=list(range(0, 101, 20)))
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, 100]), axis=axis)


def _text(rows: list[dict[str, Any]], field: str, y: alt.Y, style: str = "guide-text") -> alt.Chart:
    shown = alt.Chart(values(rows)).mark_text(
        style=style, align="left", baseline="middle", limit=250
    )
    return shown.encode(x=alt.X("at:Q", scale=alt.Scale(domain=[0, 100])), y=y, text=f"{field}:N")


def _undefined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    words = {True: "– hidden to protect people", False: "– undefined: no such rows"}
    return [
        {"y": row["y"], "at": 0, "why": words[row["hidden"]]}
        for row in rows
        if not np.isfinite(row["value"])
    ]


def _rate_row(label: str, rate: GroupRate, y: float) -> dict[str, Any]:
    return {
        "method": label,
        "group": rate.group,
        "y": y,
        "value": rate.value,
        "low": rate.low,
        "high": rate.high,
        "span": f"{rate.low:.1f} to {rate.high:.1f}" if np.isfinite(rate.low) else "not known",
        "rows": (
            "hidden"
            if rate.hidden
            else count_text(rate.rows) + (f" (fewer than {FEW})" if rate.few else "")
        ),
        "few": rate.few,
        "hidden": rate.hidden,
    }
