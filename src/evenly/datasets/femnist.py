"""FEMNIST: handwritten digits and letters; every writer is a client. LEAF's JSON files.

LEAF stores pictures as 784 numbers byte / 255, so the bytes come back exactly; white is 255. Labels are 0-9, A-Z, a-z.
"""

import string

import numpy as np

from evenly.data import Rows, choose_clients, natural
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard
from evenly.datasets.files import DataError
from evenly.datasets.images import scaled
from evenly.datasets.leaf import User, leaf_file, leaf_paths, read_leaf

LABELS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
SIDE = 28
LEAF = leaf_file("femnist", "LEAF's FEMNIST, pictures by writer", first="all_data_0.json")


def femnist(
    *,
    writers: int = 0,
    min_samples: int = 1,
    pixels: str = "unit",
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """One client per writer with at least `min_samples` pictures; `writers` of them drawn by `seed` (0: all)."""
    users = {user.name: _pictures(user) for user in read_leaf(leaf_paths(LEAF))}
    sizes = np.array([len(y) for _, y in users.values()])
    chosen = choose_clients(sizes, clients=writers, min_samples=min_samples, seed=seed, what="femnist")
    names = [list(users)[k] for k in chosen]
    x, y = (np.concatenate([users[name][part] for name in names]) for part in (0, 1))
    owner = np.repeat(np.arange(len(names)), sizes[chosen])
    return natural(Rows(scaled(x, pixels), y, LABELS, "femnist"), owner, names=names, shares=(train, valid), split_seed=split_seed)


def _pictures(user: User) -> tuple[np.ndarray, np.ndarray]:
    x, y = 255 * np.asarray(user.x, np.float64).reshape(len(user.y), -1), np.asarray(user.y)
    if x.shape[1] != SIDE * SIDE or not (0 <= x.min() <= x.max() <= 255) or abs(x - np.round(x)).max() > 0.01:
        raise DataError(f"femnist: pictures must be {SIDE * SIDE} numbers byte / 255; writer {user.name!r} has others.")
    if y.dtype.kind != "i" or not (0 <= y.min() <= y.max() < len(LABELS)):
        raise DataError(f"femnist: labels must be whole numbers from 0 to {len(LABELS) - 1}; writer {user.name!r} has others.")
    return np.round(x).astype(np.uint8).reshape(-1, SIDE, SIDE, 1), y.astype(np.int32)


CARD = DatasetCard(
    name="femnist",
    title="Handwritten digits and letters; every writer is a client",
    load=femnist,
    layouts=((LEAF,),),
    licence="US public domain (NIST Special Database 19); LEAF's scripts are BSD-2.",
    provenance="NIST Special Database 19, by writer, prepared by LEAF (Caldas et al., 2018).",
    citation="Caldas et al.: LEAF: a benchmark for federated settings. arXiv:1812.01097, 2018.",
    notes=(
        "Of the papers we follow, E2FL uses it.",
        "Tested on files made in LEAF's format, not on LEAF's own output.",
        "Reading all 3,550 writers takes several GiB of memory: LEAF's files are text. LEAF's `--sf` makes smaller ones.",
    ),
)
