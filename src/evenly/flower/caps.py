"""Caps: bounds on the numbers that clients report and on their coefficients.

A cap is a number, or a multiple of the usual value such as "10x":

    loss         largest loss; as a multiple, the largest factor above or below the median
    examples     largest number of rows, or multiple of the median; tables shrink with it
    coefficient  largest share of all coefficients, or multiple of an equal share
    norm         largest length of an update, or multiple of the median length

The part that is cut from a coefficient is given to the other clients in proportion, so that the sum
stays the same: some methods depend on it. Clients that were cut are reported as a `Flag`. A flag is
no proof of a lie, because a client with a poor model reports a large loss, too.

With fewer than three replies a single client could choose the median, so multiples cut nothing
then; nor do they where the median is 0. A share below 1 / clients cannot be kept; all clients then
count equally.
"""

import dataclasses
from typing import Any

import numpy as np

from evenly.data.federation import Census
from evenly.experiment.deployment import Flag
from evenly.records import is_number, require
from evenly.types import Signals

Bound = float | str | None
Array = np.ndarray
FEW = 3  # replies from which on one client cannot choose the median
ROUNDING = 1e-6
NOBODY = -1  # a flag that is about all clients


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caps:
    """Bounds on the numbers that clients report and on their coefficients.

    Args:
        loss: Largest loss, or a multiple of the median loss such as "5x".
        examples: Largest number of training rows, or a multiple of the median.
        coefficient: Largest share of all coefficients, at most 1, or a multiple of an equal share,
            at least "1x".
        norm: Largest length of an update, or a multiple of the median length.

    None, the default, means no bound.

    Raises:
        ValueError: If a bound is not a number above 0 or a multiple such as "10x".

    Example:
        >>> from evenly.flower import Caps
        >>> Caps(loss="5x", coefficient=0.4)
        Caps(loss='5x', examples=None, coefficient=0.4, norm=None)
    """

    loss: Bound = None
    examples: Bound = None
    coefficient: Bound = None
    norm: Bound = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _parse(field.name, getattr(self, field.name))
        share, times = _parse("coefficient", self.coefficient)
        if share is not None:
            fits = share >= 1 if times else share <= 1
            asked = "at least one equal share, '1x'" if times else "a share of at most 1"
            require(fits, f"caps: coefficient must be {asked}, got {self.coefficient!r}.")

    def require_feasible(self, clients: int) -> None:
        """Raise if a cohort of this size cannot keep the share of the coefficient cap."""
        share, times = _parse("coefficient", self.coefficient)
        if share is not None and not times:
            sentence = (
                f"caps: coefficient must be at least 1 / {clients} = {1 / clients:.3g}, because"
                f" {clients} clients take part in a round and their shares sum to 1; got {share}. A"
                " multiple of an equal share, such as '3x', holds for any number."
            )
            require(share * clients >= 1 - ROUNDING, sentence)

    def census(self, census: Census) -> tuple[Census, list[Flag]]:
        """The census with capped sizes, and flags for clients that were capped."""
        examples, flags = _cut(
            "examples", self.examples, census.examples, np.ones(len(census.examples), bool), None
        )
        if examples is None:
            return census, flags
        factor = examples / np.maximum(census.examples, 1)
        return census._replace(examples=examples, cells=census.cells * factor[:, None, None]), flags

    def signals(self, signals: Signals) -> tuple[Signals, list[Flag]]:
        """The signals with capped losses and counts, and flags for clients that were capped."""
        returned = np.asarray(signals.returned, bool)
        loss, flags = _cut("loss", self.loss, signals.loss, returned, signals.client)
        examples, more = _cut("examples", self.examples, signals.examples, returned, signals.client)
        signals = signals if loss is None else signals._replace(loss=loss)
        signals = signals if examples is None else _scale_signals(signals, examples)
        if signals.valid_table is None:
            return signals, flags + more
        held_out = np.asarray(signals.valid_table).sum((1, 2, 3))
        kept, yet_more = _cut(
            "examples", self.examples, held_out, returned & (held_out > 0), signals.client
        )
        if kept is not None:
            signals = signals._replace(
                valid_table=_scale_counts(signals.valid_table, kept / np.maximum(held_out, 1))
            )
        return signals, flags + more + yet_more

    def coefficients(self, coefficients: Any, signals: Signals) -> tuple[Any, list[Flag]]:
        """Capped coefficients [K] or [K, models] with unchanged sums, and flags for clients that
        were capped. They need not sum to 1: flags state shares of the sum.
        """
        if self.coefficient is None:
            return coefficients, []
        given, returned = np.asarray(coefficients), np.asarray(signals.returned, bool)
        clients, slot = np.unique(np.asarray(signals.client), return_inverse=True)
        rows, flags = [], []
        for row in np.atleast_2d(given.T):
            # Who counts nothing in one of several models is not one of its clients.
            open_to = (
                np.bincount(
                    slot, (returned if given.ndim == 1 else row > 0).astype(float), len(clients)
                )
                > 0
            )
            # a client that was drawn twice holds two slots
            by_client = np.bincount(slot, row.astype(np.float64), len(clients))
            kept = redistribute(by_client, *_limits(self.coefficient, by_client, open_to), open_to)
            rows.append(_by_slot(row, by_client, kept, slot))
            mass = abs(by_client.sum()) or 1.0
            flags += _flags("coefficient", by_client / mass, kept / mass, clients)
            flags += _infeasible(self.coefficient, by_client, open_to) if given.ndim == 1 else []
        return np.stack(rows).T.reshape(given.shape).astype(given.dtype), flags

    def vectors(self, square_norm: Any, signals: Signals) -> tuple[Array, list[Flag]]:
        """Factor of each update, so that none is longer than the cap. [K]"""
        norms, returned = (
            np.sqrt(np.asarray(square_norm, np.float64)),
            np.asarray(signals.returned, bool),
        )
        cut, flags = _cut("norm", self.norm, norms, returned, signals.client)
        return (
            np.ones(norms.shape)
            if cut is None
            else np.where(cut < norms, cut / np.maximum(norms, 1e-300), 1.0)
        ), flags


