"""How each client is served: its accuracy, its rows and the weight that it got, averaged over seeds."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from evenly.algorithms import METHODS
from evenly.data.splits import SPLITS
from evenly.experiment.findings.weights import effective_clients
from evenly.experiment.results import Comparison, Run
from evenly.metrics import accuracy, examples, idle_rounds, rates, ratio, seated
from evenly.report.disclosure import hide
from evenly.report.hiding import fewest

NORMAL95 = 1.96
NAMED = 20  # clients below which every one has a line with its name, instead of histograms and clouds of dots


class Served(NamedTuple):
    """The clients under one method, means over seeds; NaN where a client has no rows."""

    accuracy: np.ndarray  # [clients] percent
    rows: np.ndarray  # [clients] rows that the accuracy is measured on
    train: np.ndarray  # [clients] training rows


class Client(NamedTuple):
    """One badly served client."""

    name: str
    train: float
    rows: float
    accuracy: float  # percent
    low: float
    high: float
    elsewhere: float  # its accuracy under the method that is compared with
    number: int = -1  # among the federation's clients


class Influence(NamedTuple):
    """Each client's share of the training rows and of all weight given in training; both sum to 1."""

    rows: np.ndarray  # [clients]
    weight: np.ndarray  # [clients]


def client_accuracy(run: Run, split: str = "test") -> tuple[np.ndarray, np.ndarray]:
    """Every client's accuracy in percent after the last round, and the rows it is measured on."""
    tables = run.trace.tables[-1, SPLITS.index(split)]
    return 100 * accuracy(tables), examples(tables)


def served(comparison: Comparison, label: str, split: str = "test") -> Served:
    runs = [client_accuracy(run, split) for run in comparison.of(label)]
    train = [training_rows(comparison, run) for run in comparison.of(label)]
    means = _mean(np.array([a for a, _ in runs]))
    return Served(means, np.mean([n for _, n in runs], axis=0), np.mean(train, axis=0))


def training_rows(comparison: Comparison, run: Run) -> np.ndarray:
    """How many rows each client trains on. Deployed clients tell that also where they do not evaluate the model on them."""
    rows = client_accuracy(run, "train")[1]
    return np.where(rows > 0, rows, comparison.federation.train.counts)


def worst_clients(
    comparison: Comparison, label: str, other: str, *, limit: int = 10, split: str = "test", hidden: Collection[int] = ()
) -> list[Client]:
    """The clients with the lowest accuracy under `label`, worst first, with their accuracy under `other`; without the hidden ones.

    Among equals the client with more rows comes first: there the evidence is stronger.
    """
    own, elsewhere = served(comparison, label, split), served(comparison, other, split)
    known = np.array([k for k in np.flatnonzero(np.isfinite(own.accuracy)).tolist() if k not in hidden], int)
    order = known[np.lexsort((known, -own.rows[known], own.accuracy[known]))][:limit]
    low, high = wilson(own.accuracy / 100, own.rows)
    return [
        Client(
            comparison.federation.names[k],
            float(own.train[k]),
            float(own.rows[k]),
            float(own.accuracy[k]),
            float(100 * low[k]),
            float(100 * high[k]),
            float(elsewhere.accuracy[k]),
            int(k),
        )
        for k in order
    ]


class ClientRates(NamedTuple):
    """True and false positive rates of the clients, means over seeds in percent; NaN where undefined or hidden. [clients] each"""

    tpr: np.ndarray
    fpr: np.ndarray


def client_rates(comparison: Comparison, label: str, split: str, hidden: Collection[int] = (), least: int = 0) -> ClientRates:
    """Rates of hidden clients, and those that rest on fewer than `least` people or would give such a number away, are left out.

    A client's rates and its accuracy tell how many of its people have each label, and so do those of everybody.
    """
    favourable = comparison.federation.favourable
    tables = np.stack([run.trace.tables[-1, SPLITS.index(split)].sum(1) for run in comparison.of(label)])  # [seeds, clients, labels, ...]
    found, labelled = rates(tables, favourable), tables[..., favourable, :].sum(-1)
    counts = fewest(np.stack([labelled, tables.sum((-2, -1)) - labelled], axis=-1))  # [clients, 2]
    gone = np.isin(np.arange(len(counts)), list(hidden))
    cells = hide(counts, least, sums=[0, 1], also=np.column_stack([gone, gone])).cells
    means = (np.where(cells[:, i], np.nan, 100 * _mean(rate)) for i, rate in enumerate((found.tpr, found.fpr)))
    return ClientRates(*means)


def _mean(seen: np.ndarray) -> np.ndarray:
    """Over the seeds that define a rate. [seeds, clients] -> [clients]"""
    known = np.isfinite(seen)
    return ratio(np.where(known, seen, 0).sum(0), known.sum(0))


def wilson(share: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval for a share seen on so many rows. NaN without rows.

    Rows of one seed are counted, not of all seeds together: the seeds test overlapping rows.

    >>> [bound.round(3).tolist() for bound in wilson(np.array([0.0]), np.array([10]))]
    [[0.0], [0.278]]
    """
    rows = np.where(rows > 0, rows, np.nan)
    z2 = NORMAL95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = NORMAL95 / (1 + z2 / rows) * np.sqrt(share * (1 - share) / rows + z2 / (4 * rows**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def influence(comparison: Comparison, label: str) -> Influence:
    """Shares of rows and of weight under one method, means over seeds. NaN if no weight is known."""
    pairs = [(_row_share(comparison, run), _weight_share(run)) for run in comparison.of(label)]
    return Influence(np.mean([rows for rows, _ in pairs], axis=0), np.mean([weight for _, weight in pairs], axis=0))


def mean_effective_clients(comparison: Comparison, label: str) -> float:
    """As if so many clients had counted alike under a method, the mean over rounds and seeds; NaN if no weight is known."""
    runs = comparison.of(label)
    return float("nan") if any(map(_several_models, runs)) else float(np.mean([effective_clients(run.trace) for run in runs]))


def reported(comparison: Comparison, label: str, name: str) -> tuple[int, int]:
    """How often something that a rule counted happened, over all seeds, and in how many client-rounds."""
    runs = comparison.of(label)
    return round(sum(run.trace.reports.get(name, 0) for run in runs)), sum(run.trace.cohort.size for run in runs)


def idle(comparison: Comparison, label: str) -> tuple[int, int]:
    """In how many rounds of a method no update counted, over all seeds, and of how many; several models have no round in common."""
    runs = [run for run in comparison.of(label) if not _several_models(run)]
    return sum(idle_rounds(run.trace) for run in runs), sum(len(run.trace.weights) for run in runs)


def idle_words(comparison: Comparison, labels: Iterable[str]) -> list[str]:
    """A sentence for every method with rounds in which nobody counted, as under AFL when all clients of a round have λ = 0."""
    found = {label: idle(comparison, label) for label in labels}
    return [
        f"Under {label}, in {times:,} of {of:,} rounds no update counted, because every client of the round had weight 0 or did not "
        "return; these rounds did not change the model."
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
        return np.full(trace.tables.shape[2], np.nan)  # several models, each with weights of its own
    # The sum of the coefficients is part of some methods (FedSGD with q); shares compare them with all others.
    cohort, weights = seated(trace)
    total = np.bincount(cohort.ravel(), weights.ravel(), minlength=trace.tables.shape[2])
    return ratio(total, total.sum())
