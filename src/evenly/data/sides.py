"""The two sides that group fairness compares: people in unprivileged groups, and everyone else."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from evenly.data.columns import Fact
from evenly.data.federation import Census, Federation
from evenly.records import require

SIDES = ("unprivileged", "privileged")


def sides(census: Census, method: str) -> np.ndarray:
    """Whether each group is on the unprivileged and on the privileged side. Refuses a side without
    training rows. bool [2, groups]
    """
    groups = census.cells.shape[1]
    require(
        groups > 1,
        f"{method} compares groups of people, but this federation has only one group. Name a"
        " sensitive column (--sensitive of the command, `sensitive` of Federation.from_frame,"
        " `group` of Federation.from_arrays) or choose data that have one.",
    )
    unprivileged = np.isin(np.arange(groups), census.unprivileged)
    sides = np.stack([unprivileged, ~unprivileged])
    rows = census.cells.sum((0, 2))
    for side, groups_of_side in zip(SIDES, sides, strict=True):
        require(
            bool(rows[groups_of_side].sum() > 0),
            f"{method} compares unprivileged people with all others, but no training row belongs to"
            f" a person who is {side}. {len(set(census.unprivileged))} of {groups} groups are"
            " marked as unprivileged. Check which groups these are.",
        )
    return sides


class Unprivileged(NamedTuple):
    """The unprivileged groups in words."""

    compared: str  # those that metrics compare with everyone else
    others: tuple[str, ...] = ()  # unprivileged values of the other sensitive columns


def unprivileged_of(federation: Federation) -> Unprivileged:
    """The value that determines the unprivileged groups, and those of the other columns. If no
    value determines them, they are named up to two and counted beyond.
    """
    groups = set(federation.unprivileged)
    decider = next((a for a in federation.attributes if a.unprivileged_groups == groups), None)
    if decider is None:
        names = [federation.groups[g] for g in federation.unprivileged]
        between = "; " if any("," in name for name in names) else ", "
        return Unprivileged(between.join(names) if len(names) < 3 else f"{len(names)} groups")
    words = {a.name: f"{a.name}={a.values[a.unprivileged]}" for a in federation.attributes}
    return Unprivileged(words.pop(decider.name), tuple(words.values()))


def unprivileged_words(federation: Federation) -> str:
    """The unprivileged value of every sensitive column; the column that determines the unprivileged
    groups comes first.
    """
    compared, others = unprivileged_of(federation)
    return f"{compared} (compared here), {', '.join(others)}" if others else compared


def side_facts(federation: Federation, assumed: Collection[str] = ()) -> list[Fact]:
    """Lines about the favourable label and the unprivileged people, with their rates of that label
    in the training rows.

    `assumed` names what the user did not state ("favourable", or sensitive columns); the lines then
    say how to change it.
    """
    if not federation.attributes:
        return []
    # [groups, labels]
    label, cells = federation.labels[federation.favourable], federation.census().cells.sum(0)
    change = "assumed; change it with --favourable" if "favourable" in assumed else ""
    facts = [Fact("favourable", f"the label {label!r}" + (f" ({change})" if change else ""))]
    for a in federation.attributes:
        unprivileged = np.isin(np.arange(len(cells)), list(a.unprivileged_groups))
        shares = [
            _share(cells[side], federation.favourable) for side in (unprivileged, ~unprivileged)
        ]
        value = f"{a.name}={a.values[a.unprivileged]}"
        change = (
            " (assumed, because it has the lowest share; change it with --unprivileged"
            f" {a.name}=VALUE)"
            if a.name in assumed
            else ""
        )
        facts.append(
            Fact(
                "unprivileged",
                f"{value}: {shares[0]} of them are {label!r}, {shares[1]} of all others{change}",
            )
        )
    return facts


def _share(cells: np.ndarray, favourable: int) -> str:
    rows = int(cells.sum())
    return f"{100 * cells[:, favourable].sum() / rows:.0f} %" if rows else "none"
