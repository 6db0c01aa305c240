"""The page's section on clients: metrics with intervals, how they are spread, and who is served worst."""

from evenly.auditing.by_client import ClientView
from evenly.auditing.charts import Dot, dots, histogram
from evenly.auditing.page_parts import Part, apart, figures, identifier, plain, rate, specs
from evenly.auditing.result import FRACTION, PERCENT, Audit, unit_of
from evenly.auditing.scores import SCORES
from evenly.data.sensitive import FEW
from evenly.metrics import METRICS
from evenly.metrics.clients import tenth
from evenly.report.disclosure import hidden_words
from evenly.report.html import Column, Entry, Figure, Html, element, grid, section, unbroken
from evenly.report.tables import folded, title_of
from evenly.report.values import NAMED

MAIN = ("average", "average_devices", "worst10", "best10", "variance", "variance_noise", "gini")
DRAWN = 20  # worst-served clients in the chart
WORST = 10
MOST_ROWS = 500  # of the table of all clients; audit.csv has more


def client_section(audit: Audit) -> Part:
    view = audit.clients
    if view is None:
        raise ValueError("The table names no clients, so there is no section on them.")
    drawn = _figures(view, audit)
    parts = [_metrics(view, MAIN, "How evenly the clients are served."), *_hidden(view, audit.about.least)]
    parts += [figures(drawn)] if drawn else []
    parts += _tables(view)
    further = [name for name in METRICS if name not in MAIN]
    parts.append(folded("More client metrics", _metrics(view, further, "Further measures of how evenly the clients are served.")))
    return Part(section("clients", f"How are the clients served, by {view.column}?", *parts), specs(drawn))


def _metrics(view: ClientView, names: list[str] | tuple[str, ...], caption: str) -> Html:
    columns = [Column("Clients"), *(Column(title_of(METRICS[name].title), _hint(name)) for name in names)]
    row = [f"{view.counted:,} by {view.column}", *(_value(view, name) for name in names)]
    return grid(f"{caption} Below a value its 95 % interval, from resampling clients.", columns, [row], kind="compact")


def _value(view: ClientView, name: str) -> Entry:
    found = view.summary[name]
    return rate(found._replace(rows=FEW), hidden=True) if unit_of(name) != FRACTION else plain(found, hidden=True)


def _hint(name: str) -> str:
    unit = {PERCENT: "%; ", "percent²": "%²; ", "degrees": "°; "}.get(unit_of(name), "")
    return unit + ("chance alone" if name == "variance_noise" else METRICS[name].direction)


def _hidden(view: ClientView, least: int) -> list[Html]:
    words = hidden_words([view.hidden], least, what="client")
    part = " They are left out of all figures over clients, from which so few could be solved for."
    whole = " They count in all figures over clients."
    return [element("p", {"class": "soft"}, words, part if view.counted < view.clients else whole)] if words else []


def _figures(view: ClientView, audit: Audit) -> list[Figure]:
    order = view.ordered()
    found = []
    if len(order) >= NAMED:
        summary = view.summary
        chart = histogram([view.accuracy[k].value for k in order], mean=summary["average_devices"].value, worst=summary["worst10"].value)
        worst = ", the dashed one that of the worst-served tenth" if summary["worst10"].known else ""
        caption = f"The solid line is the mean of all clients{worst}."
        found.append(Figure(identifier("clients", "spread"), chart, caption))
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
        found.append(Figure(identifier("clients", "each"), chart, unbroken(caption)))
    return found


def _tables(view: ClientView) -> list[Html]:
    order = view.ordered()
    if not view.listed or len(order) < 2:
        return []
    if len(order) < NAMED:
        return [apart(_listed(view, order, "Every client, the worst served first."))]
    parts = [apart(_listed(view, order[:WORST], f"The {WORST} clients that are served worst."))]
    more = f" The first {MOST_ROWS:,}; audit.csv has all." if len(order) > MOST_ROWS else ""
    return [*parts, folded(f"All {len(order):,} clients", _listed(view, order[:MOST_ROWS], f"The worst served first.{more}"))]


def _listed(view: ClientView, order: list[int], caption: str) -> Html:
    columns = [Column("Client"), Column("People"), Column("Accuracy", "%"), *(Column(name, hint) for name, hint in _score_columns(view))]
    rows = [[view.names[k], f"{view.rows[k]:,}", rate(view.accuracy[k]), *_scores(view, k)] for k in order]
    return grid(unbroken(f"{caption} * marks fewer than {FEW} people."), columns, rows, kind="compact")


def _score_columns(view: ClientView) -> list[tuple[str, str]]:
    return [(SCORES[name], "") for name in ("auc", "ece", "bias")] if view.scores else []


def _scores(view: ClientView, k: int) -> list[Entry]:
    if not view.scores:
        return []
    return [plain(view.scores["auc"][k], hidden=True), *(plain(view.scores[name][k], hidden=True) for name in ("ece", "bias"))]