def redistribute(coefficients: Array, limit: float, mass: float, open_to: Array) -> Array:
    """Cut coefficients to a limit, and give what was cut to the clients below it. [clients]

    They take it in proportion to their coefficients, so that the sum of all stays `mass`.
    Coefficients below 0 stop at minus the limit. If even equal shares exceed the limit, all clients
    get equal shares.

    Args:
        coefficients: Coefficient of each client.
        limit: Largest coefficient.
        mass: Sum of the coefficients, before and after.
        open_to: Clients that can take some of what was cut.
    """
    if not mass > 0 or not open_to.any():
        return coefficients
    below = np.where(coefficients < 0, np.maximum(coefficients, -limit), 0.0)
    rest, takers = mass - below.sum(), open_to & (coefficients >= 0)
    if limit * takers.sum() <= rest * (1 + 1e-12):
        return np.where(takers, rest / max(takers.sum(), 1), below)
    full = np.zeros(coefficients.shape, bool)
    while True:
        free = takers & ~full
        left, own = rest - limit * full.sum(), coefficients[free].sum()
        share = np.where(free, coefficients, 0.0) / own if own > 0 else 1.0 / free.sum()
        grown = np.where(free, left * share, np.where(full, limit, below))
        more = free & (grown > limit)
        if not more.any():
            return grown
        full |= more


def _parse(name: str, bound: Bound) -> tuple[float | None, bool]:
    """Number of a bound, and whether it is a multiple."""
    times = isinstance(bound, str)
    try:
        number = None if bound is None else float(str(bound).removesuffix("x"))
    except ValueError:
        number = float("nan")
    fits = number is None or (
        np.isfinite(number) and number > 0 and (is_number(bound) or str(bound).endswith("x"))
    )
    require(
        bool(fits),
        f"caps: {name} must be a number above 0, a multiple such as '10x', or None, got {bound!r}.",
    )
    return number, times


def _cut(
    name: str, bound: Bound, values: Any, returned: Array, clients: Any
) -> tuple[Array | None, list[Flag]]:
    """Values of clients that returned, cut to the bound; None if none had to be cut."""
    number, times = _parse(name, bound)
    if number is None or values is None:
        return None, []
    values = np.asarray(values)
    seen = np.sort(values[returned])
    if times and len(seen) < FEW:
        return None, []
    # the lower of two middles: no mean with a huge one
    median = float(seen[(len(seen) - 1) // 2]) if times else 0.0
    # most say 0, of which every multiple is 0: those who say more would be silenced
    if times and not median > 0:
        return None, []
    # A loss near nothing stops q-FedAvg with q below 1 as surely as a huge one takes it over.
    least, most = (
        (median / number if name == "loss" else 0.0, number * median) if times else (0.0, number)
    )
    cut = np.where(returned, np.clip(values, least, most), values).astype(
        np.result_type(values, np.float32)
    )
    flags = _flags(
        name, values, cut, np.arange(len(values)) if clients is None else np.asarray(clients)
    )
    return (cut if flags else None), flags


def _limits(bound: Bound, coefficients: Array, open_to: Array) -> tuple[float, float]:
    number, times = _parse("coefficient", bound)
    mass = float(coefficients.sum())
    return (number or 0.0) * mass / (max(int(open_to.sum()), 1) if times else 1), mass


def _infeasible(bound: Bound, coefficients: Array, open_to: Array) -> list[Flag]:
    """One flag about all clients if so few returned that the share cannot be kept."""
    limit, mass = _limits(bound, coefficients, open_to)
    few = mass > 0 and limit * open_to.sum() < mass * (1 - ROUNDING)
    return [Flag(NOBODY, "coefficient", limit / mass, 1.0 / int(open_to.sum()))] if few else []


def _by_slot(row: Array, by_client: Array, kept: Array, slot: Array) -> Array:
    """Coefficients by slot from coefficients by client: in proportion, or evenly where a client had
    none.
    """
    seats = np.bincount(slot, minlength=len(by_client))
    share = np.where(
        by_client[slot] != 0,
        row / np.where(by_client[slot] != 0, by_client[slot], 1.0),
        1.0 / seats[slot],
    )
    return np.where(kept[slot] == by_client[slot], row, share * kept[slot])


def _scale_signals(signals: Signals, examples: Array) -> Signals:
    factor = examples / np.maximum(np.asarray(signals.examples, np.float64), 1)
    counts = {name: getattr(signals, name) for name in ("table", "cell_loss", "unprivileged")}
    return signals._replace(
        examples=examples,
        **{
            name: None if own is None else _scale_counts(own, factor)
            for name, own in counts.items()
        },
    )


def _scale_counts(counts: Any, factor: Array) -> Array:
    """Counts of each client times its factor."""
    return (np.asarray(counts).T * factor).T.astype(np.result_type(np.asarray(counts), np.float32))


def _flags(what: str, said: Array, counted: Array, clients: Array) -> list[Flag]:
    """Flags for clients that were cut. A coefficient that grew is not flagged."""
    large, small = (np.abs(side) for side in (said, counted))
    cut = (large > small * (1 + ROUNDING) + 1e-12) | (
        (what != "coefficient") & (small > large * (1 + ROUNDING) + 1e-12)
    )
    return [
        Flag(int(clients[k]), what, float(said[k]), float(counted[k])) for k in np.flatnonzero(cut)
    ]
