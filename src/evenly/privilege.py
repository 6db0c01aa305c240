"""The two sides that group fairness compares: people in unprivileged groups, and everyone else."""

import numpy as np

from evenly.federation import Census
from evenly.records import require

SIDES = ("unprivileged", "privileged")


def sides(census: Census, method: str) -> np.ndarray:
    """Which groups are on each side; refuses a federation in which a side has no training rows. bool [2, groups]"""
    groups = census.cells.shape[1]
    require(
        groups > 1,
        f"{method} compares groups of people, but this federation has only one group. Name a sensitive column (--sensitive of the "
        "command, `sensitive` of Federation.from_frame, `group` of Federation.from_arrays) or choose data that have one.",
    )
    unprivileged = np.isin(np.arange(groups), census.unprivileged)
    found = np.stack([unprivileged, ~unprivileged])
    rows = census.cells.sum((0, 2))
    for side, own in zip(SIDES, found, strict=True):
        require(
            bool(rows[own].sum() > 0),
            f"{method} compares unprivileged people with all others, but no training row belongs to a person who is {side}. "
            f"Unprivileged are {len(set(census.unprivileged))} of {groups} groups: check which.",
        )
    return found
