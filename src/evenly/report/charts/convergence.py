"""How a metric develops over the rounds, or over the bytes sent."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison, Run
from evenly.metrics import METRICS, accuracy, examples
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.values import SPLIT_WORDS

# How a metric develops over the rounds, or over the bytes sent: the mean over seeds, and a band from the lowest seed to the highest.

MOST_EVALUATIONS = 120
SHAPED = 8  # evaluations marked with the method's shape
SHOWN = {"average": "%", "worst10": "%", "variance": "%²"}  # metric -> unit
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1.0}


def convergence(comparison: Comparison, metric: str, labels: Sequence[str], split: str = "test", against: str = "rounds") -> alt.LayerChart:
    """One line per method; the metric is "average", "worst10" or "variance", drawn against "rounds" or "bytes"."""
    rows = [row for label in labels for row in _rows(comparison, label, metric, split)]
    name = METRICS[metric].title[:1].upper() + METRICS[metric].title[1:]
    unit = f"{name} ({SHOWN[metric]})"
    title = f"{name} by {'round' if against == 'rounds' else 'data sent'}"
    x = _rounds() if against == "rounds" else _bytes(rows)
    y = alt.Y("mean:Q", axis=alt.Axis(title=unit, tickCount=5), scale=alt.Scale(zero=False))
    base = alt.Chart(values(rows)).encode(x=x, color=colour_of(labels))
    band = base.mark_area(opacity=0.16).encode(y=alt.Y("low:Q", title=unit), y2="high:Q")
    # Large unseen points are easy to hit. Vega-Lite's own search for the nearest point loses words in its tooltips (6.4).
    hit = alt.selection_point(on="pointerover", clear="pointerout", empty=False)
    points = base.mark_circle(size=260).encode(y=y, opacity=alt.condition(hit, alt.value(0.35), alt.value(0)), tooltip=_tooltip(unit))
    marked = base.transform_filter("datum.shaped").mark_point(filled=True, size=42, opacity=0.9).encode(y=y, shape=shape_of(labels))
    line = base.mark_line(strokeWidth=2, clip=True).encode(y=y)
    layers = [band, line, marked, points.add_params(hit)]
    return finish(layers, title=title, description=f"{title}, {SPLIT_WORDS[split]} rows, one line per method.", height=240)


def _rounds() -> alt.X:
    return alt.X("round:Q", axis=alt.Axis(title="Rounds of training", tickMinStep=1, tickCount=5, format=",d"))


def _bytes(rows: list[dict[str, Any]]) -> alt.X:
    """Bytes in the unit that suits the most of them, in place."""
    most = max((row["sent"] for row in rows), default=0.0)
    unit, factor = next(((unit, factor) for unit, factor in UNITS.items() if most >= factor), ("bytes", 1.0))
    for row in rows:
        row["moved"] = row["sent"] / factor
    return alt.X("moved:Q", axis=alt.Axis(title=f"Sent and received ({unit})", tickCount=5))


def _tooltip(unit: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("round:Q", title="Round", format=",d"),
        alt.Tooltip("sent:Q", title="Bytes sent and received so far", format=".3~s"),
        alt.Tooltip("mean:Q", title=unit, format=".1f"),
        alt.Tooltip("span:N", title="Seeds"),
    ]


def _rows(comparison: Comparison, label: str, metric: str, split: str) -> list[dict[str, Any]]:
    found: dict[int, list[float]] = {}
    runs = comparison.of(label)
    for run in runs:
        for done, value in _series(run, metric, split):
            found.setdefault(done, []).append(value)
    shaped = set(np.array(sorted(found))[_thin(len(found), SHAPED)].tolist())
    return [
        {
            "method": label,
            "round": done,
            "sent": float(np.mean([bytes_after(run, done) for run in runs])),
            "mean": float(np.mean(seeds)),
            "low": min(seeds),
            "high": max(seeds),
            "span": f"{min(seeds):.1f} to {max(seeds):.1f}" if len(seeds) > 1 else "one",
            "shaped": done in shaped,
        }
        for done, seeds in sorted(found.items())
    ]


def bytes_after(run: Run, rounds: int) -> float:
    """What all clients together sent and received in so many rounds; everybody who was chosen counts, also who did not return."""
    return rounds * run.trace.cohort.shape[1] * (run.trace.upload + run.trace.download)


def _series(run: Run, metric: str, split: str) -> list[tuple[int, float]]:
    """The metric at each evaluation where it is defined, at most 120 of them: a screen shows no more."""
    kept = _thin(len(run.trace.rounds), MOST_EVALUATIONS)
    tables = run.trace.tables[kept, SPLITS.index(split)]  # [evaluations, clients, groups, labels, outcomes]
    measured = [_measured(metric, a, n) for a, n in zip(accuracy(tables), examples(tables), strict=True)]
    return [(int(done), v) for done, v in zip(run.trace.rounds[kept], measured, strict=True) if np.isfinite(v)]


def _measured(metric: str, accuracies: np.ndarray, counts: np.ndarray) -> float:
    known = np.isfinite(accuracies)
    return METRICS[metric].function(accuracies[known], counts[known]) if known.any() else float("nan")


def _thin(number: int, most: int) -> np.ndarray:
    """Evenly spaced positions with both ends."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int)) if number else np.zeros(0, int)
