"""Tables of outcomes, from which every metric is computed, and what a metric must declare."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.data.sensitive import Attribute
from evenly.types import Trace

# From count tables to rates. Division by a count goes through `ratio`: an undefined rate is NaN, never 0.

Array = np.ndarray


def seated(trace: Trace) -> tuple[Array, Array]:
    """Who sat in each slot of each round, as a number among the clients in the tables, and with which weight. [rounds, K] each

    Where only a panel was evaluated, whoever is not of it has no number: the slot is given to the first, with weight 0.
    """
    if trace.panel is None:
        return trace.cohort, trace.weights
    place = np.full(len(trace.excluded), -1)
    place[trace.panel] = np.arange(len(trace.panel))
    found = place[trace.cohort]
    return np.maximum(found, 0), np.where(found < 0, 0, trace.weights)


def ratio(part: Any, whole: Any) -> Array:
    """part / whole, NaN where whole is 0.

    >>> ratio([1, 0], [2, 0])
    array([0.5, nan])
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole != 0)


def correct(tables: Array) -> Array:
    """Rows predicted right. [..., groups, labels, outcomes] -> [...]"""
    return np.trace(tables, axis1=-2, axis2=-1).sum(-1)


def examples(tables: Array) -> Array:
    """Rows counted. [..., groups, labels, outcomes] -> [...]"""
    return tables.sum((-3, -2, -1))


def accuracy(tables: Array) -> Array:
    """Share of rows predicted right, NaN without rows. [..., groups, labels, outcomes] -> [...]"""
    return ratio(correct(tables), examples(tables))


# From count tables to the rates of groups: [..., groups, labels, outcomes] -> [..., groups], NaN where undefined, never 0.
#
# One label is favourable, the one that people want to get; with more than two labels it is set against all others together. Some groups
# are unprivileged, all others privileged; pooled, they are the two sides whose rates are subtracted.


class Rates(NamedTuple):
    """How a model treats each group. All shares are fractions of what is named, NaN where there is none of it."""

    examples: Array  # rows
    accuracy: Array  # of all rows: predicted right, among all labels
    selection_rate: Array  # of all rows: predicted favourable
    base_rate: Array  # of all rows: labelled favourable
    tpr: Array  # of rows labelled favourable: predicted so
    fpr: Array  # of rows labelled otherwise: predicted favourable
    precision: Array  # of rows predicted favourable: labelled so
    f1: Array  # harmonic mean of precision and tpr: 2 TP / (2 TP + FP + FN)


class Wholes(NamedTuple):
    """How many rows each rate is a share of: what says whether it can be trusted."""

    accuracy: Array
    selection_rate: Array
    tpr: Array
    fpr: Array
    precision: Array


def rates(tables: Array, favourable: int) -> Rates:
    """The rates of every group.

    >>> table = np.array([[[40, 10], [20, 30]], [[0, 0], [0, 0]]])  # the second group has no rows
    >>> rates(table, favourable=1).tpr
    array([0.6, nan])
    """
    wholes = rows_behind(tables, favourable)
    tp, right = tables[..., favourable, favourable], np.trace(tables, axis1=-2, axis2=-1)
    return Rates(
        examples=wholes.accuracy,
        accuracy=ratio(right, wholes.accuracy),
        selection_rate=ratio(wholes.precision, wholes.accuracy),
        base_rate=ratio(wholes.tpr, wholes.accuracy),
        tpr=ratio(tp, wholes.tpr),
        fpr=ratio(wholes.precision - tp, wholes.fpr),
        precision=ratio(tp, wholes.precision),
        f1=ratio(2 * tp, wholes.tpr + wholes.precision),
    )


def rows_behind(tables: Array, favourable: int) -> Wholes:
    """The rows that each rate of each group is a share of.

    >>> rows_behind(np.array([[[40, 10], [20, 30]]]), favourable=1).tpr
    array([50])
    """
    if not 0 <= favourable < tables.shape[-1]:
        raise ValueError(f"The favourable label must be a number from 0 to {tables.shape[-1] - 1}, got {favourable}.")
    rows, labelled, predicted = tables.sum((-2, -1)), tables[..., favourable, :].sum(-1), tables[..., favourable].sum(-1)
    return Wholes(accuracy=rows, selection_rate=rows, tpr=labelled, fpr=rows - labelled, precision=predicted)


