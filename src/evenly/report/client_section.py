"""The section on the worst-served clients of each method, and the table of all clients."""

import numpy as np

from evenly.experiment.comparison import Comparison
from evenly.report.disclosure import client_groups
from evenly.report.focus import Focus
from evenly.report.html import Column, Entry, Html, element, grid, nonbreaking, section
from evenly.report.values import NAMED, SPLIT_WORDS, UNDEFINED, ClientRates, WorstClient, client_means, client_rates, worst_clients
from evenly.report.worst_served import has_labels, rate_entry

MOST_CLIENTS = 10
MOST = 200
FILTER = {"type": "search", "id": "filter-clients", "placeholder": "part of a name", "autocomplete": "off"}


def client_table(comparison: Comparison, focus: Focus) -> list[Html]:
    """The clients in their own order, means over seeds; nothing with very many of them, or where one is all there is."""
    found = {label: client_means(comparison, label, focus.split) for label in focus.coloured}
    first = found[focus.baseline]
    shown = [k for k in np.flatnonzero(np.isfinite(first.accuracy)).tolist() if k not in focus.hidden]
    if not 1 < len(shown) <= MOST:
        return []
    groups, word = client_groups(comparison, focus.least), SPLIT_WORDS[focus.split]
    columns = [Column("Client"), Column("Training rows"), Column(f"{word.capitalize()} rows"), *(Column(label, "%") for label in found)]
    columns += [Column("Groups", words=True)] if groups else []
    rows = [
        [
            comparison.federation.names[k],
            f"{first.train[k]:,.0f}",
            f"{first.rows[k]:,.0f}",
            *(_percent(own.accuracy[k]) for own in found.values()),
            *([nonbreaking(groups[k])] if groups else []),
        ]
        for k in shown
    ]
    name = element("label", {"for": "filter-clients"}, "Filter the clients")
    status = element("output", {"id": "filter-clients-status", "class": "soft", "for": "filter-clients", "aria-live": "polite"})
    search = element("div", {"class": "controls", "role": "search"}, name, element("input", FILTER), status)
    table = grid(f"The {word} accuracy of every client under each method, means over seeds.", columns, rows, kind="compact", clients=True)
    if len(shown) < NAMED:
        return [table]
    # On paper it would be pages long, and cannot be searched.
    return [element("details", {"class": "screen"}, element("summary", None, f"Every client ({len(shown)})"), search, table)]


def _percent(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else UNDEFINED


def client_section(comparison: Comparison, focus: Focus) -> Html:
    """The clients that each method fails, by name; the leading method's list is open."""
    word = SPLIT_WORDS[focus.split]
    intro = (
        f"The clients with the lowest {word} accuracy, means over seeds. The range behind an accuracy is what chance alone allows "
        f"with that many {word} rows (Wilson's 95 % interval): where it is wide, the client may be served better than it looks."
    )
    if focus.hidden:
        intro += f" {len(focus.hidden):,} of {comparison.federation.clients:,} clients are not named: too few people."
    order = [focus.lead, *(label for label in focus.coloured if label != focus.lead)]
    parts = [_clients(comparison, label, focus) for label in order]
    return section("clients", "Worst-served clients", element("p", None, intro), *parts, *client_table(comparison, focus))


def _clients(comparison: Comparison, label: str, focus: Focus) -> Html:
    other = focus.baseline if label != focus.baseline else focus.lead
    few = comparison.federation.clients - len(focus.hidden) < NAMED
    limit = NAMED if few else MOST_CLIENTS
    found = worst_clients(comparison, label, other, limit=limit, split=focus.split, hidden=focus.hidden)
    groups = [] if few else client_groups(comparison, focus.least)  # of few clients the table of all has them
    rates = _rates(comparison, label, focus)
    tested = Column(f"{SPLIT_WORDS[focus.split].capitalize()} rows")
    columns = [Column("Client"), Column("Training rows"), tested, Column("Accuracy", "%"), Column("Chance allows", "%")]
    columns += [Column("True positive rate", "%"), Column("False positive rate", "%")] if rates else []
    columns += [Column(f"With {other}", "%")] if other != label else []
    columns += [Column("Groups", words=True)] if groups else []
    rows = [[*_client(client, other != label, rates), *([nonbreaking(groups[client.number])] if groups else [])] for client in found]
    nobody = "No client has test rows." if not focus.hidden else "Every client with test rows is hidden: too few people."
    table = grid(f"Worst served by {label}.", columns, rows, kind="compact") if rows else element("p", None, nobody)
    open_ = {"open": ""} if label == focus.lead else {}
    return element("details", open_, element("summary", None, f"Under {label}"), table)


def _rates(comparison: Comparison, label: str, focus: Focus) -> ClientRates | None:
    """With two labels, the clients' true and false positive rates."""
    if len(comparison.federation.labels) != 2 or not has_labels(comparison):
        return None
    return client_rates(comparison, label, focus.split, focus.hidden, focus.least)


def _client(client: WorstClient, compared: bool, rates: ClientRates | None) -> list[str | Entry]:
    cells: list[str | Entry] = [client.name, _count(client.train), _count(client.rows), f"{client.accuracy:.1f}"]
    cells.append(f"{client.low:.0f} to {client.high:.0f}")
    cells += [rate_entry(float(rate[client.number])) for rate in rates] if rates else []
    return cells + ([f"{client.elsewhere:.1f}" if np.isfinite(client.elsewhere) else UNDEFINED] if compared else [])


def _count(rows: float) -> str:
    return f"{rows:,.0f}" if rows == round(rows) else f"{rows:,.1f}"
