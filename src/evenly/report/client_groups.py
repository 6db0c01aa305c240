"""Which groups a client's people belong to, in a few words."""

import numpy as np

from evenly.experiment.results import Comparison
from evenly.report.disclosure import hide

MOST = 3


def client_groups(comparison: Comparison, least: int = 0) -> list[str]:
    """For every client its group, where whole clients have one, or its largest groups with their shares; [] without groups.

    Shares are of all rows of the first run. Groups with fewer than `least` people at a client are not told, and no single one can
    be found by subtraction.
    """
    federation = comparison.federation
    if federation.client_group is not None:
        return [f"group {group + 1}" for group in federation.client_group.tolist()]
    if len(federation.groups) < 2:
        return []
    counts = comparison.runs[0].trace.tables[-1].sum((0, -2, -1))  # [clients, groups], all splits together
    hidden = hide(counts, least, sums=[1])
    return [_words(federation.groups, counts[k], hidden.cells[k]) for k in range(len(counts))]


def _words(names: tuple[str, ...], counts: np.ndarray, hidden: np.ndarray) -> str:
    order = [g for g in np.argsort(-counts, kind="stable").tolist() if counts[g] > 0 and not hidden[g]]
    told = [f"{names[g]} {100 * counts[g] / counts.sum():.0f} %" for g in order[:MOST]]
    left = int((counts > 0).sum()) - len(told)
    more = [f"{left} more"] if left and told else []
    return "; ".join([*told, *more]) if told else "too few people to tell"
