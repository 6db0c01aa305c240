"""How a metric develops over the rounds, or over the bytes sent."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison, Run, metric_history
from evenly.metrics import EVERY_METRIC, METRICS, accuracy, examples
from evenly.report.charts.theme import colour_of, finish, shape_of, tooltips, values
from evenly.report.values import SPLIT_WORDS, byte_unit, capitalise, unit_of

# How a metric develops over the rounds, or over the bytes sent: the mean over seeds, and a band
# from the lowest seed to the highest.

MOST_EVALUATIONS = 120
SHAPED = 8  # evaluations marked with the method's shape
FEW_ROUNDS = 8


def convergence(
    comparison: Comparison,
    metric: str,
    labels: Sequence[str],
    split: str = "test",
    against: str = "rounds",
) -> alt.LayerChart:
    """One line for each method: a metric, or the loss, against "rounds" or "bytes"."""
    rows = [row for label in labels for row in _rows(comparison, label, metric, split)]
    name = capitalise(EVERY_METRIC[metric].title if metric in EVERY_METRIC else metric)
    measured_in = unit_of(EVERY_METRIC[metric]) if metric in EVERY_METRIC else ""
    unit = f"{name} ({measured_in})" if measured_in else name
    last = max((row["round"] for row in rows), default=0)
    word, x = ("round", _rounds(last)) if against == "rounds" else ("data sent", _bytes(rows))
    title = f"{name} by {word}"
    y = alt.Y("mean:Q", axis=alt.Axis(title=unit, tickCount=5), scale=alt.Scale(zero=False))
    base = alt.Chart(values(rows)).encode(x=x, color=colour_of(labels))
    band = base.mark_area(opacity=0.16).encode(y=alt.Y("low:Q", title=unit), y2="high:Q")
    # Large unseen points are easy to hit. Vega-Lite's own search for the nearest point loses words
    # in its tooltips (6.4).
    hit = alt.selection_point(on="pointerover", clear="pointerout", empty=False)
    sent = ("Bytes sent and received so far", ".3~s")
    tip = {
        "method": "Method",
        "round": ("Round", ",d"),
        "sent": sent,
        "mean": (unit, _digits(metric)),
        "span": "Seeds",
    }
    points = base.mark_circle(size=260).encode(
        y=y, opacity=alt.condition(hit, alt.value(0.35), alt.value(0)), tooltip=tooltips(**tip)
    )
    shapes = base.transform_filter("datum.shaped").mark_point(filled=True, size=42, opacity=0.9)
    line = base.mark_line(strokeWidth=2, clip=True).encode(y=y)
    layers = [band, line, shapes.encode(y=y, shape=shape_of(labels)), points.add_params(hit)]
    return finish(
        layers,
        title=title,
        description=f"{title}, {SPLIT_WORDS.get(split, 'central test')} rows, one line per method.",
        height=240,
    )


def _rounds(last: int) -> alt.X:
    return alt.X("round:Q", axis=rounds_axis(last))


def rounds_axis(last: int) -> alt.Axis:
    """The axis of rounds up to the last one. Few rounds are all named, since ticks between whole
    numbers would be rounded to the same name.
    """
    axis = alt.Axis(title="Rounds of training", tickMinStep=1, tickCount=5, format=",d")
    if last <= FEW_ROUNDS:
        axis.values = list(range(last + 1))
    return axis


def _bytes(rows: list[dict[str, Any]]) -> alt.X:
    """The axis of bytes. Adds the bytes in its unit to the rows, in place."""
    most = max((row["sent"] for row in rows), default=0.0)
    unit, factor = byte_unit(most)
    for row in rows:
        row["moved"] = row["sent"] / factor
    return alt.X("moved:Q", axis=alt.Axis(title=f"Sent and received ({unit})", tickCount=5))


def _rows(comparison: Comparison, label: str, metric: str, split: str) -> list[dict[str, Any]]:
    found: dict[int, list[float]] = {}
    runs = comparison.of(label)
    for run in runs:
        for done, value in _series(comparison, run, metric, split):
            found.setdefault(done, []).append(value)
    shaped = set(np.array(sorted(found))[thin(len(found), SHAPED)].tolist())
    digits = _digits(metric)
    return [
        {
            "method": label,
            "round": done,
            "sent": float(np.mean([bytes_after(run, done) for run in runs])),
            "mean": float(np.mean(seeds)),
            "low": min(seeds),
            "high": max(seeds),
            "span": f"{min(seeds):{digits}} to {max(seeds):{digits}}" if len(seeds) > 1 else "one",
            "shaped": done in shaped,
        }
        for done, seeds in sorted(found.items())
    ]


def bytes_after(run: Run, rounds: int) -> float:
    """Bytes that all sampled clients sent and received in the first `rounds` rounds, including
    clients that dropped out.
    """
    return rounds * run.trace.cohort.shape[1] * (run.trace.upload + run.trace.download)


def _digits(metric: str) -> str:
    """The format of a value: one decimal for percentages and degrees, three for all others."""
    return ".1f" if metric in EVERY_METRIC and unit_of(EVERY_METRIC[metric]) else ".3f"


def _series(comparison: Comparison, run: Run, metric: str, split: str) -> list[tuple[int, float]]:
    """The metric at each evaluation in which it is defined, thinned to at most 120 evaluations."""
    kept = thin(len(run.trace.rounds), MOST_EVALUATIONS)
    if metric in METRICS:
        # [evaluations, clients, groups, labels, outcomes]
        tables = run.trace.tables[kept, SPLITS.index(split)]
        pairs = zip(accuracy(tables), examples(tables), strict=True)
        measured = [_measured(metric, a, n) for a, n in pairs]
    else:
        measured = metric_history(comparison.federation, run.trace, split)[metric][kept].tolist()
    return [
        (int(done), v)
        for done, v in zip(run.trace.rounds[kept], measured, strict=True)
        if np.isfinite(v)
    ]


def _measured(metric: str, accuracies: np.ndarray, counts: np.ndarray) -> float:
    known = np.isfinite(accuracies)
    return (
        METRICS[metric].function(accuracies[known], counts[known]) if known.any() else float("nan")
    )


def thin(number: int, most: int) -> np.ndarray:
    """At most `most` evenly spaced positions of `number`, including the first and the last."""
    return (
        np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int))
        if number
        else np.zeros(0, int)
    )
