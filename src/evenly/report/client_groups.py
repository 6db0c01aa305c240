"""Which groups a client's people belong to, in a few words."""

import numpy as np

from evenly.experiment.results import Comparison
from evenly.metrics import by_attribute
from evenly.report.disclosure import hide

MOST = 3


def client_groups(comparison: Comparison, least: int = 0) -> list[str]:
    """For every client its group, where whole clients have one, or its largest groups with their shares, of each attribute by itself.

    [] without groups.

    Shares are of all rows of the first run. Groups with fewer than `least` people at a client are not told, and no single one can
    be found by subtraction.
    """
    federation = comparison.federation
    if federation.client_group is not None:
        return [f"group {group + 1}" for group in federation.client_group.tolist()]
    if len(federation.groups) < 2:
        return []
    tables = comparison.runs[0].trace.tables[-1].sum(0)  # [clients, groups, labels, outcomes], all splits together
    if len(federation.attributes) < 2:
        return _shares(federation.groups, tables, least)
    single = [_shares(a.values, by_attribute(tables, a), least) for a in federation.attributes]
    return ["; ".join(f"{a.name}: {own[k]}" for a, own in zip(federation.attributes, single, strict=True)) for k in range(len(tables))]


def _shares(names: tuple[str, ...], tables: np.ndarray, least: int) -> list[str]:
    """The largest groups of every client in words, from tables [clients, groups, labels, outcomes]."""
    counts = tables.sum((-2, -1))
    hidden = hide(counts, least, sums=[1]).cells
    return [_words(names, counts[k], hidden[k]) for k in range(len(counts))]


def _words(names: tuple[str, ...], counts: np.ndarray, hidden: np.ndarray) -> str:
    order = [g for g in np.argsort(-counts, kind="stable").tolist() if counts[g] > 0 and not hidden[g]]
    told = [f"{names[g]} {100 * counts[g] / counts.sum():.0f} %" for g in order[:MOST]]
    left = int((counts > 0).sum()) - len(told)
    more = [f"{left} more"] if left and told else []
    return ", ".join([*told, *more]) if told else "too few people to tell"
