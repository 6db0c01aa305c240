"""Very many small clients whose wishes differ by a chosen amount: a crowd of phones, made in seconds.

Nothing is downloaded. Client k has n_k rows, lognormal with the given mean and at least two; a place z_k, standard normal in
four dimensions; and a taste t_k, standard normal, one number per class. Its features lie around C z_k with deviation 1, and
y = argmax(x W + disagreement * t_k): the same features get other labels at other clients, so that no model can be right for all,
and the more `disagreement`, the less. C and W are the same for everyone.

Everything is drawn in blocks of clients. The first clients of a crowd are those of any larger one with the same settings, and
drawing it takes little more memory than the rows themselves: a million clients of 14 rows with 60 features are 3.4 GB.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from evenly.data.federation import DRAWN, Federation
from evenly.data.partition import Rows, federate, numbered
from evenly.data.splits import cut_rows
from evenly.datasets.card import DatasetCard, Sizes
from evenly.randomness import generator
from evenly.records import require

PLACES = 4  # dimensions in which clients differ in their features
FEWEST = 2  # rows of a client
AT_ONCE = 4096  # clients drawn together


def synthetic_crowd(
    clients: int = 1000,
    *,
    rows: float = 14.0,
    spread: float = 0.8,
    features: int = 60,
    classes: int = 10,
    disagreement: float = 1.0,
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Clients with `rows` rows on average; `spread` is the deviation of the logarithm of their number (0: all clients are equal).

    `disagreement` is how much clients differ in what they call the same thing (0: not at all). `seed` draws the data, `split_seed`
    which of a client's rows train, validate and test. Every client has a training row, and a test row unless `train` and `valid` add up
    to 1.
    """
    _check(clients, features, classes, rows=rows, spread=spread, disagreement=disagreement, train=train, valid=valid)
    crowd = _Crowd(clients, rows, spread, features, classes, disagreement, seed)
    sizes = crowd_sizes(clients, rows, spread, seed)
    x, y = _drawn(crowd, sizes)
    order = np.empty(len(y), np.int32)

    def shuffle(block: int, own: slice, size: np.ndarray) -> None:
        # The whole part of a lot is the client, the fraction is drawn: clients stay in order, their rows do not.
        lots = np.repeat(np.arange(len(size)), size) + generator(split_seed, "crowd split", block).random(own.stop - own.start)
        order[own] = own.start + np.argsort(lots)

    _in_blocks(sizes, shuffle)
    labels = tuple(f"class {c}" for c in range(classes))
    parts = cut_rows(order, sizes, (train, valid))
    return federate(Rows(x, y, labels, "synthetic-crowd"), parts, names=numbered(clients), partition=DRAWN)


class _Crowd(NamedTuple):
    """What decides the rows, whichever of them train."""

    clients: int
    rows: float
    spread: float
    features: int
    classes: int
    disagreement: float
    seed: int


_lock = threading.Lock()  # seeds are loaded in threads
_alive: dict[_Crowd, tuple[weakref.ref[np.ndarray], np.ndarray]] = {}


def _drawn(crowd: _Crowd, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels. Federations that differ only in their split share them, as long as one of them is in use."""
    with _lock:
        known, y = _alive.get(crowd, (None, None))
        x = known() if known else None
        if x is None or y is None:
            x, y = _draw(crowd, sizes)
            x.setflags(write=False)
            _alive[crowd] = weakref.ref(x, lambda _: _alive.pop(crowd, None)), y
    return x, y


def _draw(crowd: _Crowd, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    features, classes, seed = crowd.features, crowd.classes, crowd.seed
    # Whole before they are filled: lists of pieces would take the memory twice.
    x, y = np.empty((sizes.sum(), features), np.float32), np.empty(sizes.sum(), np.int32)
    shared = generator(seed, "crowd")
    weights = shared.standard_normal((features, classes)).astype(np.float32) / np.float32(np.sqrt(features))
    centres = shared.standard_normal((PLACES, features)).astype(np.float32) / np.float32(np.sqrt(PLACES))

    def fill(block: int, own: slice, size: np.ndarray) -> None:
        person = generator(seed, "crowd people", block).standard_normal((len(size), PLACES + classes), np.float32)
        generator(seed, "crowd rows", block).standard_normal(dtype=np.float32, out=x[own])
        x[own] += np.repeat(person[:, :PLACES] @ centres, size, axis=0)
        y[own] = (x[own] @ weights + np.repeat(np.float32(crowd.disagreement) * person[:, PLACES:], size, axis=0)).argmax(1)

    _in_blocks(sizes, fill)
    return x, y


def _in_blocks(sizes: np.ndarray, work: Callable[[int, slice, np.ndarray], None]) -> None:
    """Call for every block of clients, in threads: its number, its rows, and how many each of its clients has."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])

    def one(block: int) -> None:
        bounds = offsets[block * AT_ONCE : (block + 1) * AT_ONCE + 1]
        work(block, slice(int(bounds[0]), int(bounds[-1])), np.diff(bounds))

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # NumPy lets other threads work meanwhile
        deque(threads.map(one, range(-(-len(sizes) // AT_ONCE))), maxlen=0)


def crowd_sizes(clients: int, rows: float, spread: float, seed: int) -> np.ndarray:
    """How many rows each client has: a lognormal number with this mean, rounded to nearest, at least two."""
    drawn = generator(seed, "crowd sizes").standard_normal(clients)
    return np.maximum(FEWEST, np.rint(rows * np.exp(spread * drawn - spread**2 / 2))).astype(np.int64)


def _check(clients: int, features: int, classes: int, **given: float) -> None:
    name = "synthetic-crowd"
    require(clients >= 1, f"{name}: clients must be at least 1, got {clients}.")
    require(features >= 1, f"{name}: features must be at least 1, got {features}.")
    require(classes >= 2, f"{name}: classes must be at least 2, got {classes}.")
    require(given["rows"] >= FEWEST, f"{name}: rows must be at least {FEWEST}, a client's rows on average, got {given['rows']}.")
    for setting in ("spread", "disagreement"):
        require(given[setting] >= 0, f"{name}: {setting} must be at least 0, got {given[setting]}.")
    train, valid = given["train"], given["valid"]
    require(0 < train <= 1, f"{name}: train must be above 0 and at most 1, got {train}.")
    require(valid >= 0 and train + valid <= 1 + 1e-9, f"{name}: valid must be from 0 to 1 - train = {1 - train:g}, got {valid}.")
    rows = clients * given["rows"]
    require(rows < 2**31 / 1.05, f"{name}: clients * rows must stay below 2 billion, got {rows:,.0f}. Row numbers have 32 bits.")


CARD = DatasetCard(
    name="synthetic-crowd",
    title="As many small clients as you like, made in seconds; nothing is downloaded",
    load=synthetic_crowd,
    memory=lambda settings: 4 * max(FEWEST, settings["rows"] / 2) * settings["clients"] * settings["features"],  # about half at least
    licence="Made here",
    provenance="Drawn as the module evenly.datasets.synthetic_crowd explains.",
    citation="None: the construction is evenly's own.",
    notes=(
        "Four clients in five have at most two test rows, so that one client's accuracy is mostly chance.",
        "clients=1000000 takes 3.6 GB and half a minute.",
    ),
    expected=Sizes(clients=1000, train=10946, valid=1360, test=1879),
)
