"""What a report leaves out when nothing may rest on fewer than so many people: clients by name, groups, and metrics made of them."""

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.splits import SPLITS
from evenly.experiment.results import Comparison
from evenly.metrics import GROUP_METRICS, METRICS, accuracy, by_attribute, examples, pooled, sides
from evenly.metrics.clients import tenth
from evenly.metrics.tables import BEST_CLIENT, BEST_TENTH, GROUPS, OF_CLIENTS, SIDES, SOME_CLIENTS, WORST_CLIENT, WORST_TENTH
from evenly.report.disclosure import Hidden, hide, is_safe, small_cells
from evenly.types import Trace

ALL_ROWS, POSITIVE, NEGATIVE = range(3)
MANY = 100  # hidden clients: more than could be solved for from a method's figures, curves and bars over all clients
# The cells that a rate tells something of. Accuracy and selection rate together would tell how many people have each label.
RESTS_ON = {"accuracy": (ALL_ROWS, POSITIVE, NEGATIVE), "selection_rate": (ALL_ROWS,), "tpr": (POSITIVE,), "fpr": (NEGATIVE,)}
ENDS = {WORST_TENTH: 1, WORST_CLIENT: 1, BEST_TENTH: -1, BEST_CLIENT: -1}  # where among the clients in order of accuracy these lie


class HiddenGroups(NamedTuple):
    """By group and by what a rate is a share of: all rows, rows with the favourable label, the others."""

    cells: np.ndarray  # bool [groups, 3]
    small: np.ndarray  # bool [groups, 3]: hidden for their own sake
    withheld: frozenset[str]  # metrics that would give hidden cells away


def hidden_clients(comparison: Comparison, split: str, least: int) -> Hidden:
    """Clients that may not be named: those with few rows to be measured on or to learn from, in any seed.

    The averages of all clients are shown, so a single client is never hidden alone.
    """
    rows = np.stack([run.trace.tables[-1].sum((-3, -2, -1)) for run in comparison.runs])  # [runs, splits, clients]
    measured, trained = rows[:, SPLITS.index(split)], rows[:, SPLITS.index("train")]
    trained = np.where(trained > 0, trained, comparison.federation.train.counts)  # deployed clients may tell only how many they are
    return hide(fewest(measured), least, sums=[0], also=small_cells(fewest(trained), least))


def without_clients(comparison: Comparison, hidden: Collection[int]) -> Comparison:
    """The results without hidden clients' rows and losses, for what is shown of clients; many hidden ones stay.

    A mean and a variance over all clients are two equations for the accuracies of two hidden ones, and a Lorenz curve tells all.
    """
    if not hidden or len(hidden) > MANY:
        return comparison
    return comparison._replace(runs=[run._replace(trace=_without(run.trace, list(hidden))) for run in comparison.runs])


def withheld_client_metrics(comparison: Comparison, split: str, hidden: Collection[int], least: int) -> frozenset[str]:
    """Client metrics that a hidden client could be read off, of all runs: none where hidden clients do not count in any figure."""
    if len(hidden) <= MANY:
        return frozenset()
    cells = np.isin(np.arange(comparison.federation.clients), list(hidden))
    tables = [run.trace.tables[-1, SPLITS.index(split)] for run in comparison.runs]
    seen = [(accuracy(table), examples(table)) for table in tables]
    safe = {kind: all(is_told(kind, a, n, cells, least) for a, n in seen) for kind in OF_CLIENTS}
    return frozenset(metric.name for metric in METRICS.values() if not safe[metric.rests_on])


def is_told(rests_on: str, shares: np.ndarray, rows: np.ndarray, hidden: np.ndarray, least: int) -> bool:
    """Whether a client metric may be shown, by the clients that it rests on and which of them are hidden. [clients] each"""
    known = np.isfinite(shares)
    if rests_on == SOME_CLIENTS:
        return not (hidden & known).any()
    behind = clients_behind(rests_on, shares)
    return bool(rows[behind].sum() >= least and is_safe(hidden[behind], rows[behind], least))


def clients_behind(rests_on: str, shares: np.ndarray) -> np.ndarray:
    """The clients that a client metric is computed from: all that have an accuracy, or the few at one end.

    >>> clients_behind("worst client", np.array([0.9, np.nan, 0.2])).tolist()
    [2]
    """
    order = np.argsort(shares, kind="stable")[: int(np.isfinite(shares).sum())]
    number = tenth(len(order)) if rests_on in (WORST_TENTH, BEST_TENTH) else 1
    return order[:: ENDS[rests_on]][:number] if rests_on in ENDS else order


