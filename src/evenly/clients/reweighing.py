"""Rows reweighed once, so that on every client label and group are independent.

Kamiran, Calders, "Data preprocessing techniques for classification without discrimination", Knowledge and Information
Systems 2012; used in federated learning as "local debiasing" (Gonfiantini, Master's thesis, University of Genoa, 2026).
"""

import numpy as np

from evenly.records import record, require, static


@record
class Reweigh:
    """A row of group a and label y counts P(a) P(y) / P(a, y) in its client's loss, from the client's own counts.

    Group and label are then independent among the weighted rows, and each is as frequent as before. A batch's loss is
    still divided by its number of rows. Sizes, measured losses and evaluation are not reweighed. A combination that the client lacks
    has no rows to weigh: the weights of the others then sum to less than the number of rows, unless `rescale` is set.
    """

    rescale: bool = static(default=False, doc="whether a client's weights are scaled to a mean of 1")
    cap: float = static(default=0.0, doc="no row counts more than this; 0 is no limit")

    def __post_init__(self) -> None:
        require(isinstance(self.rescale, bool), f"rescale must be true or false, got {self.rescale!r}.")
        number = isinstance(self.cap, int | float) and not isinstance(self.cap, bool)
        require(number and self.cap >= 0, f"cap must be at least 0, got {self.cap!r}. Use 0 for no limit.")

    def weights(self, y: np.ndarray, group: np.ndarray) -> np.ndarray:
        """How much each of one client's rows counts. [n]"""
        (_, a), (_, label) = (np.unique(values, return_inverse=True) for values in (group, y))
        cells = np.zeros((a.max(initial=0) + 1, label.max(initial=0) + 1))
        np.add.at(cells, (a, label), 1)
        expected = np.outer(cells.sum(1), cells.sum(0)) / max(len(y), 1)
        found = (expected[a, label] / cells[a, label]).astype(np.float64)
        found = found / found.mean() if self.rescale and len(found) else found
        return np.minimum(found, self.cap) if self.cap else found
