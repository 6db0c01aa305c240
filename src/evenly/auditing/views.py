"""Views of an audit: how clients are served, how groups of people are served, and how groups are
served within each client.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import (
    NOTHING,
    Curves,
    Estimate,
    estimates,
    newcombe,
    rate_ends,
    resampled_interval,
)
from evenly.auditing.hiding import FAVOURABLE, Veil, column_veil, label_counts, visible_rates
from evenly.auditing.within import ORIGINS, ClientGaps, GapOrigin, client_gaps, gap_origin
from evenly.data.encoding import MISSING as NO_VALUE
from evenly.data.sensitive import least_favoured
from evenly.metrics import (
    GROUP_METRICS,
    METRICS,
    Interval,
    Metric,
    Rates,
    accuracy,
    examples,
    measure,
    rates,
    ratio,
    rows_behind,
    sides,
)
from evenly.metrics.groups import GroupedRates, view
from evenly.metrics.metric import FEW_CLIENTS, SIDES
from evenly.metrics.outcomes import Wholes
from evenly.metrics.statistics import LEAST_CLIENTS, percentile_interval
from evenly.randomness import generator
from evenly.report.disclosure import Hidden, clients_behind, hide, may_show, small_cells
from evenly.report.values import wilson

# Clients: the accuracy of each with an interval, and the client metrics.

Array = np.ndarray
MOST_LISTED = 10_000  # clients up to which each one is listed
WITH_INTERVALS = ("average", "average_devices", "worst10", "best10", "variance", "std", "gini")
DRAWS, MOST_DRAWS = 1000, 4_000_000  # resamples, and the limit on clients in all of them together


class ClientView(NamedTuple):
    """The clients of an audit, in the order of their names in the table. It holds no data of hidden
    clients.
    """

    column: str
    names: tuple[str, ...]  # [clients]
    rows: Array  # [clients], 0 where hidden
    accuracy: tuple[Estimate, ...]  # [clients] percent
    hidden: Hidden
    summary: dict[str, Estimate]  # all metrics of `METRICS`
    clients_in_summary: int  # all, or only the visible ones if the hidden ones could be solved for
    few: int  # visible clients with fewer than 30 rows
    scores: Mapping[str, tuple[Estimate, ...]] = {}  # of `estimates.SCORES`, [clients] each
    # true and false positive rate of the worst-served client, in percent
    worst_rates: Mapping[str, float] = {}

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.names)

    @property
    def can_list(self) -> bool:
        """Whether there are few enough clients to list each one."""
        return self.clients <= MOST_LISTED

    def worst_first(self) -> list[int]:
        """The visible clients, the worst served first; among equals those with more rows."""
        visible = [k for k in range(self.clients) if self.accuracy[k].has_value]
        return sorted(visible, key=lambda k: (self.accuracy[k].value, -self.rows[k], k))


def client_view(
    column: str, names: tuple[str, ...], tables: Array, *, min_cell: int, few: int, anonymous: bool
) -> ClientView:
    """Compute the view of clients from tables [clients, 1, labels, outcomes]. Clients with fewer
    than `min_cell` rows are hidden.
    """
    shares, rows = accuracy(tables), examples(tables)
    hidden = hide(rows, min_cell, sums=[0])
    low, high = wilson(shares, rows)
    visible = np.where(hidden.cells, np.nan, shares)
    # If there are no more hidden clients than figures over all clients, they could be solved for,
    # so they are excluded from the figures.
    included = ~hidden.cells if hidden.cells.sum() <= len(METRICS) else np.ones(len(rows), bool)
    return ClientView(
        column=column,
        names=_numbered(rows) if anonymous else names,
        rows=np.where(hidden.cells, 0, rows),
        accuracy=estimates(100 * visible, 100 * low, 100 * high, rows),
        hidden=hidden,
        summary=_summary(shares[included], rows[included], hidden.cells[included], min_cell),
        clients_in_summary=int(included.sum()),
        few=int((~hidden.cells & (rows < few)).sum()),
    )


def add_worst_rates(view: ClientView, tables: Array, min_cell: int) -> ClientView:
    """Add the rates of the worst-served client to a view, from tables [clients, 1, labels,
    outcomes].

    They reveal how many of its people have each label, so these numbers, and those of all other
    clients together, must not be small.
    """
    order = view.worst_first()
    if not view.can_list or len(order) < 2:
        return view
    worst, everybody = tables[order[0]], tables.sum(0)
    if small_cells([label_counts(worst), label_counts(everybody - worst)], min_cell).any():
        return view
    worst_rates = rates(worst, FAVOURABLE)
    return view._replace(
        worst_rates={"tpr": float(100 * worst_rates.tpr[0]), "fpr": float(100 * worst_rates.fpr[0])}
    )


def _summary(shares: Array, rows: Array, hidden: Array, min_cell: int) -> dict[str, Estimate]:
    """All client metrics; those that rest on hidden clients are left out."""
    interval = _bootstrap(shares, rows)
    summary = {}
    for name, value in measure(shares, rows).items():
        kind = METRICS[name].rests_on
        behind = clients_behind(kind, shares)
        # no resample has a value beyond that of the one client, so there is no interval
        alone = kind in FEW_CLIENTS and len(behind) == 1
        low, high = (
            (float(end[WITH_INTERVALS.index(name)]) for end in interval[:2])
            if interval and name in WITH_INTERVALS and not alone
            else (np.nan, np.nan)
        )
        visible = may_show(kind, shares, rows, hidden, min_cell)
        summary[name] = (
            Estimate(float(value), low, high, int(rows[behind].sum())) if visible else NOTHING
        )
    return summary


def _bootstrap(shares: Array, rows: Array) -> Interval | None:
    """95 % intervals of the main metrics from resampling clients; None with too few or too many
    clients.
    """
    clients = len(rows)
    draws = min(DRAWS, MOST_DRAWS // max(1, clients))
    if clients < LEAST_CLIENTS or draws < DRAWS // 10:
        return None
    chance = generator(0, "audit")
    samples = (chance.integers(clients, size=clients) for _ in range(draws))
    values = np.array(
        [[METRICS[name].function(shares[k], rows[k]) for name in WITH_INTERVALS] for k in samples]
    )
    return percentile_interval(values)


def _numbered(rows: Array) -> tuple[str, ...]:
    """Numbers instead of names, the client with the most rows first."""
    number = np.empty(len(rows), int)
    number[np.argsort(-rows, kind="stable")] = np.arange(1, len(rows) + 1)
    width = len(str(len(rows)))
    return tuple(f"client {each:0{width}}" for each in number)


# Groups of people: rates of every group, every group against all others, and the best group against
# the worst.

RATES = {
    "accuracy": "Accuracy",
    "selection_rate": "Selection rate",
    "tpr": "True positive rate",
    "fpr": "False positive rate",
    "base_rate": "Labelled favourable",
}
# Metrics with each group in turn as the unprivileged one. A new one also needs an entry in NEEDS
# and, if it is a difference of two rates, in DIFFERENCES. If it is to be tested for significance
# and named in the summary, it needs entries in `significance` and `findings`.
GAPS = ("spd", "eod", "aod", "acc_diff", "odds_diff")
RANGES = (
    "spd_range",
    "eod_range",
    "odds_range",
    "acc_range",
    "worst_accuracy",
    "worst_tpr",
    "worst_selection",
)
# figures that need no favourable label
OF_ACCURACY = ("accuracy", "acc_diff", "acc_range", "worst_accuracy")
NEEDS = {  # rates that must be visible on both sides
    "spd": ("selection_rate",), "impact_ratio": ("selection_rate",), "acc_diff": ("accuracy",),
    "eod": ("tpr",), "aod": ("tpr", "fpr"), "odds_diff": ("tpr", "fpr"), "fpr_diff": ("fpr",),
}  # fmt: skip
LABELS = {"tpr": 1, "fpr": 0}  # the label of the people in the denominator of a rate
# gaps that are a difference of two rates
DIFFERENCES = {"spd": "selection_rate", "eod": "tpr", "acc_diff": "accuracy", "fpr_diff": "fpr"}
MOST_COMPARED = 40  # the largest groups of a column are compared with all others, up to this many


def selection_ratio(group_rates: GroupedRates) -> Array:
    """Disparate impact: the selection rate of the unprivileged divided by that of the privileged.

    1 is even, and below 0.8 violates the four-fifths rule. Undefined where none of the privileged
    is selected.
    """
    return ratio(group_rates.sides.selection_rate[..., 0], group_rates.sides.selection_rate[..., 1])


def false_positive_difference(group_rates: GroupedRates) -> Array:
    """How much more often the unprivileged are predicted favourable, of those labelled
    otherwise.
    """
    return group_rates.sides.fpr[..., 0] - group_rates.sides.fpr[..., 1]


IMPACT = Metric(
    "impact_ratio",
    "disparate impact",
    "P₀(ŷ=1) / P₁(ŷ=1)",
    "0 or more",
    0,
    selection_ratio,
    SIDES,
    "none of the privileged is selected",
)
FALSE_POSITIVES = Metric(
    "fpr_diff",
    "FPR difference",
    "FPR₀ − FPR₁",
    "−1 to 1",
    0,
    false_positive_difference,
    SIDES,
    "one side has no rows with another label",
)
# Only metrics of evenly. Metrics that users register are not in audits, because they do not declare
# which rates they need.
AGAINST: dict[str, Metric] = {
    **{name: GROUP_METRICS[name] for name in GAPS},
    IMPACT.name: IMPACT,
    FALSE_POSITIVES.name: FALSE_POSITIVES,
}


class GroupView(NamedTuple):
    """The groups of one sensitive column, or the intersections of several. It holds no data of
    hidden groups.
    """

    title: str
    names: tuple[str, ...]  # [groups]
    rows: Array  # [groups], 0 where hidden
    veil: Veil
    rates: dict[str, tuple[Estimate, ...]]  # percent, [groups] each
    # every group against all others, [groups] each; empty for intersections
    against: dict[str, tuple[Estimate, ...]]
    ranges: dict[str, Estimate]  # the best visible group against the worst
    # the group that is compared with all others; None for intersections
    unprivileged: int | None = None
    # whether it has the lowest rate and was not named by the user; the summary then looks for the
    # largest difference over all groups
    by_default: bool = False
    scores: Mapping[str, tuple[Estimate, ...]] = {}  # of `estimates.SCORES`, [groups] each
    curves: Curves | None = None
    client_gaps: ClientGaps | None = None  # the gap of the unprivileged in each client
    origins: Mapping[str, GapOrigin] = {}  # where its gaps come from, of `within.ORIGINS`

    def few(self, rows: int) -> int:
        """Number of visible rates that rest on fewer rows than this."""
        return sum(
            rate.has_value and rate.rows < rows
            for of_groups in self.rates.values()
            for rate in of_groups
        )


def group_view(
    title: str,
    names: Sequence[str],
    units: Array,
    *,
    has_favourable: bool,
    min_cell: int,
    veil: Veil,
    unprivileged: int | None = None,
) -> GroupView:
    """Compute the view of one sensitive column from tables by its values [units, values, labels,
    outcomes].

    `has_favourable` says whether there is a favourable label. Without `unprivileged`, the group
    with the lowest selection rate is used.
    """
    visible, groups = visible_rates(veil, has_favourable), ~veil.groups.cells
    table = units.sum(0)
    group_rates = _rates(units, visible)
    compared = np.array([name != NO_VALUE for name in names])
    rate = group_rates["selection_rate" if has_favourable else "accuracy"]
    lowest = _lowest(rate, compared, table) if unprivileged is None else unprivileged
    return GroupView(
        title=title,
        names=tuple(names),
        rows=np.where(veil.groups.cells, 0, table.sum((1, 2))),
        veil=veil,
        rates=group_rates,
        against=_against(
            units,
            visible,
            compared=compared_groups(names, veil),
            groups=groups,
            min_cell=min_cell,
            first=lowest,
        ),
        ranges=_ranges(
            units, {rate: mask & compared for rate, mask in visible.items()}, groups & compared
        ),
        unprivileged=lowest,
        by_default=unprivileged is None,
    )


def add_client_gaps(view: GroupView, units: Array, hidden: Array, min_cell: int) -> GroupView:
    """Add the gap of the unprivileged group in each client to a view, from tables of clients
    [clients, values, ...].
    """
    if view.unprivileged is None or "spd" not in view.against:
        return view
    others = compared_groups(view.names, view.veil)
    if not view.veil.both_labels[[view.unprivileged, *np.flatnonzero(~others)]].all():
        return view  # the labels of all clients together would reveal those that are hidden
    return view._replace(
        client_gaps=client_gaps(
            _pairs(view, units, others), units[:, ~others].sum(1), hidden, min_cell
        )
    )


def _pairs(view: GroupView, units: Array, others: Array) -> Array:
    """The unprivileged group and all others of each client. [clients, 2, labels, outcomes]"""
    assert view.unprivileged is not None
    return sides(units[:, others], (int(others[: view.unprivileged].sum()),))


def add_origins(view: GroupView, units: Array, *, one_sided: bool) -> GroupView:
    """Add where the gaps of the unprivileged group come from to a view with the gaps of clients.

    `one_sided` says whether clients with people on one side only may have parts of their own. The
    accuracy of a side follows from what clients with a gap show only if there are two outcomes.
    """
    gaps = view.client_gaps
    if gaps is None or view.unprivileged is None:
        return view
    pairs = _pairs(view, units, compared_groups(view.names, view.veil))
    shown = gaps.visible | (gaps.one_sided & one_sided)
    found = {
        metric: gap_origin(pairs, metric, shown)
        for metric in ORIGINS
        if view.against[metric][view.unprivileged].has_value
        and (metric != "acc_diff" or pairs.shape[-1] == 2)
    }
    return view._replace(origins={name: own for name, own in found.items() if own is not None})


def compared_groups(names: Sequence[str], veil: Veil) -> Array:
    """Find the groups that are compared with each other. [groups]

    People without a value are excluded, unless their number is hidden: everybody minus the compared
    people would reveal it.
    """
    return np.array([name != NO_VALUE for name in names]) | veil.groups.cells


def intersection_view(
    title: str,
    names: Sequence[str],
    units: Array,
    *,
    has_favourable: bool,
    veil: Veil,
    compared: Array,
) -> GroupView:
    """Compute the view of intersections: rates and ranges. Comparing each with all others would be
    long and say little.
    """
    visible = visible_rates(veil, has_favourable)
    rows = np.where(veil.groups.cells, 0, units.sum((0, 2, 3)))
    ranges = _ranges(
        units,
        {rate: mask & compared for rate, mask in visible.items()},
        ~veil.groups.cells & compared,
    )
    return GroupView(title, tuple(names), rows, veil, _rates(units, visible), {}, ranges)


def overall(units: Array, *, has_favourable: bool, min_cell: int) -> dict[str, Estimate]:
    """Compute the rates of everybody together, in percent, from tables [units, 1, labels,
    outcomes].
    """
    whole = _rates(units, visible_rates(column_veil(units.sum(0), min_cell), has_favourable))
    return {name: rate[0] for name, rate in whole.items()}


def _names(metrics: Sequence[str] | dict[str, Any], has_favourable: bool) -> list[str]:
    return [name for name in metrics if has_favourable or name in OF_ACCURACY]


def _rates(units: Array, visible: dict[str, Array]) -> dict[str, tuple[Estimate, ...]]:
    """Every rate of the groups for which it is visible, in percent, with the number of rows in its
    denominator.
    """
    table, names = units.sum(0), tuple(visible)
    share, behind = _stacked(table, names), rows_behind(table, FAVOURABLE)
    rows = np.stack([_behind(behind, name) for name in names])
    low, high = rate_ends(units, share, rows, partial(_stacked, names=names))
    value = np.where(np.stack([visible[name] for name in names]), share, np.nan)
    return {
        name: estimates(100 * value[i], 100 * low[i], 100 * high[i], rows[i])
        for i, name in enumerate(names)
    }


def _behind(wholes: Wholes, rate: str) -> Array:
    return wholes.accuracy if rate == "base_rate" else getattr(wholes, rate)


def _stacked(tables: Array, names: Sequence[str]) -> Array:
    """These rates of every group. [..., groups, labels, outcomes] -> [..., rates, groups]"""
    of_groups = rates(tables, FAVOURABLE)
    return np.stack([getattr(of_groups, name) for name in names], axis=-2)


def _against(
    units: Array,
    visible: dict[str, Array],
    *,
    compared: Array,
    groups: Array,
    min_cell: int,
    first: int,
) -> dict[str, tuple[Estimate, ...]]:
    """Compare visible groups with all other people whose value is known: `first`, then
    the largest.
    """
    rows = units.sum((0, 2, 3))
    size = np.where(compared & groups, rows, 0)
    largest = [
        g
        for g in dict.fromkeys([first, *np.argsort(-size, kind="stable")[:MOST_COMPARED].tolist()])
        if size[g]
    ]
    number = np.cumsum(compared) - 1  # of each group among those that are compared
    against: dict[str, list[Estimate]] = {
        name: [NOTHING] * len(rows) for name in _names(AGAINST, "tpr" in visible)
    }
    for g in largest:
        # [units, 2, labels, outcomes]: the group and all others
        pair = sides(units[:, compared], (int(number[g]),))
        value, (low, high) = _gap_metrics(pair.sum(0), tuple(against)), _ends(pair, tuple(against))
        # The rates of everybody and of both sides together reveal the rates of people on neither
        # side.
        revealed = [g, *np.flatnonzero(~compared).tolist()]
        for i, name in enumerate(against):
            safe = _enough(label_counts(pair.sum(0)), name, min_cell) and all(
                visible[rate][revealed].all() for rate in NEEDS[name]
            )
            if safe and np.isfinite(value[i]):
                against[name][g] = Estimate(
                    float(value[i]), float(low[i]), float(high[i]), int(rows[g])
                )
    return {name: tuple(column) for name, column in against.items()}


def _ends(pair: Array, names: tuple[str, ...]) -> tuple[Array, Array]:
    """Ends of the intervals of a group against all others [units, 2, labels, outcomes].

    They are those of resampling, widened to Newcombe's interval for differences of two rates.
    Resampling alone finds no uncertainty where all people have the same outcome.
    """
    interval = resampled_interval(pair, partial(_gap_metrics, names=names))
    of_sides, behind = rates(pair.sum(0), FAVOURABLE), rows_behind(pair.sum(0), FAVOURABLE)
    low, high = np.array(interval.low), np.array(interval.high)
    for i, name in enumerate(names):
        if name in DIFFERENCES:
            lower, upper = newcombe(
                getattr(of_sides, DIFFERENCES[name]), getattr(behind, DIFFERENCES[name])
            )
            low[i], high[i] = np.fmin(low[i], lower), np.fmax(high[i], upper)
    return low, high


def _enough(pair: Array, name: str, min_cell: int) -> bool:
    """Whether both sides have enough people to show this metric; `pair` counts [side, label]."""
    labels = [LABELS[rate] for rate in NEEDS[name] if rate in LABELS]
    return bool((pair.sum(1) >= min_cell).all() and (pair[:, labels] >= min_cell).all())


def _gap_metrics(pairs: Array, names: Sequence[str]) -> Array:
    """Metrics of a group against all others: [..., 2, labels, outcomes] -> [..., metrics]"""
    levels = view(pairs, favourable=FAVOURABLE, unprivileged=(0,))
    return np.stack([AGAINST[name].function(levels) for name in names], axis=-1)


def _ranges(units: Array, visible: dict[str, Array], groups: Array) -> dict[str, Estimate]:
    """The best visible group against the worst, by the registered metrics."""
    names = _names(RANGES, "tpr" in visible)
    value = _range_metrics(units.sum(0), names, visible)
    interval = resampled_interval(units, partial(_range_metrics, names=names, visible=visible))
    rows = int(units[:, groups].sum())
    return {
        name: Estimate(float(v), float(low), float(high), rows) if np.isfinite(v) else NOTHING
        for name, v, low, high in zip(names, value, interval.low, interval.high, strict=True)
    }


def _range_metrics(tables: Array, names: Sequence[str], visible: dict[str, Array]) -> Array:
    every = rates(tables, FAVOURABLE)
    masked = Rates(
        *(
            np.where(visible[name], value, np.nan) if name in visible else value
            for name, value in every._asdict().items()
        )
    )
    # Ranges use single groups only, so the two sides and the whole are not needed.
    return np.stack(
        [GROUP_METRICS[name].function(GroupedRates(masked, every, every)) for name in names],
        axis=-1,
    )


def _lowest(rate: Sequence[Estimate], compared: Array, table: Array) -> int:
    """The visible group with the lowest rate; the largest of all groups if none is visible."""
    visible = [g for g, each in enumerate(rate) if compared[g] and each.has_value]
    if not visible:
        return int(np.argmax(np.where(compared, table.sum((1, 2)), -1)))
    return visible[
        least_favoured([rate[g].value for g in visible], [rate[g].rows for g in visible])
    ]
