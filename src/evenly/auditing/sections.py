"""The sections of an audit's page: clients, groups and scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.charts import MOST_LINES, Dot, calibration, dots, histogram, thresholds
from evenly.auditing.estimates import SCORES, Estimate
from evenly.auditing.people import NO_VALUE
from evenly.auditing.result import FRACTION, PERCENT, Audit, unit_of
from evenly.auditing.views import AGAINST, RATES, ClientView, GroupView
from evenly.data.sensitive import FEW
from evenly.metrics import GROUP_METRICS, METRICS
from evenly.metrics.clients import tenth
from evenly.report.disclosure import hidden_words
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
    legend_of,
    nonbreaking,
    section,
    sentence_case,
)
from evenly.report.method_table import dash
from evenly.report.values import NAMED

# Pieces that the sections of an audit's page share.

HIDDEN = "hidden: it rests on too few people, or would give such a figure away"


class PagePart(NamedTuple):
    """A section of the page and the specifications of its charts."""

    html: Html
    specs: dict[str, Any]


def figures(found: Sequence[ChartFigure]) -> Html:
    """Charts side by side."""
    return element("div", {"class": f"figures of-{len(found)} later"}, *map(figure_html, found))


def specs(found: Sequence[ChartFigure]) -> dict[str, Any]:
    return {figure.identifier: figure.spec for figure in found}


def rate(found: Estimate, *, hidden: bool = False) -> Entry:
    """A rate in percent above its interval; a star where it rests on few people."""
    if not found.known:
        return dash(HIDDEN if hidden else "there is nothing to divide by")
    star = " *" if found.rows < FEW else ""
    return _entry(f"{found.value:.1f}{star}", f"{found.low:.1f} to {found.high:.1f}" if found.ranged else "")


def plain(found: Estimate, *, hidden: bool = False, digits: int = 3) -> Entry:
    """An index or a ratio above its interval."""
    if not found.known:
        return dash(HIDDEN if hidden else "there is nothing to divide by")
    value, *ends = (proper(f"{end:.{digits}f}") for end in found[:3])
    return _entry(value, " to ".join(ends) if found.ranged else "")


def proper(number: str) -> str:
    """A number with a minus sign, and without one where it is 0.

    >>> proper("-0.0")
    '0.0'
    """
    return number.lstrip("-") if not number.strip("-0.") else number.replace("-", "−")


def apart(content: Html) -> Html:
    """With some space above."""
    return element("div", {"class": "later"}, content)


def identifier(*words: str) -> str:
    """An identifier of a place on the page, from words of our own and numbers only: never from the table's words."""
    return "-".join(("chart", *words))


def _entry(value: str, ends: str) -> Entry:
    interval = [element("small", {"class": "interval"}, ends)] if ends else []
    return Entry(join([element("span", {"class": "nowrap"}, value), *interval]), "")


# The page's section on clients: metrics with intervals, how they are spread, and who is served worst.

MAIN = ("average", "average_devices", "worst10", "best10", "variance", "variance_noise", "gini")
DRAWN = 20  # worst-served clients in the chart
WORST_CLIENTS = 10
MOST_ROWS = 500  # of the table of all clients; audit.csv has more


def client_section(audit: Audit) -> PagePart:
    view = audit.clients
    if view is None:
        raise ValueError("The table names no clients, so there is no section on them.")
    drawn = _client_figures(view, audit)
    parts = [_metrics(view, MAIN, "How evenly the clients are served."), *_hidden(view, audit.about.least)]
    parts += [figures(drawn)] if drawn else []
    parts += _tables(view)
    further = [name for name in METRICS if name not in MAIN]
    parts.append(details("More client metrics", _metrics(view, further, "Further measures of how evenly the clients are served.")))
    return PagePart(section("clients", f"How are the clients served, by {view.column}?", *parts), specs(drawn))


def _metrics(view: ClientView, names: list[str] | tuple[str, ...], caption: str) -> Html:
    columns = [Column("Clients"), *(Column(sentence_case(METRICS[name].title), _client_hint(name)) for name in names)]
    row = [f"{view.counted:,} by {view.column}", *(_value(view, name) for name in names)]
    return grid(f"{caption} Below a value its 95 % interval, from resampling clients.", columns, [row], kind="compact")


def _value(view: ClientView, name: str) -> Entry:
    found = view.summary[name]
    return rate(found._replace(rows=FEW), hidden=True) if unit_of(name) != FRACTION else plain(found, hidden=True)


def _client_hint(name: str) -> str:
    unit = {PERCENT: "%; ", "percent²": "%²; ", "degrees": "°; "}.get(unit_of(name), "")
    return unit + ("chance alone" if name == "variance_noise" else METRICS[name].direction)


