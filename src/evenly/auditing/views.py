"""How clients and groups of people are served, and how groups are served within each client."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import NOTHING, Curves, Estimate, estimates, newcombe, rate_ends, resampled_interval
from evenly.auditing.hiding import FAVOURABLE, Veil, column_veil, label_counts, visible_rates
from evenly.data.encoding import MISSING as NO_VALUE
from evenly.data.sensitive import least_favoured
from evenly.metrics import GROUP_METRICS, METRICS, Interval, Metric, Rates, accuracy, examples, measure, rates, ratio, rows_behind, sides
from evenly.metrics.groups import GroupedRates, view
from evenly.metrics.metric import FEW_CLIENTS, SIDES
from evenly.metrics.outcomes import Wholes
from evenly.metrics.statistics import LEAST_CLIENTS, percentile_interval, resampled
from evenly.randomness import generator
from evenly.report.disclosure import Hidden, clients_behind, hide, may_show, small_cells
from evenly.report.values import wilson

# How evenly the clients are served: everybody's accuracy with an interval, and the client metrics of the package.

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
        shown = may_show(kind, shares, rows, hidden, least)
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


# The gap between a group and all others within each client: a gap over all people can be there in every client, in a few, or only
# because clients that serve everybody worse have more of the group's people.


class Within(NamedTuple):
    """The gaps of single clients, as fractions; nothing where a client has too few people on one side."""

    spd: tuple[Estimate, ...]  # [clients] difference in selection rate
    eod: tuple[Estimate, ...]  # [clients] difference in true positive rate
    mean: Estimate  # of the differences in selection rate, every client counting by its people

    @property
    def clients(self) -> int:
        """How many clients have enough people on both sides."""
        return sum(gap.known for gap in self.spd)


def within(pairs: Array, rest: Array, hidden: Array, least: int) -> Within:
    """From tables of the group and of all others in each client [clients, 2, labels, outcomes]; `hidden` clients have none.

    `rest` [clients, labels, outcomes] counts people on neither side, who would follow from their client's total.
    """
    seen = rates(pairs, FAVOURABLE)
    counts = label_counts(np.concatenate([pairs, rest[:, None]], axis=1))  # [clients, sides and rest, labels]
    shown = _told_apart(counts, hidden, least)
    spd, eod = _gaps(seen.selection_rate, counts[:, :2].sum(-1), shown), _gaps(seen.tpr, counts[:, :2, FAVOURABLE], shown)
    return Within(spd, eod, _mean(spd))


def _told_apart(counts: Array, gone: Array, least: int) -> Array:
    """Clients in which both sides may be shown: no side is small, nor has it few people with one label, nor does such a number
    follow from the totals of clients and of groups.

    The selection rates of both sides with the accuracy of their client could tell the labels, so these must not be hidden.
    """
    people = hide(counts.sum(-1), least, sums=[0, 1], also=gone[:, None]).cells
    labels = hide(counts, least, sums=[0, 1, 2], also=people[..., None]).cells
    return ~gone & ~labels.any((1, 2)) & (counts[:, :2].sum(-1) > 0).all(1)


def _gaps(share: Array, rows: Array, shown: Array) -> tuple[Estimate, ...]:
    """Differences of two shares with Newcombe's 95 % interval."""
    return estimates(np.where(shown, share[:, 0] - share[:, 1], np.nan), *newcombe(share, rows), rows.sum(1))


def _mean(gaps: tuple[Estimate, ...]) -> Estimate:
    known = [gap for gap in gaps if gap.known]
    if not known:
        return NOTHING
    parts = np.array([[gap.rows * gap.value, gap.rows] for gap in known])  # [clients, 2]
    total, people = parts.sum(0)
    if len(known) < LEAST_CLIENTS:
        return Estimate(float(total / people), rows=int(people))
    drawn = np.concatenate([ratio(part[:, 0], part[:, 1]) for part in resampled(parts, 1000, 0)])
    interval = percentile_interval(drawn)
    return Estimate(float(total / people), float(interval.low), float(interval.high), int(people))


