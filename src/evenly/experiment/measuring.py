"""The few metrics that a running experiment is followed by."""

import numpy as np

from evenly.experiment.results import group_metrics
from evenly.federation import CENTRAL, SPLITS, Federation
from evenly.metrics import METRICS, accuracy, examples
from evenly.types import Trace

OF_CLIENTS = ("average", "worst10", "variance")
OF_GROUPS = ("accuracy", "eod_abs", "spd_abs", "aod_abs", "acc_diff_abs")


def measured(federation: Federation, trace: Trace, split: str) -> dict[str, np.ndarray]:
    """Metrics in one split, or on the central test set, at every evaluation: [evaluations] each; none where nobody has rows."""
    by_group = {name: values for name, values in group_metrics(federation, trace, split).items() if name in OF_GROUPS}
    if split == CENTRAL:
        return by_group
    tables, losses = trace.tables[:, SPLITS.index(split)], trace.losses[:, SPLITS.index(split)]
    counts = examples(tables)
    known = counts[0] > 0  # a client's rows are the same at every evaluation
    if not known.any():
        return {}
    a, n = accuracy(tables)[:, known], counts[:, known]
    by_client = {m: np.array([METRICS[m].function(*each) for each in zip(a, n, strict=True)]) for m in OF_CLIENTS}
    return by_client | {"loss": (losses[:, known] * n).sum(1) / n.sum(1)} | by_group


def shown_split(federation: Federation) -> str:
    """The rows that clients are compared on: their test rows or, where nobody has any, their validation rows."""
    return "valid" if federation.valid.counts.any() and not federation.test.counts.any() else "test"
