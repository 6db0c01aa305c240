"""Groups that are given, or drawn where nothing is known yet."""

from typing import Any

import numpy as np

from evenly.randomness import Draws
from evenly.records import require


def membership(client_group: Any, groups: int) -> np.ndarray:
    """Who belongs to which group: bool [groups, clients], from each client's group number."""
    given = np.asarray(client_group)
    require(groups >= 1, f"There must be at least one group, got {groups}.")
    require(
        given.ndim == 1 and given.dtype.kind in "iu", f"Groups must be one whole number per client, got {given.dtype}{list(given.shape)}."
    )
    strange = (given < 0) | (given >= groups)
    if strange.any():
        who = int(strange.argmax())
        raise ValueError(
            f"Groups are numbered from 0 to {groups - 1}, but client {who} is in group {given[who]}. Correct it, or give more groups."
        )
    return given == np.arange(groups)[:, None]


def drawn_groups(clients: int, groups: int, seed: int) -> np.ndarray:
    """A random group for every client, by its number alone. int32 [clients]

    In the first round all groups' masks are equal, so that no client could tell them apart and all would choose the first.
    """
    require(groups >= 1, f"There must be at least one group, got {groups}.")
    draws = Draws(seed, "groups")
    return np.array([draws.at(k).integers(groups) for k in range(clients)], np.int32)