def _without(trace: Trace, hidden: list[int]) -> Trace:
    tables, losses = trace.tables.copy(), trace.losses.copy()
    tables[:, :, hidden], losses[:, :, hidden] = 0, np.nan
    return trace._replace(tables=tables, losses=losses)


def hidden_groups(comparison: Comparison, split: str, least: int, attribute: Attribute | None = None) -> HiddenGroups:
    """Groups whose rates may not be shown, or values of one attribute; the same for all methods, which are tested on the same people."""
    federation = comparison.federation
    tables = np.stack([pooled(run.trace, split)[-1] for run in comparison.runs])  # [runs, groups, labels, outcomes]
    counts = _counts(tables, federation.favourable)
    cells = _protected(federation, counts, least) if least > 1 else np.zeros(counts.shape, bool)
    told = partial(_told, cells, counts, least)
    if attribute is not None:
        also = np.array([told(np.array(attribute.of_group) == value) for value in range(len(attribute.values))])
        counts = _counts(by_attribute(tables, attribute), federation.favourable)
        cells = _of_line(counts, least, also) if least > 1 else np.zeros(counts.shape, bool)
        return HiddenGroups(cells, small_cells(counts, least), _withheld(groups=cells.any(), sides=cells.any()))
    unprivileged = np.isin(np.arange(len(counts)), federation.unprivileged)
    both = _counts(sides(tables, federation.unprivileged), federation.favourable)
    few = small_cells(both, least).any() or told(unprivileged).any() or told(~unprivileged).any()
    return HiddenGroups(cells, small_cells(counts, least), _withheld(groups=cells.any(), sides=few))


def _withheld(*, groups: bool | np.bool_, sides: bool | np.bool_) -> frozenset[str]:
    """The metrics that would give hidden cells away, by what they declare that they rest on: single groups, or the two sides."""
    kinds = {kind for kind, hidden in ((GROUPS, groups), (SIDES, sides)) if hidden}
    return frozenset(metric.name for metric in GROUP_METRICS.values() if metric.rests_on in kinds)


def _told(cells: np.ndarray, counts: np.ndarray, least: int, line: np.ndarray) -> np.ndarray:
    """Which totals over these groups would give a hidden cell away. bool [3]"""
    return np.array([not is_safe(cells[line, i], counts[line, i], least) for i in range(3)])


def fewest(rows: np.ndarray) -> np.ndarray:
    """The fewest rows of any run that has some. [runs, ...] -> [...]"""
    least = np.where(rows > 0, rows, np.iinfo(np.int64).max).min(0)
    return np.where(rows.any(0), least, 0)


def _counts(tables: np.ndarray, favourable: int) -> np.ndarray:
    """Rows, and rows with and without the favourable label. [runs, groups, labels, outcomes] -> [groups, 3]"""
    rows, wanted = tables.sum((-2, -1)), tables[..., favourable, :].sum(-1)
    return np.stack([fewest(rows), fewest(wanted), fewest(rows - wanted)], axis=-1)


def _of_line(counts: np.ndarray, least: int, also: np.ndarray) -> np.ndarray:
    """Groups in a row with a total: hidden rows hide all that is made of them, and of two labels neither gives the other away."""
    whole = hide(counts[:, ALL_ROWS], least, sums=[0], also=also[:, ALL_ROWS]).cells
    labels = hide(counts[:, 1:], least, sums=[0, 1], also=also[:, 1:] | whole[:, None]).cells
    return np.column_stack([whole, labels])


def _protected(federation: Federation, counts: np.ndarray, least: int) -> np.ndarray:
    """Hidden so that neither a side's total nor an attribute's on its own gives a group away."""
    cells = np.zeros(counts.shape, bool)
    lines = _lines(federation)
    while True:
        before = cells.copy()
        for line in lines:
            cells[line] = _of_line(counts[line], least, cells[line])
        if (cells == before).all():
            return cells


def _lines(federation: Federation) -> list[np.ndarray]:
    """The sets of groups whose totals are shown: everybody, both sides, and for intersections all groups that share an attribute."""
    everybody = np.arange(len(federation.groups))
    unprivileged = np.isin(everybody, federation.unprivileged)
    found = [everybody, everybody[unprivileged], everybody[~unprivileged]]
    for attribute in federation.attributes if len(federation.attributes) > 1 else ():
        found += [np.flatnonzero(np.array(attribute.of_group) == value) for value in range(len(attribute.values))]
    return [line for line in found if len(line)]
