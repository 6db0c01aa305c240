"""The few metrics that a running experiment is followed by."""

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.metrics import GROUP_METRICS, accuracy, examples, pooled
from evenly.metrics.clients import tenth
from evenly.metrics.groups import view
from evenly.types import Trace

OF_GROUPS = ("accuracy", "eod_abs", "spd_abs", "aod_abs", "acc_diff_abs")


def measured(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """Metrics in one split, or on the central test set, at every evaluation: [evaluations] each; none where nobody has rows."""
    by_group = _of_groups(federation, trace, split)
    if split == CENTRAL:
        return by_group
    tables, losses = trace.tables[:, SPLITS.index(split)], trace.losses[:, SPLITS.index(split)]
    counts = examples(tables)
    known = (counts > 0).all(0)  # a client's rows are the same at every evaluation, unless a deployed one answered late
    if not known.any():
        return {}
    a, n = accuracy(tables)[:, known], counts[:, known]
    by_client = {  # as in metrics.clients, for all evaluations at once
        "average": 100 * (a * n).sum(1) / n.sum(1),
        "worst10": 100 * np.sort(a, axis=1)[:, : tenth(a.shape[1])].mean(1),
        "variance": (100 * a).var(1),
    }
    return by_client | {"loss": (losses[:, known] * n).sum(1) / n.sum(1)} | by_group


def _of_groups(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """Where there are groups; of a central test set without any, the accuracy."""
    several = len(federation.groups) > 1
    if not (several or split == CENTRAL) or (split == CENTRAL and not len(federation.central)):
        return {}
    seen = view(pooled(trace, split), favourable=federation.favourable, unprivileged=federation.unprivileged)
    return {name: GROUP_METRICS[name].function(seen) for name in (OF_GROUPS if several else OF_GROUPS[:1])}


def shown_split(federation: Federation) -> str:
    """The rows that clients are compared on: their test rows or, where nobody has any, their validation rows."""
    return "valid" if federation.valid.counts.any() and not federation.test.counts.any() else "test"