# How groups of people are served: rates of every group, every group against all others, and the best against the worst.

RATES = {
    "accuracy": "Accuracy",
    "selection_rate": "Selection rate",
    "tpr": "True positive rate",
    "fpr": "False positive rate",
    "base_rate": "Labelled favourable",
}
GAPS = ("spd", "eod", "aod", "acc_diff", "odds_diff")  # of the registry, every group in turn being the unprivileged one
RANGES = ("spd_range", "eod_range", "odds_range", "acc_range", "worst_accuracy", "worst_tpr", "worst_selection")
OF_ACCURACY = ("accuracy", "acc_diff", "acc_range", "worst_accuracy")  # what needs no favourable label
NEEDS = {  # rates that must not be hidden on either side
    "spd": ("selection_rate",), "impact_ratio": ("selection_rate",), "acc_diff": ("accuracy",),
    "eod": ("tpr",), "aod": ("tpr", "fpr"), "odds_diff": ("tpr", "fpr"),
}  # fmt: skip
LABELS = {"tpr": 1, "fpr": 0}  # the label of those whom a rate is a share of
DIFFERENCES = {"spd": "selection_rate", "eod": "tpr", "acc_diff": "accuracy"}  # gaps that are one rate less another
MOST_COMPARED = 40  # groups of one column that are each compared with all others: the largest


def selection_ratio(seen: GroupedRates) -> Array:
    """Disparate impact: the selection rate of the unprivileged as a share of that of the privileged. 1 is even; below 0.8 is the
    mark of the four-fifths rule. Undefined where none of the privileged is selected."""
    return ratio(seen.sides.selection_rate[..., 0], seen.sides.selection_rate[..., 1])


IMPACT = Metric(
    "impact_ratio", "disparate impact", "P₀(ŷ=1) / P₁(ŷ=1)", "0 or more", 0, selection_ratio, SIDES, "none of the privileged is selected"
)
# Of evenly's own metrics. Those that users register are not in audits: which rates they need is not known.
AGAINST: dict[str, Metric] = {**{name: GROUP_METRICS[name] for name in GAPS}, IMPACT.name: IMPACT}


class GroupView(NamedTuple):
    """The groups of one sensitive column, or the intersections of several. Nothing is kept of what is hidden."""

    title: str
    names: tuple[str, ...]  # [groups]
    rows: Array  # [groups], 0 where hidden
    veil: Veil
    rates: dict[str, tuple[Estimate, ...]]  # percent, [groups] each
    against: dict[str, tuple[Estimate, ...]]  # every group against all others, [groups] each; nothing for intersections
    ranges: dict[str, Estimate]  # the best group against the worst, of those that are shown
    unprivileged: int | None = None  # the group that is set against all others; None: intersections
    chosen: bool = False  # whether it was chosen for its low rate, not named by the user
    scores: Mapping[str, tuple[Estimate, ...]] = {}  # of `scores.SCORES`, [groups] each
    curves: Curves | None = None
    within: Within | None = None  # the gap of the unprivileged in each client

    def few(self, least: int) -> int:
        """How many rates of shown groups rest on fewer rows than this."""
        return sum(rate.known and rate.rows < least for found in self.rates.values() for rate in found)


def group_view(
    title: str, names: Sequence[str], units: Array, *, wanted: bool, least: int, veil: Veil, unprivileged: int | None = None
) -> GroupView:
    """One sensitive column's view, from tables by its values [units, values, labels, outcomes].

    `wanted` says whether there is a favourable label. Without `unprivileged`, that is the group that is favoured least.
    """
    shown = visible_rates(veil, wanted)
    table = units.sum(0)
    found = _rates(units, shown)
    compared = np.array([name != NO_VALUE for name in names])
    lowest = _lowest(found["selection_rate" if wanted else "accuracy"], compared, table) if unprivileged is None else unprivileged
    return GroupView(
        title=title,
        names=tuple(names),
        rows=np.where(veil.groups.cells, 0, table.sum((1, 2))),
        veil=veil,
        rates=found,
        against=_against(units, among_others(names, veil), shown, ~veil.groups.cells, least, lowest),
        ranges=_ranges(units, {rate: mask & compared for rate, mask in shown.items()}, ~veil.groups.cells & compared),
        unprivileged=lowest,
        chosen=unprivileged is None,
    )


