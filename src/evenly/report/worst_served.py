"""Whom the first method of a comparison serves worst, with figures that are means over seeds, and without what must be hidden."""

from collections.abc import Sequence

import numpy as np

from evenly.data.sensitive import FEW
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.results import Comparison, Run
from evenly.metrics import pooled, rates, ratio
from evenly.report.by_group import Grouping, group_rates, groupings, rows_shown
from evenly.report.choice import Choice
from evenly.report.disclosure import small_cells
from evenly.report.hiding import hidden_groups
from evenly.report.served import client_rates, wilson, worst_clients
from evenly.report.table import SPLIT_WORDS, Values, headline
from evenly.report.whom import SHOWN, Part, Trivial, Whom, gap_half_width, no_better

WHERE = {CENTRAL: " on the central test set"} | {split: f" on {word} rows" for split, word in SPLIT_WORDS.items()}


def whom_of(comparison: Comparison, values: Values, choice: Choice) -> Whom | None:
    """What the page opens with; nothing where no rows are there to measure on.

    The whole is everybody, also people of clients that are not shown: at least two of these are hidden, with enough people together.
    """
    label, labels = choice.baseline, comparison.labels
    split = CENTRAL if headline(values) == CENTRAL else choice.split
    tables = {name: np.stack([_table(run, split) for run in comparison.of(name)]) for name in labels}  # [seeds, labels, outcomes]
    if not tables[label].sum((1, 2)).all():
        return None
    trivial = _trivial(comparison, label, tables[label], choice.least) if labels_known(comparison) else None
    told = trivial is not None
    as_bad = [name for name in labels if name != label and no_better(_accuracy(tables[name]), trivial)]
    two = told and len(comparison.federation.labels) == 2
    seeds = f"means over {len(tables[label])} seeds" if len(tables[label]) > 1 else "one seed"
    group, intersection = _groups(comparison, choice, split)
    return Whom(
        model=label,
        whole=_whole(tables[label], comparison.federation.favourable, two=two),
        trivial=trivial,
        client=_client(comparison, choice, split),
        group=group,
        intersection=intersection,
        unit="people" if len(comparison.federation.groups) > 1 else "rows",
        favourable=comparison.federation.labels[comparison.federation.favourable] if two else "",
        as_bad=tuple(as_bad),
        others=len(labels) - 1,
        measured=f"{label}{WHERE[split]}, {seeds}.",
    )


def labels_known(comparison: Comparison) -> bool:
    """Whether tables tell true labels: deployed clients may tell an accuracy only, which is counted under some label."""
    return comparison.deployed is None or (comparison.deployed.tables and not comparison.deployed.accuracies)


def _table(run: Run, split: str) -> np.ndarray:
    """Everybody by label and outcome after the last round."""
    return run.trace.central[-1].sum(0) if split == CENTRAL else run.trace.tables[-1, SPLITS.index(split)].sum((0, 1))


def _accuracy(tables: np.ndarray) -> float:
    return float(100 * ratio(np.trace(tables, axis1=1, axis2=2), tables.sum((1, 2))).mean())


def _whole(tables: np.ndarray, favourable: int, *, two: bool) -> Part:
    rows, accuracy = float(tables.sum((1, 2)).mean()), _accuracy(tables)
    found = rates(tables, favourable) if two else None
    tpr, fpr = (100 * float(found.tpr.mean()), 100 * float(found.fpr.mean())) if found else (np.nan, np.nan)
    return Part("", rows, accuracy, tpr=tpr, fpr=fpr, average=accuracy)


def _trivial(comparison: Comparison, label: str, tables: np.ndarray, least: int) -> Trivial | None:
    """The most frequent label of the training rows, scored on the rows of `tables` [seeds, labels, outcomes].

    Nothing where fewer than `least` people have this label, or another: its score would tell that.
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
    """How many training rows have each label; None where that is not known, as of deployed clients that do not evaluate on them."""
    everyone = comparison.everyone
    if comparison.registered is not None and len(everyone.y):
        return np.bincount(everyone.y[everyone.train.rows], minlength=len(everyone.labels))
    counts = np.sum([run.trace.tables[-1, SPLITS.index("train")].sum((0, 1, 3)) for run in comparison.of(label)], axis=0)
    return counts if counts.any() else None


def _client(comparison: Comparison, choice: Choice, split: str) -> Part | None:
    """The client that is served worst, of those that may be named."""
    found = worst_clients(comparison, choice.baseline, choice.baseline, limit=2, split=choice.split, hidden=choice.hidden)
    if len(found) < 2:
        return None
    worst = found[0]
    own = client_rates(comparison, choice.baseline, choice.split, choice.hidden, choice.least) if labels_known(comparison) else None
    return Part(
        name=f"“{worst.name}”",
        rows=worst.rows,
        accuracy=worst.accuracy,
        low=worst.low,
        high=worst.high,
        tpr=np.nan if own is None else float(own.tpr[worst.number]),
        fpr=np.nan if own is None else float(own.fpr[worst.number]),
        average=_accuracy(np.stack([_table(run, choice.split) for run in comparison.of(choice.baseline)])),
        where=WHERE[choice.split] if choice.split != split else "",
        among=SHOWN if choice.hidden else "",
    )


def _groups(comparison: Comparison, choice: Choice, split: str) -> tuple[Part | None, Part | None]:
    """The worst-served group of a single attribute and, where there are several attributes, the worst-served intersection."""
    found = groupings(comparison.federation)
    if not found:
        return None, None
    single, crossed = (found[1:], found[:1]) if len(found) > 1 else (found, [])
    return _group(comparison, choice, split, single), _group(comparison, choice, split, crossed)


def _group(comparison: Comparison, choice: Choice, split: str, ways: Sequence[Grouping]) -> Part | None:
    """The worst served of all groups of these ways to tell people apart. Groups of few rows come last: chance makes them extreme."""
    shown_on, label = rows_shown(comparison), choice.baseline
    parts, among = [], ""
    for grouping in ways:
        hidden = hidden_groups(comparison, shown_on, choice.least, grouping.attribute)
        among = SHOWN if hidden.cells[:, 0].any() else among
        called = f"{grouping.title} " if grouping.attribute or len(comparison.federation.attributes) == 1 else ""
        rate = {name: group_rates(comparison, grouping, label, shown_on, name, hidden) for name in ("accuracy", "tpr", "fpr")}
        for accuracy, tpr, fpr in zip(*rate.values(), strict=True):
            if np.isfinite(accuracy.value):
                low, high = (100 * float(end) for end in wilson(np.array(accuracy.value / 100), np.array(accuracy.rows)))
                name = f"{called}“{accuracy.group}”"
                parts.append(Part(name, accuracy.rows, accuracy.value, low, high, tpr.value, fpr.value))
    if len(parts) < 2:
        return None
    everybody = np.stack([pooled(run.trace, shown_on)[-1].sum(0) for run in comparison.of(label)])
    worst = min(parts, key=lambda part: (part.rows < FEW, part.accuracy))
    return worst._replace(average=_accuracy(everybody), where=WHERE[shown_on] if shown_on != split else "", among=among)
