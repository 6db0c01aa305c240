"""Partition data sets without clients of their own among invented clients: tables of people, and
images.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evenly.data import PARTITIONS, Rows, dirichlet, equal
from evenly.data.federation import Federation
from evenly.notation import unknown
from evenly.randomness import generator
from evenly.records import replace, require

# Tables of people: a central test set is set aside, and the other rows are partitioned among
# clients.

CLIENTS = 5  # default of the study, for partitions that do not determine the number


class PeoplePartition(NamedTuple):
    """How people are partitioned among clients. Each partition uses those of the settings that it
    has.
    """

    partition: str
    clients: int  # 0: as many as the coverage gives, and 5 for the other partitions
    alpha: float
    concentration: float
    min_samples: int
    coverage: float
    count_rule: str
    test: float
    valid: float
    seed: int  # -1: the split seed

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of each partition."""
        by_attribute = {
            "clients": self.clients or CLIENTS,
            "alpha": self.alpha,
            "min_samples": self.min_samples,
        }
        by_coverage = {
            "clients": self.clients,
            "coverage": self.coverage,
            "count_rule": self.count_rule,
        }
        return {
            "dirichlet": {
                "clients": self.clients or CLIENTS,
                "beta": self.alpha,
                "min_samples": self.min_samples,
            },
            "dirichlet-attribute": by_attribute,
            "dirichlet-label-attribute": by_attribute,
            "ratio-dirichlet": by_attribute | {"concentration": self.concentration},
            "cov-same-size": by_coverage,
            "cov-diff-size": by_coverage,
            "equal": {"clients": self.clients or CLIENTS},
        }


def partition_people(
    rows: Rows,
    split: PeoplePartition,
    features: Callable[[np.ndarray], np.ndarray],
    *,
    split_seed: int,
    central: np.ndarray | None = None,
) -> Federation:
    """Return the federation of these people. `features` computes x from the numbers of the training
    rows, which determine its scaling.

    `split_seed` draws each client's validation rows, the central test set unless it is given, and
    the partition unless it has a seed of its own.
    """
    settings = split.settings()
    if split.partition not in settings:
        raise unknown("partition", split.partition, settings)
    require(
        0 <= split.test < 1,
        f"{rows.name}: test must be a share of all rows, at least 0 and below 1, got {split.test}.",
    )
    require(
        0 <= split.valid < 1,
        f"{rows.name}: valid must be a share of the training rows, at least 0 and below 1, got"
        f" {split.valid}.",
    )
    federation = PARTITIONS[split.partition](
        rows,
        **settings[split.partition],
        shares=(1 - split.valid, split.valid),
        central=draw_central(len(rows.y), split.test, split_seed) if central is None else central,
        seed=split_seed if split.seed < 0 else split.seed,
        split_seed=split_seed,
    )
    return replace(federation, x=features(federation.train.rows))


def draw_central(people: int, share: float, split_seed: int) -> np.ndarray:
    """Draw the rows of the central test set, in order."""
    return np.sort(generator(split_seed, "central").permutation(people)[: round(share * people)])


def standardise(numbers: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Subtract the mean of each column [n, d] and divide by its deviation, both over the training
    rows of all clients.
    """
    # In float64: a sum of many float32 loses digits.
    mean, deviation = (
        numbers[training].mean(0, dtype=np.float64),
        numbers[training].std(0, dtype=np.float64),
    )
    return ((numbers - mean) / np.where(deviation == 0, 1, deviation)).astype(np.float32)


# Images: scaling of pixels, and partitions among invented clients.

PIXELS = ("bytes", "unit", "standard")


def scale_pixels(x: np.ndarray, pixels: str, reference: np.ndarray | None = None) -> np.ndarray:
    """Return images [n, ...] of bytes in one of three scales.

    "bytes" leaves them as they are, for models that normalise; "unit" divides by 255; "standard"
    subtracts the mean of each pixel and divides by its deviation + 0.001 (in bytes), both over the
    `reference` images.
    """
    require(pixels in PIXELS, f"pixels must be one of {', '.join(PIXELS)}, got {pixels!r}.")
    if pixels == "bytes":
        return x
    if pixels == "unit":
        return x.astype(np.float32) / np.float32(255)
    mean, deviation = pixel_moments(x if reference is None else reference)
    return (x.astype(np.float32) - mean) / (deviation + np.float32(0.001))


def pixel_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of every pixel, from exact sums of bytes."""
    total, square = np.zeros(x.shape[1:], np.int64), np.zeros(x.shape[1:], np.int64)
    for start in range(0, len(x), 4096):
        block = x[start : start + 4096].astype(np.int64)
        total += block.sum(0)
        square += (block * block).sum(0)
    mean = total / len(x)
    return mean.astype(np.float32), np.sqrt(np.maximum(square / len(x) - mean**2, 0)).astype(
        np.float32
    )


class ImagePartition(NamedTuple):
    """How images are partitioned among clients. `beta` and `min_samples` are for the Dirichlet
    partition.
    """

    partition: str
    clients: int
    beta: float
    shares: tuple[float, float]
    min_samples: int
    seed: int


def partition_images(
    rows: Rows, split: ImagePartition, *, split_seed: int, central: np.ndarray | None = None
) -> Federation:
    """Return the federation of these images."""
    shared: dict[str, Any] = {
        "clients": split.clients, "shares": split.shares, "central": central, "seed": split.seed,
        "split_seed": split_seed,
    }  # fmt: skip
    if split.partition == "equal":
        return equal(rows, **shared)
    if split.partition != "dirichlet":
        raise unknown("partition", split.partition, ("dirichlet", "equal"))
    return dirichlet(rows, beta=split.beta, min_samples=split.min_samples, **shared)
