"""How data sets without clients of their own are dealt to clients: tables of people, and images."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evenly.data import PARTITIONS, Rows, dirichlet, equal
from evenly.data.federation import Federation
from evenly.notation import unknown
from evenly.randomness import generator
from evenly.records import replace, require

# Tables of people without clients of their own: a central test set is set aside, and the others are dealt to clients.

CLIENTS = 5  # of the study, where the partition does not decide


class PeopleDealing(NamedTuple):
    """How people are dealt to clients; each partition uses the settings that it has."""

    partition: str
    clients: int  # 0: as many as the coverage allows, and 5 for the other partitions
    alpha: float
    concentration: float
    min_samples: int
    coverage: float
    count_rule: str
    test: float
    valid: float
    seed: int  # -1: the split seed

    def settings(self) -> dict[str, dict[str, Any]]:
        """What each partition is told."""
        drawn = {"clients": self.clients or CLIENTS, "alpha": self.alpha, "min_samples": self.min_samples}
        covered = {"clients": self.clients, "coverage": self.coverage, "count_rule": self.count_rule}
        return {
            "dirichlet": {"clients": self.clients or CLIENTS, "beta": self.alpha, "min_samples": self.min_samples},
            "dirichlet-attribute": drawn,
            "dirichlet-label-attribute": drawn,
            "ratio-dirichlet": drawn | {"concentration": self.concentration},
            "cov-same-size": covered,
            "cov-diff-size": covered,
            "equal": {"clients": self.clients or CLIENTS},
        }


def deal_people(
    rows: Rows, how: PeopleDealing, features: Callable[[np.ndarray], np.ndarray], *, split_seed: int, central: np.ndarray | None = None
) -> Federation:
    """The federation of these people. `features` makes x from the numbers of the training rows, which decide how it is scaled.

    The central test set, unless it is given, and each client's validation rows are drawn by `split_seed`, and so is the
    partition unless it has a seed of its own.
    """
    settings = how.settings()
    if how.partition not in settings:
        raise unknown("partition", how.partition, settings)
    require(0 <= how.test < 1, f"{rows.name}: test must be a share of all rows, at least 0 and below 1, got {how.test}.")
    require(0 <= how.valid < 1, f"{rows.name}: valid must be a share of the training rows, at least 0 and below 1, got {how.valid}.")
    federation = PARTITIONS[how.partition](
        rows,
        **settings[how.partition],
        shares=(1 - how.valid, how.valid),
        central=draw_central(len(rows.y), how.test, split_seed) if central is None else central,
        seed=split_seed if how.seed < 0 else how.seed,
        split_seed=split_seed,
    )
    return replace(federation, x=features(federation.train.rows))


def draw_central(people: int, share: float, split_seed: int) -> np.ndarray:
    """The rows of the central test set, in order."""
    return np.sort(generator(split_seed, "central").permutation(people)[: round(share * people)])


def standardised(numbers: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Columns less their mean and divided by their deviation over the training rows, all clients together. [n, d]"""
    # In float64: a sum of many float32 loses digits.
    mean, deviation = numbers[training].mean(0, dtype=np.float64), numbers[training].std(0, dtype=np.float64)
    return ((numbers - mean) / np.where(deviation == 0, 1, deviation)).astype(np.float32)


# What image sets share: how pixels become numbers, and how images are dealt to clients that the data do not name.

PIXELS = ("bytes", "unit", "standard")


def scaled(x: np.ndarray, pixels: str, reference: np.ndarray | None = None) -> np.ndarray:
    """Images [n, ...] of bytes as asked.

    "bytes" leaves them alone, for models that normalise; "unit" divides by 255; "standard" subtracts the mean of each pixel
    and divides by its deviation + 0.001 (in bytes), both over the `reference` images.
    """
    if pixels not in PIXELS:
        raise ValueError(f"pixels must be one of {', '.join(PIXELS)}, got {pixels!r}.")
    if pixels == "bytes":
        return x
    if pixels == "unit":
        return x.astype(np.float32) / np.float32(255)
    mean, deviation = moments(x if reference is None else reference)
    return (x.astype(np.float32) - mean) / (deviation + np.float32(0.001))


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of every pixel, from exact sums of bytes."""
    total, square = np.zeros(x.shape[1:], np.int64), np.zeros(x.shape[1:], np.int64)
    for start in range(0, len(x), 4096):
        block = x[start : start + 4096].astype(np.int64)
        total += block.sum(0)
        square += (block * block).sum(0)
    mean = total / len(x)
    return mean.astype(np.float32), np.sqrt(np.maximum(square / len(x) - mean**2, 0)).astype(np.float32)


class ImageDealing(NamedTuple):
    """How images are dealt to clients; `beta` and `min_samples` are for the Dirichlet partition."""

    partition: str
    clients: int
    beta: float
    shares: tuple[float, float]
    min_samples: int
    seed: int


def dealt(rows: Rows, how: ImageDealing, *, split_seed: int, central: np.ndarray | None = None) -> Federation:
    if how.partition == "equal":
        return equal(rows, clients=how.clients, shares=how.shares, central=central, seed=how.seed, split_seed=split_seed)
    if how.partition != "dirichlet":
        raise unknown("partition", how.partition, ("dirichlet", "equal"))
    return dirichlet(
        rows,
        clients=how.clients,
        beta=how.beta,
        shares=how.shares,
        min_samples=how.min_samples,
        central=central,
        seed=how.seed,
        split_seed=split_seed,
    )
