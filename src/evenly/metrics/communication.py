"""What a client sends and receives in a round, in bytes, from the sizes of a model's layers and the kind of method.

A model of floats takes 4 bytes a parameter; a mask one bit an edge; a ranking, for every edge of a layer of n, the
ceil(log2 n) bits that tell its place (E2FL's published figures come out exactly so, in MiB of 2^20 bytes). A seed from which
frozen weights are derived is sent once and not counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from evenly.notation import unknown
from evenly.types import Tree

MIB = 2**20
SCALAR = 4.0  # bytes


class Cost(NamedTuple):
    """Bytes of one client in one round."""

    up: float
    down: float


def layer_sizes(parameters: Tree) -> tuple[int, ...]:
    """Entries of each layer, from a tree of arrays or of shapes."""
    return tuple(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(parameters))


def float_bytes(sizes: Sequence[int]) -> float:
    """All parameters as 32-bit floats."""
    return 4.0 * sum(sizes)


def mask_bytes(sizes: Sequence[int]) -> float:
    """One bit for each edge."""
    return sum(sizes) / 8


def ranking_bytes(sizes: Sequence[int]) -> float:
    """For each edge its place within its layer: ceil(log2 n) bits each.

    >>> ranking_bytes([288, 18432, 1605632, 1280]) * 8
    34011424.0
    """
    return sum(n * (n - 1).bit_length() for n in sizes) / 8


def round_cost(kind: str, sizes: Sequence[int], *, models: int = 1, scalars: int = 0) -> Cost:
    """The cost of a round of a method of this kind; `scalars` are numbers that a client sends besides.

    - "model": a model each way (FedAvg, q-FedAvg, AFL, ...).
    - "clusters": `models` models down, one up (IFCA).
    - "independent": `models` models each way (device-specific q: one for each q).
    - "ranking": a ranking each way (FRL; E2FL where groups are known or clustered by the server).
    - "ranking and masks": a ranking each way and `models` masks down (E2FL where clients infer their group).
    - "none": nothing (local training).
    """
    if any(n < 1 for n in sizes) or models < 1 or scalars < 0:
        raise ValueError(f"Layers and models must be at least 1 and scalars at least 0, got {list(sizes)}, {models} and {scalars}.")
    whole, ranking, mask = float_bytes(sizes), ranking_bytes(sizes), mask_bytes(sizes)
    kinds = {
        "model": Cost(whole, whole),
        "clusters": Cost(whole, models * whole),
        "independent": Cost(models * whole, models * whole),
        "ranking": Cost(ranking, ranking),
        "ranking and masks": Cost(ranking, ranking + models * mask),
        "none": Cost(0.0, 0.0),
    }
    if kind not in kinds:
        raise unknown("kind of communication", kind, kinds)
    return kinds[kind]._replace(up=kinds[kind].up + SCALAR * scalars)
