"""The figures of a report: for every method and metric the mean over seeds and its spread, and how
each client is served.
"""

import dataclasses
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from evenly.algorithms import METHODS
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, Run, compared_split
from evenly.metrics import (
    EVERY_METRIC,
    GROUP_METRICS,
    Metric,
    Spread,
    accuracy,
    examples,
    idle_rounds,
    measure,
    rates,
    ratio,
    slots_of_evaluated,
    spread,
)
from evenly.metrics.runs import effective_clients
from evenly.metrics.statistics import is_clear
from evenly.privacy.claims import CLIENT
from evenly.report.disclosure import fewest_rows, hide

# The results table as data: for every method and metric the mean over seeds, its spread, and which
# value is best.
#
# The command line and the page both show this table, so it knows nothing of either.

MAIN_METRICS = (
    "average",
    "average_devices",
    "worst10",
    "best10",
    "variance",
    "variance_noise",
    "variance_true",
)
UNDEFINED = "n/a"
SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}
# A view of the registries, not a copy: what is added to them has a column.
COLUMNS: Mapping[str, Metric] = ChainMap(
    {
        CENTRAL: dataclasses.replace(
            GROUP_METRICS["accuracy"], name=CENTRAL, title="accuracy on the central test set"
        )
    },
    cast("dict[str, Metric]", EVERY_METRIC),
)

# label -> seed -> metric -> value, after the last round
Values = dict[str, dict[int, dict[str, float]]]


class Cell(NamedTuple):
    """One method's value of one metric."""

    metric: Metric
    spread: Spread
    best: bool  # the best mean of all methods
    near: bool  # not the best, but over these seeds not clearly worse
    clear: bool = False  # the best, and over these seeds every other method is clearly worse

    @property
    def text(self) -> str:
        return format_spread(self.spread, self.metric)


class Row(NamedTuple):
    """One method."""

    label: str
    cells: dict[str, Cell]


class Table(NamedTuple):
    """One row per method, one column per metric."""

    split: str
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    seeds: int


def results_table(
    comparison: Comparison, *, metrics: Sequence[str] = MAIN_METRICS, split: str = "test"
) -> Table:
    """Mean and spread over seeds of each metric for each method, on one split of the
    clients' rows.
    """
    return table_of(final_values(comparison, split), metrics=metrics, split=split)


def table_of(
    values: Values, *, metrics: Sequence[str] = MAIN_METRICS, split: str = "test"
) -> Table:
    """The results table of given values."""
    chosen = tuple(COLUMNS[name] for name in metrics)
    columns = {metric.name: _column(values, metric) for metric in chosen}
    rows = tuple(
        Row(label, {name: column[label] for name, column in columns.items()}) for label in values
    )
    return Table(split, chosen, rows, max((len(seeds) for seeds in values.values()), default=0))


def final_values(
    comparison: Comparison, split: str = "test", withheld: Collection[str] = ()
) -> Values:
    """Every metric of every run after its last round. Withheld metrics are NaN.

    If only a central test set is held out, the accuracy on it is included as "central".
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}.")
    values: Values = {label: {} for label in comparison.labels}
    alone = len(comparison.federation.central) and not comparison.federation.test.counts.any()
    for run in comparison.runs:
        tables = run.trace.tables[-1, SPLITS.index(split)]
        central = {CENTRAL: float(100 * accuracy(run.trace.central[-1]))} if alone else {}
        found = measure(accuracy(tables), examples(tables)) | dict.fromkeys(withheld, float("nan"))
        values[run.label][run.seed] = found | central
    return values


def client_split(comparison: Comparison) -> str:
    """The split that clients are compared on: test or, if no client has test rows, validation."""
    return compared_split(comparison.federation)


def headline(values: Values) -> str:
    """The main accuracy: on the central test set if only that is held out, else the clients'
    average.
    """
    return (
        CENTRAL
        if all(CENTRAL in seed for seeds in values.values() for seed in seeds.values())
        else "average"
    )


def defined_metrics(values: Values, metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics that are defined for at least one method."""
    every = [seed for seeds in values.values() for seed in seeds.values()]
    return tuple(
        m
        for m in metrics
        if all(m in seed for seed in every)
        and any(np.isfinite(over_seeds(values, label, m).mean) for label in values)
    )


def over_seeds(values: Values, label: str, metric: str) -> Spread:
    """Mean and spread of a metric over the seeds of one method."""
    return spread(np.array([seed[metric] for seed in values[label].values()]))