def with_clients(found: GroupView, units: Array, hidden: Array, least: int) -> GroupView:
    """The view together with the gap of its unprivileged group in each client, from tables of clients [clients, values, ...]."""
    if found.unprivileged is None or "spd" not in found.against:
        return found
    others = among_others(found.names, found.veil)
    if not found.veil.both_labels[[found.unprivileged, *np.flatnonzero(~others)]].all():
        return found  # the labels of all clients together would tell those that are hidden
    place = int(others[: found.unprivileged].sum())
    return found._replace(within=within(sides(units[:, others], (place,)), units[:, ~others].sum(1), hidden, least))


def among_others(names: Sequence[str], veil: Veil) -> Array:
    """Groups that are compared, or are among all others. [groups]

    People without a value are not, except where their number is hidden: everybody less those compared would give them away.
    """
    return np.array([name != NO_VALUE for name in names]) | veil.groups.cells


def intersections(title: str, names: Sequence[str], units: Array, *, wanted: bool, veil: Veil, compared: Array) -> GroupView:
    """The view of intersections: rates and ranges. Everybody against all others would be long and say little."""
    shown = visible_rates(veil, wanted)
    rows = np.where(veil.groups.cells, 0, units.sum((0, 2, 3)))
    ranges = _ranges(units, {rate: mask & compared for rate, mask in shown.items()}, ~veil.groups.cells & compared)
    return GroupView(title, tuple(names), rows, veil, _rates(units, shown), {}, ranges)


def overall(units: Array, *, wanted: bool, least: int) -> dict[str, Estimate]:
    """The rates of everybody together, in percent, from tables [units, 1, labels, outcomes]."""
    found = _rates(units, visible_rates(column_veil(units.sum(0), least), wanted))
    return {name: rate[0] for name, rate in found.items()}


def _names(known: Sequence[str] | dict[str, Any], wanted: bool) -> list[str]:
    return [name for name in known if wanted or name in OF_ACCURACY]


def _rates(units: Array, shown: dict[str, Array]) -> dict[str, tuple[Estimate, ...]]:
    """Every rate of the groups that it may be shown of, in percent, with the rows that it is a share of."""
    table, names = units.sum(0), tuple(shown)
    share, behind = _stacked(table, names), rows_behind(table, FAVOURABLE)
    rows = np.stack([_behind(behind, name) for name in names])
    low, high = rate_ends(units, share, rows, partial(_stacked, names=names))
    value = np.where(np.stack([shown[name] for name in names]), share, np.nan)
    return {name: estimates(100 * value[i], 100 * low[i], 100 * high[i], rows[i]) for i, name in enumerate(names)}


def _behind(wholes: Wholes, rate: str) -> Array:
    return wholes.accuracy if rate == "base_rate" else getattr(wholes, rate)


def _stacked(tables: Array, names: Sequence[str]) -> Array:
    """These rates of every group. [..., groups, labels, outcomes] -> [..., rates, groups]"""
    seen = rates(tables, FAVOURABLE)
    return np.stack([getattr(seen, name) for name in names], axis=-2)


