"""Data with a test set of their own: each client is tested on its official test rows, and validation rows are taken from training."""

from collections.abc import Sequence

import numpy as np

from evenly.federation import Federation, Ragged, split_rows
from evenly.partitions.rows import Rows, federate


def official(
    rows: Rows, owner: np.ndarray, tested: np.ndarray, *, names: Sequence[str], valid: float = 0.1, split_seed: int = 0
) -> Federation:
    """The federation in which row i belongs to client `names[owner[i]]` and is a test row where `tested`.

    A share `valid` of every client's other rows, drawn by `split_seed`, is for validation; the test rows never change.
    """
    if not 0 <= valid < 1:
        raise ValueError(f"valid must be a share of the training rows, at least 0 and below 1, got {valid}.")
    train, validation, _ = split_rows(np.where(tested, -1, owner), len(names), shares=(1 - valid, valid), seed=split_seed)
    own = np.flatnonzero(tested)
    own = own[np.argsort(owner[own], kind="stable")]
    ends = np.cumsum(np.bincount(owner[own], minlength=len(names)))
    test = Ragged(own.astype(np.int32), np.concatenate([[0], ends]).astype(np.int64))
    return federate(rows, (train, validation, test), names=names)