def difference(values: Values, label: str, other: str, metric: str) -> Spread:
    """The change from `other` to `label`, seed by seed.

    Methods share data, cohorts and batches of a seed, so most of the variation between seeds
    cancels in the difference.
    """
    common = [seed for seed in values[label] if seed in values[other]]
    return spread(np.array([values[label][s][metric] - values[other][s][metric] for s in common]))


def _column(values: Values, metric: Metric) -> dict[str, Cell]:
    found = {label: over_seeds(values, label, metric.name) for label in values}
    ranked = [s.mean * metric.better for s in found.values() if np.isfinite(s.mean)]
    # A metric without a better side has no best value, nor have methods that are all alike.
    top = (
        max(ranked)
        if metric.better
        and len(found) > 1
        and ranked
        and (min(ranked) < max(ranked) or len(ranked) < len(found))
        else None
    )
    best = {
        label for label, s in found.items() if top is not None and s.mean * metric.better == top
    }
    near = {label for label in found if _near(values, label, best, metric)}
    others = [label for label, s in found.items() if label not in best and np.isfinite(s.mean)]
    clear = (
        len(best) == 1
        and bool(others)
        and all(is_clear(difference(values, label, min(best), metric.name)) for label in others)
    )
    return {
        label: Cell(metric, s, label in best, label in near, clear and label in best)
        for label, s in found.items()
    }


def _near(values: Values, label: str, best: set[str], metric: Metric) -> bool:
    if not best or label in best:
        return False
    change = difference(values, label, min(best), metric.name)
    return bool(np.isfinite(change.half_width)) and not is_clear(change)


def format_spread(value: Spread, metric: Metric) -> str:
    """Mean and half the width of the 95 % interval: "71.3 ± 2.1"; no interval for a single seed;
    "n/a" if undefined.
    """
    if not np.isfinite(value.mean):
        return UNDEFINED
    mean, digits = format_value(value.mean, metric), _digits(value.mean, metric)
    return f"{mean} ± {value.half_width:.{digits}f}" if np.isfinite(value.half_width) else mean


def spread_words(seeds: int) -> str:
    """What "±" means in a table, in the same words everywhere."""
    return (
        f"mean ± half of the 95 % interval over {seeds} seeds"
        if seeds > 1
        else "one seed, so there are no intervals"
    )


def unit_of(metric: Metric) -> str:
    """The unit in a metric's declared range: "%", "%²", "°", or "" for a fraction or an index."""
    return next((unit for unit in ("%²", "%", "°") if unit in metric.range), "")


def listed(names: Sequence[str]) -> str:
    """Names in a row, with semicolons between them if some contain commas.

    >>> listed(["a", "b"]), listed(["sex=F, race=A", "sex=M, race=A"])
    ('a, b', 'sex=F, race=A; sex=M, race=A')
    """
    return ("; " if any("," in name for name in names) else ", ").join(names)


def count_text(rows: float) -> str:
    """A number of rows, which may be a mean over seeds: with one decimal unless it is whole.

    >>> count_text(1234), count_text(4 / 3)
    ('1,234', '1.3')
    """
    return f"{rows:,.0f}" if abs(rows - round(rows)) < 1e-9 else f"{rows:,.1f}"


def means_words(seeds: int, before: str = ", means") -> str:
    """ "…, means over seeds", or nothing for a single seed."""
    return f"{before} over seeds" if seeds > 1 else ""


def capitalise(text: str) -> str:
    """The text with its first letter in upper case; the others stay, as in names of methods."""
    return text[:1].upper() + text[1:]


def _digits(value: float, metric: Metric) -> int:
    if unit_of(metric) == "%²" and abs(value) >= 100:
        return 0
    return 1 if unit_of(metric) else 3


def format_value(value: float, metric: Metric) -> str:
    """A number with the digits that suit the metric: one for percentages and degrees, three for
    indices.
    """
    if not np.isfinite(value):
        return UNDEFINED
    digits = _digits(value, metric)
    shown = f"{value:.{digits}f}"
    return f"{0:.{digits}f}" if float(shown) == 0 else shown  # no "-0.0"


def signed(text: str) -> str:
    """A formatted number with its sign, and 0 without one.

    >>> signed("1.5"), signed("-1.5"), signed("-0.0")
    ('+1.5', '−1.5', '0.0')
    """
    if text == UNDEFINED or not text.strip("0.-"):
        return text.replace("-", "")
    return text.replace("-", "−") if text.startswith("-") else f"+{text}"