def _hidden(view: ClientView, least: int) -> list[Html]:
    words = hidden_words([view.hidden], least, what="client")
    part = " They are left out of all figures over clients, from which so few could be solved for."
    whole = " They count in all figures over clients."
    return [element("p", {"class": "soft"}, words, part if view.counted < view.clients else whole)] if words else []


def _client_figures(view: ClientView, audit: Audit) -> list[ChartFigure]:
    order = view.ordered()
    found = []
    if len(order) >= NAMED:
        summary = view.summary
        chart = histogram([view.accuracy[k].value for k in order], mean=summary["average_devices"].value, worst=summary["worst10"].value)
        worst = ", the dashed one that of the worst-served tenth" if summary["worst10"].known else ""
        caption = f"The solid line is the mean of all clients{worst}."
        found.append(ChartFigure(identifier("clients", "spread"), chart, caption))
    if view.listed and len(order) > 1:
        few = tenth(view.counted)
        chosen = [Dot(view.names[k], view.accuracy[k], marked=i < few) for i, k in enumerate(order[:DRAWN])]
        everybody = audit.whole["accuracy"].value
        chart = dots(
            chosen, title="Accuracy by client", unit="Accuracy (%)", middle=everybody, what="Client", marked="the worst-served tenth"
        )
        part = f"The {DRAWN} that are served worst of {len(order):,}. " if len(order) > DRAWN else ""
        colour = f"In colour: the worst-served tenth. Hollow: fewer than {FEW} people."
        caption = f"{part}Lines are 95 % intervals (Wilson); the dashed line is everybody. {colour}"
        found.append(ChartFigure(identifier("clients", "each"), chart, nonbreaking(caption)))
    return found


def _tables(view: ClientView) -> list[Html]:
    order = view.ordered()
    if not view.listed or len(order) < 2:
        return []
    if len(order) < NAMED:
        return [apart(_listed(view, order, "Every client, the worst served first."))]
    parts = [apart(_listed(view, order[:WORST_CLIENTS], f"The {WORST_CLIENTS} clients that are served worst."))]
    more = f" The first {MOST_ROWS:,}; audit.csv has all." if len(order) > MOST_ROWS else ""
    return [*parts, details(f"All {len(order):,} clients", _listed(view, order[:MOST_ROWS], f"The worst served first.{more}"))]


def _listed(view: ClientView, order: list[int], caption: str) -> Html:
    columns = [Column("Client"), Column("People"), Column("Accuracy", "%"), *(Column(name, hint) for name, hint in _score_columns(view))]
    rows = [[view.names[k], f"{view.rows[k]:,}", rate(view.accuracy[k]), *_scores(view, k)] for k in order]
    return grid(nonbreaking(f"{caption} * marks fewer than {FEW} people."), columns, rows, kind="compact")


def _score_columns(view: ClientView) -> list[tuple[str, str]]:
    return [(SCORES[name], "") for name in ("auc", "ece", "bias")] if view.scores else []


def _scores(view: ClientView, k: int) -> list[Entry]:
    if not view.scores:
        return []
    return [plain(view.scores["auc"][k], hidden=True), *(plain(view.scores[name][k], hidden=True) for name in ("ece", "bias"))]


# The page's section on groups: every sensitive column, then the intersections.

TITLES = {"accuracy": "Accuracy by group", "selection_rate": "Selection by group", "tpr": "TPR by group"}
MOST_DRAWN, MOST_LISTED = 20, 60  # groups: the largest
MOST_CLIENTS = 500
RANGES = ("acc_range", "spd_range", "eod_range", "odds_range")
WORST_GROUPS = ("worst_accuracy", "worst_tpr")
HINTS = {"selection_rate": "predicted favourable", "tpr": "of those labelled so", "fpr": "of those labelled otherwise"}


def group_section(audit: Audit) -> PagePart:
    views = [*audit.groups, *([audit.crossed] if audit.crossed is not None else [])]
    parts, found = [_key(audit)], []
    for number, view in enumerate(views):
        drawn = _group_figures(view, audit, number)
        parts += _view(view, drawn, audit)
        found += drawn
    return PagePart(section("groups", "How are groups of people served?", *parts), specs(found))


def _key(audit: Audit) -> Html:
    wanted = audit.about.favourable
    what = f"“Predicted favourable” means predicted “{wanted}”. " if wanted else ""
    text = (
        f"{what}Rates in percent with their 95 % intervals; * marks fewer than {FEW} people, where chance alone can move a rate far; "
        "– stands where there is nothing to divide by, or too few people to be shown."
    )
    return element("p", {"class": "soft"}, nonbreaking(text))


