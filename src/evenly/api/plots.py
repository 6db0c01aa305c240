"""The charts of `Results.plot`: those of the report, each alone."""

from collections.abc import Sequence

import altair as alt

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison, metric_history
from evenly.metrics.groups import GROUP_METRICS
from evenly.notation import unknown
from evenly.records import require
from evenly.report.charts.accuracy import distribution, named_accuracy, named_influence
from evenly.report.charts.convergence import convergence
from evenly.report.charts.focus import Focus, choose_focus
from evenly.report.charts.theme import standalone
from evenly.report.charts.tradeoff import (
    CLIENT_MEASURES,
    GROUP_MEASURES,
    front_chart,
    largest,
    rates_chart,
)
from evenly.report.charts.weighing import influence_chart
from evenly.report.group_values import (
    RATES,
    GroupRate,
    group_rates,
    group_split,
    groupings,
    with_groups,
)
from evenly.report.values import (
    NAMED,
    Values,
    client_split,
    defined_metrics,
    final_values,
    over_seeds,
)


def draw(comparison: Comparison, kind: str, metric: str, split: str | None) -> alt.LayerChart:
    """Draw one kind of chart; see `Results.plot`."""
    of_clients = split or client_split(comparison)
    if kind == "history":
        focus = choose_focus(comparison, final_values(comparison, client_split(comparison)))
        return standalone(_history(comparison, metric or "average", focus, split))
    require(
        of_clients != CENTRAL or kind == "groups",
        f"The chart {kind!r} shows clients, but the central test set belongs to none of them.",
    )
    values = final_values(comparison, client_split(comparison) if kind == "groups" else of_clients)
    focus = choose_focus(comparison, values)
    if kind == "clients":
        chart = _clients(comparison, values, focus, of_clients)
    elif kind == "front":
        chart = _front(with_groups(comparison, values), metric, focus)
    elif kind == "groups":
        chart = _groups(comparison, metric, focus, split or group_split(comparison))
    else:
        chart = _influence(comparison, focus)
    return standalone(chart)


def _few(comparison: Comparison) -> bool:
    """Whether the clients are few enough to be drawn with their names."""
    return comparison.federation.clients < NAMED


def _clients(comparison: Comparison, values: Values, focus: Focus, split: str) -> alt.LayerChart:
    if not _few(comparison):
        return distribution(comparison, focus.series, split)
    average = over_seeds(values, focus.baseline, "average").mean
    return named_accuracy(comparison, focus.series, split, (), average)


def _front(values: Values, metric: str, focus: Focus) -> alt.LayerChart:
    measures = defined_metrics(values, (*CLIENT_MEASURES, *GROUP_MEASURES))
    require(bool(measures), "No measure of fairness is defined: there are too few clients.")
    return front_chart(values, _one_of("metric", metric or measures[0], measures), focus.series)


def _history(
    comparison: Comparison, metric: str, focus: Focus, split: str | None
) -> alt.LayerChart:
    of_groups = metric in GROUP_METRICS
    where = split or (group_split if of_groups else client_split)(comparison)
    known = metric_history(comparison.federation, comparison.runs[0].trace, where)
    return convergence(comparison, _one_of("metric", metric, list(known)), focus.series, where)


def _groups(comparison: Comparison, metric: str, focus: Focus, split: str) -> alt.LayerChart:
    every = groupings(comparison.federation)
    require(
        bool(every),
        "These data have no groups of people. Name a sensitive column with sensitive=.",
    )
    rate = _one_of("rate", metric or "accuracy", tuple(RATES))
    found: dict[str, list[GroupRate]] = {label: [] for label in focus.series}
    shown: list[int] = []
    for grouping in (*every[1:], every[0]):  # of several columns each, then their intersections
        before = len(found[focus.baseline])
        prefix = f"{grouping.title}=" if grouping.attribute else ""
        for label, rates in found.items():
            own = group_rates(comparison, grouping, label, split, rate)
            rates += [one._replace(group=f"{prefix}{one.group}") for one in own]
        shown += [before + g for g in largest(found[focus.baseline][before:])]
    return rates_chart(found, rate, shown)


def _influence(comparison: Comparison, focus: Focus) -> alt.LayerChart:
    draw_influence = named_influence if _few(comparison) else influence_chart
    chart = draw_influence(comparison, focus.series, ())
    if chart is None:
        raise ValueError("The weights of these methods are not known, or there is only one client.")
    return chart


def _one_of(kind: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise unknown(kind, name, known)
    return name
