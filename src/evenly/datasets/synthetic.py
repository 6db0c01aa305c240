"""Synthetic federations: q-FFL's Synthetic(alpha, beta), a census with groups of people, and a
crowd of a million clients.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import DRAWN, Federation
from evenly.data.partition import Rows, federate, numbered
from evenly.data.sensitive import Sensitive, cross
from evenly.data.splits import cut_rows, split_rows
from evenly.datasets.files import DatasetCard, Sizes
from evenly.randomness import generator
from evenly.records import replace, require

# The synthetic federation of q-FFL, with an adjustable amount of disagreement between clients.
#
# Li et al., "Fair Resource Allocation in Federated Learning", Appendix E. Client k has its own
# linear model: u_k and B_k standard normal; entries of W_k and b_k around u_k; features around v_k,
# itself around B_k, with variance j^-1.2 for feature j; y = argmax(x W_k + b_k). Nothing is
# downloaded.
#
# The paper says only that sizes follow a power law. The authors' scripts draw floor(lognormal(4,
# s)) + 50; s = 1 fits the paper's totals (12,697 rows, deviation 73) and is the default.

# rows of a client, and clients whose rows are counted exactly before they are drawn
FEWEST, MOST_DRAWN = 50, 10**7
KINDS = ("non-iid", "iid", "hybrid")


def synthetic(
    kind: str = "non-iid",
    *,
    clients: int = 100,
    features: int = 60,
    classes: int = 10,
    spread: float = 1.0,
    seed: int = 0,
    draws: int = 1,
    split_seed: int = 0,
) -> Federation:
    """Draw the synthetic federation of the q-FFL paper. Nothing is downloaded.

    Args:
        kind: "non-iid" (every client has its own model), "iid" (one model for all) or "hybrid" (the
            first half shares a model).
        clients: Number of clients.
        features: Number of features.
        classes: Number of classes.
        spread: Standard deviation of the logarithm of the clients' numbers of rows.
        seed: Seed of the data.
        draws: Number of different data sets that a comparison with several seeds goes through. The
            data are drawn with ``seed + split_seed % draws``, so that eight draws and 40 seeds are
            five splits of each draw.
        split_seed: Seed that divides each client's rows into training, validation and test rows.

    Returns:
        The federation.

    Raises:
        ValueError: If a setting is out of range.

    Example:
        >>> evenly.synthetic(clients=8).clients
        8
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if clients < 1 or features < 1 or classes < 2:
        raise ValueError(
            f"synthetic needs at least 1 client, 1 feature and 2 classes, got {clients}, {features}"
            f" and {classes}."
        )
    if not spread >= 0:
        raise ValueError(f"spread must be at least 0, got {spread}.")
    require(draws >= 1, f"draws must be at least 1, got {draws}.")
    seed += split_seed % draws
    sizes = _sizes(clients, spread, seed).astype(int)
    alike = {"non-iid": 0, "iid": clients, "hybrid": clients // 2}[kind]
    shared = generator(seed, "shared model")
    shared_model = shared.normal(size=(features, classes)), shared.normal(size=classes)
    deviation = np.sqrt(np.arange(1, features + 1) ** -1.2)
    xs, ys = [], []
    for k in range(clients):
        draw = generator(seed, "client", k)
        if k < alike:
            (weight, bias), centre = shared_model, np.zeros(features)
        else:
            u, b = draw.normal(size=2)
            weight, bias = draw.normal(u, 1, (features, classes)), draw.normal(u, 1, classes)
            centre = draw.normal(b, 1, features)
        x = centre + draw.normal(size=(sizes[k], features)) * deviation
        xs.append(x)
        ys.append((x @ weight + bias).argmax(1))
    owner = np.repeat([f"client {k:0{len(str(clients - 1))}d}" for k in range(clients)], sizes)
    federation = Federation.from_arrays(
        np.concatenate(xs), np.concatenate(ys), owner, seed=split_seed, name=f"synthetic {kind}"
    )
    return replace(federation, partition=DRAWN)


def _sizes(clients: int, spread: float, seed: int) -> np.ndarray:
    """Draw the number of rows of each client, as floating-point numbers."""
    return np.floor(generator(seed, "sizes").lognormal(4, spread, clients)) + FEWEST


def memory(settings: Mapping[str, Any]) -> float:
    """Return the bytes of the features, which are drawn in double precision and then joined."""
    clients, spread = settings["clients"], settings["spread"]
    if clients < 1 or not spread >= 0:
        return 0.0  # refused elsewhere
    rows = (
        float(_sizes(clients, spread, settings["seed"]).sum())
        if clients <= MOST_DRAWN
        else FEWEST * clients
    )
    return 2 * 8 * rows * settings["features"]


# A synthetic census with known unfairness: how rare a group is, how biased its labels are, and how
# different it is.
#
# Nothing is downloaded. A person has features x, standard normal, and is qualified if w·x > 0. Half
# of either group is, whatever the settings. All gaps between the groups have one of three causes,
# each with its own setting.
#
# - Representation: the share of unprivileged people goes evenly from share * (1 - skew) at the
#   first client to share * (1 + skew) at the last. - Label bias b: a qualified unprivileged person
#   gets the favourable label only with probability 1 - b. No one else's is touched. - Angle a
#   (degrees): the unprivileged group's w is turned by a against the privileged group's, so that one
#   linear model cannot be right for both, and the group with fewer rows is served worse.
#
# What ideal models show, measured on the recorded labels (unprivileged minus privileged):
#
# the recorded labels themselves rate of favourable labels -b/2 who is qualified, truly SPD 0, EOD
# 0, FPR gap b/(1+b), accuracy gap -b/2 w of the privileged, for everyone SPD 0, EOD -a/180,
# accuracy gap -a/180 where b = 0

GROUPS = ("unprivileged", "privileged")
LABELS = ("refused", "granted")


def synthetic_census(
    clients: int = 10,
    *,
    rows: int = 10_000,
    features: int = 10,
    share: float = 0.3,
    skew: float = 0.5,
    label_bias: float = 0.2,
    angle: float = 30.0,
    test: float = 0.2,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Draw people for clients of equal size. The share `test` of all, with the same share of
    groups, is a central test set.

    `share` is the share of unprivileged people, and `skew` how much it differs between clients (0:
    not at all, 1: from none to twice the share). `label_bias` and `angle` are explained above. The
    last feature is 1 for privileged people. `seed` draws people and their clients, `split_seed` the
    validation rows of each client.
    """
    _check_census(
        clients,
        rows,
        features,
        share=share,
        skew=skew,
        label_bias=label_bias,
        angle=angle,
        test=test,
        valid=valid,
    )
    central = round(test * rows)
    owner = np.concatenate(
        [np.full(central, -1), np.arange(rows - central) * clients // (rows - central)]
    )
    rare = generator(seed, "group").random(rows) < _chance(owner, clients, share, skew)
    people = _draw_people(rare, features, label_bias=label_bias, angle=angle, seed=seed)
    parts = split_rows(owner, clients, shares=(1 - valid, valid), seed=split_seed)
    description = f"{DRAWN}, shares of unprivileged people with skew={skew:g}"
    return federate(
        people,
        parts,
        names=numbered(clients),
        central=np.flatnonzero(owner < 0),
        partition=description,
    )


def _draw_people(
    rare: np.ndarray, features: int, *, label_bias: float, angle: float, seed: int
) -> Rows:
    """Draw features and labels. `rare` marks the unprivileged people."""
    x = generator(seed, "features").normal(size=(len(rare), features))
    qualified = is_qualified(x, rare, angle)
    refused = rare & qualified & (generator(seed, "labels").random(len(rare)) < label_bias)
    x = np.concatenate([x, ~rare[:, None]], axis=1, dtype=np.float32, casting="unsafe")
    people = Rows(x, (qualified & ~refused).astype(np.int32), LABELS, "synthetic-census")
    return people.grouped(cross([Sensitive("group", GROUPS, (~rare).astype(np.int32))]))


def is_qualified(x: np.ndarray, rare: np.ndarray, angle: float) -> np.ndarray:
    """Return whether w·x > 0, where w is the first axis for privileged people and rotated towards
    the second for the others.
    """
    rotation = np.cos(np.deg2rad(angle)) * x[:, 0] + np.sin(np.deg2rad(angle)) * x[:, 1]
    return np.where(rare, rotation, x[:, 0]) > 0


def _chance(owner: np.ndarray, clients: int, share: float, skew: float) -> np.ndarray:
    """Return the probability that each row is of an unprivileged person: by client, and `share` in
    the test set.
    """
    slope = np.linspace(-1, 1, clients) if clients > 1 else np.zeros(1)
    return np.where(owner < 0, share, share * (1 + skew * slope)[owner])


def _check_census(
    clients: int, rows: int, features: int, *, test: float, valid: float, **shares: float
) -> None:
    require(features >= 2, f"synthetic-census: features must be at least 2, got {features}.")
    require(
        0 <= test < 1 and 0 <= valid < 1,
        f"synthetic-census: test and valid must be at least 0 and below 1, got {test} and {valid}.",
    )
    most = rows - round(test * rows)
    require(
        1 <= clients <= most,
        f"synthetic-census: clients must be between 1 and the rows outside the test set, {most},"
        f" got {clients}.",
    )
    share, skew = shares["share"], shares["skew"]
    require(0 < share < 1, f"synthetic-census: share must be between 0 and 1, got {share}.")
    require(0 <= skew <= 1, f"synthetic-census: skew must be at least 0 and at most 1, got {skew}.")
    require(
        share * (1 + skew) <= 1,
        f"synthetic-census: share * (1 + skew) must be at most 1, got {share * (1 + skew):g}.",
    )
    require(
        0 <= shares["label_bias"] <= 1,
        "synthetic-census: label_bias must be at least 0 and at most 1, got"
        f" {shares['label_bias']}.",
    )
    require(
        0 <= shares["angle"] <= 180,
        f"synthetic-census: angle must be between 0 and 180 degrees, got {shares['angle']}.",
    )


CENSUS_CARD = DatasetCard(
    name="synthetic-census",
    title="Made-up people with a known bias against one group; nothing is downloaded",
    load=synthetic_census,
    # drawn in double precision, kept in single
    memory=lambda settings: (8 + 4) * settings["rows"] * settings["features"],
    licence="Made here",
    provenance="Drawn as the module evenly.datasets.synthetic explains.",
    citation="None: the construction is evenly's own.",
    notes=(
        (
            "The recorded labels are biased, in the test set too: a model that reproduces who is"
            " truly qualified is 100 - 100 * label_bias / 2 percent right about unprivileged"
            " people, and its false positive rate is not zero for them."
        ),
        "The last feature is the group itself.",
    ),
    expected=Sizes(clients=10, train=7200, valid=800, test=0, central=2000),
)


# Very many small clients with an adjustable amount of disagreement, like a crowd of phones, drawn
# in seconds.
#
# Nothing is downloaded. Client k has n_k rows, lognormal with the given mean and at least two; a
# place z_k, standard normal in four dimensions; and a taste t_k, standard normal, one number per
# class. Its features lie around C z_k with deviation 1, and y = argmax(x W + disagreement * t_k):
# the same features get other labels at other clients, so that no model can be right for all, and
# the more `disagreement`, the less. C and W are the same for everyone.
#
# Everything is drawn in blocks of clients. The first clients of a crowd are those of any larger one
# with the same settings, and drawing it takes little more memory than the rows themselves: a
# million clients of 14 rows with 60 features are 3.4 GB.

PLACES = 4  # dimensions in which clients differ in their features
FEWEST_IN_CROWD = 2  # rows of a client
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
    """Draw clients with `rows` rows on average. `spread` is the deviation of the logarithm of their
    number (0: all clients are equal).

    `disagreement` is how much the labels of equal features differ between clients (0: not at all).
    `seed` draws the data, and `split_seed` divides each client's rows into training, validation and
    test rows. Every client has a training row, and a test row unless `train` and `valid` add up to
    1.
    """
    _check_crowd(
        clients,
        features,
        classes,
        rows=rows,
        spread=spread,
        disagreement=disagreement,
        train=train,
        valid=valid,
    )
    crowd = _Crowd(clients, rows, spread, features, classes, disagreement, seed)
    sizes = crowd_sizes(clients, rows, spread, seed)
    x, y = _shared_rows(crowd, sizes)
    parts = cut_rows(_shuffle_rows(sizes, split_seed), sizes, (train, valid))
    labels = tuple(f"class {c}" for c in range(classes))
    return federate(
        Rows(x, y, labels, "synthetic-crowd"), parts, names=numbered(clients), partition=DRAWN
    )


def _shuffle_rows(sizes: np.ndarray, split_seed: int) -> np.ndarray:
    """Return row numbers, client by client, in random order within each client."""
    order = np.empty(sizes.sum(), np.int32)

    def shuffle(block: int, rows: slice, size: np.ndarray) -> None:
        # The integer part of a lot is the client, the fraction is drawn: clients stay in order,
        # their rows do not.
        lots = np.repeat(np.arange(len(size)), size) + generator(
            split_seed, "crowd split", block
        ).random(rows.stop - rows.start)
        order[rows] = rows.start + np.argsort(lots)

    _in_blocks(sizes, shuffle)
    return order


class _Crowd(NamedTuple):
    """The settings that determine the rows, whatever their split."""

    clients: int
    rows: float
    spread: float
    features: int
    classes: int
    disagreement: float
    seed: int


_lock = threading.Lock()  # seeds are loaded in threads
_alive: dict[_Crowd, tuple[weakref.ref[np.ndarray], np.ndarray]] = {}


def _shared_rows(crowd: _Crowd, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels. Federations that differ only in their split share them, as long
    as one of them is in use.
    """
    with _lock:
        reference, y = _alive.get(crowd, (None, None))
        x = reference() if reference else None
        if x is None or y is None:
            x, y = _draw(crowd, sizes)
            x.setflags(write=False)
            _alive[crowd] = weakref.ref(x, lambda _: _alive.pop(crowd, None)), y
    return x, y


def _draw(crowd: _Crowd, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    features, classes, seed = crowd.features, crowd.classes, crowd.seed
    # Allocated at once: lists of pieces would take the memory twice.
    x, y = np.empty((sizes.sum(), features), np.float32), np.empty(sizes.sum(), np.int32)
    shared = generator(seed, "crowd")
    weights = shared.standard_normal((features, classes)).astype(np.float32) / np.float32(
        np.sqrt(features)
    )
    centres = shared.standard_normal((PLACES, features)).astype(np.float32) / np.float32(
        np.sqrt(PLACES)
    )

    def fill(block: int, rows: slice, size: np.ndarray) -> None:
        person = generator(seed, "crowd people", block).standard_normal(
            (len(size), PLACES + classes), np.float32
        )
        generator(seed, "crowd rows", block).standard_normal(dtype=np.float32, out=x[rows])
        x[rows] += np.repeat(person[:, :PLACES] @ centres, size, axis=0)
        y[rows] = (
            x[rows] @ weights
            + np.repeat(np.float32(crowd.disagreement) * person[:, PLACES:], size, axis=0)
        ).argmax(1)

    _in_blocks(sizes, fill)
    return x, y


def _in_blocks(sizes: np.ndarray, work: Callable[[int, slice, np.ndarray], None]) -> None:
    """Call `work` for every block of clients, in threads, with its number, its rows, and the number
    of rows of each client.
    """
    offsets = np.concatenate([[0], np.cumsum(sizes)])

    def one(block: int) -> None:
        bounds = offsets[block * AT_ONCE : (block + 1) * AT_ONCE + 1]
        work(block, slice(int(bounds[0]), int(bounds[-1])), np.diff(bounds))

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # NumPy releases the interpreter lock
        deque(threads.map(one, range(-(-len(sizes) // AT_ONCE))), maxlen=0)


def crowd_sizes(clients: int, rows: float, spread: float, seed: int) -> np.ndarray:
    """Draw the number of rows of each client: lognormal with this mean, rounded to nearest, at
    least two.
    """
    normal = generator(seed, "crowd sizes").standard_normal(clients)
    return np.maximum(
        FEWEST_IN_CROWD, np.rint(rows * np.exp(spread * normal - spread**2 / 2))
    ).astype(np.int64)


def _check_crowd(clients: int, features: int, classes: int, **settings: float) -> None:
    name = "synthetic-crowd"
    require(clients >= 1, f"{name}: clients must be at least 1, got {clients}.")
    require(features >= 1, f"{name}: features must be at least 1, got {features}.")
    require(classes >= 2, f"{name}: classes must be at least 2, got {classes}.")
    require(
        settings["rows"] >= FEWEST_IN_CROWD,
        f"{name}: rows must be at least {FEWEST_IN_CROWD}, a client's rows on average, got"
        f" {settings['rows']}.",
    )
    for setting in ("spread", "disagreement"):
        require(
            settings[setting] >= 0,
            f"{name}: {setting} must be at least 0, got {settings[setting]}.",
        )
    train, valid = settings["train"], settings["valid"]
    require(0 < train <= 1, f"{name}: train must be above 0 and at most 1, got {train}.")
    require(
        valid >= 0 and train + valid <= 1 + 1e-9,
        f"{name}: valid must be from 0 to 1 - train = {1 - train:g}, got {valid}.",
    )
    rows = clients * settings["rows"]
    require(
        rows < 2**31 / 1.05,
        f"{name}: clients * rows must stay below 2 billion, got {rows:,.0f}. Row numbers have 32"
        " bits.",
    )


CROWD_CARD = DatasetCard(
    name="synthetic-crowd",
    title="As many small clients as you like, made in seconds; nothing is downloaded",
    load=synthetic_crowd,
    memory=lambda settings: (
        4 * max(FEWEST_IN_CROWD, settings["rows"] / 2) * settings["clients"] * settings["features"]
    ),  # about half at least
    licence="Made here",
    provenance="Drawn as the module evenly.datasets.synthetic explains.",
    citation="None: the construction is evenly's own.",
    notes=(
        (
            "Four clients in five have at most two test rows, so that one client's accuracy is"
            " mostly chance."
        ),
        "clients=1000000 takes 3.6 GB and half a minute.",
    ),
    expected=Sizes(clients=1000, train=10946, valid=1360, test=1879),
)
