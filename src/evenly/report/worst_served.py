"""Whom a model serves worst: the sentences and the table that open every page, of comparisons,
deployments and audits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.data.sensitive import FEW
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, Run
from evenly.metrics import pooled, rates, ratio
from evenly.metrics.clients import tenth
from evenly.report.charts.focus import Focus
from evenly.report.disclosure import hidden_groups, small_cells
from evenly.report.group_values import Grouping, group_rates, group_split, groupings
from evenly.report.html import Column, Entry, Html, element, grid, nonbreaking
from evenly.report.method_table import dash
from evenly.report.values import (
    SPLIT_WORDS,
    Values,
    client_rates,
    headline,
    over_seeds,
    wilson,
    worst_clients,
)

# Whom a model serves worst: the sentences and the table that open every page, of comparisons, of
# deployments and of audits.
#
# They answer first whether the model is worth anything: a trivial model predicts the most frequent
# label for everybody. Then they name the client and the group that are served worst. Whoever fills
# in these figures leaves out what must be hidden.

CHANCE = ", a difference that chance alone could explain"
SHOWN = " that are shown"
LARGE = f" with at least {FEW} people"
SAME = 0.05  # points: smaller gaps are shown as 0.0
MOST_NAMED = 3
NORMAL95 = 1.96


class ServedPart(NamedTuple):
    """How a model serves some of the people it is evaluated on. Rates are in percent, NaN if
    undefined or hidden.
    """

    name: str
    rows: float
    accuracy: float
    low: float = np.nan  # ends of a 95 % interval
    high: float = np.nan
    tpr: float = np.nan
    fpr: float = np.nan
    average: float = np.nan  # everybody's accuracy on the same kind of rows
    where: str = ""  # which rows, if not those that the whole model is measured on
    among: str = ""  # of whom it is the worst served, if not of all


class Trivial(NamedTuple):
    """The model that predicts one label for everybody, on the same rows."""

    label: str
    # whether the label is the most frequent one in training rows; else in the measured rows
    # themselves
    learnt: bool
    accuracy: float  # percent
    half_width: float = 0.0  # of the 95 % interval of the model's accuracy less this one, in points
    positive: bool = False  # whether the label is the favourable one


class Whom(NamedTuple):
    """The content of a page's opening: the model, the trivial model, and the worst-served client
    and groups.
    """

    model: str  # as a sentence begins with it
    whole: ServedPart
    trivial: Trivial | None
    measured: str = ""  # on which rows, in a sentence
    client: ServedPart | None = None  # the worst served, where there are several
    group: ServedPart | None = None
    intersection: ServedPart | None = None
    unit: str = "rows"  # or people
    favourable: str = ""  # with two labels, the one that rates are of
    assumed: bool = False  # whether the user did not name the favourable label
    as_bad: tuple[str, ...] = ()  # other methods that are no better than the trivial model
    others: int = 0  # methods besides the model
    worst_by_seed: float = np.nan  # mean accuracy of each seed's worst client, if that is another


def sentences(whom: Whom) -> list[str]:
    """The model compared with the trivial model, then the client and the groups that it serves
    worst.
    """
    parts = {
        "clients": whom.client,
        "groups": whom.group,
        "intersections of groups": whom.intersection,
    }
    told = {kind: _worst(whom, kind, own) for kind, own in parts.items() if own is not None}
    if np.isfinite(whom.worst_by_seed):
        told["clients"] += (
            " Other seeds have another worst client; the worst client of each seed is right for"
            f" {whom.worst_by_seed:.1f} % on average (worst 10 %)."
        )
    return [_first(whom), *told.values()]


def no_better(accuracy: float, trivial: Trivial | None) -> bool:
    """Whether a model is not more accurate than the trivial model."""
    return trivial is not None and accuracy <= trivial.accuracy


def gap_half_width(gained: float, lost: float, rows: float) -> float:
    """Half of the 95 % interval of the difference between two models' accuracies on the same rows,
    in points.

    `gained` is the number of rows that only the first model predicts right, `lost` those that only
    the second does.

    >>> round(gap_half_width(30, 10, 100), 1)
    11.8
    """
    return 100 * NORMAL95 * float(np.sqrt(gained + lost - (gained - lost) ** 2 / rows)) / rows


def _first(whom: Whom) -> str:
    whole, trivial = whom.whole, whom.trivial
    ends = (
        f" (95 % interval {whole.low:.1f} to {whole.high:.1f})"
        if np.isfinite([whole.low, whole.high]).all()
        else ""
    )
    right = f"right for {_right(whom, whole)}{ends}"
    if trivial is None:
        return f"{whom.model} is {right}."
    where = " in the training rows" if trivial.learnt else ""
    always = f"always predicting “{trivial.label}”, the most frequent label{where},"
    if no_better(whole.accuracy, trivial):
        return (
            f"{whom.model} is no better than a trivial model: it is {right}, and {always} for"
            f" {trivial.accuracy:.1f} %{_neither(whom)}."
        )
    unclear = whole.accuracy - trivial.accuracy <= trivial.half_width
    if unclear:
        verdict = (
            f"{whom.model} is not clearly better than a trivial model: it is {right}, and {always}"
            f" for {trivial.accuracy:.1f} %"
        )
        return f"{verdict}{CHANCE}{_also(whom)}."
    return (
        f"{whom.model} is {right}; {always} would be right for {trivial.accuracy:.1f}"
        f" %{_also(whom)}."
    )


def _neither(whom: Whom) -> str:
    if not whom.as_bad:
        return ""
    every = len(whom.as_bad) == whom.others
    return (
        ", and no other method is better"
        if every
        else f", and neither {_be(whom)} {_listed(whom.as_bad)}"
    )


def _also(whom: Whom) -> str:
    return f"; {_listed(whom.as_bad)} {_be(whom)} no better than that" if whom.as_bad else ""


def _be(whom: Whom) -> str:
    return "is" if len(whom.as_bad) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{len(names)} other methods"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _worst(whom: Whom, kind: str, part: ServedPart) -> str:
    gap, of = part.average - part.accuracy, f"Of the {kind}{part.among}"
    right = f"right for {_right(whom, part)}{part.where}"
    if gap <= -SAME:  # those below the average have few people, or are hidden
        return (
            f"{of}, it serves none worse than the average; the lowest is {part.name}: {right},"
            f" {-gap:.1f} points above it."
        )
    worst = f"{of}, it serves {part.name} worst: {right}"
    if gap < SAME:
        return f"{worst}, as on average."
    doubt = CHANCE if part.low <= part.average <= part.high else ""
    return f"{worst}, {gap:.1f} points below the average{doubt}."


def _right(whom: Whom, part: ServedPart) -> str:
    return f"{part.accuracy:.1f} % of {part.rows:,.0f} {whom.unit}"


def whom_table(whom: Whom) -> Html:
    """The opening's figures as a table, with intervals and, for two labels, true and false positive
    rates.
    """
    columns = [
        Column("Whom"),
        Column(whom.unit.capitalize()),
        Column("Accuracy", "%"),
        Column("Against the average", "points"),
    ]
    columns += (
        [Column("True positive rate", "%"), Column("False positive rate", "%")]
        if whom.favourable
        else []
    )
    named = {
        "Worst-served client": whom.client,
        "Worst-served group": whom.group,
        "Worst-served intersection": whom.intersection,
    }
    rows = [_row(whom, "Everybody", whom.whole)]
    rows += [
        _row(whom, f"{title}{_of_those(own.among)}: {own.name}{own.where}", own)
        for title, own in named.items()
        if own is not None
    ]
    if whom.trivial is not None:
        rows.append(_trivial_row(whom, whom.trivial))
    label = "the favourable label (assumed)" if whom.assumed else "the favourable label"
    positive = f" A positive is “{whom.favourable}”, {label}." if whom.favourable else ""
    caption = (
        f"{whom.measured} Below an accuracy, its 95 % interval shows the effect of chance with this"
        f" many {whom.unit}.{positive}"
    )
    return grid(nonbreaking(caption), columns, rows, kind="compact")


def _of_those(among: str) -> str:
    return f" of those{among.replace(' that are', '')}" if among else ""


def _trivial_row(whom: Whom, trivial: Trivial) -> list[str | Entry]:
    rate, average = 100.0 if trivial.positive else 0.0, whom.whole.accuracy
    part = ServedPart("", whom.whole.rows, trivial.accuracy, tpr=rate, fpr=rate, average=average)
    return _row(whom, f"A trivial model: always “{trivial.label}”", part)


def _row(whom: Whom, title: str, part: ServedPart) -> list[str | Entry]:
    gap = part.accuracy - part.average
    against = (
        "–"
        if part is whom.whole
        else f"{gap:+.1f}".replace("-", "−")
        if abs(gap) >= SAME
        else "0.0"
    )
    interval = (
        f"{part.low:.0f} to {part.high:.0f}" if np.isfinite([part.low, part.high]).all() else ""
    )
    small = [element("small", {"class": "interval"}, interval)] if interval else []
    cells = [
        nonbreaking(title),
        f"{part.rows:,.0f}",
        Entry(element("span", None, f"{part.accuracy:.1f}", *small), ""),
        against,
    ]
    return [*cells, *((rate_entry(part.tpr), rate_entry(part.fpr)) if whom.favourable else ())]


def rate_entry(value: float) -> str | Entry:
    """A rate in percent; a dash if it is undefined or hidden."""
    return (
        f"{value:.1f}"
        if np.isfinite(value)
        else dash("there are no such rows, or too few to be shown")
    )


# Whom the first method of a comparison, or the one that a search chose, serves worst, with figures
# that are means over seeds, and without what must be hidden.

WHERE = {CENTRAL: " on the central test set"} | {
    split: f" on {word} rows" for split, word in SPLIT_WORDS.items()
}


def whom_of(comparison: Comparison, values: Values, focus: Focus) -> Whom | None:
    """The opening of a comparison's page; None without rows to evaluate on.

    The figures of everybody include hidden clients: at least two are hidden, with enough people
    together.
    """
    label, labels = focus.subject, comparison.labels
    split = CENTRAL if headline(values) == CENTRAL else focus.split
    # [seeds, labels, outcomes]
    tables = {
        name: np.stack([_table(run, split) for run in comparison.of(name)]) for name in labels
    }
    if not tables[label].sum((1, 2)).all():
        return None
    trivial = (
        _trivial(comparison, label, tables[label], focus.least) if has_labels(comparison) else None
    )
    told = trivial is not None
    as_bad = [
        name for name in labels if name != label and no_better(_accuracy(tables[name]), trivial)
    ]
    two = told and len(comparison.federation.labels) == 2
    seeds = f"means over {len(tables[label])} seeds" if len(tables[label]) > 1 else "one seed"
    group, intersection = _groups(comparison, focus, split)
    client = _client(comparison, focus, split)
    return Whom(
        model=label,
        whole=_whole(tables[label], comparison.federation.favourable, two=two),
        trivial=trivial,
        client=client,
        group=group,
        intersection=intersection,
        unit="people" if len(comparison.federation.groups) > 1 else "rows",
        favourable=comparison.federation.labels[comparison.federation.favourable] if two else "",
        assumed="favourable" in comparison.assumed,
        as_bad=tuple(as_bad),
        others=len(labels) - 1,
        measured=f"{label}{WHERE[split]}, {seeds}.",
        worst_by_seed=_worst_by_seed(values, focus, client, comparison.federation.clients),
    )


def _worst_by_seed(values: Values, focus: Focus, client: ServedPart | None, clients: int) -> float:
    """The mean over seeds of the accuracy of the worst client, where "worst 10 %" is one client and
    the client with the lowest mean is not the worst in every seed; else NaN.
    """
    if client is None or focus.hidden or tenth(clients) > 1:
        return np.nan
    by_seed = over_seeds(values, focus.subject, "worst10").mean
    return by_seed if client.accuracy - by_seed >= SAME else np.nan


def has_labels(comparison: Comparison) -> bool:
    """Whether the tables have true labels. Deployed clients may report only an accuracy."""
    return comparison.deployed is None or (
        comparison.deployed.tables and not comparison.deployed.accuracies
    )


def _table(run: Run, split: str) -> np.ndarray:
    """Everybody by label and outcome after the last round."""
    return (
        run.trace.central[-1].sum(0)
        if split == CENTRAL
        else run.trace.tables[-1, SPLITS.index(split)].sum((0, 1))
    )


def _accuracy(tables: np.ndarray) -> float:
    return float(100 * ratio(np.trace(tables, axis1=1, axis2=2), tables.sum((1, 2))).mean())


def _whole(tables: np.ndarray, favourable: int, *, two: bool) -> ServedPart:
    rows, accuracy = float(tables.sum((1, 2)).mean()), _accuracy(tables)
    found = rates(tables, favourable) if two else None
    tpr, fpr = (
        (100 * float(found.tpr.mean()), 100 * float(found.fpr.mean()))
        if found
        else (np.nan, np.nan)
    )
    return ServedPart("", rows, accuracy, tpr=tpr, fpr=fpr, average=accuracy)


def _trivial(comparison: Comparison, label: str, tables: np.ndarray, least: int) -> Trivial | None:
    """The most frequent label of the training rows, scored on `tables` [seeds, labels, outcomes].

    None if fewer than `least` people have this label, or another: the score would reveal that.
    """
    trained = _trained(comparison, label)
    counts = tables.sum((0, 2)) if trained is None else trained
    chosen, mean = int(np.argmax(counts)), tables.mean(0)
    own = tables[:, chosen].sum(1)
    if small_cells([own, tables.sum((1, 2)) - own], least).any():
        return None
    gained, lost = np.trace(mean) - mean[chosen, chosen], mean[chosen].sum() - mean[chosen, chosen]
    return Trivial(
        label=comparison.federation.labels[chosen],
        learnt=trained is not None,
        accuracy=float(100 * ratio(own, tables.sum((1, 2))).mean()),
        half_width=gap_half_width(float(gained), float(lost), float(mean.sum())),
        positive=chosen == comparison.federation.favourable,
    )


def _trained(comparison: Comparison, label: str) -> np.ndarray | None:
    """The number of training rows with each label; None if unknown, as for deployed clients that do
    not evaluate on them.
    """
    everyone = comparison.everyone
    if comparison.registered is not None and len(everyone.y):
        return np.bincount(everyone.y[everyone.train.rows], minlength=len(everyone.labels))
    counts = np.sum(
        [
            run.trace.tables[-1, SPLITS.index("train")].sum((0, 1, 3))
            for run in comparison.of(label)
        ],
        axis=0,
    )
    return counts if counts.any() else None


def _client(comparison: Comparison, focus: Focus, split: str) -> ServedPart | None:
    """The worst-served client of those that may be named."""
    found = worst_clients(
        comparison, focus.subject, focus.subject, limit=2, split=focus.split, hidden=focus.hidden
    )
    if len(found) < 2:
        return None
    worst = found[0]
    own = (
        client_rates(comparison, focus.subject, focus.split, focus.hidden, focus.least)
        if has_labels(comparison)
        else None
    )
    return ServedPart(
        name=f"“{worst.name}”",
        rows=worst.rows,
        accuracy=worst.accuracy,
        low=worst.low,
        high=worst.high,
        tpr=np.nan if own is None else float(own.tpr[worst.number]),
        fpr=np.nan if own is None else float(own.fpr[worst.number]),
        average=_accuracy(
            np.stack([_table(run, focus.split) for run in comparison.of(focus.subject)])
        ),
        where=WHERE[focus.split] if focus.split != split else "",
        among=SHOWN if focus.hidden else "",
    )


def _groups(
    comparison: Comparison, focus: Focus, split: str
) -> tuple[ServedPart | None, ServedPart | None]:
    """The worst-served group of a single attribute and, where there are several attributes, the
    worst-served intersection.
    """
    found = groupings(comparison.federation)
    if not found:
        return None, None
    single, crossed = (found[1:], found[:1]) if len(found) > 1 else (found, [])
    return _group(comparison, focus, split, single), _group(comparison, focus, split, crossed)


def _group(
    comparison: Comparison, focus: Focus, split: str, ways: Sequence[Grouping]
) -> ServedPart | None:
    """The worst-served group of these groupings. Groups with few rows come last, because chance
    makes them extreme.
    """
    shown_on, label = group_split(comparison), focus.subject
    parts, among = [], ""
    for grouping in ways:
        hidden = hidden_groups(comparison, shown_on, focus.least, grouping.attribute)
        called = (
            f"{grouping.title} "
            if grouping.attribute or len(comparison.federation.attributes) == 1
            else ""
        )
        rate = {
            name: group_rates(comparison, grouping, label, shown_on, name, hidden=hidden)
            for name in ("accuracy", "tpr", "fpr")
        }
        among = SHOWN if any(accuracy.hidden for accuracy in rate["accuracy"]) else among
        for accuracy, tpr, fpr in zip(*rate.values(), strict=True):
            if np.isfinite(accuracy.value):
                low, high = (
                    100 * float(end)
                    for end in wilson(np.array(accuracy.value / 100), np.array(accuracy.rows))
                )
                name = f"{called}“{accuracy.group}”"
                parts.append(
                    ServedPart(name, accuracy.rows, accuracy.value, low, high, tpr.value, fpr.value)
                )
    if len(parts) < 2:
        return None
    worst = least_accurate([(part.rows, part.accuracy) for part in parts])
    everybody = np.stack([pooled(run.trace, shown_on)[-1].sum(0) for run in comparison.of(label)])
    return parts[worst.number]._replace(
        average=_accuracy(everybody),
        where=WHERE[shown_on] if shown_on != split else "",
        among=worst.among + among,
    )


class LeastAccurate(NamedTuple):
    """The number of a worst-served group, and of which groups it is the worst served."""

    number: int
    among: str


def least_accurate(groups: Sequence[tuple[float, float]]) -> LeastAccurate:
    """Choose the worst-served of groups, given as (rows, accuracy). Groups with few rows come last,
    because chance makes them extreme; `among` says so where one of them is less accurate.

    >>> least_accurate([(40, 70.0), (50, 60.0), (9, 50.0)])
    LeastAccurate(number=1, among=' with at least 30 people')
    """
    number, (rows, accuracy) = min(enumerate(groups), key=lambda one: (one[1][0] < FEW, one[1][1]))
    passed_over = rows >= FEW and any(lower < accuracy for _, lower in groups)
    return LeastAccurate(number, LARGE if passed_over else "")