def _view(view: GroupView, drawn: list[ChartFigure], audit: Audit) -> list[Html]:
    crossed = view is audit.crossed
    title = f"Intersections of {view.title}" if crossed else f"By {view.title}"
    parts = [element("h3", {"class": "later"}, title)]
    if not crossed:
        parts.append(_who(view))
    parts += [figures(drawn)] if drawn else []
    parts += [apart(_rates(view)), *([_against(view)] if view.against else []), _ranges(view), *_within(view, audit.clients)]
    return parts


def _who(view: GroupView) -> Html:
    g = view.unprivileged or 0
    why = "chosen because it is favoured least" if view.chosen else "as asked for"
    return element("p", {"class": "soft"}, f"Set against all others: “{view.names[g]}”, {why}. Below, every other value is as well.")


def _order(view: GroupView, most: int) -> list[int]:
    """The groups to show, in their own order: the largest of those with people that may be shown, then what is hidden."""
    largest = np.argsort(-view.rows, kind="stable")[:most]
    return sorted(largest.tolist())


def _group_figures(view: GroupView, audit: Audit, number: int) -> list[ChartFigure]:
    order = [g for g in _order(view, MOST_DRAWN) if view.rows[g]]
    marked = "" if view.unprivileged is None else view.names[view.unprivileged]
    found = []
    for name, title in TITLES.items():
        rates = view.rates.get(name)
        if rates is None or sum(rates[g].known for g in order) < 2:
            continue
        chosen = [Dot(view.names[g], rates[g], marked=g == view.unprivileged) for g in order]
        chart = dots(chosen, title=title, unit=f"{RATES[name]} (%)", middle=audit.whole[name].value, what="Group", marked=marked)
        more = f" The {MOST_DRAWN} largest groups." if len(view.names) > MOST_DRAWN else ""
        caption = f"{_caption(name, audit.about.favourable)} The dashed line is everybody.{more}"
        found.append(ChartFigure(identifier("groups", str(number), name.replace("_", "-")), chart, caption))
    return found


def _caption(name: str, favourable: str | None) -> str:
    return {
        "accuracy": "Predicted right, of all people of the group.",
        "selection_rate": f"Predicted “{favourable}”, of all people of the group.",
        "tpr": f"Predicted “{favourable}”, of the group's people with that label.",
    }[name]


def _rates(view: GroupView) -> Html:
    columns = [Column("Group"), Column("People"), *(Column(RATES[name], HINTS.get(name, "")) for name in view.rates)]
    rows = []
    for g in _order(view, MOST_LISTED):
        hidden = bool(view.veil.groups.cells[g])
        partly = hidden or bool(view.veil.labels.cells[g].any())
        people = Entry("hidden", "") if hidden else f"{view.rows[g]:,}"
        rows.append([_name(view, g), people, *(rate(found[g], hidden=partly) for found in view.rates.values())])
    more = f" The {MOST_LISTED} largest of {len(view.names):,} groups; audit.csv has all." if len(view.names) > MOST_LISTED else ""
    return grid(f"How every group is served.{more}", columns, rows, kind="compact")


def _name(view: GroupView, g: int) -> str:
    return f"{view.names[g]} ←" if g == view.unprivileged and len(view.names) > 2 else view.names[g]


def _against(view: GroupView) -> Html:
    """Every group against all others."""
    columns = [Column("Group"), *(Column(sentence_case(AGAINST[name].title), _group_hint(name)) for name in view.against)]
    shown = [g for g in _order(view, MOST_LISTED) if any(found[g].known for found in view.against.values())]
    rows = [[_name(view, g), *(_gap(name, found[g]) for name, found in view.against.items())] for g in shown]
    if not rows:
        return element("p", {"class": "soft"}, "No group can be compared with all others: there are too few people on one side.")
    return grid("Every group less all others, as fractions; below 0 is to the group's disadvantage.", columns, rows, kind="compact")


def _gap(name: str, found: Estimate) -> Entry:
    return plain(found, hidden=True, digits=2 if name == "impact_ratio" else 3)


def _group_hint(name: str) -> str:
    return "ratio; 1 is even" if name == "impact_ratio" else AGAINST[name].direction


def _ranges(view: GroupView) -> Html:
    """The best group against the worst."""
    ranged = [(GROUP_METRICS[name].title, view.ranges[name]) for name in RANGES if _known(view, name)]
    if not ranged:
        return element("p", {"class": "soft"}, "There are not two groups whose rates may be shown.")
    columns = [Column("The best less the worst"), *(Column(sentence_case(words), "lower is fairer") for words, _ in ranged)]
    worst = (f"{GROUP_METRICS[name].title} {view.ranges[name].value:.1f} %" for name in WORST_GROUPS if _known(view, name))
    shown = sum(bool(rows) and NO_VALUE not in name for rows, name in zip(view.rows, view.names, strict=True))
    caption = f"Among the groups that are shown, as fractions; {', '.join(worst)}."
    return grid(nonbreaking(caption), columns, [[f"{shown} groups", *(plain(found) for _, found in ranged)]])