def size_text(size: float) -> str:
    """A number of bytes with its unit; "n/a" where nothing was recorded.

    >>> size_text(2440)
    '2.44 kB'
    """
    if not np.isfinite(size):
        return UNDEFINED
    unit, factor = byte_unit(size)
    return f"{size / factor:.3g} {unit}" if factor > 1 else f"{size:.0f} bytes"


def byte_unit(size: float) -> tuple[str, float]:
    """The largest unit that a number of bytes reaches, and its bytes."""
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
    return next(
        ((unit, factor) for unit, factor in units.items() if size >= factor), ("bytes", 1.0)
    )


# How each client is served: its accuracy, its rows and the weight that it got, averaged over seeds.

NORMAL95 = 1.96
# clients below which every one has a line with its name, instead of histograms and clouds of dots
NAMED = 20


class ClientMeans(NamedTuple):
    """The clients under one method, means over seeds; NaN where a client has no rows."""

    accuracy: np.ndarray  # [clients] percent
    rows: np.ndarray  # [clients] rows that the accuracy is measured on
    train: np.ndarray  # [clients] training rows


class WorstClient(NamedTuple):
    """One of the worst-served clients of a method."""

    name: str
    train: float
    rows: float
    accuracy: float  # percent
    low: float
    high: float
    other_accuracy: float  # its accuracy under the method that is compared with
    number: int = -1  # among the federation's clients


class Influence(NamedTuple):
    """Each client's share of the training rows and of all weight given in training; both
    sum to 1.
    """

    rows: np.ndarray  # [clients]
    weight: np.ndarray  # [clients]


def client_accuracy(run: Run, split: str = "test") -> tuple[np.ndarray, np.ndarray]:
    """Every client's accuracy in percent after the last round, and the rows it is measured on."""
    tables = run.trace.tables[-1, SPLITS.index(split)]
    return 100 * accuracy(tables), examples(tables)


def client_means(comparison: Comparison, label: str, split: str = "test") -> ClientMeans:
    """Accuracy and rows of every client under one method, means over seeds."""
    runs = [client_accuracy(run, split) for run in comparison.of(label)]
    train = [training_rows(comparison, run) for run in comparison.of(label)]
    means = mean_over_seeds(np.array([a for a, _ in runs]))
    return ClientMeans(means, np.mean([n for _, n in runs], axis=0), np.mean(train, axis=0))


def training_rows(comparison: Comparison, run: Run) -> np.ndarray:
    """The number of training rows of each client. Deployed clients report it even if they do not
    evaluate on these rows.
    """
    rows = client_accuracy(run, "train")[1]
    return np.where(rows > 0, rows, comparison.federation.train.counts)


def worst_clients(
    comparison: Comparison,
    label: str,
    other: str,
    *,
    limit: int = 10,
    split: str = "test",
    hidden: Collection[int] = (),
) -> list[WorstClient]:
    """The clients with the lowest accuracy under `label`, worst first, with their accuracy under
    `other`; without hidden clients.

    Of clients with equal accuracy, the one with more rows comes first, because the evidence is
    stronger.
    """
    own, elsewhere = client_means(comparison, label, split), client_means(comparison, other, split)
    known = np.array(
        [k for k in np.flatnonzero(np.isfinite(own.accuracy)).tolist() if k not in hidden], int
    )
    order = known[np.lexsort((known, -own.rows[known], own.accuracy[known]))][:limit]
    low, high = wilson(own.accuracy / 100, own.rows)
    numbers = np.stack(
        [own.train, own.rows, own.accuracy, 100 * low, 100 * high, elsewhere.accuracy], axis=-1
    )
    return [
        WorstClient(comparison.federation.names[k], *numbers[k].tolist(), number=k)
        for k in order.tolist()
    ]


class ClientRates(NamedTuple):
    """True and false positive rates of the clients, means over seeds in percent; NaN where
    undefined or hidden. [clients] each
    """

    tpr: np.ndarray
    fpr: np.ndarray


def client_rates(
    comparison: Comparison, label: str, split: str, hidden: Collection[int] = (), least: int = 0
) -> ClientRates:
    """True and false positive rates of each client. Hidden clients, and rates that rest on or
    reveal fewer than `least` people, are NaN.

    The rates and the accuracy of a client reveal how many of its people have each label.
    """
    favourable = comparison.federation.favourable
    # [seeds, clients, labels, ...]
    tables = np.stack(
        [run.trace.tables[-1, SPLITS.index(split)].sum(1) for run in comparison.of(label)]
    )
    found, labelled = rates(tables, favourable), tables[..., favourable, :].sum(-1)
    # [clients, 2]
    counts = fewest_rows(np.stack([labelled, tables.sum((-2, -1)) - labelled], axis=-1))
    gone = np.isin(np.arange(len(counts)), list(hidden))
    cells = hide(counts, least, sums=[0, 1], also=np.column_stack([gone, gone])).cells
    means = (
        np.where(cells[:, i], np.nan, 100 * mean_over_seeds(rate))
        for i, rate in enumerate((found.tpr, found.fpr))
    )
    return ClientRates(*means)


