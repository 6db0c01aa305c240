"""Experiments whose seeds go through several draws of their data: figures of each draw, where the
paper lies among them, and the tables and the chart that show both.

A draw's figure is the mean over its splits. Intervals are over draws, because splits of one draw
share their clients and are not independent.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import altair as alt
import numpy as np

from evenly.experiment.comparison import Comparison, Run, final_by_seed, live_metrics
from evenly.experiment.paper import Paper, PaperLine, side_by_side
from evenly.metrics import examples, spread
from evenly.report.charts.theme import values
from evenly.report.setup_sections import metric_title
from evenly.report.values import COLUMNS, format_spread, format_value, signed
from tools.markdown import numbers, table
from tools.pictures import beside, heading, series

Stored = dict[str, Any]
HEADLINE = ("average", "average_devices", "worst10", "variance")
WIDEST = 7.5  # pixels of a letter in the widest usual font; a browser may not have the measured one
MOST_METHODS = 3  # with a column for each of their figures
MEANING = (
    "A draw's figure is the mean over its splits. `below` counts the draws whose figure is lower"
    " than the paper's."
)
EVERY = (
    "The last column is the change of the mean training loss from the third to the last quarter of"
    " the rounds, of the\nmethod in the table that changes most."
)
CHANGES = (
    "Changes within a draw, on the same splits: mean ± half of the 95 % interval over draws, and in"
    " how many draws the change is negative."
)

# Figures to store


def draws_record(comparison: Comparison, paper: Paper, draws: int) -> Stored:
    """Return the figures of every draw beside the paper's, the sizes of its clients, how far the
    training loss still fell, and which draw is typical.
    """
    figures = [_figure(comparison, line, draws) for line in side_by_side(comparison, paper)]
    first = comparison.labels[0]
    return {
        "splits": len(comparison.seeds) // draws,
        "rows": [_sizes(next(_runs(comparison, first, draws, d))) for d in range(draws)],
        "figures": figures,
        "losses": [
            {"label": label, "values": [_losses(comparison, label, draws, d) for d in range(draws)]}
            for label in comparison.labels
        ],
        "typical": typical_draw(headline_figures({"figures": figures})),
    }


def _figure(comparison: Comparison, line: PaperLine, draws: int) -> Stored:
    seeds = final_by_seed(comparison, line.label, line.split)[line.metric]
    own = [
        [value for seed, value in seeds.items() if seed % draws == draw] for draw in range(draws)
    ]
    return {
        "table": line.table,
        "split": line.split,
        "label": line.label,
        "metric": line.metric,
        "paper": line.paper,
        "paper_deviation": line.paper_deviation,
        "values": [round(float(np.mean(some)), 5) for some in own],
    }


def _runs(comparison: Comparison, label: str, draws: int, draw: int) -> Iterator[Run]:
    return (run for run in comparison.of(label) if run.seed % draws == draw)


def _sizes(run: Run) -> list[float]:
    """Return mean and standard deviation of the clients' numbers of rows, of all splits."""
    rows = sum(examples(tables) for tables in run.trace.tables[-1])
    return [round(float(np.mean(rows)), 1), round(float(np.std(rows)), 1)]


def _losses(comparison: Comparison, label: str, draws: int, draw: int) -> list[float]:
    """Return the training loss, averaged over the third and over the last quarter of the rounds."""
    runs = list(_runs(comparison, label, draws, draw))
    losses = [live_metrics(comparison.federation, run.trace, "train")["loss"] for run in runs]
    share = np.asarray(runs[0].trace.rounds) / runs[0].trace.rounds[-1]
    quarters = ((share > 0.5) & (share <= 0.75), share > 0.75)
    return [round(float(np.mean([loss[part] for loss in losses])), 4) for part in quarters]


