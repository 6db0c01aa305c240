"""The section on groups: who is compared with whom, the metrics per method, the rates per group,
and each attribute.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from evenly.data.sensitive import FEW
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison
from evenly.metrics import GROUP_METRICS
from evenly.metrics.statistics import LEAST_CLIENTS
from evenly.report.charts.focus import Focus
from evenly.report.charts.tradeoff import MOST_GROUPS, largest, rates_chart
from evenly.report.disclosure import HiddenGroups, hidden_groups
from evenly.report.group_values import (
    RATES,
    Grouping,
    GroupRate,
    group_rates,
    group_split,
    group_values,
    groupings,
    metric_intervals,
    metrics_of_few,
    side_rates,
)
from evenly.report.html import (
    ChartFigure,
    Charts,
    Column,
    Entry,
    Html,
    bullets,
    definitions,
    details,
    element,
    figure_html,
    grid,
    join,
    legend_of,
    paragraph,
    section,
    sentence_case,
    specs_of,
)
from evenly.report.method_table import Intervals, dash, hidden_dash, key_of, method_table
from evenly.report.values import SPLIT_WORDS, Values, count_text, listed, table_of
from evenly.types import Trace

MAIN = ("accuracy", "eod_abs", "spd_abs", "aod_abs", "acc_diff", "worst_accuracy")
FURTHER = {  # a table each: more columns than these do not fit
    "The two sides, with a sign and without.": (
        "spd",
        "eod",
        "aod",
        "f1_diff",
        "acc_diff_abs",
        "f1_diff_abs",
        "odds_diff",
    ),
    "Single groups: the best against the worst.": (
        "spd_range",
        "eod_range",
        "odds_range",
        "acc_range",
        "worst_tpr",
        "worst_selection",
    ),
    "Scores and shares.": ("precision", "fas_abs", "fas_thesis", "representation"),
}
MOST_COLUMNS = 7
DRAWN = ("accuracy", "selection_rate", "tpr")
MOST_LISTED = 40
UNITS = (
    "Shares in percent, differences between groups as fractions: unprivileged minus privileged,"
    " both pooled. "
)
STAR = (
    f"* marks a figure that rests on a group with fewer than {FEW} rows in at least one seed, where"
    " chance alone can move it far. "
)
RESAMPLED = "One seed; below each value the 95 % interval from resampling clients. "
FEW_CLIENTS = (
    "One seed; below each value the 95 % interval from resampling people, since fewer than"
    f" {LEAST_CLIENTS} clients are too few to resample: it says nothing of how other clients would"
    " fare. "
)

TOGETHER = "A model can be even over each attribute and not over all together."

Rates = Mapping[str, Mapping[str, Sequence[GroupRate]]]  # rate -> label -> one per group


def group_section(comparison: Comparison, focus: Focus) -> Charts:
    """The section on groups; empty without at least two groups, or without rows to evaluate on."""
    found, split = groupings(comparison.federation), group_split(comparison)
    if not found or not any(_tested(run.trace, split) for run in comparison.runs):
        return Charts({}, {})
    whole, *attributes = found
    views = [
        _view(comparison, focus, split, grouping, number)
        for number, grouping in enumerate(attributes, start=1)
    ]
    views.append(_view(comparison, focus, split, whole, crossed=bool(attributes)))
    wanted = comparison.federation.labels[comparison.federation.favourable]
    assumed = " (assumed; name another with --favourable)"
    favourable = f"{wanted}{assumed if 'favourable' in comparison.assumed else ''}"
    about = definitions([("Favourable label", favourable), ("Measured on", _on(comparison, split))])
    parts = [
        about,
        legend_of(focus.series, others=False),
        *(part for view in views for part in view.parts),
    ]
    specs = specs_of([figure for view in views for figure in view.figures])
    return Charts({"groups": section("groups", "How are the groups served?", *parts)}, specs)


class _SectionView(NamedTuple):
    """The part of the section on one grouping, with its charts."""

    parts: list[Html]
    figures: list[ChartFigure]


def _view(
    comparison: Comparison,
    focus: Focus,
    split: str,
    grouping: Grouping,
    number: int = 0,
    *,
    crossed: bool = False,
) -> _SectionView:
    """One grouping: its sides, a summary, the metrics, and the rates of every group. Attributes are
    numbered from 1; 0 is the groups.
    """
    hidden = hidden_groups(comparison, split, focus.least, grouping.attribute)
    values = group_values(comparison, grouping, split, hidden.withheld)
    rates = _rates(comparison, grouping, focus.series, split, hidden)
    bars = _figures(comparison, grouping, rates, focus, number)
    head = f"Intersections of {grouping.title}" if crossed else f"By {grouping.title}"
    parts = [
        *([element("h3", {"class": "later"}, head)] if crossed or number else []),
        *([paragraph(TOGETHER, "soft")] if crossed else []),
        definitions(
            [
                (
                    "Unprivileged",
                    _names(grouping, unprivileged=True) + _assumed(comparison, grouping),
                ),
                ("Privileged", _names(grouping, unprivileged=False)),
            ]
        ),
        *([] if "eod" in hidden.withheld else _findings(comparison, grouping, focus, split)),
        *_mixed_signs(values, focus),
        *_tables(comparison, grouping, focus, values, split, withheld=hidden.withheld),
        element("div", {"class": "figures of-3"}, *map(figure_html, bars)),
        *(_listed(comparison, grouping, rates, label) for label in focus.series),
    ]
    return _SectionView(parts, bars)


def _tested(trace: Trace, split: str) -> bool:
    return bool(
        (trace.central if split == CENTRAL else trace.tables[-1, SPLITS.index(split)]).any()
    )


def _rates(
    comparison: Comparison,
    grouping: Grouping,
    labels: Sequence[str],
    split: str,
    hidden: HiddenGroups,
) -> Rates:
    return {
        rate: {
            label: group_rates(comparison, grouping, label, split, rate, hidden=hidden)
            for label in labels
        }
        for rate in RATES
    }


def _on(comparison: Comparison, split: str) -> str:
    central = f"the central test set, {len(comparison.federation.central):,} rows"
    return central if split == CENTRAL else f"the {SPLIT_WORDS[split]} rows of all clients together"


def _names(grouping: Grouping, *, unprivileged: bool, most: int = 6) -> str:
    names = [
        name
        for g, name in enumerate(grouping.names)
        if (g in grouping.unprivileged) == unprivileged
    ]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more if names else "nobody"


def _assumed(comparison: Comparison, grouping: Grouping) -> str:
    """A remark where the user did not name the unprivileged people of this grouping."""
    federation = comparison.federation
    # intersections are unprivileged by the value of one attribute
    attributes = [grouping.attribute] if grouping.attribute else federation.attributes
    deciding = [
        one
        for one in attributes
        if grouping.attribute or set(grouping.unprivileged) == one.unprivileged_groups
    ]
    if not deciding or deciding[0].name not in comparison.assumed:
        return ""
    name, value = deciding[0].name, deciding[0].values[deciding[0].unprivileged]
    wanted = federation.labels[federation.favourable]
    return (
        f" (assumed: of all values of {name}, {value} has the lowest share of “{wanted}”; name"
        " another with --unprivileged)"
    )


def _described(focus: Focus) -> list[str]:
    """The methods that are described in words: the baseline, the leading method and the method with
    the least |EOD|.
    """
    return list(filter(None, dict.fromkeys((focus.baseline, focus.lead, focus.least_eod))))


def _mixed_signs(values: Values, focus: Focus) -> list[Html]:
    """Why |EOD| exceeds the difference between the mean true positive rates, if seeds disagree in
    its sign; NaN where it is withheld.
    """
    mixed = []
    for method in _described(focus):
        signs = {float(np.sign(seed["eod"])) for seed in values[method].values()}
        mixed += [method] if {-1.0, 1.0} <= signs else []
    if not mixed:
        return []
    *first, last = mixed
    named = f"{listed(first)} and {last}" if first else last
    text = (
        "|EOD| is the mean of the absolute differences of all seeds. It exceeds the difference"
        f" between the rates above under {named}, because the unprivileged are found"
        " more often in some seeds and less often in others."
    )
    return [paragraph(text, "soft")]


def _findings(comparison: Comparison, grouping: Grouping, focus: Focus, split: str) -> list[Html]:
    """True positive rates of both sides in words, for the methods that are described."""
    wanted = comparison.federation.labels[comparison.federation.favourable]
    items = []
    for method in _described(focus):
        unprivileged, privileged = side_rates(comparison, grouping, method, split, "tpr")
        if np.isfinite([unprivileged, privileged]).all():
            text = (
                f"Of the people whose label is “{wanted}”, {method} finds {unprivileged:.1f} %"
                f" among the unprivileged and {privileged:.1f} % among the privileged."
            )
            items.append(text)
    return [bullets(items)] if items else []


def _tables(
    comparison: Comparison,
    grouping: Grouping,
    focus: Focus,
    values: Values,
    split: str,
    *,
    withheld: frozenset[str],
) -> list[Html]:
    main = table_of(values, metrics=MAIN, split=split)
    intervals = _intervals(comparison, grouping, focus, split, withheld)
    shown = tuple(row for row in main.rows if row.label in focus.series)
    drawn = RESAMPLED if comparison.federation.clients >= LEAST_CLIENTS else FEW_CLIENTS
    single = drawn if any(intervals.values()) else "One seed, so there are no intervals. "
    caption = f"After {comparison.rounds:,} rounds."
    few = _few(comparison, grouping, split, withheld)
    units = f"{UNITS}{STAR if any(few.values()) else ''}"
    table = partial(method_table, withheld=withheld, few=few)
    parts = [
        table(main._replace(rows=shown), caption, intervals=intervals),
        key_of(main, units, single),
    ]
    if len(shown) < len(main.rows):
        every = table(main, "Every method, the same columns.")
        parts.append(details(f"By {grouping.title}: all {len(main.rows)} methods", every))
    if grouping.attribute is not None:
        return parts
    kept = {label: values[label] for label in focus.series}
    further = [
        table(table_of(kept, metrics=names), title, "wide", intervals=intervals)
        for title, names in _further().items()
    ]
    parts.append(details("More group metrics", *further, _formulas()))
    if split == CENTRAL and any(_tested(run.trace, "test") for run in comparison.runs):
        withheld = hidden_groups(comparison, "test", focus.least).withheld
        own = group_values(comparison, grouping, "test", withheld)
        apart = method_table(
            table_of({label: own[label] for label in focus.series}, metrics=MAIN),
            "The test rows of all clients together.",
            withheld=withheld,
            few=_few(comparison, grouping, "test", withheld),
        )
        parts.append(details("On the clients' own test rows", apart))
    return parts


def _few(
    comparison: Comparison, grouping: Grouping, split: str, withheld: frozenset[str]
) -> dict[str, frozenset[str]]:
    """The metrics of each method that get a star. Attributes have the main metrics only."""
    shown = frozenset(GROUP_METRICS if grouping.attribute is None else MAIN) - withheld
    return {
        label: metrics_of_few(comparison, grouping, label, split) & shown
        for label in comparison.labels
    }


def _intervals(
    comparison: Comparison, grouping: Grouping, focus: Focus, split: str, withheld: frozenset[str]
) -> Intervals:
    found = {label: metric_intervals(comparison, grouping, label, split) for label in focus.series}
    return {
        label: {name: ends for name, ends in own.items() if name not in withheld}
        for label, own in found.items()
    }


def _further() -> dict[str, tuple[str, ...]]:
    """The tables of further metrics. Metrics that users registered come last."""
    listed = {*MAIN, *itertools.chain(*FURTHER.values())}
    others = [name for name in GROUP_METRICS if name not in listed]
    tables = [tuple(others[i : i + MOST_COLUMNS]) for i in range(0, len(others), MOST_COLUMNS)]
    return FURTHER | {
        f"Other metrics{f', continued ({i + 1})' if i else ''}.": names
        for i, names in enumerate(tables)
    }


def _formulas() -> Html:
    rows = [
        (sentence_case(m.title), m.name, m.formula, m.range, m.undefined)
        for m in GROUP_METRICS.values()
    ]
    columns = [
        Column("Metric"),
        *(
            Column(name, words=True)
            for name in ("In results.csv", "Formula", "Range", "Undefined if")
        ),
    ]
    return grid(
        "How they are computed: ₀ are the unprivileged, ₁ the privileged, g is a single group.",
        columns,
        rows,
    )


def _figures(
    comparison: Comparison, grouping: Grouping, rates: Rates, focus: Focus, number: int
) -> list[ChartFigure]:
    span = _span_words(comparison)
    wanted = comparison.federation.labels[comparison.federation.favourable]
    captions = {
        "accuracy": "Predicted right, of all rows of the group.",
        "selection_rate": f"Predicted “{wanted}”, of all rows of the group.",
        "tpr": f"Predicted “{wanted}”, of the group's rows with that label.",
    }
    hollow = (
        f" Hollow: fewer than {FEW} rows."
        if any(g.few for label in rates["tpr"].values() for g in label)
        else ""
    )
    groups, place = len(grouping.names), f"{number}-" if number else ""
    part = f" The {MOST_GROUPS} largest of {groups} groups." if groups > MOST_GROUPS else ""
    shown = largest(rates["accuracy"][focus.baseline])
    return [
        ChartFigure(
            f"chart-groups-{place}{rate.replace('_', '-')}",
            rates_chart(rates[rate], rate, shown),
            f"{captions[rate]} {span}{hollow}{part}",
        )
        for rate in DRAWN
    ]


def _span_words(comparison: Comparison) -> str:
    """What the lines of the charts reach over."""
    if len(comparison.seeds) > 1:
        return "Lines reach from the lowest seed to the highest."
    if group_split(comparison) == CENTRAL or comparison.federation.clients < LEAST_CLIENTS:
        return "Lines are 95 % intervals: how far chance can move a rate of this many rows."
    return "Lines are 95 % intervals: of resampled clients or of chance, whichever is wider."


def _dashes(comparison: Comparison) -> Html:
    wanted = comparison.federation.labels[comparison.federation.favourable]
    below = "the lowest and the highest seed" if len(comparison.seeds) > 1 else "a 95 % interval"
    text = (
        f"In percent, below each rate {below}. * marks a rate that rests on fewer than {FEW} rows,"
        " where chance alone can move it far. – stands where there is nothing to divide by: a true"
        f" positive rate needs rows labelled “{wanted}”, a false positive rate rows with another"
        " label."
    )
    return paragraph(text, "soft")


def _listed(comparison: Comparison, grouping: Grouping, rates: Rates, label: str) -> Html:
    by_rate = {rate: rates[rate][label] for rate in RATES}
    order = np.argsort(
        [0 if group.hidden else -group.rows for group in by_rate["accuracy"]], kind="stable"
    )[:MOST_LISTED]
    columns = [Column("Group"), Column("Rows"), *(Column(title, "%") for title in RATES.values())]
    rows = [
        [
            _name(grouping, g),
            _rows(by_rate["accuracy"][g]),
            *(_rate(rate, found[g]) for rate, found in by_rate.items()),
        ]
        for g in sorted(order.tolist())
    ]
    caption = f"Served by {label}." + (
        f" The {MOST_LISTED} largest groups." if len(grouping.names) > MOST_LISTED else ""
    )
    return details(
        f"By {grouping.title}, under {label}",
        grid(caption, columns, rows, kind="compact"),
        _dashes(comparison),
    )


def _name(grouping: Grouping, g: int) -> str:
    return (
        f"{grouping.names[g]} (unprivileged)" if g in grouping.unprivileged else grouping.names[g]
    )


def _rows(found: GroupRate) -> str | Entry:
    return hidden_dash() if found.hidden else count_text(found.rows)


def _rate(rate: str, found: GroupRate) -> str | Entry:
    if found.hidden:
        return hidden_dash()
    if not np.isfinite(found.value):
        return dash(
            {"tpr": "no rows with the favourable label", "fpr": "no rows with another label"}.get(
                rate, "no rows"
            )
        )
    value = f"{found.value:.1f}{' *' if found.few else ''}"
    if not np.isfinite([found.low, found.high]).all():
        return value
    ends = element("small", {"class": "interval"}, f" {found.low:.1f} to {found.high:.1f}")
    return Entry(join([element("span", {"class": "nowrap"}, value), ends]), "")
