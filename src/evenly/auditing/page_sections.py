"""The sections of an audit's page on clients and on groups."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.charts import Dot, dots, histogram
from evenly.auditing.estimates import SCORES, Estimate
from evenly.auditing.origin_section import origin_parts
from evenly.auditing.people import NO_VALUE
from evenly.auditing.result import FRACTION, PERCENT, Audit, unit_of
from evenly.auditing.significance import RATE_OF, group_gaps, highlighted, of_column
from evenly.auditing.views import AGAINST, RATES, ClientView, GroupView
from evenly.data.sensitive import FEW
from evenly.metrics import GROUP_METRICS, METRICS
from evenly.metrics.clients import tenth
from evenly.metrics.statistics import LEAST_CLIENTS
from evenly.report.disclosure import hidden_words
from evenly.report.group_values import EXTREMES, rows_of_extremes
from evenly.report.html import (
    ChartFigure,
    Column,
    Entry,
    Html,
    details,
    element,
    figure_html,
    grid,
    join,
    nonbreaking,
    section,
    sentence_case,
)
from evenly.report.method_table import dash, hidden_dash
from evenly.report.values import NAMED


class PagePart(NamedTuple):
    """A section of the page and the specifications of its charts."""

    html: Html
    specs: dict[str, Any]


def figures(charts: Sequence[ChartFigure]) -> Html:
    """Charts side by side."""
    return element("div", {"class": f"figures of-{len(charts)} later"}, *map(figure_html, charts))


def specs(charts: Sequence[ChartFigure]) -> dict[str, Any]:
    """The specifications of charts by their identifier."""
    return {figure.identifier: figure.spec for figure in charts}


def rate_entry(estimate: Estimate, *, hidden: bool = False) -> Entry:
    """A table cell with a rate in percent above its interval; a star marks rates of few people."""
    if not estimate.has_value:
        return hidden_dash() if hidden else dash("there is nothing to divide by")
    star = " *" if estimate.rows < FEW else ""
    return _entry(
        f"{estimate.value:.1f}{star}",
        f"{estimate.low:.1f} to {estimate.high:.1f}" if estimate.has_interval else "",
    )


def fraction_entry(
    estimate: Estimate, *, hidden: bool = False, digits: int = 3, mark: str = ""
) -> Entry:
    """A table cell with an index or a ratio above its interval; `mark` follows the value."""
    if not estimate.has_value:
        return hidden_dash() if hidden else dash("there is nothing to divide by")
    value, *ends = (signed_number(f"{end:.{digits}f}") for end in estimate[:3])
    return _entry(f"{value}{mark}", " to ".join(ends) if estimate.has_interval else "")


def signed_number(number: str) -> str:
    """A number with a typographic minus sign, and without a sign if it is 0.

    >>> signed_number("-0.0")
    '0.0'
    """
    return number.lstrip("-") if not number.strip("-0.") else number.replace("-", "−")


def with_space(content: Html) -> Html:
    """Content with some space above."""
    return element("div", {"class": "later"}, content)


def identifier(*words: str) -> str:
    """The identifier of a chart on the page, from fixed words and numbers only, never from words of
    the table.
    """
    return "-".join(("chart", *words))


def _entry(value: str, ends: str) -> Entry:
    interval = [element("small", {"class": "interval"}, ends)] if ends else []
    return Entry(join([element("span", {"class": "nowrap"}, value), *interval]), "")


# Clients: metrics with intervals, the distribution of accuracies, and the worst-served clients.

MAIN = ("average", "average_devices", "worst10", "best10", "variance", "variance_noise", "gini")
CHART_CLIENTS = 20  # worst-served clients in the chart
WORST_CLIENTS = 10
TABLE_ROWS = 500  # clients in the table of all clients; audit.csv has the others


def client_section(audit: Audit) -> PagePart:
    """The section on clients."""
    view = audit.clients
    if view is None:
        raise ValueError("The audit has no client column, so it has no section on clients.")
    charts = _client_figures(view, audit)
    parts = [
        _metrics(view, MAIN, "How evenly the clients are served."),
        *_hidden(view, audit.about.min_cell),
    ]
    parts += [figures(charts)] if charts else []
    parts += _tables(view)
    further = [name for name in METRICS if name not in MAIN]
    parts.append(
        details(
            "More client metrics",
            _metrics(view, further, "Further measures of how evenly the clients are served."),
        )
    )
    return PagePart(
        section("clients", f"How are the clients served, by {view.column}?", *parts), specs(charts)
    )


def _metrics(view: ClientView, names: list[str] | tuple[str, ...], caption: str) -> Html:
    columns = [
        Column("Over"),
        *(Column(sentence_case(METRICS[name].title), _client_hint(name)) for name in names),
    ]
    row = [f"{view.clients_in_summary:,} clients", *(_value(view, name) for name in names)]
    words = " ".join(filter(None, (caption, _interval_words(view, names))))
    return grid(nonbreaking(words), columns, [row], kind="compact")


def _interval_words(view: ClientView, names: Sequence[str]) -> str:
    """How the intervals of these metrics came about, or why there are none."""
    if any(view.summary[name].has_interval for name in names):
        return "Below a value its 95 % interval, from resampling clients."
    if view.clients_in_summary < LEAST_CLIENTS:
        return (
            f"There are no intervals: fewer than {LEAST_CLIENTS} clients are too few to resample."
        )
    return ""


def _value(view: ClientView, name: str) -> Entry:
    estimate = view.summary[name]
    return (
        rate_entry(estimate._replace(rows=FEW), hidden=True)
        if unit_of(name) != FRACTION
        else fraction_entry(estimate, hidden=True)
    )


def _client_hint(name: str) -> str:
    unit = {PERCENT: "%; ", "percent²": "%²; ", "degrees": "°; "}.get(unit_of(name), "")
    return unit + ("chance alone" if name == "variance_noise" else METRICS[name].direction)


def _hidden(view: ClientView, min_cell: int) -> list[Html]:
    words = hidden_words([view.hidden], min_cell, what="client")
    part = (
        " They are excluded from all figures over clients, because they could be calculated from"
        " these."
    )
    whole = " They are included in all figures over clients."
    return (
        [
            element(
                "p",
                {"class": "soft"},
                words,
                part if view.clients_in_summary < view.clients else whole,
            )
        ]
        if words
        else []
    )


def _client_figures(view: ClientView, audit: Audit) -> list[ChartFigure]:
    order = view.worst_first()
    charts = [_spread_figure(view, order)] if len(order) >= NAMED else []
    return (
        [*charts, _accuracy_figure(view, order, audit.whole["accuracy"].value)]
        if view.can_list and len(order) > 1
        else charts
    )


def _spread_figure(view: ClientView, order: list[int]) -> ChartFigure:
    mean, worst = view.summary["average_devices"], view.summary["worst10"]
    chart = histogram([view.accuracy[k].value for k in order], mean=mean.value, worst=worst.value)
    dashed = ", the dashed one that of the worst-served tenth" if worst.has_value else ""
    return ChartFigure(
        identifier("clients", "spread"),
        chart,
        f"The solid line is the mean of all clients{dashed}.",
    )


def _accuracy_figure(view: ClientView, order: list[int], everybody: float) -> ChartFigure:
    worst, few = order[:CHART_CLIENTS], tenth(view.clients_in_summary)
    entries = [Dot(view.names[k], view.accuracy[k], highlight=i < few) for i, k in enumerate(worst)]
    words = {
        "title": "Accuracy by client",
        "unit": "Accuracy (%)",
        "what": "Client",
        "highlight": "the worst-served tenth",
    }
    part = (
        f"The {CHART_CLIENTS} worst-served of {len(order):,} clients. "
        if len(order) > CHART_CLIENTS
        else ""
    )
    colour = f"In colour: the worst-served tenth. Hollow: fewer than {FEW} people."
    caption = f"{part}Lines are 95 % intervals (Wilson); the dashed line is everybody. {colour}"
    return ChartFigure(
        identifier("clients", "each"),
        dots(entries, middle=everybody, **words),
        nonbreaking(caption),
    )


def _tables(view: ClientView) -> list[Html]:
    order = view.worst_first()
    if not view.can_list or len(order) < 2:
        return []
    if len(order) < NAMED:
        return [with_space(_client_table(view, order, "Every client, the worst served first."))]
    parts = [
        with_space(
            _client_table(
                view, order[:WORST_CLIENTS], f"The {WORST_CLIENTS} clients that are served worst."
            )
        )
    ]
    more = f" The first {TABLE_ROWS:,}; audit.csv has all." if len(order) > TABLE_ROWS else ""
    return [
        *parts,
        details(
            f"All {len(order):,} clients",
            _client_table(view, order[:TABLE_ROWS], f"The worst served first.{more}"),
        ),
    ]


def _client_table(view: ClientView, order: list[int], caption: str) -> Html:
    columns = [
        Column("Client"),
        Column("People"),
        Column("Accuracy", "%"),
        *(Column(SCORES[name]) for name in view.scores),
    ]
    rows = [
        [
            view.names[k],
            f"{view.rows[k]:,}",
            rate_entry(view.accuracy[k]),
            *(fraction_entry(scores[k], hidden=True) for scores in view.scores.values()),
        ]
        for k in order
    ]
    return grid(
        nonbreaking(f"{caption} * marks fewer than {FEW} people."), columns, rows, kind="compact"
    )


# Groups: every sensitive column, then the intersections.

TITLES = {
    "accuracy": "Accuracy by group",
    "selection_rate": "Selection by group",
    "tpr": "TPR by group",
}
CHART_GROUPS, TABLE_GROUPS = 20, 60  # groups: the largest
TABLE_CLIENTS = 500
SHOWN_RANGES = ("acc_range", "spd_range", "eod_range", "odds_range")
WORST_GROUPS = ("worst_accuracy", "worst_tpr")
HINTS = {
    "selection_rate": "predicted favourable",
    "tpr": "of those labelled so",
    "fpr": "of those labelled otherwise",
}


def group_section(audit: Audit) -> PagePart:
    """The section on groups of people: each sensitive column, then the intersections."""
    parts, charts = [_key(audit)], []
    views = [*audit.groups, *([audit.intersections] if audit.intersections is not None else [])]
    for number, view in enumerate(views):
        figures_of_view = _group_figures(view, audit, number)
        parts += _view(view, figures_of_view, audit)
        charts += figures_of_view
    return PagePart(section("groups", "How are groups of people served?", *parts), specs(charts))


def _key(audit: Audit) -> Html:
    favourable = audit.about.favourable
    what = f"“Predicted favourable” means predicted “{favourable}”. " if favourable else ""
    text = (
        f"{what}Rates in percent with their 95 % intervals; * marks figures of fewer than {FEW}"
        " people, which vary strongly by chance; – marks rates that are undefined, or hidden"
        " because they rest on too few people or would reveal a rate that does."
    )
    return element("p", {"class": "soft"}, nonbreaking(text))


def _view(view: GroupView, charts: list[ChartFigure], audit: Audit) -> list[Html]:
    is_crossing = view is audit.intersections
    title = f"Intersections of {view.title}" if is_crossing else f"By {view.title}"
    parts = [element("h3", {"class": "later"}, title)]
    if not is_crossing:
        parts.append(_who(view, audit))
    parts += [figures(charts)] if charts else []
    marked = view._replace(unprivileged=highlighted(view, audit))
    parts += [
        with_space(_rates(marked)),
        *([_against(marked)] if view.against else []),
        _ranges(view),
        *_within(view, audit.clients),
        *origin_parts(view, audit.clients),
    ]
    return parts


def _who(view: GroupView, audit: Audit) -> Html:
    """Which group is highlighted, and why."""
    name = view.names[highlighted(view, audit) or 0]
    first = next(iter(of_column(group_gaps(audit), view)), None)
    if not view.by_default:
        text = f"“{name}” is compared with all others (as requested). The tables also compare every"
        text += " other value."
    elif first is not None and first.significant:
        text = (
            f"Every value is compared with all others. “{name}” is highlighted: it has the largest"
            f" statistically significant difference, in {RATE_OF[first.metric]}."
        )
    else:
        rate = "accuracy" if audit.about.favourable is None else "selection rate"
        text = (
            "Every value is compared with all others, and no difference is statistically"
            f" significant. “{name}” is highlighted because it has the lowest {rate}."
        )
    return element("p", {"class": "soft"}, text)


def _order(view: GroupView, most: int) -> list[int]:
    """The largest groups in their order in the table; hidden groups count as empty."""
    largest = np.argsort(-view.rows, kind="stable")[:most]
    return sorted(largest.tolist())


def _group_figures(view: GroupView, audit: Audit, number: int) -> list[ChartFigure]:
    order = [g for g in _order(view, CHART_GROUPS) if view.rows[g]]
    marked = highlighted(view, audit)
    charts = []
    for name, title in TITLES.items():
        rates = view.rates.get(name)
        if rates is None or sum(rates[g].has_value for g in order) < 2:
            continue
        chosen = [Dot(view.names[g], rates[g], highlight=g == marked) for g in order]
        chart = dots(
            chosen,
            title=title,
            unit=f"{RATES[name]} (%)",
            middle=audit.whole[name].value,
            what="Group",
            highlight="" if marked is None else view.names[marked],
        )
        more = f" The {CHART_GROUPS} largest groups." if len(view.names) > CHART_GROUPS else ""
        caption = f"{_caption(name, audit.about.favourable)} The dashed line is everybody.{more}"
        charts.append(
            ChartFigure(identifier("groups", str(number), name.replace("_", "-")), chart, caption)
        )
    return charts


def _caption(name: str, favourable: str | None) -> str:
    return {
        "accuracy": "Predicted right, of all people of the group.",
        "selection_rate": f"Predicted “{favourable}”, of all people of the group.",
        "tpr": f"Predicted “{favourable}”, of the group's people with that label.",
    }[name]


def _rates(view: GroupView) -> Html:
    columns = [
        Column("Group"),
        Column("People"),
        *(Column(RATES[name], HINTS.get(name, "")) for name in view.rates),
    ]
    rows = []
    for g in _order(view, TABLE_GROUPS):
        hidden = bool(view.veil.groups.cells[g])
        partly = hidden or bool(view.veil.labels.cells[g].any())
        people = Entry("hidden", "") if hidden else f"{view.rows[g]:,}"
        rows.append(
            [
                _name(view, g),
                people,
                *(rate_entry(rates[g], hidden=partly) for rates in view.rates.values()),
            ]
        )
    more = (
        f" The {TABLE_GROUPS} largest of {len(view.names):,} groups; audit.csv has all."
        if len(view.names) > TABLE_GROUPS
        else ""
    )
    return grid(f"How every group is served.{more}", columns, rows, kind="compact")


def _name(view: GroupView, g: int) -> str:
    return f"{view.names[g]} ←" if g == view.unprivileged and len(view.names) > 2 else view.names[g]


def _against(view: GroupView) -> Html:
    """Every group against all others."""
    columns = [
        Column("Group"),
        *(Column(sentence_case(AGAINST[name].title), _group_hint(name)) for name in view.against),
    ]
    visible = [
        g
        for g in _order(view, TABLE_GROUPS)
        if any(gaps[g].has_value for gaps in view.against.values())
    ]
    rows = [
        [_name(view, g), *(_gap(name, gaps[g]) for name, gaps in view.against.items())]
        for g in visible
    ]
    if not rows:
        return element(
            "p",
            {"class": "soft"},
            "No group can be compared with all others, because one side always has too few people.",
        )
    return grid(
        "Every group minus all others, as fractions. Values below 0 are to the disadvantage of the"
        " group.",
        columns,
        rows,
        kind="compact",
    )


def _gap(name: str, estimate: Estimate) -> Entry:
    return fraction_entry(estimate, hidden=True, digits=2 if name == "impact_ratio" else 3)


def _group_hint(name: str) -> str:
    return "ratio; 1 is even" if name == "impact_ratio" else AGAINST[name].direction


def _ranges(view: GroupView) -> Html:
    """The best group against the worst."""
    ranged = [name for name in SHOWN_RANGES if _has_range(view, name)]
    if not ranged:
        return element("p", {"class": "soft"}, "Fewer than two groups have visible rates.")
    columns = [
        Column("The best minus the worst"),
        *(
            Column(
                sentence_case(GROUP_METRICS[name].title),
                f"over {_groups_behind(view, name)} groups; lower is fairer",
            )
            for name in ranged
        ),
    ]
    worst = [
        f"{GROUP_METRICS[name].title} {view.ranges[name].value:.1f} %{_star(view, name)}"
        for name in WORST_GROUPS
        if _has_range(view, name) and _groups_behind(view, name) > 1
    ]
    caption = "; ".join(filter(None, ["Among the visible groups, as fractions", ", ".join(worst)]))
    cells = (fraction_entry(view.ranges[name], mark=_star(view, name)) for name in ranged)
    return grid(nonbreaking(f"{caption}."), columns, [["visible groups", *cells]])


def _visible_shares(view: GroupView) -> dict[str, np.ndarray]:
    """Each rate of the groups that ranges compare; NaN where it is hidden or the value is
    missing.
    """
    known = np.array([NO_VALUE not in name for name in view.names])
    return {
        rate: np.where(known, [each.value for each in found], np.nan)
        for rate, found in view.rates.items()
    }


def _groups_behind(view: GroupView, metric: str) -> int:
    """How many groups a range is computed from."""
    shares = _visible_shares(view)
    return int(np.any([np.isfinite(shares[rate]) for rate in EXTREMES[metric]], axis=0).sum())


def _star(view: GroupView, metric: str) -> str:
    """A star if a group that decides a metric has few people."""
    rows = {rate: np.array([each.rows for each in found]) for rate, found in view.rates.items()}
    return " *" if rows_of_extremes(metric, _visible_shares(view), rows) < FEW else ""


def _within(view: GroupView, clients: ClientView | None) -> list[Html]:
    """The gap in each client, the largest disadvantage first."""
    if view.client_gaps is None or clients is None or not view.client_gaps.clients:
        return []
    spd, eod, g = view.client_gaps.spd, view.client_gaps.eod, view.unprivileged
    assert g is not None  # the gaps are its own
    order = sorted((k for k in range(len(spd)) if spd[k].has_value), key=lambda k: spd[k].value)[
        :TABLE_CLIENTS
    ]
    columns = [
        Column("Client"),
        Column("People", "both sides"),
        Column("SPD", "fraction"),
        Column("EOD", "fraction"),
    ]
    rows = [
        [
            clients.names[k],
            f"{spd[k].rows:,}",
            fraction_entry(spd[k]),
            fraction_entry(eod[k], hidden=True),
        ]
        for k in order
    ]
    why = ", which has the lowest selection rate," if view.by_default else ""
    caption = (
        f"“{view.names[g]}”{why} minus all others of the same client, with Newcombe's 95 %"
        " intervals. Clients with too few people are left out."
    )
    return [
        details(
            f"The gap within each client ({len(order):,})",
            grid(nonbreaking(caption), columns, rows, kind="compact"),
        )
    ]


def _has_range(view: GroupView, name: str) -> bool:
    return name in view.ranges and view.ranges[name].has_value