def typical_draw(figures: Sequence[Stored]) -> int:
    """Return the draw whose figures are closest to the medians over draws, in units of
    each figure's deviation.
    """
    own = np.array([one["values"] for one in figures])
    deviation = own.std(1, keepdims=True)
    distance = (own - np.median(own, axis=1, keepdims=True)) / np.where(deviation, deviation, 1)
    return int((distance**2).sum(0).argmin())


# Pages


def draws_page(stored: Stored) -> str:
    """Return the tables of an experiment with several draws."""
    draws = stored["draws"]
    parts = [MEANING, draws_table(draws), "## Every draw", every_draw(draws)]
    return "\n\n".join([*parts, EVERY, "## Changes within a draw", CHANGES, changes_table(draws)])


def draws_table(
    draws: Stored, metrics: Sequence[str] = (), splits: Sequence[str] = (), *, fold: bool = False
) -> str:
    """Return the paper's figures, and the median and the range of ours over draws, method by
    method, optionally of some metrics and splits only. `fold` leaves out the column of splits.
    """
    chosen = [
        one
        for one in draws["figures"]
        if (not metrics or one["metric"] in metrics) and (not splits or one["split"] in splits)
    ]
    names = list(dict.fromkeys(one["metric"] for one in chosen))
    rows = []
    for (label, split), group in groupby(_sorted(chosen), lambda one: (one["label"], one["split"])):
        own = {one["metric"]: one for one in group}
        cells = [_cells(own[name]) if name in own else ("", "", "", "") for name in names]
        count = len(draws["rows"])
        for i, words in enumerate(
            ("paper", f"median of {count} draws", "lowest to highest", "below")
        ):
            head = (f"`{label}`", split) if i == 0 else ("", "")
            rows.append([*head[: 1 if fold else 2], words, *(cell[i] for cell in cells)])
    head = ["method", *([] if fold else ["rows"]), "", *map(metric_title, names)]
    return table(head, rows, numbers(len(head) - len(names), len(head)))


def _sorted(figures: Sequence[Stored]) -> list[Stored]:
    """Return figures by split, test rows first, then by method in the order of their first ones."""
    labels = list(dict.fromkeys(one["label"] for one in figures))
    return sorted(
        figures,
        key=lambda one: (one["split"] != "test", one["split"], labels.index(one["label"])),
    )


def _cells(figure: Stored) -> tuple[str, str, str, str]:
    metric, own = COLUMNS[figure["metric"]], np.array(figure["values"])
    deviation = figure["paper_deviation"]
    printed = "" if deviation is None else f" (sd {format_value(deviation, metric)})"
    low, middle, high = (format_value(float(f(own)), metric) for f in (np.min, np.median, np.max))
    below = f"{int((own < figure['paper']).sum())} of {len(own)}"
    return f"{format_value(figure['paper'], metric)}{printed}", middle, f"{low} to {high}", below


def every_draw(draws: Stored) -> str:
    """Return the headline figures of the first few methods in every draw, with the sizes of its
    clients and the largest change of a training loss in the last quarter of the rounds.
    """
    shown = [one["label"] for one in draws["losses"]][:MOST_METHODS]
    figures = [
        one
        for one in headline_figures(draws)
        if one["split"] == main_split(draws) and one["label"] in shown
    ]
    falls = [
        [100 * (b / a - 1) for a, b in one["values"]]
        for one in draws["losses"]
        if one["label"] in shown
    ]
    rows = []
    for draw, (mean, deviation) in enumerate(draws["rows"]):
        name = f"{draw} (typical)" if draw == draws["typical"] else str(draw)
        cells = [format_value(one["values"][draw], COLUMNS[one["metric"]]) for one in figures]
        fall = max(falls, key=lambda one: abs(one[draw]))[draw]
        rows.append([name, f"{mean:.0f} ± {deviation:.0f}", *cells, f"{fall:+.1f} %"])
    titles = [
        f"{metric_title(one['metric'])},<br>" + "<br>".join(f"`{line}`" for line in lines)
        for one in figures
        if (lines := lines_of(one["label"]).splitlines())
    ]
    head = ["draw", "rows of a client", *titles, "loss, last quarter"]
    return table(head, rows, numbers(1, len(head)))