def _within(view: GroupView, clients: ClientView | None) -> list[Html]:
    """The gap in each client, the largest disadvantage first."""
    if view.within is None or clients is None or not view.within.clients:
        return []
    spd, eod, g = view.within.spd, view.within.eod, view.unprivileged or 0
    order = sorted((k for k in range(len(spd)) if spd[k].known), key=lambda k: spd[k].value)[:MOST_CLIENTS]
    columns = [Column("Client"), Column("People", "both sides"), Column("SPD", "fraction"), Column("EOD", "fraction")]
    rows = [[clients.names[k], f"{spd[k].rows:,}", plain(spd[k]), plain(eod[k], hidden=True)] for k in order]
    caption = (
        f"“{view.names[g]}” less all others of the same client, with Newcombe's 95 % intervals; clients with too few people are left out."
    )
    return [details(f"The gap within each client ({len(order):,})", grid(nonbreaking(caption), columns, rows, kind="compact"))]


def _known(view: GroupView, name: str) -> bool:
    return name in view.ranges and view.ranges[name].known


# The page's section on scores: how well they rank, and whether they keep their word, for every group.

SCORE_HINTS = {"auc": "1 is best, 0.5 is chance", "ece": "lower is better", "bias": "above 0 the score promises too much"}
GAPS = ("SPD", "EOD")


def score_section(audit: Audit) -> PagePart:
    tables = [_table(audit, [(view, f"{view.title}=") for view in audit.groups], everybody=True)]
    if audit.crossed is not None:
        tables.append(details("Scores of intersections", _table(audit, [(audit.crossed, "")], everybody=False)))
    parts, found = [*tables], []
    for number, view in enumerate(audit.groups):
        drawn = [*_calibration(view, number), *_thresholds(view, number)]
        if drawn:
            side_by_side = [element("div", None, legend_of(figure.legend, others=False), figure_html(figure)) for figure in drawn]
            parts += [element("h3", {"class": "later"}, f"By {view.title}"), element("div", {"class": "figures of-2"}, *side_by_side)]
        found += drawn
    return PagePart(section("scores", "How good are the scores?", *parts), specs(found))


def _table(audit: Audit, views: Sequence[tuple[GroupView, str]], *, everybody: bool) -> Html:
    columns = [Column("Group"), Column("People"), *(Column(title, SCORE_HINTS[name]) for name, title in SCORES.items())]
    rows = [_row("everybody", audit.about.rows, audit.whole)] if everybody else []
    for view, prefix in views:
        own = [{name: found[g] for name, found in view.scores.items()} for g in range(len(view.names))]
        rows += [_row(f"{prefix}{view.names[g]}", view.rows[g], own[g]) for g in np.flatnonzero(view.rows).tolist()]
    text = "With 95 % intervals that take people for independent of each other."
    return grid(nonbreaking(text), columns, rows, kind="compact")


def _row(name: str, rows: int, found: Mapping[str, Estimate]) -> list[str | Entry]:
    return [name, f"{rows:,}", plain(found["auc"], hidden=True), plain(found["ece"], hidden=True), plain(found["bias"], hidden=True)]


def _drawn(view: GroupView) -> list[int]:
    """The groups whose curves are drawn: the largest that may be shown."""
    order = [g for g in np.argsort(-view.rows, kind="stable").tolist() if view.rows[g] and view.curves and view.curves.rows[g].any()]
    return sorted(order[:MOST_LINES])


def _calibration(view: GroupView, number: int) -> list[ChartFigure]:
    chosen = _drawn(view)
    if view.curves is None or not chosen:
        return []
    caption = (
        "Above the dashed line people have the favourable label more often than their scores say. Bins with too few people are left out."
    )
    return [
        ChartFigure(
            identifier("scores", str(number)), calibration(view.names, chosen, view.curves), caption, tuple(view.names[g] for g in chosen)
        )
    ]


def _thresholds(view: GroupView, number: int) -> list[ChartFigure]:
    g = view.unprivileged
    if view.curves is None or g is None or not np.isfinite(view.curves.spd[g]).any():
        return []
    chart = thresholds(view.names[g], view.curves.spd[g], view.curves.eod[g])
    caption = f"If everybody from a score on were selected: how much more often “{view.names[g]}” would be than all others."
    return [ChartFigure(identifier("thresholds", str(number)), chart, caption, GAPS)]
