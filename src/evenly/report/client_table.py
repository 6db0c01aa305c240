"""Every client under every method in one table, where there are few enough of them to look through."""

import numpy as np

from evenly.experiment.results import Comparison
from evenly.report.choice import Choice
from evenly.report.client_groups import client_groups
from evenly.report.grid import Column, grid
from evenly.report.markup import Html, element, unbroken
from evenly.report.served import NAMED, served
from evenly.report.table import SPLIT_WORDS, UNDEFINED

MOST = 200
FILTER = {"type": "search", "id": "filter-clients", "placeholder": "part of a name", "autocomplete": "off"}


def client_table(comparison: Comparison, choice: Choice) -> list[Html]:
    """The clients in their own order, means over seeds; nothing with very many of them, or where one is all there is."""
    found = {label: served(comparison, label, choice.split) for label in choice.coloured}
    first = found[choice.baseline]
    shown = [k for k in np.flatnonzero(np.isfinite(first.accuracy)).tolist() if k not in choice.hidden]
    if not 1 < len(shown) <= MOST:
        return []
    groups, word = client_groups(comparison, choice.least), SPLIT_WORDS[choice.split]
    columns = [Column("Client"), Column("Training rows"), Column(f"{word.capitalize()} rows"), *(Column(label, "%") for label in found)]
    columns += [Column("Groups", words=True)] if groups else []
    rows = [
        [
            comparison.federation.names[k],
            f"{first.train[k]:,.0f}",
            f"{first.rows[k]:,.0f}",
            *(_percent(own.accuracy[k]) for own in found.values()),
            *([unbroken(groups[k])] if groups else []),
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