def main_split(draws: Stored) -> str:
    """Return the split that the paper's headline is about."""
    return _sorted(draws["figures"])[0]["split"]


def headline_figures(draws: Stored) -> list[Stored]:
    """Return the figures of the headline metrics, method by method. The average over clients counts
    only where the paper has none over rows.
    """
    found = [one for one in _sorted(draws["figures"]) if one["metric"] in HEADLINE]
    by_rows = any(one["metric"] == "average" for one in found)
    return [one for one in found if not (by_rows and one["metric"] == "average_devices")]


def changes_table(draws: Stored) -> str:
    """Return the changes of every method from the first two, within each draw."""
    split = main_split(draws)
    own: dict[str, dict[str, np.ndarray]] = {}
    for one in headline_figures(draws):
        if one["split"] == split:
            own.setdefault(one["label"], {})[one["metric"]] = np.array(one["values"])
    labels = list(own)
    metrics = [name for name in own[labels[0]] if all(name in one for one in own.values())]
    rows = [
        [f"`{label}`", f"`{other}`", *(_change(own[label][m] - own[other][m], m) for m in metrics)]
        for other in labels[:2]
        for label in labels[labels.index(other) + 1 :]
    ]
    head = ["method", "against", *map(metric_title, metrics)]
    return table(head, rows, numbers(2, len(head)))


def _change(change: np.ndarray, metric: str) -> str:
    mean, _, half = format_spread(spread(change), COLUMNS[metric]).partition(" ± ")
    lower = f"{int((change < 0).sum())} of {len(change)}"
    return f"{signed(mean)}{f' ± {half}' if half else ''} ({lower})".replace("-", "−")


# The chart


def draws_chart(stored: Stored) -> str:
    """Return a picture of every draw's headline figures, with the paper's among them."""
    draws = stored["draws"]
    figures = [one for one in headline_figures(draws) if one["split"] == main_split(draws)]
    panels = []
    for metric in dict.fromkeys(one["metric"] for one in figures):
        rows = [
            {"method": lines_of(one["label"]), "value": value, "series": who}
            for one in figures
            if one["metric"] == metric
            for value, who in (*((v, "a draw") for v in one["values"]), (one["paper"], "the paper"))
        ]
        panels.append(_panel(rows, metric_title(metric), first=not panels))
    return beside(*panels)


def lines_of(label: str) -> str:
    """Return a label in lines of at most 30 letters where its parts and settings allow it.

    >>> lines_of("fedavg(weights=equal)+uniform(clients=10)").splitlines()
    ['fedavg(weights=equal)', '+uniform(clients=10)']
    >>> lines_of("fedavg+full")
    'fedavg+full'
    """
    lines = textwrap.wrap(
        label.replace("+", " +"), 30, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(" +", "+")


def _panel(rows: list[Stored], title: str, *, first: bool) -> Any:
    look = series(["a draw", "the paper"], 2)
    longest = max(len(line) for row in rows for line in row["method"].splitlines())
    axis = alt.Axis(
        grid=True,
        labels=first,
        labelExpr="split(datum.label, '\\n')",
        labelLimit=0,
        minExtent=WIDEST * longest if first else 0,
    )
    base = alt.Chart(values(rows)).encode(
        x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=3)),
        y=alt.Y("method:N", sort=None, title=None, axis=axis),
        **look,
    )
    size = alt.condition("datum.series == 'the paper'", alt.value(110), alt.value(45))
    marks = base.mark_point(filled=True, opacity=0.85).encode(size=size)
    height = 30 + 36 * len({row["method"] for row in rows})
    return marks.properties(width=190, height=height, title=heading(title, 12))
