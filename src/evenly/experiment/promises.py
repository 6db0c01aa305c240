"""What is said about runs with differential privacy, and what is withheld.

Figures of evaluations are computed from the clients' data without noise, so that no epsilon covers
them. They stay with whoever trained: in the folder's traces, in Python and in the terminal. Files
that are meant to be shared, the report, results.csv and the points of loggers, do not hold them,
unless every private method of the comparison has `publish=true`.

Private rows are training rows. The same files then hold figures of validation and test rows, and
none of training rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, compared_split
from evenly.experiment.result_rows import run_columns, tidy_rows
from evenly.metrics import accuracy
from evenly.privacy.claims import withheld
from evenly.privacy.row_account import ROW
from evenly.randomness import generator
from evenly.types import Algorithm

BINS = 20


def withholds(privacy: Mapping[str, Any], methods: Iterable[Algorithm] = ()) -> bool:
    """Whether figures without noise are left out, from what methods promise by label, and from the
    methods themselves, which may be private before their noise is known.

    Example:
        >>> withholds({}), withholds({"fedavg+dp(epsilon=8)": {"published": False}})
        (False, True)
    """
    return any(not known.get("published") for known in privacy.values()) or any(
        withheld(one.privacy) for one in methods
    )


def shared_splits(privacy: Mapping[str, Any], methods: Iterable[Algorithm] = ()) -> tuple[str, ...]:
    """The splits whose figures may be shared: not that of training rows, where a method protects
    them. Arguments as for `withholds`.

    Example:
        >>> shared_splits({}), shared_splits({"fedavg+dp(unit=row, epsilon=8)": {"unit": "row"}})
        (('train', 'valid', 'test', 'central'), ('valid', 'test', 'central'))
    """
    units = {known.get("unit") for known in privacy.values()}
    units |= {one.privacy.unit for one in methods if one.privacy is not None}
    return tuple(split for split in (*SPLITS, CENTRAL) if split != "train" or ROW not in units)


def shared_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows of results.csv: all figures that are not withheld (`tidy_rows`). With privacy for
    clients they are what each private run promises and the histogram that it released.
    """
    if not withholds(comparison.privacy):
        splits = shared_splits(comparison.privacy)
        return [row for row in tidy_rows(comparison) if row["split"] in splits]
    return list(_promised_rows(comparison))


def _promised_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    split = compared_split(comparison.federation)
    for run in comparison.runs:
        known = comparison.privacy.get(run.label)
        if known is None:
            continue
        where = {**run_columns(comparison, run), "round": comparison.rounds, "split": split}
        for metric in ("epsilon", "delta", "noise_multiplier"):
            value = float("nan") if known[metric] is None else float(known[metric])
            yield {**where, "level": "promise", "name": "", "metric": metric, "value": value}
        counts = histogram_of(comparison, run.label) if run.seed == comparison.seeds[0] else None
        for i, count in enumerate(counts or ()):
            name = f"accuracy {100 * i // BINS} to {100 * (i + 1) // BINS}"
            yield {**where, "level": "histogram", "name": name, "metric": "clients", "value": count}


# One release of the histogram of client accuracies.


def histogram_of(comparison: Comparison, label: str) -> list[float] | None:
    """Clients by accuracy in 20 bins after the last round, noised; None if none is released.

    A client counts in one bin and one without rows in none. Only the run of the first seed is
    released. Its noise follows from seed and label, so that a page that is written again shows the
    same release.
    """
    noise = comparison.privacy.get(label, {}).get("histogram")
    if not noise:
        return None
    runs = comparison.of(label)
    if not runs:  # of methods that were left out of these results
        return None
    run, *_ = runs
    split = SPLITS.index(compared_split(comparison.federation))
    own = np.asarray(accuracy(run.trace.tables[-1, split]))
    own = own[np.isfinite(own)]
    counts = np.bincount(np.minimum((own * BINS).astype(int), BINS - 1), minlength=BINS)
    draw = generator(run.seed, f"histogram {label}").standard_normal(BINS)
    return (counts + float(noise) * draw).tolist()


def histogram_figures(counts: list[float]) -> tuple[float, float, float]:
    """Mean, mean of the worst tenth and variance of the accuracies in percent, of a histogram.
    Negative counts are 0.

    Example:
        >>> histogram_figures([0.0] * 10 + [10.0] + [-3.0] * 9)
        (52.5, 52.5, 0.0)
    """
    weight = np.maximum(np.asarray(counts), 0.0)
    total = weight.sum()
    if not total:
        return float("nan"), float("nan"), float("nan")
    middle = 100 * (np.arange(len(weight)) + 0.5) / len(weight)
    mean = float(weight @ middle / total)
    before = np.concatenate([[0.0], np.cumsum(weight)[:-1]])
    lowest = np.clip(total / 10 - before, 0.0, weight)
    worst, variance = lowest @ middle / lowest.sum(), weight @ (middle - mean) ** 2 / total
    return mean, float(worst), float(variance)


# What the bounds cut.


def what_was_cut(comparison: Comparison, label: str) -> dict[str, Any] | None:
    """The clip of each round, and the shares of updates that were cut, of the worst-served tenth of
    the clients and of the others, and of weights, over all seeds; None without a record. Of a
    deployment only the clip is known, because it follows from what was released.
    """
    split = SPLITS.index(compared_split(comparison.federation))
    worst, others, weights, clips = [], [], [], []
    if not comparison.of(label):  # one that was left out of these results
        return None
    for trace in (run.trace for run in comparison.of(label)):
        if trace.clip is None:
            return None
        clips.append(trace.clip)
        if trace.cut is None:
            continue
        own = np.asarray(accuracy(trace.tables[-1, split]))
        served = np.flatnonzero(np.isfinite(own))
        clients = np.arange(len(own)) if trace.panel is None else trace.panel
        lowest = clients[served[np.argsort(own[served])[: max(1, len(served) // 10)]]]
        back, badly = trace.weights != 0, np.isin(trace.cohort, lowest)
        worst.append(trace.cut[back & badly] & 1)
        others.append(trace.cut[back & ~badly] & 1)
        weights.append(trace.cut[back] // 2)
    shares = [np.concatenate([*parts, []]) for parts in (worst, others, weights)]
    found = [float(flags.mean()) if len(flags) else None for flags in shares]
    clip = [float(f"{value:.4g}") for value in np.mean(clips, axis=0)]
    return {"clip": clip, **dict(zip(("worst_tenth", "others", "weights"), found, strict=True))}


def privacy_record(comparison: Comparison) -> dict[str, Any]:
    """The privacy entry of run.json: each method's promise, the clip by round, whose updates
    were cut, and the histogram that was released.
    """
    return {
        label: {
            **known,
            "cut": what_was_cut(comparison, label),
            "released_histogram": histogram_of(comparison, label),
        }
        for label, known in comparison.privacy.items()
    }