def mean_over_seeds(rate: np.ndarray) -> np.ndarray:
    """Mean over the seeds in which a rate is defined. [seeds, ...] -> [...]"""
    defined = np.isfinite(rate)
    return ratio(np.where(defined, rate, 0).sum(0), defined.sum(0))


def wilson(share: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval for a share of `rows` rows. NaN without rows.

    `rows` are the rows of one seed, not of all seeds: the seeds evaluate overlapping rows.

    >>> [bound.round(3).tolist() for bound in wilson(np.array([0.0]), np.array([10]))]
    [[0.0], [0.278]]
    """
    rows = np.where(rows > 0, rows, np.nan)
    z2 = NORMAL95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = NORMAL95 / (1 + z2 / rows) * np.sqrt(share * (1 - share) / rows + z2 / (4 * rows**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def influence(comparison: Comparison, label: str) -> Influence:
    """Shares of rows and of weight under one method, means over seeds. NaN if no weight
    is known.
    """
    pairs = [(_row_share(comparison, run), _weight_share(run)) for run in comparison.of(label)]
    return Influence(
        np.mean([rows for rows, _ in pairs], axis=0),
        np.mean([weight for _, weight in pairs], axis=0),
    )


def took_part(comparison: Comparison, label: str) -> np.ndarray:
    """Whether each evaluated client was sampled under a method, in any round of any seed."""
    times = [
        np.bincount(slots_of_evaluated(run.trace)[0].ravel(), minlength=run.trace.tables.shape[2])
        for run in comparison.of(label)
    ]
    return np.sum(times, axis=0) > 0


def mean_effective_clients(comparison: Comparison, label: str) -> float:
    """The effective number of clients per round under a method, mean over rounds and seeds; NaN if
    no weight is known.
    """
    runs = comparison.of(label)
    return (
        float("nan")
        if any(map(_several_models, runs))
        else float(np.mean([effective_clients(run.trace) for run in runs]))
    )


def count_events(comparison: Comparison, label: str, name: str) -> tuple[int, int]:
    """How often an event that a rule reports occurred, over all seeds, and the number of
    client-rounds.
    """
    runs = comparison.of(label)
    return round(sum(run.trace.reports.get(name, 0) for run in runs)), sum(
        run.trace.cohort.size for run in runs
    )


def count_idle_rounds(comparison: Comparison, label: str) -> tuple[int, int]:
    """The number of rounds in which no update counted, and the number of all rounds, over all seeds
    with a single model.
    """
    runs = [run for run in comparison.of(label) if not _several_models(run)]
    return sum(idle_rounds(run.trace) for run in runs), sum(len(run.trace.weights) for run in runs)


def idle_words(comparison: Comparison, labels: Iterable[str]) -> list[str]:
    """A sentence for each method with rounds in which no update counted, such as AFL if all clients
    of a round have λ = 0. Where noise protects clients, it moves the model all the same.
    """
    found = {label: count_idle_rounds(comparison, label) for label in labels}
    noised = {
        label
        for label, known in comparison.privacy.items()
        if known["unit"] == CLIENT and known["noise_multiplier"]
    }
    return [
        f"Under {label}, in {times:,} of {of:,} rounds no update counted, because every client of"
        " the round had weight 0 or did not return;"
        f" {'only noise moved' if label in noised else 'these rounds did not change'} the model."
        for label, (times, of) in found.items()
        if times
    ]


def _several_models(run: Run) -> bool:
    return run.algorithm in METHODS and METHODS[run.algorithm].combine is not None


def _row_share(comparison: Comparison, run: Run) -> np.ndarray:
    rows = training_rows(comparison, run)
    return ratio(rows, rows.sum())


def _weight_share(run: Run) -> np.ndarray:
    trace = run.trace
    if _several_models(run):
        # several models, each with weights of its own
        return np.full(trace.tables.shape[2], np.nan)
    # The sum of the coefficients is part of some methods (FedSGD with q); shares compare them with
    # all others.
    cohort, weights = slots_of_evaluated(trace)
    total = np.bincount(cohort.ravel(), weights.ravel(), minlength=trace.tables.shape[2])
    return ratio(total, total.sum())