def _against(
    units: Array, compared: Array, shown: dict[str, Array], groups: Array, least: int, first: int
) -> dict[str, tuple[Estimate, ...]]:
    """Every group that is shown, `first` and otherwise the largest, against all other people whose value is known."""
    rows = units.sum((0, 2, 3))
    weight = np.where(compared & groups, rows, 0)
    largest = [g for g in dict.fromkeys([first, *np.argsort(-weight, kind="stable")[:MOST_COMPARED].tolist()]) if weight[g]]
    known = units[:, compared]
    place = np.cumsum(compared) - 1  # of each group among those that are compared
    found: dict[str, list[Estimate]] = {name: [NOTHING] * len(rows) for name in _names(AGAINST, len(shown) > 1)}
    for g in largest:
        pair = sides(known, (int(place[g]),))  # [units, 2, labels, outcomes]: the group and all others
        value, (low, high) = _measured(pair.sum(0), tuple(found)), _ends(pair, tuple(found))
        for i, name in enumerate(found):
            # Everybody's rates less those of both sides are the rates of people on neither.
            apart = [g, *np.flatnonzero(~compared).tolist()]
            may = _enough(label_counts(pair.sum(0)), name, least) and all(shown[rate][apart].all() for rate in NEEDS[name])
            if may and np.isfinite(value[i]):
                found[name][g] = Estimate(float(value[i]), float(low[i]), float(high[i]), int(rows[g]))
    return {name: tuple(column) for name, column in found.items()}


def _ends(pair: Array, names: tuple[str, ...]) -> tuple[Array, Array]:
    """Ends of the intervals of a group against all others [units, 2, labels, outcomes]: of resampling and, for a difference of two
    rates, what chance allows with so many people, whichever is wider. Resampling alone finds no width where all went the same way."""
    drawn = resampled_interval(pair, partial(_measured, names=names))
    seen, behind = rates(pair.sum(0), FAVOURABLE), rows_behind(pair.sum(0), FAVOURABLE)
    low, high = np.array(drawn.low), np.array(drawn.high)
    for i, name in enumerate(names):
        if name in DIFFERENCES:
            least, most = newcombe(getattr(seen, DIFFERENCES[name]), getattr(behind, DIFFERENCES[name]))
            low[i], high[i] = np.fmin(low[i], least), np.fmax(high[i], most)
    return low, high


def _enough(pair: Array, name: str, least: int) -> bool:
    """Whether both sides have enough people for this metric to be shown: `pair` counts [side, label]."""
    labels = [LABELS[rate] for rate in NEEDS[name] if rate in LABELS]
    return bool((pair.sum(1) >= least).all() and (pair[:, labels] >= least).all())


def _measured(pairs: Array, names: Sequence[str]) -> Array:
    """Metrics of a group against all others: [..., 2, labels, outcomes] -> [..., metrics]"""
    seen = view(pairs, favourable=FAVOURABLE, unprivileged=(0,))
    return np.stack([AGAINST[name].function(seen) for name in names], axis=-1)


def _ranges(units: Array, shown: dict[str, Array], groups: Array) -> dict[str, Estimate]:
    """The best of the shown groups against the worst, by the registry's own functions."""
    names = _names(RANGES, len(shown) > 1)
    value = _ranged(units.sum(0), names, shown)
    interval = resampled_interval(units, partial(_ranged, names=names, shown=shown))
    rows = int(units[:, groups].sum())
    return {
        name: Estimate(float(v), float(low), float(high), rows) if np.isfinite(v) else NOTHING
        for name, v, low, high in zip(names, value, interval.low, interval.high, strict=True)
    }


def _ranged(tables: Array, names: Sequence[str], shown: dict[str, Array]) -> Array:
    seen = rates(tables, FAVOURABLE)
    kept = Rates(*(np.where(shown[name], value, np.nan) if name in shown else value for name, value in seen._asdict().items()))
    # Ranges look at single groups only; there are no two sides of intersections.
    return np.stack([GROUP_METRICS[name].function(GroupedRates(kept, seen, seen)) for name in names], axis=-1)


def _lowest(found: Sequence[Estimate], compared: Array, table: Array) -> int:
    """The group that is favoured least, among those that are shown; the largest of all if none is."""
    known = [g for g, rate in enumerate(found) if compared[g] and rate.known]
    if not known:
        return int(np.argmax(np.where(compared, table.sum((1, 2)), -1)))
    return known[least_favoured([found[g].value for g in known], [found[g].rows for g in known])]
