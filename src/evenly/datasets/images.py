"""What image sets share: how pixels become numbers, and how images are dealt to clients that the data do not name."""

from typing import NamedTuple

import numpy as np

from evenly.data import Rows, dirichlet, equal
from evenly.data.federation import Federation
from evenly.notation import unknown

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


class Dealing(NamedTuple):
    """How images are dealt to clients; `beta` and `min_samples` are for the Dirichlet partition."""

    partition: str
    clients: int
    beta: float
    shares: tuple[float, float]
    min_samples: int
    seed: int


def dealt(rows: Rows, how: Dealing, *, split_seed: int, central: np.ndarray | None = None) -> Federation:
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
