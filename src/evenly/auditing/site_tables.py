"""Audit count tables instead of rows: what sites of a federation send, as one audit.

Each site sends a table of counts by group, label and prediction and, if its model has scores, cells
of scores (`evenly.metrics.score_cells`). Rates, gaps and their intervals are functions of the
counts, so they equal those of an audit of all rows. Only figures of scores have an error, which is
bounded and shown.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import BINS as CALIBRATION_BINS
from evenly.auditing.estimates import THRESHOLDS, Counts, ScoreSummary
from evenly.auditing.measurement import AuditData, AuditedClients, AuditRequest, audit_counts
from evenly.auditing.people import MatchedLabels, People, find_favourable
from evenly.auditing.result import Audit
from evenly.data.sensitive import Attribute, Groups, Sensitive
from evenly.metrics import ratio
from evenly.metrics.score_cells import BINS, AucBounds, auc_bounds
from evenly.records import require
from evenly.report.values import NORMAL95

Array = np.ndarray
WIDEST_AUC = 0.1  # an AUC that is known less exactly is not shown
WIDEST_MEAN = 0.01  # the same of mean scores
SITE = "site"  # the word for clients on the page


class SiteCounts(NamedTuple):
    """What one site sends."""

    name: str
    table: Array  # whole numbers [groups, labels, predictions]
    cells: Array | None = None  # of `score_cells`, [cells, 5]


def audit_tables(
    sites: Sequence[SiteCounts],
    *,
    labels: Sequence[str],
    attributes: Sequence[Attribute] = (),
    favourable: Any = None,
    unprivileged: Any = None,
    min_cell: int = 10,
    anonymous: bool = False,
    name: str = "federation",
) -> Audit:
    """Audit the count tables of sites: how evenly a model serves them and groups of people.

    Args:
        sites: The tables of the sites. Scores are measured if every site sends cells of scores.
        labels: Names of the labels, in the order of the tables.
        attributes: Sensitive attributes; without them, all people are one group.
        favourable: The label that people want to get, as for :func:`evenly.audit`.
        unprivileged: The value that is compared with all others, as for :func:`evenly.audit`.
        min_cell: Hide figures that rest on fewer people than this.
        anonymous: Replace the names of sites by numbers.
        name: Name of the audited federation in the report.

    Returns:
        The audit, with sites as clients. It equals that of all rows together, except for figures of
        scores.

    Raises:
        ValueError: If tables do not fit the labels and groups, or there are no people.

    Example:
        >>> sex = Attribute("sex", ("f", "m"), of_group=(0, 1))
        >>> north = SiteCounts("north", np.array([[[30, 20], [20, 30]], [[30, 10], [10, 40]]]))
        >>> south = SiteCounts("south", np.array([[[20, 20], [20, 20]], [[20, 10], [10, 20]]]))
        >>> found = audit_tables([north, south], labels=("0", "1"), attributes=[sex])
        >>> round(found.groups[0].origins["spd"].gap, 4)
        -0.0333
    """
    tables = _checked(sites, len(labels), attributes)
    require(min_cell >= 0, f"min_cell must be 0 or more, got {min_cell}.")
    require(
        tables.sum() >= max(min_cell, 1),
        f"The tables have {tables.sum():,} people, but with min_cell={min_cell} every figure must"
        f" rest on at least {max(min_cell, 1)}. Choose a smaller min_cell.",
    )
    there = tables.sum((0, 2, 3)) > 0
    people, tables = _people(attributes, there), tables[:, there]
    by_label = np.stack([tables.sum((0, 1, 3)), np.diagonal(tables.sum((0, 1)))], axis=1)
    occurring = tuple(word for word, rows in zip(labels, by_label[:, 0], strict=True) if rows)
    require(
        len(occurring) > 1,
        f"An audit needs people with at least two labels, but all of {tables.sum():,} have"
        f" {', '.join(map(repr, occurring))}. Check the label column of the sites.",
    )
    nobody = np.zeros(0, np.int32)
    words = MatchedLabels(tuple(labels), nobody, nobody, (), occurring)
    chosen = find_favourable(favourable, words, needed=bool(people.parts))
    units = reduced(tables, chosen)
    scores, notes = _scores(sites, there, chosen)
    data = AuditData(
        counts=Counts(units.sum(1, keepdims=True), units),
        people=people,
        clients=AuditedClients(SITE, tuple(site.name for site in sites)),
        scores=scores,
        labels=tuple(labels),
        favourable=chosen,
        by_label=by_label,
        notes=notes,
    )
    columns = {"Sensitive": ", ".join(people.names)} if people.names else {}
    request = AuditRequest(favourable, unprivileged, min_cell, anonymous)
    return audit_counts(data, request, name, {"Client": SITE, **columns})


def _checked(sites: Sequence[SiteCounts], labels: int, attributes: Sequence[Attribute]) -> Array:
    """The tables of all sites. [sites, groups, labels, predictions]"""
    require(bool(sites), "An audit needs the table of at least one site, got none.")
    names = [site.name for site in sites]
    twice = next((each for each in names if names.count(each) > 1), None)
    require(twice is None, f"Sites must have different names, but {twice!r} occurs twice.")
    groups = len(attributes[0].of_group) if attributes else 1
    shape = (groups, labels, labels)
    for site in sites:
        require(
            site.table.shape == shape,
            f"The table of {site.name!r} must have shape {list(shape)} (groups, labels,"
            f" predictions), got {list(site.table.shape)}.",
        )
        counts = np.asarray(site.table, np.float64)
        require(
            bool((counts >= 0).all() and (counts % 1 == 0).all()),
            f"The table of {site.name!r} must hold whole numbers of people, 0 or more.",
        )
    return np.stack([np.asarray(site.table, np.int64) for site in sites])


def _people(attributes: Sequence[Attribute], there: Array) -> People:
    """The groups that somebody belongs to, as an audit of rows would form them."""
    if not attributes:
        return People(Groups(), (), ())
    found = []
    for attribute in attributes:
        of_group = np.array(attribute.of_group)[there]
        values, numbers = np.unique(of_group, return_inverse=True)
        require(
            len(values) > 1,
            f"{attribute.name!r} must have at least two values among all people to compare groups,"
            f" but all of them have {attribute.values[of_group[0]]!r}.",
        )
        kept = tuple(attribute.values[value] for value in values)
        found.append(Attribute(attribute.name, kept, tuple(numbers.tolist())))
    if len(found) == 1:
        names = tuple(found[0].values[value] for value in found[0].of_group)
    else:
        names = tuple(
            ", ".join(f"{a.name}={a.values[a.of_group[g]]}" for a in found)
            for g in range(int(there.sum()))
        )
    nobody = np.zeros(0, np.int32)
    parts = tuple(Sensitive(a.name, a.values, nobody) for a in found)
    return People(Groups(names, None, tuple(found)), parts, ())


def reduced(tables: Array, favourable: int | None) -> Array:
    """Reduce tables [..., labels, predictions] to the few outcomes that metrics distinguish, as
    `people.outcomes` reduces rows.

    >>> reduced(np.array([[5, 1], [2, 7]]), None).tolist()
    [[12, 3], [0, 0]]
    >>> reduced(np.array([[5, 1, 1], [0, 7, 2], [3, 0, 9]]), 2).tolist()
    [[12, 3, 1], [3, 9, 0], [0, 0, 0]]
    """
    labels = tables.shape[-1]
    right = np.trace(tables, axis1=-2, axis2=-1)
    if favourable is None:
        made = np.zeros((*tables.shape[:-2], 2, 2), np.int64)
        made[..., 0, 0], made[..., 0, 1] = right, tables.sum((-2, -1)) - right
        return made
    if labels == 2:
        order = [1 - favourable, favourable]
        return tables[..., order, :][..., order]
    made = np.zeros((*tables.shape[:-2], 3, 3), np.int64)
    hits = tables[..., favourable, favourable]
    made[..., 1, 1], made[..., 1, 0] = hits, tables[..., favourable, :].sum(-1) - hits
    made[..., 0, 1] = tables[..., favourable].sum(-1) - hits
    made[..., 0, 0] = right - hits
    made[..., 0, 2] = tables.sum((-2, -1)) - made.sum((-2, -1))
    return made


# Scores from cells.


class CellScores(NamedTuple):
    """Cells of all sites, for `measurement.ScoreSource`."""

    cells: Array  # [cells, 5] of `score_cells`
    site: Array  # [cells]

    def of_clients(self, clients: int) -> ScoreSummary:
        """Summaries of the sites."""
        return summarise_cells(self.cells, self.site, clients)

    def of_groups(self, of_group: Array | None, groups: int) -> ScoreSummary:
        """Summaries of groups of intersections, or of everybody."""
        number = np.zeros(len(self.cells), np.int64)
        return summarise_cells(
            self.cells, number if of_group is None else of_group[self.cells[:, 0]], groups
        )

    @property
    def everybody(self) -> AucBounds:
        """Bounds of the AUC of everybody."""
        return auc_bounds(self.cells, np.zeros(len(self.cells), np.int64), 1)


def summarise_cells(cells: Array, of_cell: Array, groups: int) -> ScoreSummary:
    """Compute AUC, bias and calibration of every group, from cells and the group of each.

    The interval of the AUC is DeLong's on the logit scale, as if overlapping ranges were ties, and
    widened by the error of the AUC. A mean score is that of the middles of ranges. What is known
    less exactly than `WIDEST_AUC` or `WIDEST_MEAN`, and curves that ranges cross, is NaN or empty.
    """
    _, label, first, last, people = cells.T
    rows, favourable = (
        np.bincount(of_cell, each, minlength=groups) for each in (people, people * label)
    )
    bounds = auc_bounds(cells, of_cell, groups)
    auc = np.where(bounds.error <= WIDEST_AUC, bounds.middle, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = np.log(auc / (1 - auc))
        half = NORMAL95 * np.sqrt(bounds.variance) / (auc * (1 - auc))
        low, high = (1 / (1 + np.exp(-(centre + side * half))) for side in (-1, 1))
    varies = bounds.variance > 0
    middle, width = (first + last + 1) / 2 / BINS, (last + 1 - first) / BINS
    error = ratio(np.bincount(of_cell, people * width / 2, minlength=groups), rows)
    mean = np.bincount(of_cell, people * middle, minlength=groups)
    square = np.bincount(of_cell, people * (middle - label) ** 2, minlength=groups)
    bias = np.where(error <= WIDEST_MEAN, ratio(mean - favourable, rows), np.nan)
    chance = NORMAL95 * np.sqrt(
        np.maximum(ratio(square, rows) - bias**2, 0) / np.maximum(rows - 1, 1)
    )
    bins = _calibration(cells, of_cell, groups)
    gaps = np.abs(bins[..., 1] - bins[..., 2]).sum(-1)
    whole = bins[..., 0].sum(-1) == rows
    return ScoreSummary(
        auc,
        np.where(varies, np.maximum(low - bounds.error, 0), np.nan),
        np.where(varies, np.minimum(high + bounds.error, 1), np.nan),
        bias,
        bias - chance - error,
        bias + chance + error,
        np.where(whole & (error <= WIDEST_MEAN), ratio(gaps, rows), np.nan),
        rows.astype(np.int64),
        favourable.astype(np.int64),
        bins,
        _steps(cells, of_cell, groups),
    )


def _calibration(cells: Array, of_cell: Array, groups: int) -> Array:
    """Rows, sum of scores and rows with the favourable label in ten bins; empty for groups with a
    range that crosses bins. [groups, CALIBRATION_BINS, 3]
    """
    _, label, first, last, people = cells.T
    inside = _inside(cells, of_cell, groups, BINS // CALIBRATION_BINS)
    middle = (first + last + 1) / 2 / BINS
    made = np.zeros((groups, CALIBRATION_BINS, 3))
    at = of_cell[inside], (first * CALIBRATION_BINS // BINS)[inside]
    for i, each in enumerate((people, people * middle, people * label)):
        np.add.at(made[..., i], at, each[inside])
    return made


def _steps(cells: Array, of_cell: Array, groups: int) -> Array:
    """Rows by label and threshold; empty for groups with a range that crosses one. [groups, 2,
    THRESHOLDS]
    """
    _, label, first, _, people = cells.T
    inside = _inside(cells, of_cell, groups, BINS // THRESHOLDS)
    made = np.zeros((groups, 2, THRESHOLDS), np.int64)
    at = of_cell[inside], label[inside], (first * THRESHOLDS // BINS)[inside]
    np.add.at(made, at, people[inside])
    return made


def _inside(cells: Array, of_cell: Array, groups: int, width: int) -> Array:
    """The cells of groups in which every range lies within one of the wider bins. [cells]"""
    crosses = cells[:, 2] // width != cells[:, 3] // width
    return np.bincount(of_cell, crosses, minlength=groups)[of_cell] == 0


def _scores(
    sites: Sequence[SiteCounts], there: Array, favourable: int | None
) -> tuple[CellScores | None, tuple[str, ...]]:
    """The cells of all sites if all send some, and a note on their exactness."""
    given = [site for site in sites if site.cells is not None]
    if not given or favourable is None:
        return None, ()
    if len(given) < len(sites):
        silent = len(sites) - len(given)
        return None, (
            f"Scores are not measured, because {silent} of {len(sites)} sites sent none.",
        )
    number = np.cumsum(there) - 1  # of each group among those that occur
    cells, of_site = [], []
    for k, site in enumerate(given):
        assert site.cells is not None
        own = np.asarray(site.cells, np.int64).reshape(-1, 5)
        cells.append(np.column_stack([number[own[:, 0]], own[:, 1:]]))
        of_site.append(np.full(len(own), k))
    scores = CellScores(np.concatenate(cells), np.concatenate(of_site))
    error = float(scores.everybody.error[0])
    if np.isnan(error):
        return scores, ()
    exactness = (
        f"exact to ±{error:.4f}"
        if error <= WIDEST_AUC
        else f"not shown, because it is known to ±{error:.2f} only"
    )
    return scores, (
        "Sites sent how many scores lie in ranges, not the scores. The AUC of everybody is"
        f" {exactness}; intervals include such errors, and figures that the ranges do not determine"
        " closely are left out.",
    )
