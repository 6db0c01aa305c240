"""The two sides that group fairness compares: people in unprivileged groups, and everyone else."""

from collections.abc import Collection

import numpy as np

from evenly.columns import Fact
from evenly.federation import Census, Federation
from evenly.records import require
from evenly.sensitive import Attribute

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


def unprivileged_words(federation: Federation) -> str:
    """Who is unprivileged: every sensitive column's value, the one that decides what methods and tables compare first."""
    columns = {a.name: _groups_of(a) for a in federation.attributes}
    decider = next((a for a in federation.attributes if columns[a.name] == set(federation.unprivileged)), None)
    if decider is None:
        names = [federation.groups[g] for g in federation.unprivileged]
        return ", ".join(names) if len(names) < 3 else f"{len(names)} groups"
    others = [f"{a.name}={a.values[a.unprivileged]}" for a in federation.attributes if a is not decider]
    first = f"{decider.name}={decider.values[decider.unprivileged]}"
    return f"{first} (compared here), {', '.join(others)}" if others else first


def _groups_of(attribute: Attribute) -> set[int]:
    """The groups that hold an attribute's unprivileged value."""
    return {g for g, value in enumerate(attribute.of_group) if value == attribute.unprivileged}


def side_facts(federation: Federation, assumed: Collection[str] = ()) -> list[Fact]:
    """Which label is favourable and who is unprivileged, how often training rows have that label, and how to change what was
    assumed: "favourable", or the names of sensitive columns."""
    if not federation.attributes:
        return []
    label, cells = federation.labels[federation.favourable], federation.census().cells.sum(0)  # [groups, labels]
    change = "assumed; change it with --favourable" if "favourable" in assumed else ""
    facts = [Fact("favourable", f"the label {label!r}" + (f" ({change})" if change else ""))]
    for a in federation.attributes:
        own = np.isin(np.arange(len(cells)), list(_groups_of(a)))
        shares = [_share(cells[side], federation.favourable) for side in (own, ~own)]
        value = f"{a.name}={a.values[a.unprivileged]}"
        change = f" (assumed, because it has the lowest share; change it with --unprivileged {a.name}=VALUE)" if a.name in assumed else ""
        facts.append(Fact("unprivileged", f"{value}: {shares[0]} of them are {label!r}, {shares[1]} of all others{change}"))
    return facts


def _share(cells: np.ndarray, favourable: int) -> str:
    rows = int(cells.sum())
    return f"{100 * cells[:, favourable].sum() / rows:.0f} %" if rows else "none"
