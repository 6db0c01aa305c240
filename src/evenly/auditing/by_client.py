"""How evenly the clients are served: everybody's accuracy with an interval, and the client metrics of the package."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from evenly.auditing.estimates import NOTHING, Estimate, estimates
from evenly.auditing.hiding import FAVOURABLE, label_counts
from evenly.metrics import METRICS, Interval, accuracy, examples, measure, rates
from evenly.metrics.statistics import LEAST_CLIENTS, percentile_interval
from evenly.metrics.tables import FEW_CLIENTS
from evenly.randomness import generator
from evenly.report.disclosure import Hidden, clients_behind, hide, is_told, small_cells
from evenly.report.values import wilson

Array = np.ndarray
MOST_LISTED = 10_000  # clients that are listed one by one
DRAWN = ("average", "average_devices", "worst10", "best10", "variance", "std", "gini")  # with intervals
DRAWS, MOST_DRAWN = 1000, 4_000_000  # resamples, and clients drawn in all of them together


class ClientView(NamedTuple):
    """The clients of an audit, in the order of the table's names. Nothing is kept of those that are hidden."""

    column: str
    names: tuple[str, ...]  # [clients]
    rows: Array  # [clients], 0 where hidden
    accuracy: tuple[Estimate, ...]  # [clients] percent
    hidden: Hidden
    summary: dict[str, Estimate]  # every metric of `METRICS`
    counted: int  # clients that the summary is of: all, or without the hidden ones where these could be solved for
    few: int  # clients with fewer than 30 rows, of those that are shown
    scores: Mapping[str, tuple[Estimate, ...]] = {}  # of `scores.SCORES`, [clients] each
    worst_rates: Mapping[str, float] = {}  # true and false positive rate of the worst-served client, in percent

    @property
    def clients(self) -> int:
        return len(self.names)

    @property
    def listed(self) -> bool:
        return self.clients <= MOST_LISTED

    def ordered(self) -> list[int]:
        """The clients that are shown, the worst served first; among equals those with more rows."""
        known = [k for k in range(self.clients) if self.accuracy[k].known]
        return sorted(known, key=lambda k: (self.accuracy[k].value, -self.rows[k], k))


def client_view(column: str, names: tuple[str, ...], tables: Array, *, least: int, few: int, anonymous: bool) -> ClientView:
    """From the clients' tables [clients, 1, labels, outcomes]; clients with fewer than `least` rows are hidden."""
    shares, rows = accuracy(tables), examples(tables)
    hidden = hide(rows, least, sums=[0])
    low, high = wilson(shares, rows)
    shown = np.where(hidden.cells, np.nan, shares)
    # Hidden clients that are no more than the figures over all clients could be solved for, and are left out of these.
    counts = ~hidden.cells if hidden.cells.sum() <= len(METRICS) else np.ones(len(rows), bool)
    return ClientView(
        column=column,
        names=_numbered(rows) if anonymous else names,
        rows=np.where(hidden.cells, 0, rows),
        accuracy=estimates(100 * shown, 100 * low, 100 * high, rows),
        hidden=hidden,
        summary=_summary(shares[counts], rows[counts], hidden.cells[counts], least),
        counted=int(counts.sum()),
        few=int((~hidden.cells & (rows < few)).sum()),
    )


def with_rates(view: ClientView, tables: Array, least: int) -> ClientView:
    """The view with the rates of the client that is served worst, from tables [clients, 1, labels, outcomes].

    They tell how many of its people have each label, so these, and those of all other clients together, must not be few.
    """
    order = view.ordered()
    if not view.listed or len(order) < 2:
        return view
    own, everybody = tables[order[0]], tables.sum(0)
    if small_cells([label_counts(own), label_counts(everybody - own)], least).any():
        return view
    found = rates(own, FAVOURABLE)
    return view._replace(worst_rates={"tpr": float(100 * found.tpr[0]), "fpr": float(100 * found.fpr[0])})


def _summary(shares: Array, rows: Array, hidden: Array, least: int) -> dict[str, Estimate]:
    """All client metrics; those that rest on clients which may not be shown are left out."""
    drawn = _resampled(shares, rows)
    summary = {}
    for name, value in measure(shares, rows).items():
        kind = METRICS[name].rests_on
        behind = clients_behind(kind, shares)
        alone = kind in FEW_CLIENTS and len(behind) == 1  # whoever is drawn, nobody lies beyond the one client: that is no interval
        low, high = (float(end[DRAWN.index(name)]) for end in drawn[:2]) if drawn and name in DRAWN and not alone else (np.nan, np.nan)
        shown = is_told(kind, shares, rows, hidden, least)
        summary[name] = Estimate(float(value), low, high, int(rows[behind].sum())) if shown else NOTHING
    return summary


def _resampled(shares: Array, rows: Array) -> Interval | None:
    """95 % intervals of the main metrics from drawing clients anew; none where there are too few clients, or very many."""
    clients = len(rows)
    draws = min(DRAWS, MOST_DRAWN // max(1, clients))
    if clients < LEAST_CLIENTS or draws < DRAWS // 10:
        return None
    chance = generator(0, "audit")
    chosen = (chance.integers(clients, size=clients) for _ in range(draws))
    found = np.array([[METRICS[name].function(shares[k], rows[k]) for name in DRAWN] for k in chosen])
    return percentile_interval(found)


def _numbered(rows: Array) -> tuple[str, ...]:
    """Numbers instead of names, the client with the most rows first."""
    place = np.empty(len(rows), int)
    place[np.argsort(-rows, kind="stable")] = np.arange(len(rows))
    width = len(str(len(rows)))
    return tuple(f"client {number + 1:0{width}}" for number in place)