def sides(tables: Array, unprivileged: Sequence[int]) -> Array:
    """The unprivileged groups pooled, then the privileged: [..., groups, labels, outcomes] -> [..., 2, labels, outcomes]."""
    groups = tables.shape[-3]
    if not all(0 <= g < groups for g in unprivileged):
        raise ValueError(f"Unprivileged groups must be numbers from 0 to {groups - 1}, got {tuple(unprivileged)}.")
    chosen = np.isin(np.arange(groups), unprivileged)
    return np.stack([tables[..., chosen, :, :].sum(-3), tables[..., ~chosen, :, :].sum(-3)], axis=-3)


def by_attribute(tables: Array, attribute: Attribute) -> Array:
    """Groups pooled by their value of one attribute: [..., groups, labels, outcomes] -> [..., values, labels, outcomes].

    >>> sex = Attribute("sex", ("female", "male"), of_group=(0, 0, 1))
    >>> by_attribute(np.array([[[1]], [[2]], [[4]]]), sex).ravel()
    array([3, 4])
    """
    if tables.shape[-3] != len(attribute.of_group):
        raise ValueError(
            f"The attribute {attribute.name!r} must say the value of every group: it names {len(attribute.of_group)} groups, "
            f"but the tables have {tables.shape[-3]}."
        )
    of_group = np.array(attribute.of_group)
    return np.stack([tables[..., of_group == v, :, :].sum(-3) for v in range(len(attribute.values))], axis=-3)


# What a reader needs to know of a metric; the registries of client and of group metrics are made of these.

ROWS, SIDES, GROUPS = "rows", "sides", "groups"
CLIENTS, WORST_TENTH, BEST_TENTH = "clients", "worst tenth", "best tenth"
WORST_CLIENT, BEST_CLIENT, SOME_CLIENTS = "worst client", "best client", "some clients"
CLIENT_GROUPS, RUN = "client groups", "run"
RESTS_ON = {
    ROWS: "all rows together",
    SIDES: "the unprivileged and the privileged, each pooled",
    GROUPS: "every single group of people",
    CLIENTS: "the accuracies of all clients",
    WORST_TENTH: "the worst-served tenth of the clients",
    BEST_TENTH: "the best-served tenth of the clients",
    WORST_CLIENT: "the worst-served client",
    BEST_CLIENT: "the best-served client",
    SOME_CLIENTS: "one or a few of the clients, whichever they are",
    CLIENT_GROUPS: "the accuracies of groups of clients",
    RUN: "the run itself: its traffic and its models",
}
OF_PEOPLE = (ROWS, SIDES, GROUPS)
FEW_CLIENTS = (WORST_TENTH, BEST_TENTH, WORST_CLIENT, BEST_CLIENT, SOME_CLIENTS)
OF_CLIENTS = (CLIENTS, *FEW_CLIENTS)


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric and what a reader needs to know of it. `better` is +1 if larger is better, -1 if smaller is fairer, 0 neither.

    `rests_on`, one of `RESTS_ON`, says what the value is computed from. It has no default, because it decides whether the metric is
    hidden where nothing may rest on few people (`--min-cell`).

    >>> Metric("eod", "EOD", "TPR₀ − TPR₁", "−1 to 1", 0, abs, "sides").direction
    'closer to 0 is fairer'
    """

    name: str
    title: str
    formula: str
    range: str
    better: int
    function: Callable[..., Any]
    rests_on: str = ""
    undefined: str = ""  # when it has no value, in words; "": the documentation finds out by trying

    def __post_init__(self) -> None:
        if self.rests_on not in RESTS_ON:
            known = "; ".join(f"{name!r}, {words}" for name, words in RESTS_ON.items())
            raise ValueError(
                f"Metric {self.name!r}: rests_on must say what the value is computed from, because that decides what is hidden under "
                f"--min-cell, got {self.rests_on!r}. Known: {known}."
            )
        if self.better not in (-1, 0, 1):
            raise ValueError(f"Metric {self.name!r}: better must be 1 (higher), -1 (lower) or 0 (neither), got {self.better!r}.")

    @property
    def direction(self) -> str:
        if self.better == 0 and self.range.startswith("−"):  # signed: both sides of 0 are unfair, to one side or the other
            return "closer to 0 is fairer"
        return {1: "higher is better", -1: "lower is fairer", 0: "neither"}[self.better]

    @property
    def doc(self) -> str:
        """What the function says of itself, also where some of its arguments are fixed."""
        return inspect.getdoc(getattr(self.function, "func", self.function)) or ""
